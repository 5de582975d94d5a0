//! Running the programs of a build: freely, or within a time limit and until the build is stopped.
//!
//! A compiler driver starts other programs, which outlive it when it is killed. So the programs of a supervised build
//! form a process group, which the supervisor kills as a whole. The first process of the group is a *guard*: a shell
//! that waits for the end of this process. Whatever ends this process, the guard then removes the folders of the build
//! and kills the group.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, setpgid};

use farjump_os::temporary;

use crate::error::BuildError;
use crate::tools::run_tool;
use crate::tools::temp_folder::Scratch;

/// The guard. Its standard input ends with this process, which writes nothing to it.
const GUARD: &str = "trap '' HUP INT TERM; read -r _; rm -rf -- \"$@\"; kill -KILL 0";
/// Maximum output of a program that is kept, in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

/// Runs the programs of a build. The default has no time limit. A bounded supervisor ([`Supervisor::new`]) serves one
/// build; a clone is another handle on it.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Option<Arc<Supervised>>);

#[derive(Debug)]
struct Supervised {
    limit: Duration,
    /// `None` if the clock cannot hold it.
    deadline: Option<Instant>,
    /// Readable once the build is stopped.
    stopped: OwnedFd,
    guard: Mutex<Option<Guard>>,
}

impl Supervisor {
    /// Makes a supervisor of one build, whose programs together may run until `limit` from now.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(limit: Duration) -> io::Result<Supervisor> {
        let stopped = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let deadline = Instant::now().checked_add(limit);
        Ok(Supervisor(Some(Arc::new(Supervised { limit, deadline, stopped, guard: Mutex::default() }))))
    }

    /// Stops the build: kills its programs, and starts no more of them. The build then fails with
    /// [`BuildError::Stopped`]. Any thread may call this. Without effect on a supervisor without bounds.
    pub fn stop(&self) {
        if let Some(supervised) = &self.0 {
            // The write fails only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&supervised.stopped, &1_u64.to_ne_bytes());
        }
    }

    /// Begins a build with intermediate files in `scratch`, which the guard removes if this process ends first.
    /// Dropping the result ends the remaining programs of the build.
    ///
    /// # Errors
    /// The guard does not start.
    pub(crate) fn begin(&self, scratch: &Scratch) -> Result<Guarded<'_>, BuildError> {
        if let Some(supervised) = &self.0 {
            *supervised.guard() = Some(Guard::start(&scratch.roots())?);
        }
        Ok(Guarded(self.0.as_deref()))
    }

    /// Runs `command` to its end without input, with messages in English, which [`crate::link`] understands. `advice`:
    /// see [`BuildError::Tool`].
    ///
    /// # Errors
    /// The program does not start, or ends before it begins its task. [`BuildError::TimedOut`] and
    /// [`BuildError::Stopped`] if the build is supervised. The caller checks the exit status.
    pub(crate) fn run(&self, command: &mut Command, advice: &str) -> Result<Output, BuildError> {
        command.stdin(Stdio::null()).env("LC_ALL", "C");
        // Some tools run in other folders.
        if let Some(folder) = temporary::named() {
            command.env("TMPDIR", folder);
        }
        let tool = run_tool::program(command);
        let failed = |source| BuildError::Tool { tool: tool.clone(), source, advice: advice.to_owned() };
        let output = match &self.0 {
            None => command.output().map_err(failed),
            Some(supervised) => supervised.run(command, failed),
        }?;
        // The codes of the dynamic loader for a missing library, and of a shell for a missing program.
        match output.status.code() {
            Some(126 | 127) => Err(unusable(tool, "run", &output, advice)),
            _ => Ok(output),
        }
    }
}

/// The error for an installed program that does not do its task.
pub(crate) fn unusable(tool: String, task: &'static str, output: &Output, advice: &str) -> BuildError {
    let (status, messages) = (output.status, run_tool::messages(output));
    BuildError::Unusable { tool, task, status, messages, advice: advice.to_owned() }
}

/// A running build.
pub(crate) struct Guarded<'a>(Option<&'a Supervised>);

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        if let Some(supervised) = self.0 {
            drop(supervised.guard().take());
        }
    }
}

