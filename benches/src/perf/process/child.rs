//! The source's handle to the second process: starting it, commanding it, and reading its results.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use farjump_os::limits;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::child_protocol::{EndpointSpec, Offer, Order, Played, Sent, Set, ShardSpec, Talk};
use super::liveness::Watch;
use super::network_namespaces::Across;
use super::shared_memory::Memory;
use crate::perf::experiments::first_call;
use crate::perf::experiments::work::resident;
use crate::perf::machine::Placement;
use crate::program::failure::Failure;
use crate::program::workspace::{Stage, this_program};

/// The second process. It ends with the workspace.
pub(in crate::perf) struct Pair {
    talk: Talk,
    memory: Memory,
    watch: Watch,
    pid: u32,
    placement: Placement,
}

impl Pair {
    /// Starts it, with regions and data of so many bytes in shared memory, in another network namespace if
    /// requested.
    pub(in crate::perf) fn start(
        stage: &Stage,
        region: usize,
        store: usize,
        across: Option<&Across>,
    ) -> Result<Pair, Failure> {
        let failed = |error: io::Error| {
            let advice = limits::behind_program(&error, "Mount /proc: it names this program");
            Failure::new(format!("cannot start the second process: {error}{advice}"))
        };
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
        Ok(Pair { talk, memory, watch, pid, placement: Placement::default() })
    }

    /// Returns the process id of the second process.
    pub(in crate::perf) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns its watch.
    pub(in crate::perf) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Makes it a source of the target whose socket has this name.
    pub(in crate::perf) fn connect(&mut self, socket: &str, transport: &str) -> Result<(), Failure> {
        self.request(&Order::Connect { socket: socket.to_owned(), transport: transport.to_owned() })
    }

    /// Makes it hold data of `size` bytes for a function.
    pub(in crate::perf) fn hold(&mut self, query: resident::Query, size: usize) -> Result<(), Failure> {
        self.request(&Order::Hold { query, size })
    }

    /// Makes it a sleeper, until the end. Returns its offer, or the reason why it is missing.
    pub(in crate::perf) fn sleep(&mut self, sleeper: EndpointSpec) -> Result<Result<Offer, String>, Failure> {
        self.request(&Order::Sleep(sleeper))
    }

    /// Makes it a shard of a chase, until the end.
    pub(in crate::perf) fn be_shard(&mut self, shard: ShardSpec) -> Result<(), Failure> {
        self.request(&Order::Shard(shard))
    }

    /// Sets the latency of the modelled wire there, in nanoseconds.
    pub(in crate::perf) fn set_wire(&mut self, latency: u64) -> Result<(), Failure> {
        self.request(&Order::Wire(latency))
    }

    /// Returns the number of messages that it has handled as a shard.
    pub(in crate::perf) fn handled(&mut self) -> Result<u64, Failure> {
        self.request(&Order::Handled)
    }

    /// Makes it send this many messages of `size` bytes. [`Pair::sent`] waits for them.
    pub(in crate::perf) fn send(&mut self, size: usize, count: u64) -> Result<(), Failure> {
        self.talk.say(&Order::Send { size, count })
    }

    /// Returns the result of the messages that it was ordered to send.
    pub(in crate::perf) fn sent(&mut self) -> Result<Sent, Failure> {
        self.hear()
    }

    /// Measures within this process alone while the other one is quiet.
    pub(in crate::perf) fn rest<T>(
        &self,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        measure(&self.memory, &self.watch)
    }

    /// Makes it open its endpoints. Returns the offer of each, or the reason why it is missing.
    pub(in crate::perf) fn set(&mut self, set: Set) -> Result<Vec<Result<Offer, String>>, Failure> {
        self.request(&Order::Set(set))
    }

    /// Connects the endpoints here by `own`, then makes the other process do the same. Returns for each whether that
    /// succeeded. The two take turns: an endpoint that fails is dropped at once, and UCX complains if its peer searches
    /// for it.
    pub(in crate::perf) fn join<T>(
        &mut self,
        offers: Vec<Option<Offer>>,
        own: impl FnOnce(&Memory) -> T,
    ) -> Result<(Vec<Result<(), String>>, T), Failure> {
        let own = own(&self.memory);
        Ok((self.request(&Order::Join(offers))?, own))
    }

    /// Makes it serve while `measure` runs. Returns the result of `measure`, and of serving.
    pub(in crate::perf) fn play<T>(
        &mut self,
        order: &Order,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<(T, Played), Failure> {
        self.memory.reset();
        self.request::<()>(order)?;
        let measured = measure(&self.memory, &self.watch);
        self.memory.stop();
        // Its message may be the cause of the failed measurement.
        match (measured, self.hear()) {
            (Err(_), Err(why)) if self.watch.has_failed() => Err(why),
            (measured, played) => {
                let (measured, played) = (measured?, played?);
                self.placement.add(&played);
                Ok((measured, played))
            }
        }
    }

    /// Makes an endpoint's target serve calls of `size` bytes while `act` runs. Returns its result, and what the target
    /// counted.
    pub(in crate::perf) fn serve<T>(
        &mut self,
        endpoint: usize,
        size: usize,
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, Played), Failure> {
        self.play(&Order::Play { endpoint, size, streams: true, expected: u64::MAX }, |_, _| act())
    }

    /// Returns the processors of both processes since the last call of this.
    pub(in crate::perf) fn take_placement(&mut self) -> Placement {
        std::mem::take(&mut self.placement)
    }

    /// Makes it time the next calls that reach an endpoint, in nanoseconds. `call` makes each, by its place in `adds`.
    pub(in crate::perf) fn time_first(
        &mut self,
        endpoint: usize,
        adds: Vec<u64>,
        call: impl Fn(usize) -> Result<(), Failure>,
    ) -> Result<Vec<u64>, Failure> {
        let count = adds.len();
        self.memory.reset();
        self.request::<()>(&Order::First { endpoint, adds })?;
        for place in 0..count {
            if place != 0 {
                // A poll that has not returned from the last call would run this one too, and its time would be that of
                // both.
                self.watch.until(|| Ok(self.memory.finished()))?;
                self.memory.reset();
            }
            call(place)?;
        }
        self.hear()
    }

    /// Makes it time loading libraries, in nanoseconds.
    pub(in crate::perf) fn time_load(
        &mut self,
        libraries: Vec<first_call::Loaded>,
    ) -> Result<Vec<u64>, Failure> {
        self.request(&Order::Load(libraries))
    }

    /// Makes it end, and waits for that.
    pub(in crate::perf) fn end(mut self) -> Result<(), Failure> {
        self.talk.say(&Order::End)?;
        match self.talk.hear::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(Failure::new("the second process replied to the order to end")),
        }
    }

    /// Makes it end, without waiting for that.
    pub(in crate::perf) fn dismiss(&mut self) {
        // It may have ended already.
        let _ = self.talk.say(&Order::End);
    }

    fn request<T: DeserializeOwned>(&mut self, order: &Order) -> Result<T, Failure> {
        self.talk.say(order)?;
        self.hear()
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        match self.talk.hear::<Result<T, String>>()? {
            Some(reply) => reply.map_err(Failure::new),
            None => Err(Failure::new("the second process ended in the middle of the run")),
        }
    }
}
