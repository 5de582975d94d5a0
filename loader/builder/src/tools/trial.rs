//! Trials of compilers and linkers on one line, before a build or `farjump doctor` relies on them: an installed program
//! may not work.

use crate::error::BuildError;
use crate::rules::Rules;
use crate::tools::run_tool::{self, Tool};
use crate::tools::supervisor::{Supervisor, unusable};
use crate::tools::temp_folder::Scratch;

/// A task for the trial of a tool.
pub(crate) enum Task<'a> {
    /// Compiling a line of C, by a driver with these flags.
    Compile(&'a [String]),
    /// Linking a file of one line to a library for a machine.
    Link(&'a Rules),
}

/// Tries a tool on one line.
///
/// # Errors
/// The tool does not start, or fails; then with its own messages.
pub(crate) fn try_on_a_line(
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
pub(crate) fn version(tool: &Tool, supervisor: &Supervisor, advice: &str) -> Result<String, BuildError> {
    let output = supervisor.run(tool.command().arg("--version"), advice)?;
    match output.status.success() {
        true => Ok(run_tool::messages(&output).lines().next().unwrap_or_default().to_owned()),
        false => Err(unusable(tool.name(), "tell its version", &output, advice)),
    }
}
