//! The workspace of a command, removed in every case: a folder, and processes.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farjump::end_process;
use farjump_control::remove_stale_socket;
use farjump_os::temporary;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, waitid, waitpid};
use tempfile::TempDir;

use crate::program::failure::Failure;
use crate::program::link_options::chosen_device;
use crate::program::output;
use crate::program::signals;

/// Longest time for an interrupted command to print what it has.
const LAST_ROWS: Duration = Duration::from_secs(5);
/// Interval between attempts to remove the folder.
const REMOVAL: Duration = Duration::from_millis(10);
/// Longest path of a socket (unix(7)), and space for a socket's name with its slash.
const SOCKET: (usize, usize) = (107, 16);

/// The folder and the processes that the command starts. Drop, or an interrupted command, removes them.
pub struct Stage {
    props: Arc<Mutex<Option<Props>>>,
    folder: PathBuf,
}

struct Props {
    /// Processes started and not yet reaped. Each leads a group of its own.
    processes: Vec<Pid>,
    /// Sockets outside of the folder that these processes listen on.
    sockets: Vec<PathBuf>,
    folder: PathBuf,
}

impl Drop for Props {
    fn drop(&mut self) {
        for process in &self.processes {
            // A process that has ended unreaped is no error.
            let _ = kill_process_group(*process, Signal::KILL);
            let _ = waitpid(Some(*process), WaitOptions::empty());
        }
        for socket in &self.sockets {
            // A socket that another process listens on is not this command's.
            let _ = remove_stale_socket(socket);
        }
        // Killed compilers may still write their last file.
        for _ in 0..100 {
            match remove(&self.folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(REMOVAL),
                _ => break,
            }
        }
    }
}

/// Removes a workspace folder, and files elsewhere that are named after it.
///
/// # Errors
/// The folder cannot be removed, or does not exist.
pub fn remove(folder: &Path) -> io::Result<()> {
    remove_shared(folder);
    fs::remove_dir_all(folder)
}

/// Removes the shared memory whose names begin with the folder's: killed processes of iceoryx2 leave theirs.
fn remove_shared(folder: &Path) {
    let (Some(name), Ok(entries)) = (folder.file_name(), fs::read_dir("/dev/shm")) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_bytes().starts_with(name.as_bytes()) {
            // Another process may have removed it already.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Stage {
    /// Makes the folder, and makes SIGINT, SIGTERM and SIGHUP remove it. `command` is the command's name.
    pub fn set(command: &str) -> Result<Stage, Failure> {
        let props = Arc::new(Mutex::new(None));
        let of_signals = props.clone();
        signals::watch(move |mut signals| {
            let Some(signal) = signals.wait(None) else { return };
            let mut props: MutexGuard<'_, Option<Props>> =
                of_signals.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(words) = signals::interrupt(signal) {
                output::note(words);
                // The end of its processes ends the command's wait.
                *props = None;
                drop(props);
                let second = signals.wait(Some(LAST_ROWS));
                end_process(signals::exit_code(second.unwrap_or(signal)));
            }
            *props = None;
            // Under the lock: the command must not notice its processes' end and report a failure before this
            // ends it, nor make its folder now.
            end_process(signals::exit_code(signal));
        })?;
        let mut made = props.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |why| Failure::new(format!("cannot prepare `{command}`: {why}"));
        let folder = make_folder(command).map_err(failed)?.keep();
        *made = Some(Props { processes: Vec::new(), sockets: Vec::new(), folder: folder.clone() });
        drop(made);
        Ok(Stage { props, folder })
    }

    /// Removes the socket at `path` in the end, too: a process started from now on listens on it.
    pub fn has_socket(&self, path: &Path) {
        if let Some(props) = &mut *self.props.lock().unwrap_or_else(PoisonError::into_inner) {
            props.sockets.push(path.to_owned());
        }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a process, in a group of its own. The terminal interrupts only this process, which ends the
    /// others.
    pub fn start(&self, command: &mut Command) -> io::Result<Child> {
        let mut props = self.props.lock().unwrap_or_else(PoisonError::into_inner);
        if props.is_none() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the command was interrupted"));
        }
        let child = command.process_group(0).spawn()?;
        if let (Some(props), Some(process)) = (&mut *props, Pid::from_raw(child.id() as i32)) {
            props.processes.push(process);
        }
        Ok(child)
    }

    /// Waits until a process ends; also returns its standard error, if that is piped.
    pub fn finish(&self, mut child: Child) -> io::Result<(ExitStatus, String)> {
        let mut said = Vec::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_end(&mut said)?;
        }
        if let Some(process) = Pid::from_raw(child.id().cast_signed()) {
            // Without the lock, as the process may close its standard error long before it ends. It is not
            // reaped: the process id stays its own.
            let left = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(Errno::INTR) = waitid(WaitId::Pid(process), left) {}
        }
        // Under the lock: a process id is free for reuse once it was waited for.
        let mut props = self.props.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.wait()?;
        if let Some(props) = &mut *props {
            props.processes.retain(|process| process.as_raw_nonzero().get() as u32 != child.id());
        }
        Ok((status, String::from_utf8_lossy(&said).trim_end().to_owned()))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        *self.props.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Returns the command to run this program again: the file that runs now, even if another took its place.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    // The name under which it was called, for people who list processes.
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    with_device(command)
}

/// Makes a process that this program starts use the RDMA device of its command line.
fn with_device(mut command: Command) -> Command {
    if let Some(device) = chosen_device() {
        command.env("FARJUMP_DEVICE", device);
    }
    command
}

/// Returns such a command through another program, such as `ip netns exec far`, if `words` has any.
pub fn this_program_by(words: &str) -> Command {
    let mut words = words.split_whitespace();
    let Some(launcher) = words.next() else { return this_program() };
    let mut command = Command::new(launcher);
    // `self` would be the launcher there.
    command.args(words).arg(format!("/proc/{}/exe", process::id()));
    with_device(command)
}

/// Makes a folder for sockets and other files: beside this program, if that lies in cargo's target folder, otherwise in
/// the folder for temporary files. Skips folders whose path no socket can have; /tmp is the last resort.
fn make_folder(command: &str) -> Result<TempDir, String> {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("farjump-{command}-");
    builder.prefix(&prefix);
    if let Some(beside) = cargo_folder()
        && let Ok(folder) = builder.tempdir_in(beside)
        && takes_sockets(folder.path())
    {
        return Ok(folder);
    }
    let folder = builder.tempdir_in(temporary::folder()).map_err(|error| temporary::lacking(&error))?;
    if takes_sockets(folder.path()) {
        return Ok(folder);
    }
    builder.tempdir_in(temporary::DEFAULT).map_err(|error| {
        format!(
            "no socket can be made in {}, as its path has at most {} bytes, in UTF-8, and no folder in {} ({error}): set \
             TMPDIR to a folder with a shorter path",
            temporary::in_words(),
            SOCKET.0,
            temporary::DEFAULT,
            error = temporary::without_path(&error)
        )
    })
}

/// Returns whether the path of a command's socket in this folder is short enough, and can be an argument.
pub fn takes_sockets(folder: &Path) -> bool {
    folder.as_os_str().len() + SOCKET.1 <= SOCKET.0 && folder.to_str().is_some()
}

/// Returns this program's folder, if it is one of cargo's, which marks them as caches.
pub fn cargo_folder() -> Option<PathBuf> {
    let folder = fs::canonicalize(std::env::current_exe().ok()?.parent()?).ok()?;
    folder.ancestors().any(|folder| folder.join("CACHEDIR.TAG").exists()).then_some(folder)
}
