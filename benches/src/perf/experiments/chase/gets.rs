//! The client that fetches each word: by loads from memory that it has mapped, or by UCX's gets.

use std::sync::Arc;

use super::client::Client;
use super::message::{Ended, Message};
use super::server::Shards;
use super::table::{Chase, Table};
use super::wire;
use crate::perf::machine::clock;
use crate::program::failure::Failure;

/// Reads words of shards.
pub(super) trait Reads {
    /// Returns a word of the part of a shard.
    fn read(&mut self, shard: usize, word: usize) -> Result<u64, Failure>;

    fn lane(&self) -> Option<String> {
        None
    }
}

/// Reads from the table itself.
pub(super) struct Loads(pub(super) Arc<Table>);

impl Reads for Loads {
    #[inline]
    fn read(&mut self, shard: usize, word: usize) -> Result<u64, Failure> {
        Ok(self.0.part(shard)[word])
    }
}

/// No shards: loads need none.
pub(super) struct NoShards;

impl Shards for NoShards {
    fn poll(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn handled(&self) -> Result<u64, Failure> {
        Ok(0)
    }
}

/// A chase under way.
struct Step {
    slot: u32,
    /// The fetched word.
    value: u32,
    /// Words still to be fetched behind it.
    left: u32,
    messages: u32,
    /// The time at which the wire has brought it.
    ready: u64,
}

/// The client. A get counts as two messages, a request and its reply.
pub(super) struct Gets<R> {
    reads: R,
    log2: u32,
    in_flight: Vec<Step>,
}

/// Words that are fetched before the caller looks at the clock.
const STEPS: usize = 64;

impl<R: Reads> Gets<R> {
    pub(super) fn new(reads: R, log2: u32) -> Gets<R> {
        Gets { reads, log2, in_flight: Vec::new() }
    }

    #[inline]
    fn fetch(&mut self, index: u32) -> Result<u32, Failure> {
        let word = index & ((1 << self.log2) - 1);
        self.reads.read((index >> self.log2) as usize, word as usize).map(|word| word as u32)
    }
}

/// Returns the time at which the reply to a request sent now is here.
#[inline]
fn ready() -> u64 {
    match wire::latency() {
        0 => 0,
        latency => clock::now() + 2 * latency,
    }
}

impl<R: Reads> Client for Gets<R> {
    fn begin(&mut self, _shard: usize, message: Message) -> Result<(), Failure> {
        let ready = ready();
        let value = self.fetch(message.index)?;
        let Message { slot, left, .. } = message;
        self.in_flight.push(Step { slot, value, left: left - 1, messages: 2, ready });
        Ok(())
    }

    fn look(&mut self, ended: &mut Vec<Ended>) -> Result<(), Failure> {
        let waits = wire::latency() != 0;
        for _ in 0..STEPS {
            let mut at = 0;
            while let Some(&Step { slot, value, left, messages, ready: due }) = self.in_flight.get(at) {
                if waits && clock::now() < due {
                    at += 1;
                    continue;
                }
                if left == 0 {
                    ended.push(Ended { slot, index: value, messages });
                    self.in_flight.swap_remove(at);
                    continue;
                }
                let ready = ready();
                let value = self.fetch(value)?;
                self.in_flight[at] = Step { slot, value, left: left - 1, messages: messages + 2, ready };
                at += 1;
            }
            if !ended.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn messages(&self, chase: &Chase) -> u32 {
        chase.messages_of_gets()
    }

    fn lane(&self) -> Option<String> {
        self.reads.lane()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::experiments::chase::client::Chases;
    use crate::perf::process::liveness::Watch;

    #[test]
    fn gets_read_what_the_walk_reads_by_two_messages_each() {
        let table = Arc::new(Table::new(3, 6));
        for depth in [1, 2, 100] {
            let chases = table.chases(depth, 20, 1);
            for outstanding in [1, 7] {
                let all = Chases { chases: &chases, outstanding, log2: 6 };
                let mut client = Gets::new(Loads(table.clone()), 6);
                let timed = all.run(&mut client, &Watch::alone()).expect("the results are right");
                assert_eq!(timed.messages, f64::from(2 * depth));
            }
        }
    }
}
