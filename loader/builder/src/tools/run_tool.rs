//! Commands of compilers and linkers, and their output.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Output};

/// A program, and the arguments that come before all others: `zig cc`, `python3 -m ziglang cc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tool {
    words: Vec<OsString>,
}

impl Tool {
    /// Reads the name of a program, with arguments behind blanks. A file with blanks in its path is one word.
    pub(crate) fn parse(text: &OsStr) -> Tool {
        let words = match text.to_str() {
            Some(text) if !Path::new(text).is_file() => {
                text.split_whitespace().map(OsString::from).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        };
        Tool { words: if words.is_empty() { vec![text.to_owned()] } else { words } }
    }

    /// A command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }

    /// The same tool with another last word.
    pub(crate) fn with_last(&self, change: impl FnOnce(&str) -> String) -> Tool {
        let mut words = self.words.clone();
        if let Some(last) = words.last_mut() {
            *last = change(&last.to_string_lossy()).into();
        }
        Tool { words }
    }

    /// Returns whether the tool is one of zig's, which starts as `zig` or as the Python module `ziglang`.
    pub(crate) fn is_zig(&self) -> bool {
        self.words
            .iter()
            .any(|word| Path::new(word).file_name().is_some_and(|name| name == "zig" || name == "ziglang"))
    }

    /// Returns whether a folder of `PATH` has its program, or whether the program exists if it is an absolute path.
    pub(crate) fn is_in_path(&self) -> bool {
        in_path(&self.words[0].to_string_lossy())
    }

    /// Its name for messages.
    pub(crate) fn name(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

impl From<&str> for Tool {
    fn from(program: &str) -> Tool {
        Tool { words: vec![program.into()] }
    }
}

/// Returns whether a program of this name is in one of the folders of `PATH`.
pub(crate) fn in_path(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// The name of a command's program.
pub(crate) fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// All output of a program, without surrounding blanks. The status describes a program that fails without output.
pub(crate) fn messages(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    match text.trim() {
        "" if !output.status.success() => output.status.to_string(),
        text => text.to_owned(),
    }
}

/// An option and its path as one argument.
pub(crate) fn option(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_may_have_arguments_and_a_file_may_have_blanks() {
        let tool = Tool::parse(OsStr::new(" python3 -m ziglang cc "));
        assert_eq!(tool.name(), "python3 -m ziglang cc");
        assert!(tool.is_zig() && Tool::parse(OsStr::new("/opt/zig cc")).is_zig());
        assert_eq!(tool.with_last(|_| "ld.lld".to_owned()).name(), "python3 -m ziglang ld.lld");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a compiler");
        std::fs::write(&file, "").unwrap();
        let tool = Tool::parse(file.as_os_str());
        assert_eq!(tool.command().get_program(), file.as_os_str());
        assert!(!tool.is_zig());
    }

    #[test]
    fn nothing_is_the_name_of_no_program_and_does_not_panic() {
        assert_eq!(Tool::parse(OsStr::new("")).name(), "");
        assert_eq!(Tool::parse(OsStr::new("  ")).command().get_program(), "  ");
    }
}
