//! farjump itself: `counter`, called over a link at the source, polled for at the target.

use std::path::Path;
use std::time::{Duration, Instant};

use farjump::{Library, Link, Mode, Target, TargetBuilder, WaitPolicy};

use crate::perf::experiments::bitcode::{has_bitcode, takes_bitcode};
use crate::perf::experiments::role::{Receiver, Source, look_and_count};
use crate::perf::process::child_protocol::Set;
use crate::perf::process::counterpart::Counterpart;
use crate::perf::process::liveness::{CONNECTING, PATIENCE, Watch};
use crate::perf::process::place;
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// Time for which a target sleeps between checks whether to continue.
const NAP: Duration = Duration::from_millis(20);

/// Polls without result between looks for a source on the same processor.
const POLLS_TO_YIELD: u32 = 64;
/// Polls between checks that the other process is still there.
const POLLS_TO_CHECK: u32 = 1 << 20;

/// The source's endpoint: a link that never sleeps.
pub(crate) struct Calls<'a> {
    pub(crate) link: &'a Link,
    library: &'a Library,
    /// The bytes that the payload routines copy.
    args: Vec<u8>,
    size: usize,
    /// Calls of a stream sent at a time, as a batch if more than one.
    batch: u64,
}

impl<'a> Calls<'a> {
    /// Makes the endpoint for calls of `library`'s function, with a prefix of `args` as arguments. Streams are batches
    /// of `batch`.
    pub(crate) fn new(link: &'a Link, library: &'a Library, args: Vec<u8>, batch: u32) -> Calls<'a> {
        Calls { link, library, args, size: 0, batch: batch.into() }
    }
}

/// Makes one call in `mode`, which stays the mode of later calls. A case that cannot be measured fails here.
pub(crate) fn attempt(link: &Link, library: &Library, mode: Mode, args: &[u8]) -> Result<(), farjump::Error> {
    link.set_mode(mode);
    link.inject(library, args)?.wait(PATIENCE).map(drop)
}

/// Makes one such call while the target serves. The inner error is the reason why the case cannot be measured.
///
/// # Errors
/// The target is gone.
pub(crate) fn attempt_served(
    counterpart: &mut Counterpart,
    endpoint: usize,
    link: &Link,
    library: &Library,
    mode: Mode,
    args: &[u8],
) -> Result<Result<(), String>, Failure> {
    match counterpart.serve(endpoint, || attempt(link, library, mode, args))? {
        Err(error @ farjump::Error::Wait(farjump::WaitError::PeerGone { .. })) => Err(error.into()),
        attempted => Ok(attempted.map_err(|error| error.to_string())),
    }
}

impl Source for Calls<'_> {
    fn prepare(&mut self, size: usize, _streams: bool) -> Result<(), Failure> {
        self.size = size;
        Ok(())
    }

    #[inline]
    fn call(&mut self, _watch: &Watch) -> Result<(), Failure> {
        self.link.inject(self.library, &self.args[..self.size])?.wait(PATIENCE)?;
        Ok(())
    }

    #[inline]
    fn send(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(self.link.send(self.library, &self.args[..self.size])?)
    }

    fn stream(&mut self, count: u64, memory: &Memory, watch: &Watch) -> Result<Duration, Failure> {
        let start = Instant::now();
        if self.batch == 1 {
            for _ in 0..count {
                self.send(watch)?;
            }
        }
        let mut left = if self.batch == 1 { 0 } else { count };
        while left != 0 {
            let mut batch = self.link.batch();
            let some = left.min(self.batch);
            for _ in 0..some {
                batch.send(self.library, &self.args[..self.size])?;
            }
            batch.finish()?;
            left -= some;
        }
        self.finish(memory, watch)?;
        Ok(start.elapsed())
    }

    fn settle(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    fn finish(&mut self, _memory: &Memory, _watch: &Watch) -> Result<(), Failure> {
        Ok(self.link.flush(PATIENCE)?)
    }
}

/// Connects to the target whose socket has this name; where each transport has a target, the name is the
/// transport's. The link never sleeps.
pub(crate) fn connect(folder: &Path, socket: &str, transport: &str) -> Result<Link, Failure> {
    Ok(place::link(folder, socket, transport)?.wait_policy(WaitPolicy::spin_only()).connect()?)
}

/// The target's endpoint.
pub(crate) struct Polls {
    target: Target<'static>,
    waits: Waits,
    /// Calls that have run, by the target's own count.
    ran: u64,
    /// The count at the start of the present measurement.
    before: u64,
    /// The number of times that it yielded its processor to the source since then.
    yields: u64,
}

/// A target's behaviour while nothing comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// Sleeps.
    Asleep,
    /// Polls.
    Polling,
    /// Polls, and yields the processor to a source that waits there.
    Yielding,
}

