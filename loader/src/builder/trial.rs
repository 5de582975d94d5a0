//! Trials of compilers and linkers on one line, before a build or `farjump doctor` relies on them: an installed program
//! may not work.

use std::ffi::OsStr;

use super::compiler;
use super::error::BuildError;
use super::link;
use super::rules::Rules;
use super::run_tool::{self, Tool};
use super::supervisor::{Supervisor, unusable};
use super::temp_folder::Scratch;

/// A task for the trial of a tool.
pub(super) enum Task<'a> {
    /// Compiling a line of C, by a driver with these flags.
    Compile(&'a [String]),
    /// Linking a file of one line to a library for a machine.
    Link(&'a Rules),
}

/// Tries a tool on one line.
///
/// # Errors
/// The tool does not start, or fails; then with its own messages.
pub(super) fn try_on_a_line(
    tool: &Tool,
    task: Task<'_>,
    supervisor: &Supervisor,
    advice: &str,
) -> Result<(), BuildError> {
    let scratch = Scratch::new()?;
    let source = scratch.write("one.c", b"int one;\n")?;
    let mut command = tool.command();
    let name = match task {
        Task::Compile(flags) => {
            command.args(flags).arg("-c").arg(source).arg("-o").arg(scratch.path("one.o"));
            "compile a line"
        }
        Task::Link(rules) => {
            command.args(["-m", rules.emulation, "-shared", "-b", "binary"]).arg(source);
            command.arg("-o").arg(scratch.path("one.so"));
            "link a line"
        }
    };
    let output = supervisor.run(&mut command, advice)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(unusable(tool.name(), name, &output, advice)),
    }
}

/// The first line of a tool's version text.
///
/// # Errors
/// The tool does not start, or fails; then with its own messages.
pub(super) fn version(tool: &Tool, supervisor: &Supervisor, advice: &str) -> Result<String, BuildError> {
    let output = supervisor.run(tool.command().arg("--version"), advice)?;
    match output.status.success() {
        true => Ok(run_tool::messages(&output).lines().next().unwrap_or_default().to_owned()),
        false => Err(unusable(tool.name(), "tell its version", &output, advice)),
    }
}

/// Tries a C compiler driver, named as in [`Options::cc`](super::Options::cc), on one line. Returns the first line of
/// its version text.
///
/// # Errors
/// The driver does not start, fails, or takes longer than `supervisor` permits.
pub fn try_compiler(driver: &OsStr, supervisor: &Supervisor) -> Result<String, BuildError> {
    let scratch = Scratch::new()?;
    let _guarded = supervisor.begin(&scratch)?;
    let tool = Tool::parse(driver);
    try_on_a_line(&tool, Task::Compile(&[]), supervisor, compiler::ADVICE)?;
    version(&tool, supervisor, compiler::ADVICE)
}

/// Tries a linker, named as in [`Options::linker`](super::Options::linker), on one line, if it can link images. Returns
/// the first line of its version text.
///
/// # Errors
/// The linker does not start, fails, does not follow linker scripts, or takes longer than `supervisor` permits.
pub fn try_linker(linker: &OsStr, supervisor: &Supervisor) -> Result<String, BuildError> {
    let scratch = Scratch::new()?;
    let _guarded = supervisor.begin(&scratch)?;
    let tool = Tool::parse(linker);
    let version = link::version(&tool, supervisor)?;
    try_on_a_line(&tool, Task::Link(Rules::native()?), supervisor, link::ADVICE)?;
    Ok(version)
}
