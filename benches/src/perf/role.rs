//! The two sides of a measurement: the source's, which is timed, and the target's. The loops are here, the same for all that is
//! measured; they are compiled for each, and nothing in them allocates.

use std::time::{Duration, Instant};

use super::liveness::Watch;
use super::shared_memory::Memory;
use crate::program::failure::Failure;

/// How often the target's side looks for a message between looks at whether to stop.
const LOOKS: u32 = 64;
/// After how many of those it sees whether the other process is still there.
const ROUNDS: u32 = 1 << 14;

/// The source's side.
pub(super) trait Source {
    /// From here on messages have `size` bytes of payload, and are called one by one or, if `streams`, sent without an answer.
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure>;

    /// Sends a message and waits for its answer.
    fn call(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Sends a message, once there is room for it.
    fn send(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Waits until nothing of what was sent needs this side any more. Not timed; the other side still serves.
    fn settle(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Waits until all that was sent has been counted at the target.
    fn finish(&mut self, memory: &Memory, watch: &Watch) -> Result<(), Failure>;

    /// Fills `times` with how long `batch` calls take each.
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

    /// How long it takes from the first of `count` messages being sent to the last being counted.
    fn stream(&mut self, count: u64, memory: &Memory, watch: &Watch) -> Result<Duration, Failure> {
        let start = Instant::now();
        for _ in 0..count {
            self.send(watch)?;
        }
        self.finish(memory, watch)?;
        Ok(start.elapsed())
    }
}

/// The target's side.
pub(super) trait Other {
    /// From here on messages have `size` bytes of payload, and none has come.
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure>;

    /// Looks once. Returns how many messages have come and been counted.
    fn look(&mut self) -> Result<u64, Failure>;

    /// Answers a message, as shortly as can be.
    fn answer(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// How many were counted in all since [`Other::prepare`], after the last look.
    fn counted(&mut self) -> Result<u64, Failure>;

    /// Counts, and answers if `answers`, until told to stop. After `expected` messages the source is told.
    fn serve(
        &mut self,
        answers: bool,
        expected: u64,
        memory: &Memory,
        watch: &Watch,
    ) -> Result<u64, Failure> {
        look_and_count(self, answers, expected, memory, watch)
    }
}

/// Serves as [`Other::serve`] says, looking all the time.
pub(super) fn look_and_count<O: Other + ?Sized>(
    other: &mut O,
    answers: bool,
    expected: u64,
    memory: &Memory,
    watch: &Watch,
) -> Result<u64, Failure> {
    let mut seen = 0;
    let mut rounds = 0_u32;
    while !memory.stopped() {
        for _ in 0..LOOKS {
            let count = other.look()?;
            if count != seen {
                seen = count;
                if answers {
                    other.answer(watch)?;
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
    other.counted()
}

/// One end of something by which both sides send messages to each other: a reference.
pub(super) trait Peer {
    /// From here on messages have `sent` bytes, those of the other side `taken` bytes, and none has come. Where nothing
    /// `streams`, no message is sent before the one before was answered.
    fn prepare(&mut self, sent: usize, taken: usize, streams: bool);

    /// Sends a message, once there is room for it.
    fn send(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Looks once. Returns how many messages have come.
    fn look(&mut self) -> Result<u64, Failure>;

    /// How many had come at the last look.
    fn came(&self) -> u64;

    /// Waits until nothing of what was sent needs this side any more.
    fn settle(&mut self, watch: &Watch) -> Result<(), Failure>;
}

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
            // What was sent may need this side's work still.
            Peer::look(self)?;
            Ok(memory.finished())
        })
    }
}

impl<P: Peer> Other for P {
    fn prepare(&mut self, size: usize, streams: bool) -> Result<(), Failure> {
        Peer::prepare(self, 0, size, streams);
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        Peer::look(self)
    }

    #[inline]
    fn answer(&mut self, watch: &Watch) -> Result<(), Failure> {
        Peer::send(self, watch)
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        Ok(self.came())
    }
}
