//! Compiling inputs of every kind to files that can be linked.

pub(crate) mod compiler;
pub(crate) mod exact;
pub(crate) mod llvm_version;
pub(crate) mod reduce;
pub(crate) mod rust;
pub(crate) mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump_core::image::{Machine, Platform};

use crate::compile::compiler::Compiler;
use crate::compile::exact::Languages;
use crate::error::BuildError;
use crate::objects::{self, Linkable};
use crate::options::Options;
use crate::rules::{CodeModel, Rules};
use crate::tools::temp_folder::{self, Scratch};

const HEADERS: [(&str, &str); 3] = [
    ("farjump_ifunc.h", include_str!("../../embedded/farjump_ifunc.h")),
    ("farjump_code.h", include_str!("../../embedded/farjump_code.h")),
    ("farjump_kv.h", include_str!("../../embedded/farjump_kv.h")),
];

/// Flags for every language. They give small position-independent code with a section for each function, so
/// that only reachable code travels. They turn off the parts that a target cannot honour, some of which
/// distributions turn on by default: unwinding, stack protection, control-flow tables, the checking functions
/// of one C library. Frame pointers let a target see the frames that a panic would skip.
const FLAGS: [&str; 11] = [
    "-Os",
    "-fno-omit-frame-pointer",
    "-fPIC",
    "-fno-plt",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fno-stack-clash-protection",
    "-U_FORTIFY_SOURCE",
];
const CXX_FLAGS: [&str; 3] = ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"];

/// The files made of the inputs.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    /// In the order of the inputs.
    pub(crate) files: Vec<Linkable>,
    /// Warnings of compilers.
    pub(crate) messages: String,
    /// True if C++ was among the inputs: then the C++ driver links the library.
    pub(crate) cxx: bool,
}

/// The way in which sources are compiled for one target.
pub(crate) struct Job<'a> {
    pub(crate) options: &'a Options,
    pub(crate) target: Platform,
    pub(crate) rules: &'a Rules,
    pub(crate) model: &'a CodeModel,
    pub(crate) compiler: &'a Compiler,
    /// Flags for rustc that choose a CPU.
    pub(crate) rust_cpu: &'a [String],
    /// A folder for the results.
    pub(crate) folder: &'a Path,
    /// The folders of the build.
    pub(crate) scratch: &'a Scratch,
}

/// Compiles the sources, and takes objects and archives as they are, if they are for this machine or for none of
/// the targets.
///
/// # Errors
/// An input of no known kind, a compiler's error, or a compiler that does not start.
pub(crate) fn compile(job: &Job<'_>) -> Result<Compiled, BuildError> {
    if job.options.inputs.is_empty() {
        return Err(BuildError::NoInput);
    }
    let include = own_headers(job.folder)?;
    let mut compiled = Compiled::default();
    for (index, input) in job.options.inputs.iter().enumerate() {
        let label = input.display().to_string();
        let rust = rust::Settings {
            target: job.target,
            native: job.rules.is_native(),
            model: job.model.rustflags,
            cpu: job.rust_cpu,
            debug: job.options.debug,
            bitcode: None,
            scratch: job.scratch,
            supervisor: &job.options.supervisor,
        };
        let (path, archive) = match kind(input)? {
            Kind::Object(machine) | Kind::Archive(machine) if job.is_for_another(machine) => continue,
            Kind::Object(_) => (input.clone(), false),
            Kind::Archive(_) => (input.clone(), true),
            Kind::C { cxx: plus } => {
                let output = job.folder.join(format!("{index}.o"));
                let by = (job.compiler, job.rules);
                let command = command_for(by, job.model.cflags, job.options, plus, &include);
                let messages = job.compiler.compile(command, &[], input, &output)?;
                compiled.cxx |= plus;
                compiled.say(&messages);
                (output, false)
            }
            // The same input in the other form, which the library carries unchanged.
            Kind::Bitcode if job.options.bitcode && has_both_forms(&job.options.inputs)? => continue,
            Kind::Bitcode => {
                let output = job.folder.join(format!("{index}.o"));
                let compiler = Compiler::for_bitcode(job.options, job.rules)?;
                let flags = [&FLAGS[..], job.model.cflags].concat();
                let messages = compile_bitcode(&compiler, &flags, input, &output)?;
                compiled.say(&messages);
                (output, false)
            }
            Kind::Rust => {
                let folder = temp_folder::folder(job.folder.join(index.to_string()))?;
                let built = rust::compile_source(input, &folder, &rust)?;
                compiled.say(&built.messages);
                (built.archive, true)
            }
            Kind::Crate => {
                let output = job.folder.join(format!("{index}.a"));
                let built = rust::compile_crate(input, output, &rust)?;
                compiled.say(&built.messages);
                (built.archive, true)
            }
        };
        compiled.files.push(Linkable { path, label, archive });
    }
    Ok(compiled)
}

