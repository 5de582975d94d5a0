//! A target in a process of its own: its reactions to orders, and its messages.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use farjump::Target;
use farjump_fixtures::helper_process::{HelperProcess, say};
use tempfile::TempDir;

use crate::helper::{As, NOBODY, start, start_as};

/// Longest sleep between checks for orders.
const NAP: Duration = Duration::from_millis(20);
/// Time that a handshake may stall: cases wait for its end.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the rest of a frame. Emulated machines on busy processors take seconds for one of 300,000 bytes.
const FRAME: Duration = Duration::from_secs(20);

/// Plays a target whose `target_args` are a word in which functions count.
pub(crate) fn play(backend: &str, address: &str) {
    let mut word = 0_u64;
    let target =
        Target::listen(address).transport(backend).args(&mut word).handshake_timeout(HANDSHAKE_TIMEOUT);
    let target = target.stall_timeout(FRAME).on_peer_gone(|peer, why| say(&format!("gone {peer}: {why}")));
    let mut target = match target.build() {
        Ok(target) => target,
        Err(error) => return say(&format!("not ready: {error}")),
    };
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|order| sender.send(order))
    });
    say(&format!("ready {}", target.address()));
    loop {
        if target.poll().unwrap() == 0 {
            target.wait(NAP).unwrap();
        }
        match orders.try_recv().as_deref() {
            Ok("count") => {
                // Calls that have arrived run first.
                while target.poll().unwrap() != 0 {}
                let (sources, ran) = (target.sources(), *target.args_mut::<u64>().unwrap());
                say(&format!("count {ran} {sources}"));
            }
            Ok(order) => panic!("no such order: {order}"),
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => return,
        }
    }
}

/// A target at a socket of its own.
pub(crate) struct Played {
    pub(crate) process: HelperProcess,
    pub(crate) address: String,
    backend: String,
    folder: TempDir,
}

impl Played {
    pub(crate) fn start(backend: &str) -> Played {
        Played::start_as(&As::default(), backend).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts a target with these rights, or returns the reason why it does not serve.
    pub(crate) fn start_as(who: &As, backend: &str) -> Result<Played, String> {
        let folder = tempfile::tempdir().unwrap();
        if who.nobody {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let address = format!("unix:{}", folder.path().join("target.sock").display());
        let process = start_as(who, &["target", backend, &address]);
        let played = Played { process, address, backend: backend.to_owned(), folder };
        let said = played.process.hear_after("");
        match said.strip_prefix("not ready: ") {
            None => Ok(played),
            Some(why) => Err(why.to_owned()),
        }
    }

    /// Starts another target at the same address.
    pub(crate) fn again(&mut self) {
        self.process.kill();
        self.process = start(&["target", &self.backend, &self.address]);
        self.process.hear_after("ready");
    }

    /// Number of arrived calls that it has run, and of its sources.
    pub(crate) fn count(&mut self) -> (u64, u64) {
        self.process.order("count");
        let said = self.process.hear_after("count ");
        let (ran, sources) = said.split_once(' ').unwrap();
        (ran.parse().unwrap(), sources.parse().unwrap())
    }

    /// Its reason for a source that is gone.
    pub(crate) fn gone(&mut self) -> String {
        self.process.hear_after("gone ")
    }

    /// The path of its socket.
    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("target.sock")
    }
}
