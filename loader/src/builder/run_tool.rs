//! Running compilers and linkers.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::BuildError;

/// Runs `command` to its end without input, with messages in English, which [`super::link`] understands.
///
/// # Errors
/// The program does not start. The caller checks its exit status.
pub(super) fn run(command: &mut Command, advice: &'static str) -> Result<Output, BuildError> {
    command.stdin(Stdio::null()).env("LC_ALL", "C").output().map_err(|source| BuildError::Tool {
        tool: program(command),
        source,
        advice,
    })
}

/// The name of a command's program.
pub(super) fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// All output of a program, without surrounding blanks.
pub(super) fn messages(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text.trim().to_owned()
}

/// An option and its path as one argument.
pub(super) fn option(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}