/// Writes the object that bitcode input becomes in a native image, by `compiler`.
///
/// # Errors
/// The compiler's error, or that it does not start.
fn compile_bitcode(
    compiler: &Compiler,
    flags: &[&str],
    input: &Path,
    output: &Path,
) -> Result<String, BuildError> {
    // clang recognizes bitcode only by the file's name.
    let named = temp_folder::write(
        output.with_extension("bc"),
        &fs::read(input).map_err(|source| BuildError::Read { path: input.to_owned(), source })?,
    )?;
    let mut command = compiler.command(false);
    command.args(flags);
    compiler.compile(command, &[], &named, output)
}

/// Writes farjump's headers into a folder of `folder`, and returns that.
///
/// # Errors
/// The headers cannot be written.
pub(crate) fn own_headers(folder: &Path) -> Result<PathBuf, BuildError> {
    let include = temp_folder::folder(folder.join("include"))?;
    for (name, text) in HEADERS {
        temp_folder::write(include.join(name), text.as_bytes())?;
    }
    Ok(include)
}

/// A command of `compiler` that compiles C, or C++, with the flags of images and those of a code model.
pub(crate) fn command_for(
    (compiler, rules): (&Compiler, &Rules),
    model: &[&str],
    options: &Options,
    cxx: bool,
    include: &Path,
) -> Command {
    let mut command = compiler.command(cxx);
    command.args(options.debug.then_some("-g")).args(FLAGS).args(rules.cflags).args(model);
    command.args(if cxx { &CXX_FLAGS[..] } else { &[] }).arg("-I").arg(include).args(&options.cflags);
    command
}

impl Job<'_> {
    /// Returns whether an object of this machine belongs to another target.
    fn is_for_another(&self, machine: Option<Machine>) -> bool {
        let is_target = |machine| {
            let of_cpu = self.options.cpu.as_ref().is_some_and(|cpu| cpu.machine() == machine);
            of_cpu || self.options.targets.iter().any(|target| target.machine == machine)
        };
        machine.is_some_and(|machine| {
            machine != self.rules.machine && (is_target(machine) || Machine::native() == Some(machine))
        })
    }
}

impl Compiled {
    pub(crate) fn say(&mut self, messages: &str) {
        if !messages.is_empty() {
            self.messages.push_str(messages);
            self.messages.push('\n');
        }
    }
}

/// The languages of the inputs that are compiled.
///
/// # Errors
/// An unreadable input, or one of no known kind.
pub(crate) fn languages(options: &Options) -> Result<Languages, BuildError> {
    let mut languages = Languages::default();
    for input in &options.inputs {
        match kind(input)? {
            Kind::C { .. } => languages.c = true,
            Kind::Rust | Kind::Crate => languages.rust = true,
            Kind::Object(_) | Kind::Archive(_) | Kind::Bitcode => {}
        }
    }
    Ok(languages)
}

/// A kind of input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    C {
        cxx: bool,
    },
    Rust,
    Crate,
    /// A file of LLVM's intermediate code.
    Bitcode,
    /// An object, and its machine if it is an ELF file.
    Object(Option<Machine>),
    /// An archive, and the machine of its first ELF member.
    Archive(Option<Machine>),
}

/// Returns whether inputs are machine code as well as bitcode: a compiler's two forms of one thing.
///
/// # Errors
/// As [`kind`].
pub(crate) fn has_both_forms(inputs: &[PathBuf]) -> Result<bool, BuildError> {
    let kinds = inputs.iter().map(|input| kind(input)).collect::<Result<Vec<_>, _>>()?;
    let is_machine_code = |kind: &Kind| matches!(kind, Kind::Object(_) | Kind::Archive(_));
    Ok(kinds.iter().any(is_machine_code) && kinds.contains(&Kind::Bitcode))
}

/// The kind of an input: sources by file name, as compilers do; objects and archives by their first bytes.
pub(crate) fn kind(input: &Path) -> Result<Kind, BuildError> {
    let unreadable = |source| BuildError::Read { path: input.to_owned(), source };
    if fs::metadata(input).map_err(unreadable)?.is_dir()
        || input.file_name().is_some_and(|name| name == "Cargo.toml")
    {
        return Ok(Kind::Crate);
    }
    match input.extension().and_then(|extension| extension.to_str()) {
        Some("c" | "s" | "S") => return Ok(Kind::C { cxx: false }),
        Some("cc" | "cpp" | "cxx" | "C") => return Ok(Kind::C { cxx: true }),
        Some("rs") => return Ok(Kind::Rust),
        _ => {}
    }
    let bytes = fs::read(input).map_err(unreadable)?;
    let starts = |magics: &[&[u8]]| magics.iter().any(|magic| bytes.starts_with(magic));
    if starts(&[b"!<arch>\n", b"!<thin>\n"]) {
        Ok(Kind::Archive(objects::machine_of_archive(input, &bytes)))
    } else if llvm_version::unwrapped(&bytes).is_some() {
        Ok(Kind::Bitcode)
    } else if starts(&[b"\x7fELF"]) {
        Ok(Kind::Object(objects::machine_of(&bytes)))
    } else {
        Err(BuildError::Input { path: input.to_owned() })
    }
}
