//! The source's end of the second process: starting it, telling it what to do, and hearing what came of it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use super::across::Across;
use super::child_protocol::{Answer, Offer, Order, Played, Sent, Set, Sleeper, Talk};
use super::liveness::Watch;
use super::shared_memory::Memory;
use crate::program::failure::Failure;
use crate::program::workspace::{Stage, this_program};

/// The second process, which goes with the stage.
pub(super) struct Pair {
    talk: Talk,
    memory: Memory,
    watch: Watch,
    pid: u32,
}

impl Pair {
    /// Starts it, with regions and data of so many bytes in the memory of both, and in another network namespace if it is to be
    /// there.
    pub(super) fn start(
        stage: &Stage,
        region: usize,
        store: usize,
        across: Option<&Across>,
    ) -> Result<Pair, Failure> {
        let failed = |error: io::Error| Failure::new(format!("cannot start the second process: {error}"));
        let memory = Memory::create(region, store)?;
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = this_program();
        command.arg("perf-other").arg("--memory").arg(memory.descriptor().to_string());
        if let Some(across) = across {
            command.arg("--namespace").arg(across.namespace());
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let pid = stage.start(&mut command).map_err(failed)?.id();
        let watch = Watch::of(&socket).map_err(failed)?;
        let talk = Talk::new(socket).map_err(failed)?;
        talk.limit().map_err(failed)?;
        Ok(Pair { talk, memory, watch, pid })
    }

    /// The number of the second process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Has it be a source of the target whose socket has this name.
    pub(super) fn connect(&mut self, socket: &str, transport: &str) -> Result<(), Failure> {
        self.talk.say(&Order::Connect { socket: socket.to_owned(), transport: transport.to_owned() })?;
        match self.hear()? {
            Answer::Connected => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it be what sleeps, until the end. What that offers, or why it is not there.
    pub(super) fn sleep(&mut self, sleeper: &Sleeper) -> Result<Result<Offer, String>, Failure> {
        self.talk.say(&Order::Sleep(sleeper.clone()))?;
        match self.hear()? {
            Answer::Made(mut made) if made.len() == 1 => Ok(made.remove(0)),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it send so many messages of `size` bytes, and does not wait for it: [`Pair::sent`] does.
    pub(super) fn send(&mut self, size: usize, count: u64) -> Result<(), Failure> {
        self.talk.say(&Order::Send { size, count })
    }

    /// What came of the messages that it was told to send.
    pub(super) fn sent(&mut self) -> Result<Sent, Failure> {
        match self.hear()? {
            Answer::Sent(sent) => Ok(sent),
            other => Err(unexpected(&other)),
        }
    }

    /// Measures what needs this process alone, while the other one rests.
    pub(super) fn rest<T>(
        &self,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        measure(&self.memory, &self.watch)
    }

    /// Has it make its side of everything. For each: what it offers, or why there is none.
    pub(super) fn set(&mut self, set: Set) -> Result<Vec<Result<Offer, String>>, Failure> {
        self.talk.say(&Order::Set(set))?;
        match self.hear()? {
            Answer::Made(made) => Ok(made),
            other => Err(unexpected(&other)),
        }
    }

    /// Joins the sides here by `own`, then has the other process do the same. For each: whether it could. One after the other: a
    /// side that cannot is gone at once, and UCX complains where one looks for it.
    pub(super) fn join<T>(
        &mut self,
        offers: Vec<Option<Offer>>,
        own: impl FnOnce(&Memory) -> T,
    ) -> Result<(Vec<Result<(), String>>, T), Failure> {
        let own = own(&self.memory);
        self.talk.say(&Order::Join(offers))?;
        match self.hear()? {
            Answer::Joined(joined) => Ok((joined, own)),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it play while `measure` runs. Returns what that returned, and what came of it there.
    pub(super) fn play<T>(
        &mut self,
        order: &Order,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<(T, Played), Failure> {
        self.memory.reset();
        self.talk.say(order)?;
        match self.hear()? {
            Answer::Playing => {}
            other => return Err(unexpected(&other)),
        }
        let measured = measure(&self.memory, &self.watch);
        self.memory.stop();
        // What it says may be why the measurement failed.
        let heard = self.hear();
        let measured = match (measured, heard) {
            (Err(_), Err(why)) if self.watch.has_failed() => return Err(why),
            (measured, heard) => (measured?, heard?),
        };
        match measured {
            (measured, Answer::Played(played)) => Ok((measured, played)),
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// Has it time something while `meanwhile` runs, once it is ready if it has to be. In nanoseconds.
    pub(super) fn time(
        &mut self,
        order: &Order,
        meanwhile: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<f64, Failure> {
        self.talk.say(order)?;
        let mut answer = self.hear()?;
        if matches!(answer, Answer::Playing) {
            meanwhile()?;
            answer = self.hear()?;
        }
        match answer {
            Answer::Timed(nanoseconds) => Ok(nanoseconds as f64),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it time loading a library.
    pub(super) fn time_load(&mut self, library: &Path, symbol: String, adds: u64) -> Result<f64, Failure> {
        self.time(&Order::Load { library: library.to_owned(), symbol, adds }, || Ok(()))
    }

    /// Has it end, and waits until it has.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.talk.say(&Order::End)?;
        match self.talk.hear::<Answer>()? {
            None => Ok(()),
            Some(other) => Err(unexpected(&other)),
        }
    }

    fn hear(&mut self) -> Result<Answer, Failure> {
        match self.talk.hear()? {
            Some(Answer::Failed(why)) => Err(Failure::new(why)),
            Some(answer) => Ok(answer),
            None => Err(Failure::new("the second process ended in the middle of the run")),
        }
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::new(format!("the second process did not do as it was told: {answer:?}"))
}
