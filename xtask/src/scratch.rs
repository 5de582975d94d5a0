//! The folder for temporary files of all programs that a chore runs. Its path is short, as paths of sockets have 107
//! bytes at most, and has no blanks. Its file system lets programs run. The user's `TMPDIR` need not fulfil these
//! conditions.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::process::{Failed, variable};

/// Most bytes of the path of the parent folder. Tests make folders of their own in the folder.
const LONGEST: usize = 24;
/// Folders to try after `TMPDIR`.
const USUAL: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// The folder of this process; dropping it removes the folder with its files.
#[derive(Debug)]
pub(crate) struct Scratch(#[allow(dead_code, reason = "it is removed when dropped")] TempDir);

impl Scratch {
    /// Makes the folder. This process and all programs that it runs put temporary files there.
    ///
    /// # Errors
    /// As [`folder`].
    pub(crate) fn make() -> Result<Scratch, Failed> {
        let made = folder()?;
        // A process makes one folder: this fails at a second call.
        let _ = tempfile::env::override_temp_dir(made.path());
        Ok(Scratch(made))
    }
}

/// Makes a folder in `TMPDIR`, or in one of the usual folders if that is not suitable.
///
/// # Errors
/// When none of them is suitable; the error names each with the reason.
pub(crate) fn folder() -> Result<TempDir, Failed> {
    let named = variable("TMPDIR").map(PathBuf::from);
    first_of(named.into_iter().chain(USUAL.map(PathBuf::from)))
}

fn first_of(folders: impl Iterator<Item = PathBuf>) -> Result<TempDir, Failed> {
    let mut reasons = Vec::new();
    for folder in folders {
        match made_in(&folder) {
            Ok(made) => return Ok(made),
            Err(why) => reasons.push(format!("{}: {why}", folder.display())),
        }
    }
    Err(Failed::Because(format!(
        "there is no folder for temporary files. Name one by TMPDIR, of {LONGEST} bytes at most, without blanks, from \
         which programs may be run\n    {}",
        reasons.join("\n    ")
    )))
}

/// Makes a folder in this one, or returns the reason why this one is not suitable.
fn made_in(folder: &Path) -> Result<TempDir, String> {
    let text = folder.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let text = text.ok_or("its path has blanks, or letters beyond ASCII")?;
    if !text.starts_with('/') || text.len() > LONGEST {
        return Err(format!("its path is relative, or longer than {LONGEST} bytes"));
    }
    // Every user may read it: tests start programs as other users.
    let mut made = tempfile::Builder::new();
    let made = made.prefix("fj-").rand_bytes(4).permissions(fs::Permissions::from_mode(0o755));
    let made = made.tempdir_in(folder).map_err(|error| error.to_string())?;
    match runs_programs(made.path()) {
        Ok(true) => Ok(made),
        Ok(false) => Err("no program can be run from it (is it mounted noexec?)".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns whether a program in this folder can be run.
fn runs_programs(folder: &Path) -> io::Result<bool> {
    // A shell writes the program: a child of another thread could hold a file of this process open for writing when
    // it is run.
    let program = folder.join("runs");
    let script = "printf '#!/bin/sh\\n' >\"$1\" && chmod 700 \"$1\" && exec \"$1\"";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(&program);
    let ran = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success();
    // The file may not exist.
    drop(fs::remove_file(program));
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_does_not_serve_is_passed_over_and_named() {
        let made = first_of(["/nowhere", "/tmp/with blank", "/tmp"].map(PathBuf::from).into_iter()).unwrap();
        assert_eq!(made.path().parent(), Some(Path::new("/tmp")));
        assert!(runs_programs(made.path()).unwrap());
        let long = format!("/tmp/{}", "l".repeat(LONGEST));
        let folders = ["/nowhere", "/proc", "/tmp/ü", "here", &long].map(PathBuf::from);
        let why = first_of(folders.clone().into_iter()).unwrap_err().to_string();
        for folder in folders {
            assert!(why.contains(&format!("{}: ", folder.display())), "{why}");
        }
    }
}
