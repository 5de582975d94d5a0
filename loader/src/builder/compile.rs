//! Compiling inputs of every kind to files that can be linked.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::error::BuildError;
use super::objects::Linkable;
use super::relocations::Rules;
use super::{Options, Scratch, run_tool, rust};

const HEADER: &str = include_str!("../../embedded/farjump_ifunc.h");

/// The remedy where the C or C++ driver does not start.
pub(super) const CC_ADVICE: &str = "Install a C compiler (gcc or clang), or name one (Options::cc)";

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
pub(super) struct Compiled {
    /// In the order of the inputs.
    pub(super) files: Vec<Linkable>,
    /// Warnings of compilers.
    pub(super) messages: String,
    /// Whether C++ was among them; then the C++ driver links the library.
    pub(super) cxx: bool,
}

/// The driver for C: the chosen one, or `cc`.
pub(super) fn cc(options: &Options) -> &str {
    options.cc.as_deref().unwrap_or("cc")
}

/// The driver for C++ that belongs to a C driver: `g++-12` to `gcc-12`, `clang++` to `clang`, `c++` to `cc`.
pub(super) fn cxx(cc: &str) -> String {
    let (folder, program) = cc.rsplit_once('/').map_or(("", cc), |(folder, program)| (folder, program));
    let program = if program.contains("++") {
        program.to_owned()
    } else if program.contains("clang") {
        program.replacen("clang", "clang++", 1)
    } else if program.contains("gcc") {
        program.replacen("gcc", "g++", 1)
    } else {
        program.replacen("cc", "c++", 1)
    };
    if cc.contains('/') { format!("{folder}/{program}") } else { program }
}

/// Compiles the sources, and takes objects and archives as they are.
///
/// # Errors
/// An input of no known kind, or a compiler's error.
pub(super) fn compile(options: &Options, rules: &Rules, scratch: &Scratch) -> Result<Compiled, BuildError> {
    if options.inputs.is_empty() {
        return Err(BuildError::NoInput);
    }
    let include = scratch.folder("include")?;
    scratch.write("include/farjump_ifunc.h", HEADER.as_bytes())?;
    let mut compiled = Compiled::default();
    for (index, input) in options.inputs.iter().enumerate() {
        let label = input.display().to_string();
        let (path, archive) = match kind(input)? {
            Kind::Object => (input.clone(), false),
            Kind::Archive => (input.clone(), true),
            Kind::C { cxx: plus } => {
                let output = scratch.path(&format!("{index}.o"));
                let mut command = Command::new(if plus { cxx(cc(options)) } else { cc(options).to_owned() });
                command.args(options.debug.then_some("-g"));
                command.args(FLAGS).args(rules.cflags).args(if plus { &CXX_FLAGS[..] } else { &[] });
                command
                    .arg("-I")
                    .arg(&include)
                    .args(&options.cflags)
                    .arg("-c")
                    .arg(input)
                    .arg("-o")
                    .arg(&output);
                let said = run_tool::run(&mut command, CC_ADVICE)?;
                let messages = run_tool::messages(&said);
                if !said.status.success() {
                    let tool = run_tool::program(&command);
                    return Err(BuildError::Compile { tool, path: input.clone(), messages });
                }
                compiled.cxx |= plus;
                compiled.say(&messages);
                (output, false)
            }
            Kind::Rust => {
                let built = rust::compile_source(input, &scratch.folder(&index.to_string())?, options.debug)?;
                compiled.say(&built.messages);
                (built.archive, true)
            }
            Kind::Crate => {
                let built = rust::compile_crate(input)?;
                compiled.say(&built.messages);
                (built.archive, true)
            }
        };
        compiled.files.push(Linkable { path, label, archive });
    }
    Ok(compiled)
}

impl Compiled {
    pub(super) fn say(&mut self, messages: &str) {
        if !messages.is_empty() {
            self.messages.push_str(messages);
            self.messages.push('\n');
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    C { cxx: bool },
    Rust,
    Crate,
    Object,
    Archive,
}

/// The kind of an input: sources by file name, as compilers do; objects and archives by their first bytes.
fn kind(input: &Path) -> Result<Kind, BuildError> {
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
        Ok(Kind::Archive)
    } else if starts(&[b"\x7fELF", b"BC\xc0\xde", b"\xde\xc0\x17\x0b"]) {
        Ok(Kind::Object)
    } else {
        Err(BuildError::Input { path: input.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_c_driver_has_its_cxx_driver() {
        for (c, plus) in [
            ("cc", "c++"),
            ("gcc", "g++"),
            ("/usr/bin/x86_64-linux-gnu-gcc-12", "/usr/bin/x86_64-linux-gnu-g++-12"),
            ("clang-19", "clang++-19"),
            ("/opt/gcc/bin/clang", "/opt/gcc/bin/clang++"),
            ("g++", "g++"),
        ] {
            assert_eq!(cxx(c), plus);
        }
    }
}
