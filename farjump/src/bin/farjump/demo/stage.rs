//! What the demo sets up and takes down in every case: a folder, and a target process.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::failure::Failure;

/// How long the target may take to start, and then to go on sending the file.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest path of a socket (unix(7)), and the name of ours with its slash.
const SOCKET: (usize, &str) = (107, "/target.sock");

/// Has the folder, and the target once it is started. Both go with it, and when the demo is interrupted.
pub(super) struct Stage {
    props: Arc<Mutex<Option<Props>>>,
    folder: PathBuf,
}

struct Props {
    target: Option<Child>,
    _folder: TempDir,
}

impl Drop for Props {
    fn drop(&mut self) {
        if let Some(target) = &mut self.target {
            // It may have ended by itself; the folder goes in any case.
            let _ = target.kill();
            let _ = target.wait();
        }
    }
}

impl Stage {
    /// Makes the folder, and sees to it that SIGINT and SIGTERM remove it.
    pub(super) fn set() -> Result<Stage, Failure> {
        let failed = |error| Failure::new(format!("cannot prepare the demo: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let folder = make_folder().map_err(failed)?;
        let path = folder.path().to_owned();
        let props = Arc::new(Mutex::new(Some(Props { target: None, _folder: folder })));
        let interrupted = props.clone();
        let wait = move || {
            if let Some(signal) = signals.forever().next() {
                take_down(&interrupted);
                process::exit(128 + signal);
            }
        };
        std::thread::Builder::new().name("farjump-signals".into()).spawn(wait).map_err(failed)?;
        Ok(Stage { props, folder: path })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the target on `file`, which has `bytes` bytes, and waits until it is ready.
    pub(super) fn start_target(
        &mut self,
        file: &Path,
        transport: Option<&str>,
        bytes: usize,
    ) -> Result<DemoTarget, Failure> {
        let failed = |error| Failure::new(format!("cannot start the target process: {error}"));
        let (stream, theirs) = UnixStream::pair().map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let address = format!("unix:{}{}", self.folder.display(), SOCKET.1);
        let mut command = this_program();
        command.arg("demo-target").arg("--data").arg(file).arg("--listen").arg(&address);
        command.arg("--folder").arg(&self.folder);
        if let Some(transport) = transport {
            command.arg("--transport").arg(transport);
        }
        // In a group of its own: what is typed at the terminal interrupts this process, which then ends the target.
        command.process_group(0).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let pid = {
            let mut props = self.props.lock().unwrap_or_else(PoisonError::into_inner);
            let child = command.spawn().map_err(failed)?;
            // The command has a copy of the target's end of the socket, whose closing is to be seen.
            drop(command);
            let pid = child.id();
            if let Some(props) = &mut *props {
                props.target = Some(child);
            }
            pid
        };
        let mut target = DemoTarget { stream, address, pid, bytes };
        match target.read_len() {
            Ok(len) if len == bytes as u64 => Ok(target),
            Ok(_) => {
                Err(Failure::new("the file changed its length while the demo started: try one that stays"))
            }
            // It has said itself why, on standard error.
            Err(error) => Err(Failure::new(format!("the target process did not get ready: {error}"))),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        take_down(&self.props);
    }
}

/// Ends the target and removes the folder, if nobody has yet. Whoever comes second waits for the first.
fn take_down(props: &Mutex<Option<Props>>) {
    *props.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The target process, and the socket on which it sends the file when asked to.
pub(super) struct DemoTarget {
    stream: UnixStream,
    address: String,
    pid: u32,
    bytes: usize,
}

impl DemoTarget {
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The bytes of the file as the target has them, moved over the socket.
    pub(super) fn fetch(&mut self) -> Result<Vec<u8>, Failure> {
        let failed = |error| Failure::new(format!("the target did not send its file: {error}"));
        self.stream.write_all(&[1]).map_err(failed)?;
        let mut bytes = vec![0; self.bytes];
        self.stream.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    fn read_len(&mut self) -> std::io::Result<u64> {
        let mut len = [0; 8];
        self.stream.read_exact(&mut len)?;
        Ok(u64::from_le_bytes(len))
    }
}

impl Drop for DemoTarget {
    fn drop(&mut self) {
        // Tells the target to end, in case that it is not killed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// This program, to be run again: the very file that runs now, even if another took its place.
pub(super) fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("farjump");
    command
}

/// A folder beside this program if that lies in cargo's target folder, so that nothing is written outside of it, and if
/// its path is short enough for a socket; otherwise in the system's temporary folder.
fn make_folder() -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("farjump-demo-");
    if let Some(beside) = cargo_folder()
        && let Ok(folder) = builder.tempdir_in(beside)
        && folder.path().as_os_str().as_bytes().len() + SOCKET.1.len() <= SOCKET.0
        && folder.path().to_str().is_some()
    {
        return Ok(folder);
    }
    builder.tempdir()
}

/// The folder of this program, if it is one of cargo's, which marks them as caches.
fn cargo_folder() -> Option<PathBuf> {
    let folder = fs::canonicalize(std::env::current_exe().ok()?.parent()?).ok()?;
    folder.ancestors().any(|folder| folder.join("CACHEDIR.TAG").exists()).then_some(folder)
}
