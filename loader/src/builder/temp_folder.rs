//! The folder for intermediate files of a build.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::BuildError;

/// A temporary folder that is removed with this value.
#[derive(Debug)]
pub(super) struct Scratch(TempDir);

impl Scratch {
    pub(super) fn new() -> Result<Scratch, BuildError> {
        let folder = tempfile::Builder::new().prefix("farjump-build-").tempdir();
        folder.map(Scratch).map_err(|source| BuildError::Write { path: std::env::temp_dir(), source })
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file of this name, existing or not.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Whether a file was made here, not given by the user.
    pub(super) fn holds(&self, path: &Path) -> bool {
        path.starts_with(self.0.path())
    }

    pub(super) fn write(&self, name: &str, contents: &[u8]) -> Result<PathBuf, BuildError> {
        write(self.path(name), contents)
    }

    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, BuildError> {
        folder(self.path(name))
    }
}

pub(super) fn write(path: PathBuf, contents: &[u8]) -> Result<PathBuf, BuildError> {
    match fs::write(&path, contents) {
        Ok(()) => Ok(path),
        Err(source) => Err(BuildError::Write { path, source }),
    }
}

pub(super) fn folder(path: PathBuf) -> Result<PathBuf, BuildError> {
    match fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(BuildError::Write { path, source }),
    }
}
