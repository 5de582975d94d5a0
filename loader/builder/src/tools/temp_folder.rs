//! The folder for intermediate files of a build.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use farjump_os::temporary;
use tempfile::TempDir;

use crate::error::BuildError;

/// Folders to try for code if the one for temporary files is mounted noexec. The variable names the folder of a user's
/// session.
const FOR_CODE: [&str; 3] = [temporary::DEFAULT, "/var/tmp", "/dev/shm"];
const OF_SESSION: &str = "XDG_RUNTIME_DIR";

/// A temporary folder that is removed with this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    code: Code,
}

/// The folder for files that the compiler loads as code.
#[derive(Debug)]
enum Code {
    /// The folder for the other files.
    Same,
    /// Another folder, because the folder for the other files is mounted noexec.
    Other(TempDir),
    /// No usable folder.
    Nowhere,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, BuildError> {
        let folder = folder_in(&temporary::folder()).map_err(|source| BuildError::NoTempFolder { source })?;
        let code = match temporary::forbids_code(folder.path()) {
            false => Code::Same,
            true => {
                let session =
                    env::var_os(OF_SESSION).map(PathBuf::from).filter(|folder| folder.is_absolute());
                let mut others = session.into_iter().chain(FOR_CODE.map(PathBuf::from));
                let found = others.find_map(|other| {
                    (!temporary::forbids_code(&other)).then(|| folder_in(&other).ok()).flatten()
                });
                found.map_or(Code::Nowhere, Code::Other)
            }
        };
        Ok(Scratch { folder, code })
    }

    /// The folders of this value.
    pub(crate) fn roots(&self) -> Vec<&Path> {
        let mut roots = vec![self.folder.path()];
        if let Code::Other(folder) = &self.code {
            roots.push(folder.path());
        }
        roots
    }

    /// The folder for files that the compiler loads as code.
    ///
    /// # Errors
    /// [`BuildError::NoExecFolder`].
    pub(crate) fn for_code(&self) -> Result<&Path, BuildError> {
        match &self.code {
            Code::Same => Ok(self.folder.path()),
            Code::Other(folder) => Ok(folder.path()),
            Code::Nowhere => Err(BuildError::NoExecFolder),
        }
    }

    /// The path of a file of this name, existing or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns whether a file lies in this folder, so that the build made it and not the user.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        path.starts_with(self.folder.path())
    }

    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> Result<PathBuf, BuildError> {
        write(self.path(name), contents)
    }

    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, BuildError> {
        folder(self.path(name))
    }
}

fn folder_in(folder: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("farjump-build-").tempdir_in(folder)
}

pub(crate) fn write(path: PathBuf, contents: &[u8]) -> Result<PathBuf, BuildError> {
    match fs::write(&path, contents) {
        Ok(()) => Ok(path),
        Err(source) => Err(BuildError::Write { path, source }),
    }
}

pub(crate) fn folder(path: PathBuf) -> Result<PathBuf, BuildError> {
    match fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(BuildError::Write { path, source }),
    }
}
