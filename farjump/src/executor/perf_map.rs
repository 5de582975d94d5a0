//! The perf map: a file in which perf looks for the names of code that no file on disk contains,
//! `/tmp/perf-PID.map`.
//!
//! One line for each image (perf's `jit-interface.txt`): address and length in hexadecimal digits, and the
//! name. perf reads it when it reports. That may be long after this process ended, so the file is left
//! behind. Symbols do not travel, so an image is one line, whatever functions it consists of.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use farjump_loader::LinkedImage;

use crate::{Error, ServeError};

/// The file and the id of this process: a forked child has code and a file of its own.
static OPEN: Mutex<Option<(u32, Arc<File>)>> = Mutex::new(None);

/// The perf map of this process. All executors of a process write to one file.
#[derive(Debug)]
pub(super) struct PerfMap {
    file: Arc<File>,
}

impl PerfMap {
    /// Opens the perf map. When this process opens it first, this removes an existing file: another process of the same
    /// number left it, and its names would appear at our addresses.
    ///
    /// # Errors
    /// When the file cannot be made, or belongs to another user.
    pub(super) fn open() -> Result<PerfMap, Error> {
        let pid = std::process::id();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((owner, file)) = &*open
            && *owner == pid
        {
            return Ok(PerfMap { file: Arc::clone(file) });
        }
        let path = path(pid);
        let file = create(&path).map_err(|source| Error::Serve(ServeError::PerfMap { path, source }))?;
        let file = Arc::new(file);
        *open = Some((pid, Arc::clone(&file)));
        Ok(PerfMap { file })
    }

    /// Adds the address of `linked`. Without this line perf shows addresses, and all else works, so this only logs a
    /// failure.
    pub(super) fn add(&self, linked: &LinkedImage) {
        let block = linked.block();
        let line = format!("{:x} {:x} ifunc:{}\n", block.address(), block.code_len(), linked.name());
        // In one write, so that lines of other executors of this process do not mix with it.
        if let Err(error) = (&*self.file).write_all(line.as_bytes()) {
            log::warn!(
                "perf will not know `{}`: {}: {error}",
                linked.name(),
                path(std::process::id()).display()
            );
        }
    }
}

/// perf's path for the file, whatever TMPDIR says.
fn path(pid: u32) -> PathBuf {
    format!("/tmp/perf-{pid}.map").into()
}

/// Makes the file anew, readable for this user alone, because it lists addresses of code. Any user can put a
/// file of this name into /tmp: an existing file is not written, nor the target of a link.
fn create(path: &Path) -> io::Result<File> {
    match remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_symlink_left_at_the_maps_path_is_replaced_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("perf-1.map"), folder.path().join("other"));
        fs::write(&other, "precious").unwrap();
        symlink(&other, &path).unwrap();
        create(&path).unwrap().write_all(b"1 2 ifunc:a\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1 2 ifunc:a\n");
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, 0o600);
        create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_map_that_cannot_be_made_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(create(&folder.path().join("none/perf-1.map")).is_err());
        assert!(create(folder.path()).is_err());
    }

    #[test]
    fn executors_of_one_process_share_a_file() {
        let (one, other) = (PerfMap::open().unwrap(), PerfMap::open().unwrap());
        assert!(Arc::ptr_eq(&one.file, &other.file));
        remove_file(path(std::process::id())).unwrap();
    }
}
