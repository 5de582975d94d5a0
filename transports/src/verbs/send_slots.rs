//! Accounting of a send queue: each work request by its running number, and those with a completion.
//!
//! Only one request in many has a completion, which frees it and all before it: a queue executes its requests in order.

/// The slots of one send queue.
#[derive(Debug)]
pub(super) struct SendSlots {
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

/// The slot of a posted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// Its number.
    pub(super) number: u64,
    /// Whether it must request a completion.
    pub(super) has_completion: bool,
}

impl SendSlots {
    /// Makes the slots of a queue for `depth` requests, a power of two and at least 8.
    pub(super) fn new(depth: u32) -> SendSlots {
        debug_assert!(depth.is_power_of_two() && depth >= 8);
        SendSlots {
            depth: u64::from(depth),
            posted: 0,
            done: 0,
            covered: 0,
            frames: vec![0; depth as usize].into(),
        }
    }

    /// Number of requests that can be posted now.
    #[inline]
    pub(super) fn free(&self) -> usize {
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

    /// Takes a slot for a request of `frame`. There must be a free slot. One request in each quarter of the queue has a
    /// completion, so a full queue always has completions under way.
    #[inline]
    pub(super) fn take(&mut self, frame: u64) -> Slot {
        debug_assert!(self.free() > 0);
        let number = self.posted;
        self.frames[(number & (self.depth - 1)) as usize] = frame;
        self.posted += 1;
        let has_completion = self.posted - self.covered >= self.depth / 4;
        if has_completion {
            self.covered = self.posted;
        }
        Slot { number, has_completion }
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
        fn a_send_queue_never_overruns_and_a_nearly_full_one_awaits_completions(
            depth in (3_u32..8).prop_map(|log| 1 << log),
            steps in prop::collection::vec((any::<bool>(), 1_usize..4), 1..300),
        ) {
            let mut slots = SendSlots::new(depth);
            let (mut under_way, mut telling) = (VecDeque::new(), VecDeque::new());
            for (posts, many) in steps {
                if posts && slots.free() >= many {
                    for _ in 0..many {
                        let slot = slots.take(slots.next() * 3);
                        under_way.push_back(slot.number);
                        if slot.has_completion {
                            telling.push_back(slot.number);
                        }
                    }
                } else if let Some(number) = telling.pop_front() {
                    prop_assert_eq!(slots.frame(number), Some(number * 3));
                    prop_assert!(slots.complete(number));
                    prop_assert!(!slots.complete(number), "once");
                    under_way.retain(|other| *other > number);
                }
                prop_assert!(under_way.len() <= depth as usize);
                prop_assert_eq!(slots.free(), depth as usize - under_way.len());
                prop_assert!(slots.free() > depth as usize / 4 || !telling.is_empty());
            }
        }
    }

    #[test]
    fn a_completion_without_a_request_in_flight_is_rejected() {
        let mut slots = SendSlots::new(8);
        assert!(!slots.complete(0));
        slots.take(7);
        assert!(!slots.complete(1) && !slots.complete(u64::MAX));
        assert_eq!((slots.frame(0), slots.frame(1)), (Some(7), None));
    }

    #[test]
    fn each_quarter_of_the_send_queue_requests_one_completion() {
        let mut slots = SendSlots::new(256);
        let mut completions = 0;
        for _ in 0..640 {
            let slot = slots.take(0);
            if slot.has_completion {
                completions += 1;
                assert!(slots.complete(slot.number));
            }
        }
        assert_eq!(completions, 10);
    }
}
