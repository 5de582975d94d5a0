//! The two roles in a measurement: the source, which is timed, and the target. The loops here are the same
//! for all cases; they are compiled for each, and nothing in them allocates.

use std::time::{Duration, Instant};

use crate::perf::process::liveness::Watch;
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// Polls of the target between checks whether to stop.
const LOOKS: u32 = 64;
/// Number of such checks after which it checks that the other process is still there.
const ROUNDS: u32 = 1 << 14;

/// The source's role.
pub(in crate::perf) trait Source {
    /// Sets the size of messages to `size` bytes of payload. They are then called one by one or, if
    /// `streams`, sent without replies.
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure>;

    /// Sends a message and waits for its reply.
    fn call(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Sends a message, waiting for credit.
    fn send(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Waits until no sent message needs this endpoint any more. Not timed; the peer still serves.
    fn settle(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Waits until all sent messages have been counted at the target.
    fn finish(&mut self, memory: &Memory, watch: &Watch) -> Result<(), Failure>;

    /// Returns UCX's transports, if it reports them.
    fn lanes(&self) -> Option<String> {
        None
    }

    /// Fills `times` with the times of `batch` calls each.
    fn calls(&mut self, times: &mut [Duration], batch: u32, watch: &Watch) -> Result<(), Failure> {
        let mut start = Instant::now();
        for time in times {
            for _ in 0..batch {
                self.call(watch)?;
            }
            let end = Instant::now();
            *time = end - start;
            start = end;
        }
        Ok(())
    }

    /// Returns the time from sending the first of `count` messages to counting the last.
    fn stream(&mut self, count: u64, memory: &Memory, watch: &Watch) -> Result<Duration, Failure> {
        let start = Instant::now();
        for _ in 0..count {
            self.send(watch)?;
        }
        self.finish(memory, watch)?;
        Ok(start.elapsed())
    }
}

/// The target's role.
pub(in crate::perf) trait Receiver {
    /// Sets the size of messages to `size` bytes of payload, and resets the count.
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure>;

    /// Polls once. Returns the number of messages that have come and been counted.
    fn look(&mut self) -> Result<u64, Failure>;

    /// Replies to a message, as briefly as possible.
    fn reply(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Returns the count since [`Receiver::prepare`], as of the last poll.
    fn counted(&mut self) -> Result<u64, Failure>;

    /// Returns the number of times that it yielded its processor to the source since [`Receiver::prepare`].
    fn yields(&self) -> u64 {
        0
    }

    /// Returns the times from the arrival of each of the next calls to its reply, in nanoseconds. The calls add
    /// `adds` to the count. Notifies the source after each.
    fn time_first(&mut self, _adds: &[u64], _memory: &Memory, _watch: &Watch) -> Result<Vec<u64>, Failure> {
        Err(Failure::new("only farjump's own targets time first calls"))
    }

    /// Counts, and replies if `replies`, until the order to stop. Notifies the source once `expected`
    /// messages have come.
    fn serve(
        &mut self,
        replies: bool,
        expected: u64,
        memory: &Memory,
        watch: &Watch,
    ) -> Result<u64, Failure> {
        look_and_count(self, replies, expected, memory, watch)
    }
}

/// Serves like [`Receiver::serve`], polling all the time.
pub(in crate::perf) fn look_and_count<R: Receiver + ?Sized>(
    receiver: &mut R,
    replies: bool,
    expected: u64,
    memory: &Memory,
    watch: &Watch,
) -> Result<u64, Failure> {
    let mut seen = 0;
    let mut rounds = 0_u32;
    while !memory.stopped() {
        for _ in 0..LOOKS {
            let count = receiver.look()?;
            if count != seen {
                seen = count;
                if replies {
                    receiver.reply(watch)?;
                }
                if count == expected {
                    memory.finish();
                }
            }
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(ROUNDS) {
            watch.still_there()?;
        }
    }
    receiver.counted()
}

/// An endpoint of a baseline through which both processes send messages to each other.
pub(in crate::perf) trait Peer {
    /// Sets the size of messages to `sent` bytes, of the peer's to `taken` bytes, and resets the count. If
    /// not `streams`, a message is sent only after the reply to the previous one.
    fn prepare(&mut self, sent: usize, taken: usize, streams: bool);

    /// Sends a message, waiting for credit.
    fn send(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Polls once. Returns the number of messages that have come.
    fn look(&mut self) -> Result<u64, Failure>;

    /// Returns the number of messages as of the last poll.
    fn came(&self) -> u64;

    /// Waits until no sent message needs this endpoint any more.
    fn settle(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Returns UCX's transports, if it reports them.
    fn lanes(&self) -> Option<String> {
        None
    }
}

/// Both roles, by the same endpoint.
pub(in crate::perf) trait Both: Source + Receiver {}

impl<P: Peer> Both for P {}

impl<P: Peer> Source for P {
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure> {
        Peer::prepare(self, size, 0, streams);
        Ok(())
    }

    #[inline]
    fn call(&mut self, watch: &Watch) -> Result<(), Failure> {
        let before = self.came();
        Peer::send(self, watch)?;
        watch.until(|| Ok(Peer::look(self)? != before))
    }

    #[inline]
    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        Peer::send(self, watch)
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        Peer::settle(self, watch)
    }

    fn finish(&mut self, memory: &Memory, watch: &Watch) -> Result<(), Failure> {
        watch.until(|| {
            // Sent messages may still need this endpoint's progress.
            Peer::look(self)?;
            Ok(memory.finished())
        })
    }

    fn lanes(&self) -> Option<String> {
        Peer::lanes(self)
    }
}

impl<P: Peer> Receiver for P {
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure> {
        Peer::prepare(self, 0, size, streams);
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        Peer::look(self)
    }

    #[inline]
    fn reply(&mut self, watch: &Watch) -> Result<(), Failure> {
        Peer::send(self, watch)
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        Ok(self.came())
    }
}
