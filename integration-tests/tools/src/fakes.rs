//! A folder of programs that come before the real ones in `PATH`.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::folder::Folder;

/// The programs, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Fakes(Folder);

impl Fakes {
    /// A folder without programs.
    ///
    /// # Panics
    /// If there is no folder for temporary files.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Fakes {
        Fakes(Folder::new().expect("a temporary folder"))
    }

    /// Adds programs that end as one does whose shared library is missing. They print [`words_of`].
    #[must_use]
    pub fn broken(self, names: &[&str]) -> Fakes {
        names.iter().fold(self, |fakes, name| {
            let script = format!("echo '{}' >&2\nexit 127", words_of(name));
            fakes.script(name, &script)
        })
    }

    /// Adds a program that runs this shell script.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn script(self, name: &str, script: &str) -> Fakes {
        write_script(&self.program(name), script);
        self
    }

    /// Adds a name for another program, which must be a path.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn link(self, name: &str, program: &Path) -> Fakes {
        symlink(program, self.program(name)).expect("a symbolic link");
        self
    }

    /// The path of one of them.
    pub fn program(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A value of `PATH` with these programs before the real ones.
    pub fn path(&self) -> OsString {
        let mut path = self.0.path().as_os_str().to_owned();
        if let Some(rest) = env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        path
    }
}

/// Writes a program that runs this shell script.
///
/// Another process writes it. While this process has the file open, programs that other threads start inherit the
/// descriptor for a moment, and nothing can execute the file.
///
/// # Panics
/// If it cannot be written.
pub fn write_script(program: &Path, script: &str) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", script]);
    let written = shell.arg(program).stdin(Stdio::null()).status();
    assert!(written.is_ok_and(|status| status.success()), "{} cannot be written", program.display());
}

/// The words of a broken program, which are those of the dynamic loader.
pub fn words_of(name: &str) -> String {
    format!(
        "{name}: error while loading shared libraries: libfake.so.1: cannot open shared object file: No such file or \
         directory"
    )
}

/// The path of a program in `PATH`.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
