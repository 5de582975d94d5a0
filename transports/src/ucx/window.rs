//! How much may be under way: UCX bounds nothing by itself, so the receiver says how much it holds, and the sender counts.
//!
//! A frame longer than all that a side holds is taken when nothing else is under way, and nothing else then goes with it.
//!
//! Both sides count frames. Each message carries how many the sender of it has consumed of the other direction; a side that
//! has nothing to send tells it in a message of its own, when a quarter of the window is used up, or when asked.

use std::collections::VecDeque;

/// Frames that may be under way, whatever their length: a small one takes UCX up to 8 KiB.
pub(super) const MAX_FRAMES: u64 = 1024;

/// What a peer did that an honest one does not, as words to put behind "the peer".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation(pub(super) &'static str);

/// The sender's side.
pub(super) struct Outward {
    /// Bytes that the peer holds.
    limit: u64,
    /// Lengths of frames under way, oldest first.
    under_way: VecDeque<u32>,
    /// Their sum.
    bytes: u64,
    /// Frames that the peer has consumed, modulo 2^32.
    consumed: u32,
}

impl Outward {
    /// To a peer that holds `limit` bytes.
    pub(super) fn new(limit: u64) -> Outward {
        Outward { limit, under_way: VecDeque::new(), bytes: 0, consumed: 0 }
    }

    /// The peer holds `limit` bytes.
    pub(super) fn open(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether a frame of `len` bytes, which is not over the peer's limit for one, may go.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        let fits = len as u64 <= self.limit.saturating_sub(self.bytes) || self.under_way.is_empty();
        fits && (self.under_way.len() as u64) < MAX_FRAMES
    }

    /// A frame goes.
    #[inline]
    pub(super) fn sent(&mut self, len: u32) {
        self.under_way.push_back(len);
        self.bytes += u64::from(len);
    }

    /// Number of the frame that goes next, modulo 2^32.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.consumed.wrapping_add(self.under_way.len() as u32)
    }

    /// Frames that the peer has consumed, as it said last, modulo 2^32.
    pub(super) fn consumed(&self) -> u32 {
        self.consumed
    }

    /// The peer says that it has consumed `total` frames, modulo 2^32. What it said before and comes later changes nothing.
    #[inline]
    pub(super) fn told(&mut self, total: u32) -> Result<(), Violation> {
        let more = total.wrapping_sub(self.consumed).cast_signed();
        if more > self.under_way.len() as i32 {
            return Err(Violation("says that it has consumed frames that were not sent"));
        }
        for _ in 0..more {
            self.bytes -= u64::from(self.under_way.pop_front().unwrap_or(0));
            self.consumed = self.consumed.wrapping_add(1);
        }
        Ok(())
    }
}

/// The receiver's side.
pub(super) struct Inward {
    /// Bytes that this side holds.
    limit: u64,
    /// Frames that have come and are not consumed, and their bytes.
    held: (u64, u64),
    /// Frames consumed in all.
    consumed: u64,
    /// Of which the peer knows.
    told: u64,
    /// Bytes of those that it does not know of.
    untold: u64,
    /// The peer waits for room.
    asked: bool,
}

impl Inward {
    /// Holds `limit` bytes.
    pub(super) fn new(limit: u64) -> Inward {
        Inward { limit, held: (0, 0), consumed: 0, told: 0, untold: 0, asked: false }
    }

    /// A frame comes, which is not over this side's limit for one.
    #[inline]
    pub(super) fn came(&mut self, len: usize) -> Result<(), Violation> {
        self.held.0 += 1;
        self.held.1 += len as u64;
        // What the peer may not know to be consumed counts as held by it, never the other way round: what it takes to be alone is.
        let fits = self.held.1 <= self.limit || self.held.0 == 1;
        match fits && self.held.0 <= MAX_FRAMES {
            true => Ok(()),
            false => Err(Violation("sends more than this side said it holds")),
        }
    }

    /// The oldest is done with.
    #[inline]
    pub(super) fn done(&mut self, len: usize) {
        self.held.0 -= 1;
        self.held.1 -= len as u64;
        self.consumed += 1;
        self.untold += len as u64;
    }

    /// The peer has no room.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether it is time for a message that only tells.
    #[inline]
    pub(super) fn must_tell(&self) -> bool {
        let frames = self.consumed - self.told;
        frames >= MAX_FRAMES / 4 || self.untold >= self.limit / 4 && frames > 0 || self.asked && frames > 0
    }