impl Supervised {
    fn guard(&self) -> MutexGuard<'_, Option<Guard>> {
        // No code panics while it holds the lock.
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Supervisor::run`].
    fn run(
        &self,
        command: &mut Command,
        failed: impl Fn(io::Error) -> BuildError,
    ) -> Result<Output, BuildError> {
        if let Some(ended) = self.ended(command) {
            return Err(ended);
        }
        // Files instead of pipes: a program that outlives its driver would keep a pipe open.
        let output = || memfd_create("farjump-build", MemfdFlags::CLOEXEC).map(File::from);
        let (stdout, stderr) = output().and_then(|one| Ok((one, output()?))).map_err(|e| failed(e.into()))?;
        let group = self.guard().as_ref().map(|guard| {
            command.env("TMPDIR", &guard.folder);
            guard.group()
        });
        let streams = stdout.try_clone().and_then(|one| Ok((one, stderr.try_clone()?))).map_err(&failed)?;
        command.stdout(streams.0).stderr(streams.1).process_group(group.unwrap_or(0));
        let mut child = Running(command.spawn().map_err(&failed)?);
        // Otherwise the command would keep the descriptors.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(ended) = self.wait(&child.0, command).map_err(&failed)? {
            return Err(ended);
        }
        let status = child.0.wait().map_err(&failed)?;
        let read = |mut file: File| {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        Ok(Output { status, stdout: read(stdout).map_err(&failed)?, stderr: read(stderr).map_err(&failed)? })
    }

    /// Waits for the end of `child`. If it stops waiting before that, returns the reason.
    fn wait(&self, child: &Child, command: &Command) -> io::Result<Option<BuildError>> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        loop {
            if let Some(ended) = self.ended(command) {
                return Ok(Some(ended));
            }
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A `Timespec` can express the distance to every `Instant`.
            let left = left
                .map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
            let ends = PollFd::new(&pidfd, PollFlags::IN);
            let mut events = [ends, PollFd::new(&self.stopped, PollFlags::IN)];
            match poll(&mut events, left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !events[0].revents().is_empty() {
                return Ok(None);
            }
        }
    }

    /// The reason why no further program may run.
    fn ended(&self, command: &Command) -> Option<BuildError> {
        let mut event = [PollFd::new(&self.stopped, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut event, Some(&now)) != Ok(0) {
            return Some(BuildError::Stopped);
        }
        let late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        late.then(|| BuildError::TimedOut { tool: run_tool::program(command), limit: self.limit })
    }
}

/// A program, which dropping kills and reaps if nothing waited for its end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the program has ended and was reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The shell that leads the process group of a build.
#[derive(Debug)]
struct Guard {
    shell: Child,
    /// The job's folder. Programs also make their temporary files there, because killed programs leave them behind.
    folder: PathBuf,
    /// Ends with this process.
    _input: Option<ChildStdin>,
}

impl Guard {
    fn start(folders: &[&Path]) -> Result<Guard, BuildError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GUARD, "sh"]).args(folders).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut shell = command.spawn().map_err(|source| BuildError::Tool {
            tool: "/bin/sh".to_owned(),
            source,
            advice: "Install a shell there: a build in the background needs one".to_owned(),
        })?;
        // The child makes the group too, before it becomes the shell. If `posix_spawn` does not wait for that, as under
        // QEMU's emulation of single programs, no program could join the group yet. This call fails if the child is
        // already the shell: then the group exists.
        let leader = Pid::from_child(&shell);
        let _ = setpgid(Some(leader), Some(leader));
        let _input = shell.stdin.take();
        let folder = folders.first().map(|folder| folder.to_path_buf()).unwrap_or_else(temporary::folder);
        Ok(Guard { shell, folder, _input })
    }

    /// The group's number: the shell leads it, and is not reaped before the guard is dropped.
    fn group(&self) -> i32 {
        Pid::from_child(&self.shell).as_raw_nonzero().get()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The group exists: its leader was not reaped.
        let _ = kill_process_group(Pid::from_child(&self.shell), Signal::KILL);
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpgid;

    use super::*;

    /// The test can fail only if `posix_spawn` does not wait for the child, as under QEMU's emulation.
    #[test]
    fn a_guard_that_was_just_started_leads_its_group() {
        for _ in 0..50 {
            let guard = Guard::start(&[]).unwrap();
            let shell = Pid::from_child(&guard.shell);
            assert_eq!(getpgid(Some(shell)).unwrap(), shell);
        }
    }
}
