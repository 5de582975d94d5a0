//! Accounting of a send queue: each work request by its running number, and the ones with a completion.
//!
//! Only one request in many asks for a completion, which frees it and all before it: a queue executes its
//! requests in order.

/// The accounts of one send queue.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Most requests under way.
    depth: u64,
    /// Requests posted so far: the number of the next one.
    posted: u64,
    /// All requests below this are done.
    done: u64,
    /// All requests below this are covered by a requested completion.
    covered: u64,
    /// The frame of the request in each slot.
    frames: Box<[u64]>,
}

/// The accounting data of a posted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Its number.
    pub(super) number: u64,
    /// Whether it must ask for a completion.
    pub(super) tells: bool,
}

impl Ledger {
    /// Makes the accounts of a queue for `depth` requests, a power of two and at least 8.
    pub(super) fn new(depth: u32) -> Ledger {
        debug_assert!(depth.is_power_of_two() && depth >= 8);
        Ledger {
            depth: u64::from(depth),
            posted: 0,
            done: 0,
            covered: 0,
            frames: vec![0; depth as usize].into(),
        }
    }

    /// Number of requests that can be posted now.
    #[inline]
    pub(super) fn room(&self) -> usize {
        (self.depth - (self.posted - self.done)) as usize
    }

    /// The number of the next request.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.posted
    }

    /// All requests below this number are done.
    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Enters a request for `frame`. There must be a free slot. One request in each quarter of the queue asks
    /// for a completion, so a full queue always has some under way.
    #[inline]
    pub(super) fn enter(&mut self, frame: u64) -> Entry {
        debug_assert!(self.room() > 0);
        let number = self.posted;
        self.frames[(number & (self.depth - 1)) as usize] = frame;
        self.posted += 1;
        let tells = self.posted - self.covered >= self.depth / 4;
        if tells {
            self.covered = self.posted;
        }
        Entry { number, tells }
    }

    /// The frame of a request that is under way; `None` for others.
    pub(super) fn frame(&self, number: u64) -> Option<u64> {
        let under_way = (self.done..self.posted).contains(&number);
        under_way.then(|| self.frames[(number & (self.depth - 1)) as usize])
    }

    /// Records that the request with this number and all before it are done. `false` if there is no such
    /// request.
    #[inline]
    pub(super) fn complete(&mut self, number: u64) -> bool {
        let under_way = (self.done..self.posted).contains(&number);
        if under_way {
            self.done = number + 1;
        }
        under_way
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_queue_is_never_overrun_and_one_that_is_short_of_room_always_gets_some(
            depth in (3_u32..8).prop_map(|log| 1 << log),
            steps in prop::collection::vec((any::<bool>(), 1_usize..4), 1..300),
        ) {
            let mut ledger = Ledger::new(depth);
            let (mut under_way, mut telling) = (VecDeque::new(), VecDeque::new());
            for (posts, many) in steps {
                if posts && ledger.room() >= many {
                    for _ in 0..many {
                        let entry = ledger.enter(ledger.next() * 3);
                        under_way.push_back(entry.number);
                        if entry.tells {
                            telling.push_back(entry.number);
                        }
                    }
                } else if let Some(number) = telling.pop_front() {
                    prop_assert_eq!(ledger.frame(number), Some(number * 3));
                    prop_assert!(ledger.complete(number));
                    prop_assert!(!ledger.complete(number), "once");
                    under_way.retain(|other| *other > number);
                }
                prop_assert!(under_way.len() <= depth as usize);
                prop_assert_eq!(ledger.room(), depth as usize - under_way.len());
                prop_assert!(ledger.room() > depth as usize / 4 || !telling.is_empty());
            }
        }
    }

    #[test]
    fn a_completion_of_a_request_that_is_not_under_way_is_found_out() {
        let mut ledger = Ledger::new(8);
        assert!(!ledger.complete(0));
        ledger.enter(7);
        assert!(!ledger.complete(1) && !ledger.complete(u64::MAX));
        assert_eq!((ledger.frame(0), ledger.frame(1)), (Some(7), None));
    }

    #[test]
    fn one_request_in_a_quarter_of_the_queue_asks_for_a_completion() {
        let mut ledger = Ledger::new(256);
        let mut tells = 0;
        for _ in 0..640 {
            let entry = ledger.enter(0);
            if entry.tells {
                tells += 1;
                assert!(ledger.complete(entry.number));
            }
        }
        assert_eq!(tells, 10);
    }
}
