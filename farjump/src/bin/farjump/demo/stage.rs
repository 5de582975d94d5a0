//! What the demo sets up and takes down in every case: a folder, and processes.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::arguments::Demo;
use crate::failure::Failure;

/// How long the target may take to start, and then to go on sending the file.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait between attempts to remove the folder.
const REMOVAL: Duration = Duration::from_millis(10);
/// Longest path of a socket (unix(7)), and the name of ours with its slash.
const SOCKET: (usize, &str) = (107, "/target.sock");

/// Has the folder, and the processes that the demo starts. All go with it, and when the demo is interrupted.
pub(super) struct Stage {
    props: Arc<Mutex<Option<Props>>>,
    folder: PathBuf,
}

struct Props {
    /// Processes that were started and not waited for. Each leads a group of its own.
    processes: Vec<Pid>,
    folder: PathBuf,
}

impl Drop for Props {
    fn drop(&mut self) {
        for process in &self.processes {
            // What has ended already, and is not waited for, is no error.
            let _ = kill_process_group(*process, Signal::KILL);
            let _ = waitpid(Some(*process), WaitOptions::empty());
        }
        // Compilers that were killed may be at their last file.
        for _ in 0..100 {
            match fs::remove_dir_all(&self.folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(REMOVAL),
                _ => break,
            }
        }
    }
}

impl Stage {
    /// Makes the folder, and sees to it that SIGINT and SIGTERM remove it.
    pub(super) fn set() -> Result<Stage, Failure> {
        let failed = |error| Failure::new(format!("cannot prepare the demo: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let folder = make_folder().map_err(failed)?.keep();
        let props = Props { processes: Vec::new(), folder: folder.clone() };
        let props = Arc::new(Mutex::new(Some(props)));
        let stage = Stage { props: props.clone(), folder };
        let wait = move || {
            if let Some(signal) = signals.forever().next() {
                let mut props = props.lock().unwrap_or_else(PoisonError::into_inner);
                *props = None;
                // With the lock: the demo, which sees its target go, cannot end before this does and say that it failed.
                process::exit(128 + signal);
            }
        };
        std::thread::Builder::new().name("farjump-signals".into()).spawn(wait).map_err(failed)?;
        Ok(stage)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a process, in a group of its own: what is typed at the terminal interrupts this process, which then ends the
    /// others.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Child> {
        let mut props = self.props.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.process_group(0).spawn()?;
        if let (Some(props), Some(process)) = (&mut *props, Pid::from_raw(child.id() as i32)) {
            props.processes.push(process);
        }
        Ok(child)
    }

    /// Waits until a process ends; also says what it wrote to standard error, if that is piped.
    pub(super) fn finish(&self, mut child: Child) -> io::Result<(ExitStatus, String)> {
        let mut said = Vec::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_end(&mut said)?;
        }
        // With the lock: a process id is nobody's once it was waited for.
        let mut props = self.props.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.wait()?;
        if let Some(props) = &mut *props {
            props.processes.retain(|process| process.as_raw_nonzero().get() as u32 != child.id());
        }
        Ok((status, String::from_utf8_lossy(&said).trim_end().to_owned()))
    }

    /// Starts the target on `file`, which has `bytes` bytes, and waits until it is ready.
    pub(super) fn start_target(
        &self,
        file: &Path,
        arguments: &Demo,
        bytes: usize,
    ) -> Result<DemoTarget, Failure> {
        let failed = |error| Failure::new(format!("cannot start the target process: {error}"));
        let (stream, theirs) = UnixStream::pair().map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let own = format!("unix:{}{}", self.folder.display(), SOCKET.1);
        let address = arguments.listen.as_ref().unwrap_or(&own);
        let mut command = this_program();
        command.arg("demo-target").arg("--data").arg(file).arg("--listen").arg(address);
        command.arg("--folder").arg(&self.folder);
        if let Some(transport) = &arguments.transport {
            command.arg("--transport").arg(transport);
        }
        if let Some(key) = &arguments.key.file {
            command.arg("--key").arg(key);
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let pid = self.start(&mut command).map_err(failed)?.id();
        // The command has a copy of the target's end of the socket, whose closing is to be seen.
        drop(command);
        let mut target = DemoTarget { stream, address: String::new(), pid, bytes };
        match target.read_ready() {
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
        *self.props.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
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

    /// What the target says when it is ready: the length of the file, and where it listens, behind the length of that.
    fn read_ready(&mut self) -> io::Result<u64> {
        let (mut len, mut address_len) = ([0; 8], [0; 2]);
        self.stream.read_exact(&mut len)?;
        self.stream.read_exact(&mut address_len)?;
        let mut address = vec![0; u16::from_le_bytes(address_len).into()];
        self.stream.read_exact(&mut address)?;
        self.address = String::from_utf8(address).map_err(io::Error::other)?;
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
fn make_folder() -> io::Result<TempDir> {
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