impl Polls {
    /// Builds a target over one transport, for `sources` sources and `counter`, which counts in a word that
    /// the target owns.
    pub(crate) fn of_counter(
        socket: &str,
        transport: &str,
        sources: usize,
        set: &Set,
        counter: &Library,
    ) -> Result<Polls, Failure> {
        // Leaked until the end of this process, which has only a few.
        let count: &'static mut u64 = Box::leak(Box::new(0));
        Polls::listen(socket, transport, set, counter, |builder| builder.args(count).max_sources(sources))
    }

    /// Builds a target as [`Polls::of_counter`] does, for one source. It takes bitcode rather than images.
    pub(crate) fn of_bitcode(
        socket: &str,
        transport: &str,
        set: &Set,
        counter: &Library,
    ) -> Result<Polls, Failure> {
        has_bitcode()?;
        let count: &'static mut u64 = Box::leak(Box::new(0));
        Polls::listen(socket, transport, set, counter, |builder| takes_bitcode(builder.args(count)))
    }

    /// Builds a target over one transport, with mailboxes as in `set`, which `finish` completes.
    pub(crate) fn listen(
        socket: &str,
        transport: &str,
        set: &Set,
        local: &Library,
        finish: impl FnOnce(TargetBuilder<'static>) -> TargetBuilder<'static>,
    ) -> Result<Polls, Failure> {
        let builder = place::target(&set.folder, &set.host, socket, transport)?
            .modes(Mode::ALL)
            .local(local)
            .mailbox_size(set.ring)
            .handshake_timeout(CONNECTING);
        let builder = match set.wait_policy() {
            Some(policy) => builder.wait_policy(policy),
            None => builder,
        };
        let target = finish(builder).build()?;
        place::announce(&set.folder, socket, transport, &target)?;
        let waits = match (set.sleeps, set.cpu) {
            (true, _) => Waits::Asleep,
            (false, Some(_)) => Waits::Polling,
            (false, None) => Waits::Yielding,
        };
        Ok(Polls { target, waits, ran: 0, before: 0, yields: 0 })
    }

    /// Polls until the order to stop, and yields the processor to a source that waits there.
    fn poll_and_yield(&mut self, memory: &Memory, watch: &Watch) -> Result<u64, Failure> {
        let (mut idle, mut rounds) = (0_u32, 0_u32);
        while !memory.stopped() {
            idle = if self.target.poll()? == 0 { idle.wrapping_add(1) } else { 0 };
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(POLLS_TO_CHECK) {
                watch.still_there()?;
            }
            if idle != 0 && idle.is_multiple_of(POLLS_TO_YIELD) && self.target.may_share_processor() {
                self.yields += 1;
                std::thread::yield_now();
            }
        }
        self.counted()
    }

    /// Returns the count of `counter`, or of the target where other functions run.
    fn count(&mut self) -> u64 {
        self.target.args_mut::<u64>().map_or(self.ran, |count| *count)
    }
}

impl Receiver for Polls {
    fn prepare(&mut self, _size: usize, _streams: bool) -> Result<(), Failure> {
        (self.before, self.yields) = (self.count(), 0);
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        self.ran += self.target.poll()? as u64;
        // Never requested: the link itself knows when all calls have run.
        Ok(0)
    }

    fn reply(&mut self, _watch: &Watch) -> Result<(), Failure> {
        // The target replies in `look`.
        Ok(())
    }

    fn time_first(&mut self, adds: &[u64], memory: &Memory, watch: &Watch) -> Result<Vec<u64>, Failure> {
        let mut times = Vec::with_capacity(adds.len());
        for adds in adds {
            let before = self.count();
            let mut time = Duration::ZERO;
            watch.until(|| {
                let start = Instant::now();
                let ran = self.target.poll()?;
                time = start.elapsed();
                Ok(ran != 0)
            })?;
            match self.count() - before {
                added if added == *adds => {
                    times.push(time.as_nanos() as u64);
                    memory.finish();
                }
                added => {
                    let text = format!("the first call added {added}, not {adds}: other code ran");
                    return Err(Failure::new(text));
                }
            }
        }
        Ok(times)
    }

    fn serve(
        &mut self,
        replies: bool,
        expected: u64,
        memory: &Memory,
        watch: &Watch,
    ) -> Result<u64, Failure> {
        match self.waits {
            Waits::Polling => return look_and_count(self, replies, expected, memory, watch),
            Waits::Yielding => return self.poll_and_yield(memory, watch),
            Waits::Asleep => {}
        }
        while !memory.stopped() {
            while self.target.poll()? != 0 {}
            self.target.wait(NAP)?;
            watch.still_there()?;
        }
        self.counted()
    }

    fn yields(&self) -> u64 {
        self.yields
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        Ok(self.count() - self.before)
    }
}
