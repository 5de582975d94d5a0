//! The search for the program.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump_os::installed::{self, Installed};

/// Name of the program's file.
const NAME: &str = "farjump_compiler";
/// The environment variable that names the program.
const VARIABLE: &str = "FARJUMP_COMPILER";

/// The error without a program, or without one that may be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotFound {
    /// The path that was named is no program.
    #[error("there is no program {NAME} at `{}`: install it there, or name another path", .0.display())]
    Named(PathBuf),
    /// There is no program in the searched folders.
    #[error(
        "there is no program {NAME} beside this one, nor in `../libexec/farjump` from the folder of farjump's own file: \
         install it there, or name it in {VARIABLE}"
    )]
    Missing,
    /// A program was found, and other users could have put it there.
    #[error("{0}; or name the program to run in {VARIABLE}")]
    Refused(String),
}

/// The program, as it will be run.
#[derive(Debug)]
pub struct Program(Found);

#[derive(Debug)]
enum Found {
    /// The user names the program, which is not checked.
    Named(PathBuf),
    /// The program was found by a search, and is the file that was checked.
    Installed(Installed),
}

impl Program {
    /// The path of the program.
    pub fn path(&self) -> &Path {
        match &self.0 {
            Found::Named(path) => path,
            Found::Installed(found) => found.path(),
        }
    }

    /// A command that runs the program. The value must live until the command has started.
    pub fn command(&self) -> Command {
        match &self.0 {
            Found::Named(path) => Command::new(path),
            Found::Installed(found) => found.command(),
        }
    }
}

/// Returns the program: the named one, the one in `FARJUMP_COMPILER`, or one that [`installed::find`] finds.
///
/// # Errors
/// [`NotFound`].
pub(crate) fn program(named: Option<&Path>) -> Result<Program, NotFound> {
    let variable = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = named.map(Path::to_path_buf).or(variable) {
        // The program is run from another folder, and a bare name would be searched in `PATH`.
        let path = std::path::absolute(&named).unwrap_or_else(|_| named.clone());
        return if is_program(&path) { Ok(Program(Found::Named(path))) } else { Err(NotFound::Named(named)) };
    }
    let found = installed::find(NAME).map_err(NotFound::Refused)?;
    found.map(|found| Program(Found::Installed(found))).ok_or(NotFound::Missing)
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_program_that_is_none_is_named_in_the_error() {
        let error = program(Some(Path::new("/nowhere/compiler"))).unwrap_err().to_string();
        assert!(error.contains("at `/nowhere/compiler`"), "{error}");
        assert!(program(Some(Path::new("/proc/self/maps"))).is_err(), "it is no program");
    }

    #[test]
    fn a_named_program_is_one_of_this_folder_and_not_of_path() {
        let error = program(Some(Path::new("true"))).unwrap_err();
        assert_eq!(error, NotFound::Named("true".into()));
        let named = program(Some(Path::new("../../../../../../../../../bin/true"))).unwrap();
        assert!(named.path().is_absolute());
    }
}