    /// What to tell, which is being told: frames consumed in all, modulo 2^32.
    #[inline]
    pub(super) fn tell(&mut self) -> u32 {
        if self.told != self.consumed {
            self.asked = false;
        }
        self.told = self.consumed;
        self.untold = 0;
        self.consumed as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_under_way_end_at_the_limit_and_frames_at_theirs() {
        let mut out = Outward::new(1000);
        assert!(out.has_room(1000));
        out.sent(640);
        assert!(out.has_room(360) && !out.has_room(361));
        out.told(1).unwrap();
        assert!(out.has_room(1000));
        let mut out = Outward::new(u64::MAX);
        (0..MAX_FRAMES).for_each(|_| out.sent(64));
        assert!(!out.has_room(0));
        out.told(1).unwrap();
        assert!(out.has_room(64));
    }

    #[test]
    fn a_frame_longer_than_the_limit_goes_alone_and_nothing_with_it() {
        let (mut out, mut inward) = (Outward::new(1000), Inward::new(1000));
        out.sent(64);
        inward.came(64).unwrap();
        assert!(!out.has_room(1 << 20), "one is under way");
        inward.done(64);
        out.told(inward.tell()).unwrap();
        assert!(out.has_room(1 << 20));
        out.sent(1 << 20);
        inward.came(1 << 20).unwrap();
        assert!(!out.has_room(64) && !out.has_room(1 << 20));
        inward.done(1 << 20);
        assert!(inward.must_tell());
        out.told(inward.tell()).unwrap();
        assert!(out.has_room(1000));
    }

    #[test]
    fn a_peer_that_consumed_what_was_not_sent_is_found_out_and_old_news_change_nothing() {
        let mut out = Outward::new(1000);
        out.sent(64);
        out.sent(64);
        assert!(out.told(3).is_err() && out.told(u32::MAX / 2).is_err());
        out.told(2).unwrap();
        out.told(1).unwrap();
        assert_eq!((out.consumed(), out.next()), (2, 2));
        assert!(out.has_room(1000));
    }

    #[test]
    fn a_peer_that_sends_more_than_is_held_is_found_out() {
        let mut inward = Inward::new(1000);
        inward.came(960).unwrap();
        assert!(inward.came(64).is_err());
        for lengths in [[64, 1024], [1024, 64], [1024, 1024]] {
            let mut inward = Inward::new(1000);
            inward.came(lengths[0]).unwrap();
            assert!(inward.came(lengths[1]).is_err(), "{lengths:?}");
        }
        let mut inward = Inward::new(u64::MAX);
        (0..MAX_FRAMES).for_each(|_| inward.came(64).unwrap());
        assert!(inward.came(64).is_err());
    }

    #[test]
    fn what_is_consumed_is_told_by_the_quarter_or_when_asked() {
        let mut inward = Inward::new(1 << 20);
        inward.came(64).unwrap();
        inward.done(64);
        assert!(!inward.must_tell());
        inward.ask();
        assert!(inward.must_tell());
        assert_eq!(inward.tell(), 1);
        assert!(!inward.must_tell());
        for _ in 0..MAX_FRAMES / 4 {
            assert!(!inward.must_tell());
            inward.came(64).unwrap();
            inward.done(64);
        }
        assert!(inward.must_tell());
        inward.tell();
        inward.came(1 << 18).unwrap();
        inward.done(1 << 18);
        assert!(inward.must_tell());
    }

    #[test]
    fn counts_go_on_past_2_to_the_32() {
        let mut out = Outward { consumed: u32::MAX - 1, ..Outward::new(1000) };
        (0..4).for_each(|_| out.sent(64));
        assert_eq!(out.next(), 2);
        assert!(out.told(3).is_err());
        out.told(u32::MAX).unwrap();
        out.told(2).unwrap();
        assert!(out.has_room(1000));
    }

    #[test]
    fn who_asks_before_anything_is_consumed_is_told_of_the_first() {
        let mut inward = Inward::new(1 << 20);
        inward.came(64).unwrap();
        inward.ask();
        assert!(!inward.must_tell());
        // Another message carries the count meanwhile, and says nothing new.
        assert_eq!(inward.tell(), 0);
        inward.done(64);
        assert!(inward.must_tell());
    }

    #[test]
    fn two_sides_with_any_lengths_always_go_on() {
        let mut dice = 1u64;
        let (mut out, mut inward) = (Outward::new(4096), Inward::new(4096));
        let mut queue = VecDeque::new();
        for _ in 0..100_000 {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Up to twice what is held.
            let len = 64 * (1 + (dice >> 33) as u32 % 128);
            while !out.has_room(len as usize) {
                inward.ask();
                if !inward.must_tell() {
                    inward.done(queue.pop_front().expect("there is no room and nothing under way"));
                }
                if inward.must_tell() {
                    out.told(inward.tell()).unwrap();
                }
            }
            out.sent(len);
            inward.came(len as usize).unwrap();
            queue.push_back(len as usize);
        }
    }
}
