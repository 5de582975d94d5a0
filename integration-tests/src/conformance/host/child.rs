//! Targets in processes of their own: this program, started again.

use std::env;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::target::{Args, serve};
use super::{PATIENCE, Stream};
use crate::conformance::failure::{Failure, ensure};
use crate::conformance::subject::Subject;

/// Variable with the name of the subject for which a process was started; it marks a process as a child.
const SUBJECT: &str = "CONFORMANCE_CHILD_FOR";
/// The target's own folder.
const FOLDER: &str = "CONFORMANCE_CHILD_FOLDER";
/// Variable with the file that is the data of its `target_args`; not set if they are a word.
const FILE: &str = "CONFORMANCE_CHILD_FILE";
/// The address at which it listens.
const LISTEN: &str = "CONFORMANCE_CHILD_LISTEN";
/// Exit status after playing a role; a process without a role exits with 0.
const PLAYED: i32 = 42;
/// Longest life of a child, in case it hangs.
const LIFE: Duration = Duration::from_secs(300);

/// Returns whether the suite started this process.
pub(crate) fn is_child() -> bool {
    env::var_os(SUBJECT).is_some()
}

/// Returns whether the suite started this process to play the target of `subject`.
pub(crate) fn is_child_for(subject: &Subject) -> bool {
    env::var_os(SUBJECT).is_some_and(|name| name == subject.name())
}

/// Plays the target, and ends the process.
pub(crate) fn play(subject: &Subject) -> ! {
    let played = play_until_commands_end(subject);
    if let Err(failure) = &played {
        eprintln!("the target of {} failed: {failure}", subject.name());
    }
    process::exit(if played.is_ok() { PLAYED } else { 1 })
}

fn play_until_commands_end(subject: &Subject) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        eprintln!("the target's process hangs");
        process::abort();
    });
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap_or_default());
    let args = env::var_os(FILE).map_or(Args::Word, |path| Args::File(path.into()));
    let address = env::var(LISTEN).map_err(|_| Failure::new("there is no address to listen on"))?;
    let stream = std::io::stdin().as_fd().try_clone_to_owned()?.into();
    let pair = subject.make();
    serve(&address, &folder, pair.target, &args, stream)?;
    let wrong = pair.keep.verdict();
    ensure!(wrong.is_empty(), "the transport says that core broke the contract: {}", wrong.join("; "));
    Ok(())
}

/// The role of a child.
pub(super) struct Role<'a> {
    pub(super) subject: &'a str,
    /// A folder of its own.
    pub(super) folder: &'a Path,
    pub(super) args: &'a Args,
    /// The address at which it listens.
    pub(super) listen: String,
}

/// Makes the program that `command` starts play this role. Its commands come over standard input from the other end
/// of `stream`.
pub(super) fn give_role<'c>(
    command: &'c mut Command,
    role: &Role<'_>,
    stream: impl Into<OwnedFd>,
) -> &'c mut Command {
    command.env(SUBJECT, role.subject).env(FOLDER, role.folder).env(LISTEN, &role.listen);
    command.stdin(stream.into()).stdout(Stdio::null());
    match role.args {
        Args::Word => command.env_remove(FILE),
        Args::File(path) => command.env(FILE, path),
    }
}

/// Returns whether a child with this status has played its role to the end.
pub(super) fn played(status: ExitStatus) -> bool {
    status.code() == Some(PLAYED)
}

/// The words that run this program. An emulator does not see the programs that an emulated one starts; then the
/// program in `FARJUMP_TEST_RUNNER` runs it.
pub(super) fn own_program() -> std::io::Result<Vec<OsString>> {
    let runner = env::var_os("FARJUMP_TEST_RUNNER");
    Ok(runner.into_iter().chain([env::current_exe()?.into_os_string()]).collect())
}

/// A child; killed when dropped.
pub(super) struct Child(process::Child);

impl Child {
    /// Starts a child that listens at `listen`. Returns it, and the stream for commands.
    pub(super) fn start(
        subject: &Subject,
        folder: &Path,
        listen: String,
        args: &Args,
    ) -> Result<(Child, Stream), Failure> {
        let again = subject.again().ok_or_else(|| Failure::new("it has to be in one process"))?;
        let (stream, there) = UnixStream::pair()?;
        let program = own_program()?;
        let mut words = subject.launcher().iter().chain(&program).chain(again);
        let mut command = Command::new(words.next().unwrap_or(&program[0]));
        let role = Role { subject: subject.name(), folder, args, listen };
        Ok((Child(give_role(command.args(words), &role, there).spawn()?), stream.into()))
    }

    /// Waits until it has ended properly.
    pub(super) fn wait(mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                ensure!(
                    played(status),
                    "the target's process, which is this program started again, ended with {status}"
                );
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the target's process does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both calls fail if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
