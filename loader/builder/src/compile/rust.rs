//! Rust inputs: a source file compiled against the embedded author crate, or a crate built by cargo. Both
//! give a static library, from which the image's link takes the code that `NAME_main` reaches.

use std::env;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Platform};

use crate::error::BuildError;
use crate::tools::run_tool;
use crate::tools::supervisor::{Supervisor, unusable};
use crate::tools::temp_folder::{self, Scratch};

/// The source files of a crate, by their names in one folder.
macro_rules! sources {
    ($folder:literal: $($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../embedded/", $folder, "/", $file)))),*]
    };
}

/// The author crate, `farjump-ifunc`.
const AUTHOR_CRATE: &[(&str, &str)] = sources! {
    "farjump-ifunc": "lib.rs" "data.rs" "macros.rs" "panic.rs" "parameters.rs" "payload.rs" "plain.rs" "shared.rs" "signature.rs"
};
/// Its attributes, `farjump-ifunc-macros`.
const MACROS_CRATE: &[(&str, &str)] = sources! { "farjump-ifunc-macros": "lib.rs" "ifunc.rs" "imports.rs" "plain.rs" "target_args.rs" "tokens.rs" };
/// Set while rustc compiles an ifunc for injection: the attribute of the author crate then adds the panic handler.
const CFG: &str = "farjump_ifunc";
const ADVICE: &str = "Install Rust (rustup.rs), or build from C or from objects";

/// The result of compiling Rust code.
#[derive(Debug)]
pub(crate) struct Built {
    /// A static library.
    pub(crate) archive: PathBuf,
    /// Warnings.
    pub(crate) messages: String,
}

/// The target, and other settings of a compilation.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    pub(crate) target: Platform,
    /// True if the target's machine is this one: then the compiler's own target applies.
    pub(crate) native: bool,
    /// Flags that choose the code model.
    pub(crate) model: &'static [&'static str],
    /// Flags that choose one CPU, beyond its level.
    pub(crate) cpu: &'a [String],
    /// Whether to add debugging information.
    pub(crate) debug: bool,
    /// A file for the bitcode of the whole program, if one should be written.
    pub(crate) bitcode: Option<&'a Path>,
    /// The folders of the build.
    pub(crate) scratch: &'a Scratch,
    /// Runs the compilers.
    pub(crate) supervisor: &'a Supervisor,
}

impl Settings<'_> {
    /// Options that choose the target.
    ///
    /// # Errors
    /// The target's core library is not installed.
    fn target(&self) -> Result<Vec<&'static str>, BuildError> {
        if self.native {
            return Ok(Vec::new());
        }
        let triple = self.target.machine.triple();
        let mut command = rustc();
        command.args(["--print", "target-libdir", "--target", triple]);
        let output = run_for_output(&mut command, self.supervisor)?;
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let is_core = |entry: std::io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"libcore-"))
        };
        match fs::read_dir(folder).is_ok_and(|mut files| files.any(is_core)) {
            true => Ok(vec!["--target", triple]),
            false => Err(BuildError::NoRustTarget { triple }),
        }
    }

    /// Options for the code that is made for the target.
    fn code(&self) -> Vec<String> {
        let mut options: Vec<String> = self.model.iter().copied().map(str::to_owned).collect();
        if self.target.level != Level::BASELINE {
            options.extend(["-C".to_owned(), level_option(self.target.level)]);
        }
        options.extend_from_slice(self.cpu);
        options
    }
}

/// The option of rustc for a level of x86-64 above the baseline.
fn level_option(level: Level) -> String {
    format!("target-cpu=x86-64-{level}")
}

/// The features of `cpu` beyond its level that rustc accepts by the same names. `of_level` has the features of that
/// level. rustc turns on no others with them.
///
/// # Errors
/// No rustc.
pub(crate) fn features(
    cpu: &Cpu,
    of_level: &Cpu,
    native: bool,
    supervisor: &Supervisor,
) -> Result<Vec<String>, BuildError> {
    let ask = |print: &str, options: &[String]| {
        let mut command = rustc();
        command.args(["--print", print]).args(options);
        if !native {
            command.args(["--target", cpu.machine().triple()]);
        }
        let said = run_for_output(&mut command, supervisor)?;
        let lines =
            String::from_utf8_lossy(&said.stdout).lines().map(|line| line.trim().to_owned()).collect();
        Ok::<Vec<String>, BuildError>(lines)
    };
    let listed = ask("target-features", &[])?;
    let is_listed =
        |feature: &&String| listed.iter().any(|line| line.split(' ').next() == Some(feature.as_str()));
    let beyond = cpu.features().iter().filter(|feature| !of_level.has(feature));
    let mut taken: Vec<String> = beyond.filter(is_listed).cloned().collect();
    let level = match cpu.level() {
        Level::BASELINE => Vec::new(),
        level => vec!["-C".to_owned(), level_option(level)],
    };
    let base = ask("cfg", &level)?;
    let words: Vec<_> = taken.iter().map(|feature| format!("+{feature}")).collect();
    let with =
        ask("cfg", &[level, vec!["-C".to_owned(), format!("target-feature={}", words.join(","))]].concat())?;
    let named = |line: &String| {
        let name = line.strip_prefix("target_feature=\"").and_then(|name| name.strip_suffix('"'));
        name.map(str::to_owned)
    };
    let brought = with.iter().filter(|line| !base.contains(line)).filter_map(named);
    let lacks_one = cpu.lacks(brought.collect::<Vec<_>>().iter().map(String::as_str)).next().is_some();
    if lacks_one {
        taken.clear();
    }
    Ok(taken)
}

