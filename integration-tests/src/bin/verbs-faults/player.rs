//! Helper processes of a case: this program again, controlled line by line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use farjump::Library;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, kill_process, set_parent_process_death_signal, setrlimit,
};

use crate::{source, target};

/// Prefix of a process's messages to the case.
const MARK: char = '@';
/// The folder with the injected functions, as in the conformance suite.
pub(crate) const LIBRARIES: &str = "CONFORMANCE_LIBRARIES";
/// Bytes that a process may lock; its user's limit if not set.
const LOCKED: &str = "VERBS_FAULTS_LOCKED";
/// A user without privileges.
pub(crate) const NOBODY: u32 = 1000;

/// A helper process; killed when dropped, and when the case's process ends.
pub(crate) struct Player {
    child: Child,
    orders: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

/// The rights of a process.
#[derive(Default)]
pub(crate) struct As {
    /// Whether it is unprivileged, as [`NOBODY`].
    pub(crate) nobody: bool,
    /// Bytes of memory that it may lock.
    pub(crate) locks: Option<u64>,
    /// Its control group.
    pub(crate) group: Option<PathBuf>,
}

impl Player {
    /// Starts one that plays the role, whose words are separated by spaces.
    pub(crate) fn start(role: &[&str]) -> Player {
        Player::start_as(&As::default(), role)
    }

    pub(crate) fn start_as(who: &As, role: &[&str]) -> Player {
        let program = std::env::current_exe().unwrap();
        let mut command = match &who.group {
            None => Command::new(program),
            Some(group) => {
                let mut command = Command::new("sh");
                let procs = group.join("cgroup.procs");
                command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(procs).arg(program);
                command
            }
        };
        command.arg("--play").args(role).env(LIBRARIES, libraries());
        if let Some(bytes) = who.locks {
            command.env(LOCKED, bytes.to_string());
        }
        if who.nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, said) = (child.stdin.take(), child.stdout.take().unwrap());
        Player { child, orders, said: BufReader::new(said) }
    }

    /// Waits for a message that begins with `words`, and returns the rest.
    pub(crate) fn hear(&mut self, words: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it ended and did not say {words:?}");
            let said = line.trim_end().strip_prefix(MARK);
            if let Some(rest) = said.and_then(|said| said.strip_prefix(words)) {
                return rest.trim_start().to_owned();
            }
        }
    }

    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let status = format!("/proc/{}/status", self.child.id());
        while !std::fs::read_to_string(&status).unwrap().contains("State:\tT") {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Continues it.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Plays a role in this process.
///
/// # Panics
/// If there is no such role.
pub(crate) fn play(role: &[&str]) {
    // Also if it is stopped at that moment.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    if let Ok(bytes) = std::env::var(LOCKED) {
        let most = Some(bytes.parse().unwrap());
        setrlimit(Resource::Memlock, Rlimit { current: most, maximum: most }).unwrap();
    }
    match role {
        ["target", backend, address] => target::play(backend, address),
        ["source", backend, address] => source::play(backend, address),
        _ => panic!("no such role: {role:?}"),
    }
}

/// Sends a message to the case.
pub(crate) fn say(words: &str) {
    println!("{MARK}{}", words.replace('\n', " "));
}

/// The folder with the injected functions of a case.
pub(crate) fn libraries() -> PathBuf {
    std::env::var_os(LIBRARIES).expect("cases are told where the functions are").into()
}

/// One of the injected functions.
pub(crate) fn library(name: &str) -> Library {
    Library::open(libraries().join(format!("lib{name}.so"))).unwrap()
}
