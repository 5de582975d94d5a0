//! Targets in processes of their own: this program, started again.

use std::env;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::target::{Args, serve};
use super::{PATIENCE, Stream};
use crate::conformance::failure::{Failure, ensure};
use crate::conformance::subject::Subject;

/// Name of the subject that a process was started for; the variable marks a process as a child.
const SUBJECT: &str = "CONFORMANCE_CHILD_FOR";
/// The folder in which it listens and gets commands.
const FOLDER: &str = "CONFORMANCE_CHILD_FOLDER";
/// The file that its `target_args` show; absent if they are a word.
const FILE: &str = "CONFORMANCE_CHILD_FILE";
/// The address at which it listens.
const LISTEN: &str = "CONFORMANCE_CHILD_LISTEN";
/// If set, commands come by standard input instead of the folder.
const BY_INPUT: &str = "CONFORMANCE_CHILD_BY_INPUT";
/// Exit status after playing a role; a process without a role exits with 0.
const PLAYED: i32 = 42;
/// Longest life of a child in every case.
const LIFE: Duration = Duration::from_secs(300);

/// Whether the suite started this process.
pub(crate) fn is_child() -> bool {
    env::var_os(SUBJECT).is_some()
}

/// Whether the suite started this process to play the target of `subject`.
pub(crate) fn is_child_for(subject: &Subject) -> bool {
    env::var_os(SUBJECT).is_some_and(|name| name == subject.name())
}

/// Plays the target, and ends the process.
pub(crate) fn play(subject: &Subject) -> ! {
    let played = play_until_asked_no_more(subject);
    if let Err(failure) = &played {
        eprintln!("the target of {} failed: {failure}", subject.name());
    }
    process::exit(if played.is_ok() { PLAYED } else { 1 })
}

fn play_until_asked_no_more(subject: &Subject) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        eprintln!("the target's process hangs");
        process::abort();
    });
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap_or_default());
    let args = env::var_os(FILE).map_or(Args::Word, |path| Args::File(path.into()));
    let address = env::var(LISTEN).map_err(|_| Failure::new("it is not told where to listen"))?;
    let stream: Stream = match env::var_os(BY_INPUT) {
        Some(_) => std::io::stdin().as_fd().try_clone_to_owned()?.into(),
        None => UnixStream::connect(folder.join(ASKED))?.into(),
    };
    let pair = subject.make();
    serve(&address, &folder, pair.target, &args, stream)?;
    let wrong = pair.keep.verdict();
    ensure!(wrong.is_empty(), "the transport says that core broke the contract: {}", wrong.join("; "));
    Ok(())
}

/// Name of the socket for commands, in a child's folder.
const ASKED: &str = "asked.sock";

/// The role of a child.
pub(super) struct Role<'a> {
    pub(super) subject: &'a str,
    /// A folder of its own.
    pub(super) folder: &'a Path,
    pub(super) args: &'a Args,
    pub(super) post: Post,
}

/// The place where a child listens, and gets commands.
pub(super) enum Post {
    /// At this address; commands come through its folder.
    Folder(String),
    /// At this address; commands come by its standard input.
    Tcp(SocketAddr),
}

/// Makes the program that `command` starts play this role.
pub(super) fn give_role<'c>(command: &'c mut Command, role: &Role<'_>) -> &'c mut Command {
    command.env(SUBJECT, role.subject).env(FOLDER, role.folder).stdout(Stdio::null());
    match &role.post {
        Post::Folder(address) => command.env(LISTEN, address).env_remove(BY_INPUT).stdin(Stdio::null()),
        Post::Tcp(address) => command.env(LISTEN, format!("tcp:{address}")).env(BY_INPUT, "yes"),
    };
    match role.args {
        Args::Word => command.env_remove(FILE),
        Args::File(path) => command.env(FILE, path),
    }
}

/// Whether a child with this status has played its role to the end.
pub(super) fn played(status: ExitStatus) -> bool {
    status.code() == Some(PLAYED)
}

/// A child; killed when dropped.
pub(super) struct Child(process::Child);

impl Child {
    /// Starts one that listens at `listen`, and waits until it accepts commands.
    pub(super) fn start(
        subject: &Subject,
        folder: &Path,
        listen: String,
        args: &Args,
    ) -> Result<(Child, Stream), Failure> {
        let again = subject.again().ok_or_else(|| Failure::new("it has to be in one process"))?;
        let path = folder.join(ASKED);
        // An earlier child's socket may exist after a restart.
        drop(std::fs::remove_file(&path));
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        let program = env::current_exe()?.into_os_string();
        let mut words = subject.launcher().iter().chain([&program]).chain(again);
        let mut command = Command::new(words.next().unwrap_or(&program));
        give_role(
            command.args(words),
            &Role { subject: subject.name(), folder, args, post: Post::Folder(listen) },
        );
        let mut child = Child(command.spawn()?);
        let begun = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok((child, stream.into()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(status) = child.0.try_wait()? {
                let name = subject.name();
                return Err(Failure::new(format!(
                    "this program, started again with {again:?}, ended ({status}) without running {name:?}"
                )));
            }
            ensure!(begun.elapsed() < PATIENCE, "this program, started again with {again:?}, does not serve");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it has ended properly.
    pub(super) fn wait(mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                ensure!(played(status), "the target's process ended with {status}");
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the target's process does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
