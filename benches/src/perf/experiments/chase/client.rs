//! The client's side of every contestant, and the measurement of its chases.

use super::message::{Ended, Message, check_lost};
use super::table::Chase;
use crate::perf::machine::clock;
use crate::perf::process::liveness::Watch;
use crate::perf::report::statistics::median;
use crate::program::failure::Failure;

/// The client of a contestant.
pub(super) trait Client {
    /// Begins a chase whose first word is in this shard's part.
    fn begin(&mut self, shard: usize, message: Message) -> Result<(), Failure>;

    /// Does the work at hand, and adds the chases that have ended.
    fn look(&mut self, ended: &mut Vec<Ended>) -> Result<(), Failure>;

    /// Returns the number of messages that a chase takes.
    fn messages(&self, chase: &Chase) -> u32 {
        chase.messages()
    }

    /// Returns the carrier of its messages, if that is known.
    fn lane(&self) -> Option<String> {
        None
    }
}

/// Chases to be measured together.
pub(super) struct Chases<'a> {
    pub(super) chases: &'a [Chase],
    /// Most of them that are under way at a time.
    pub(super) outstanding: usize,
    /// Logarithm of the words of a shard.
    pub(super) log2: u32,
}

/// Measured chases.
pub(super) struct Timed {
    /// Time of a chase in microseconds: the median of one by one, or of groups of several at a
    /// time by their number.
    pub(super) us: f64,
    /// Nanoseconds of each, if they were made one by one.
    pub(super) singles: Vec<u64>,
    /// Messages of a chase, in the mean.
    pub(super) messages: f64,
}

impl Chases<'_> {
    /// Runs all of them.
    ///
    /// # Errors
    /// A chase has another result than the walk through the table, or took another number of messages.
    pub(super) fn run(&self, client: &mut dyn Client, watch: &Watch) -> Result<Timed, Failure> {
        let Chases { chases, outstanding, log2 } = *self;
        let mut singles = Vec::with_capacity(chases.len());
        // The chase in each slot, and the time at which it began.
        let mut slots = vec![(0_usize, 0_u64); outstanding.min(chases.len())];
        let (mut ended, mut next, mut done, mut messages) = (Vec::with_capacity(slots.len()), 0, 0, 0);
        let mut begin = |slot: usize, slots: &mut [(usize, u64)], client: &mut dyn Client, now: u64| {
            let Some(chase) = chases.get(next) else { return Ok(()) };
            slots[slot] = (next, now);
            next += 1;
            client.begin((chase.start >> log2) as usize, Message::first(chase, slot as u32))
        };
        let start = clock::now();
        for slot in 0..slots.len() {
            begin(slot, &mut slots, client, clock::now())?;
        }
        // The time at which each group has ended. A group has as many chases as are under way.
        let mut groups = vec![start];
        while done < chases.len() {
            let looked = watch.until(|| {
                client.look(&mut ended)?;
                Ok(!ended.is_empty())
            });
            if let Err(failure) = looked {
                check_lost()?;
                return Err(failure);
            }
            let now = clock::now();
            for one in ended.drain(..) {
                let slot = one.slot as usize;
                let (number, began) = slots[slot];
                check(&chases[number], &one, client)?;
                messages += u64::from(one.messages);
                done += 1;
                singles.push(now - began);
                if done % outstanding == 0 {
                    groups.push(now);
                }
                begin(slot, &mut slots, client, clock::now())?;
            }
        }
        let messages = messages as f64 / chases.len() as f64;
        let us = |nanoseconds: u64, count: usize| nanoseconds as f64 / 1e3 / count as f64;
        if outstanding > 1 {
            let times: Vec<f64> = groups.windows(2).map(|two| us(two[1] - two[0], outstanding)).collect();
            return Ok(Timed { us: median(&times).unwrap_or_default(), singles: Vec::new(), messages });
        }
        let times: Vec<f64> = singles.iter().map(|time| us(*time, 1)).collect();
        Ok(Timed { us: median(&times).unwrap_or_default(), singles, messages })
    }
}

/// # Errors
/// The chase did not end like the walk.
fn check(chase: &Chase, ended: &Ended, client: &dyn Client) -> Result<(), Failure> {
    let expected = client.messages(chase);
    if (ended.index, ended.messages) == (chase.end, expected) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "a chase over {} words from word {} ended at {} after {} messages; by the table it ends at {} after {expected}",
        chase.depth, chase.start, ended.index, ended.messages, chase.end
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::experiments::chase::table::Table;

    /// Ends each chase at once.
    struct Instant(Vec<Ended>, u32);

    impl Client for Instant {
        fn begin(&mut self, shard: usize, message: Message) -> Result<(), Failure> {
            assert_eq!(shard, (message.index >> 5) as usize);
            let Message { index, slot, .. } = message;
            self.0.push(Ended { slot, index, messages: self.1 });
            Ok(())
        }

        fn look(&mut self, ended: &mut Vec<Ended>) -> Result<(), Failure> {
            ended.append(&mut self.0);
            Ok(())
        }
    }

    #[test]
    fn all_chases_run_and_a_wrong_message_count_is_an_error() {
        let table = Table::new(2, 5);
        let mut chases = table.chases(1, 10, 1);
        chases.iter_mut().for_each(|chase| chase.end = chase.start);
        for outstanding in [1, 3, 64] {
            let all = Chases { chases: &chases, outstanding, log2: 5 };
            let timed = all.run(&mut Instant(Vec::new(), 2), &Watch::alone()).expect("they are right");
            assert_eq!(timed.messages, 2.0);
            assert_eq!(timed.singles.len(), if outstanding == 1 { 10 } else { 0 });
            let Err(wrong) = all.run(&mut Instant(Vec::new(), 3), &Watch::alone()) else {
                panic!("three messages are too many")
            };
            assert!(wrong.to_string().contains("after 3 messages"), "{wrong}");
        }
    }
}