/// Compiles one source file in `folder`, which has no other use.
///
/// # Errors
/// No rustc, no core library for the target, or the compiler's error.
pub(crate) fn compile_source(
    source: &Path,
    folder: &Path,
    settings: &Settings<'_>,
) -> Result<Built, BuildError> {
    let target = settings.target()?;
    let code = settings.code();
    // The compiler loads the macros. One library of them serves all images of a build.
    let of_macros = settings.scratch.for_code()?;
    let macros = of_macros.join(format!("{DLL_PREFIX}farjump_ifunc_macros{DLL_SUFFIX}"));
    if !macros.exists() {
        let mut command = rustc();
        command.args(["--crate-type", "proc-macro", "--crate-name", "farjump_ifunc_macros"]);
        command.args(["--extern", "proc_macro"]);
        compile_own(command, MACROS_CRATE, &folder.join("macros"), &macros, source, settings)?;
    }

    let rlib = folder.join("libfarjump_ifunc.rlib");
    let mut command = rustc();
    command.args(SLICED).args(FRAME_POINTERS).args(&target).args(&code);
    command.args(["--crate-type", "rlib", "--crate-name", "farjump_ifunc"]);
    command.arg("--extern").arg(run_tool::option("farjump_ifunc_macros=", &macros));
    compile_own(command, AUTHOR_CRATE, &folder.join("author"), &rlib, source, settings)?;

    let archive = folder.join("ifunc.a");
    let mut command = rustc();
    command.args(SLICED).args(FRAME_POINTERS).args(&target).args(&code);
    if let Some(bitcode) = settings.bitcode {
        // Merges all crates, and runs no passes that depend on the CPU. The last option of a name counts.
        command.args(["-C", "opt-level=2", "-C", "lto=fat", "-C", "no-prepopulate-passes"]);
        command.arg(run_tool::option("--emit=link,llvm-bc=", bitcode));
    }
    command.args(["--crate-type", "staticlib", "--crate-name", "ifunc", "--cfg", CFG]);
    command.args(["--check-cfg", &format!("cfg({CFG})")]);
    command.args(settings.debug.then_some("-g"));
    command.arg("--extern").arg(run_tool::option("farjump_ifunc=", &rlib));
    // The compiler searches this folder for the attributes.
    command.arg("-L").arg(run_tool::option("dependency=", of_macros));
    command.arg("-o").arg(&archive).arg(source);
    if let Some(parent) = source.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        command.arg(remap(parent, ""));
    }
    let messages = run_rustc(&mut command, source, settings)?;
    Ok(Built { archive, messages })
}

/// Compiles a crate of farjump, whose files go to `folder`, to the file `output`.
fn compile_own(
    mut command: Command,
    files: &[(&str, &str)],
    folder: &Path,
    output: &Path,
    source: &Path,
    settings: &Settings<'_>,
) -> Result<(), BuildError> {
    let folder = temp_folder::folder(folder.to_owned())?;
    for (name, contents) in files {
        temp_folder::write(folder.join(name), contents.as_bytes())?;
    }
    command.args(["--cap-lints", "allow"]);
    command.arg("-o").arg(output).arg(folder.join("lib.rs")).arg(remap(&folder, "farjump-ifunc"));
    run_rustc(&mut command, source, settings).map(drop)
}

/// Options for code that travels. One codegen unit, so that the compiler slices the whole program alike.
const SLICED: [&str; 6] = ["-C", "panic=abort", "-C", "opt-level=z", "-C", "codegen-units=1"];

/// Frame pointers let a target see the frames that a panic would skip; code of the standard library has them
/// too.
const FRAME_POINTERS: [&str; 2] = ["-C", "force-frame-pointers=yes"];

