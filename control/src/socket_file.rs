//! The files of this process's Unix sockets, which must not outlive it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use farjump_os::PerProcess;
use rustix::io::Errno;

/// The socket files of this process. A forked child has none of its own: those of its parent stay.
static FILES: PerProcess<Mutex<Vec<Identity>>> = PerProcess::new();

/// Longest wait of a process that ends for a thread that makes or removes a socket file just then.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between attempts.
const RETRY: Duration = Duration::from_millis(1);

/// The folder that a path is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A socket file. Another file at the path is not removed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Identity {
    /// Absolute: the process may change its working directory.
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The file of a Unix socket, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    identity: Identity,
    /// The process that listens: a forked child that drops its copy leaves the file.
    process: u32,
}

impl SocketFile {
    /// Calls `bind`, which makes the file at `path`. From then on [`end_process`] removes it, too: it waits for
    /// this call.
    ///
    /// # Errors
    /// Those of `bind`, and of looking at the file.
    pub(crate) fn make(
        path: &Path,
        bind: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(OwnedFd, SocketFile), Errno> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut files = lock();
        let socket = bind()?;
        let metadata = rustix::fs::lstat(&path)?;
        let identity = Identity { path, device: metadata.st_dev, inode: metadata.st_ino };
        files.push(identity.clone());
        Ok((socket, SocketFile { identity, process: std::process::id() }))
    }
}

impl Drop for SocketFile {
    /// Removes the file if it is still this listener's.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let mut files = lock();
            if let Err(error) = self.identity.remove() {
                log::warn!("{}: could not be removed: {error}", self.identity.path.display());
            }
            files.retain(|other| *other != self.identity);
        }
    }
}

impl Identity {
    fn remove(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => {
                fs::remove_file(&self.path)
            }
            _ => Ok(()),
        }
    }
}

fn lock() -> MutexGuard<'static, Vec<Identity>> {
    FILES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the socket files of this process's targets, and ends the process at once with the exit code `code`.
///
/// It waits for no function that runs, runs no destructor and no exit handler, and links end unannounced.
/// This is for a thread that waits for signals or a deadline, where dropping the target could take too long.
/// Other threads continue meanwhile; none of them makes a further socket file. A signal handler must not call
/// it, as it takes a lock.
pub fn end_process(code: i32) -> ! {
    let start = Instant::now();
    // Held to the end: a target that starts now would leave its file.
    let files = loop {
        match FILES.get().try_lock() {
            Ok(files) => break Some(files),
            Err(TryLockError::Poisoned(files)) => break Some(files.into_inner()),
            // A file system that does not respond keeps a thread in there.
            Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => break None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY),
        }
    };
    for file in files.iter().flat_map(|files| files.iter()) {
        // No log: its reader may be the cause that the process hangs.
        let _ = file.remove();
    }
    // SAFETY: _exit(2) has no conditions; it does not return.
    unsafe { libc::_exit(code) }
}