/// Builds the library target of a crate in cargo's own target folder, and copies the result to `output`. `path` is
/// the crate's folder or its `Cargo.toml`.
///
/// The crate's release profile applies, except `panic`, `codegen-units` and, unless
/// `CARGO_PROFILE_RELEASE_OPT_LEVEL` is set, `opt-level`, which is `z`.
///
/// # Errors
/// No cargo, its error, or a crate without a library.
pub(crate) fn compile_crate(
    path: &Path,
    output: PathBuf,
    settings: &Settings<'_>,
) -> Result<Built, BuildError> {
    let manifest = if path.is_dir() { path.join("Cargo.toml") } else { path.to_owned() };
    let mut command = program("CARGO", "cargo");
    command.args(["rustc", "--lib", "--crate-type", "staticlib", "--release"]);
    command.arg("--message-format=json-render-diagnostics").arg("--manifest-path").arg(&manifest);
    command.args([
        "--config",
        "profile.release.panic=\"abort\"",
        "--config",
        "profile.release.codegen-units=1",
    ]);
    if env::var_os("CARGO_PROFILE_RELEASE_OPT_LEVEL").is_none() {
        command.args(["--config", "profile.release.opt-level=\"z\""]);
    }
    match settings.target()?[..] {
        // Without a target, cargo builds for that of the user's configuration (`build.target`, CARGO_BUILD_TARGET).
        [] => command.args(host(settings)?.iter().flat_map(|triple| ["--target", triple])),
        ref target => command.args(target),
    };
    command.args(["--", "--cfg", CFG, "--check-cfg", &format!("cfg({CFG})")]).args(FRAME_POINTERS);
    let said = settings.supervisor.run(command.args(settings.code()), ADVICE)?;
    let messages = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    if !said.status.success() {
        let tool = run_tool::program(&command);
        return Err(BuildError::Compile { tool, path: path.to_owned(), messages });
    }
    let archive = String::from_utf8_lossy(&said.stdout).lines().filter_map(static_library).next_back();
    let archive = archive.ok_or_else(|| BuildError::NoStaticLibrary { path: path.to_owned() })?;
    // The archive for the next target replaces this one.
    let built = fs::read(&archive).map_err(|source| BuildError::Read { path: archive, source })?;
    Ok(Built { archive: temp_folder::write(output, &built)?, messages: String::new() })
}

/// The default target of cargo: the machine that it runs on. `None` if cargo prints none.
///
/// # Errors
/// No cargo.
fn host(settings: &Settings<'_>) -> Result<Option<String>, BuildError> {
    let said = settings.supervisor.run(program("CARGO", "cargo").arg("-vV"), ADVICE)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(said.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned))
}

/// The static library reported by a line of cargo's messages.
fn static_library(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let files = message.get("filenames")?.as_array()?;
    files.iter().filter_map(|file| file.as_str()).find(|file| file.ends_with(".a")).map(PathBuf::from)
}

/// The compiler, for the edition of all files.
fn rustc() -> Command {
    let mut command = program("RUSTC", "rustc");
    command.args(["--edition", "2024"]);
    command
}

/// Runs rustc for its output on standard output.
///
/// # Errors
/// rustc does not start, or fails, as rustup's rustc does without a toolchain.
fn run_for_output(command: &mut Command, supervisor: &Supervisor) -> Result<Output, BuildError> {
    let output = supervisor.run(command, ADVICE)?;
    match output.status.success() {
        true => Ok(output),
        false => Err(unusable(run_tool::program(command), "run", &output, ADVICE)),
    }
}

/// A command that runs the program that the environment variable names, or else `name`.
pub(crate) fn program(variable: &str, name: &str) -> Command {
    Command::new(env::var_os(variable).filter(|named| !named.is_empty()).unwrap_or_else(|| name.into()))
}

fn run_rustc(command: &mut Command, source: &Path, settings: &Settings<'_>) -> Result<String, BuildError> {
    let output = settings.supervisor.run(command, ADVICE)?;
    let mut messages = run_tool::messages(&output);
    if output.status.success() {
        return Ok(messages);
    }
    if messages.contains("`panic_impl`") {
        messages.push_str(match messages.contains("crate `std`") {
            true => "\nAn ifunc is no_std: start the file with #![no_std].",
            false => "\nA file or crate has one #[ifunc]: put the other into a file of its own.",
        });
    }
    Err(BuildError::Compile { tool: run_tool::program(command), path: source.to_owned(), messages })
}

/// Panic messages put paths into code: the same source should give the same code in every folder.
fn remap(from: &Path, to: &str) -> OsString {
    let mut argument = run_tool::option("--remap-path-prefix=", from);
    argument.push("=");
    argument.push(to);
    argument
}
