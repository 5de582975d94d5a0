//! Flow control: UCX bounds nothing by itself, so the receiver states its window, and the sender counts.
//!
//! A frame longer than the whole window is accepted when nothing else is under way, and then travels alone.
//!
//! Both endpoints count frames. Each message carries the number of frames that its sender has consumed. A
//! receiver with nothing to send returns credit in its own message, at a quarter of the window used or on
//! request.

use std::collections::VecDeque;

/// Limit of frames under way, whatever their length: a small one takes UCX up to 8 KiB.
pub(super) const MAX_FRAMES: u64 = 1024;

/// A fault of a dishonest peer, as words to put behind "the peer".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation(pub(super) &'static str);

/// The sender's state.
pub(super) struct Outward {
    /// The peer's window in bytes.
    limit: u64,
    /// Lengths of frames under way, oldest first.
    under_way: VecDeque<u32>,
    /// Sum of the lengths.
    bytes: u64,
    /// Frames that the peer has consumed, modulo 2^32.
    consumed: u32,
}

impl Outward {
    /// Makes one for a peer with a window of `limit` bytes.
    pub(super) fn new(limit: u64) -> Outward {
        Outward { limit, under_way: VecDeque::new(), bytes: 0, consumed: 0 }
    }

    /// Sets the peer's window to `limit` bytes.
    pub(super) fn open(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Returns whether there is credit for a frame of `len` bytes, which is within the peer's limit for one.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        let fits = len as u64 <= self.limit.saturating_sub(self.bytes) || self.under_way.is_empty();
        fits && (self.under_way.len() as u64) < MAX_FRAMES
    }

    /// Counts a frame that is sent.
    #[inline]
    pub(super) fn sent(&mut self, len: u32) {
        self.under_way.push_back(len);
        self.bytes += u64::from(len);
    }

    /// Returns the number of the next frame, modulo 2^32.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.consumed.wrapping_add(self.under_way.len() as u32)
    }

    /// Returns the peer's last stated number of consumed frames, modulo 2^32.
    pub(super) fn consumed(&self) -> u32 {
        self.consumed
    }

    /// Takes the peer's number of consumed frames, modulo 2^32. A late, earlier number changes nothing.
    #[inline]
    pub(super) fn told(&mut self, total: u32) -> Result<(), Violation> {
        let more = total.wrapping_sub(self.consumed).cast_signed();
        if more > self.under_way.len() as i32 {
            return Err(Violation("claims to have consumed frames that were not sent"));
        }
        for _ in 0..more {
            self.bytes -= u64::from(self.under_way.pop_front().unwrap_or(0));
            self.consumed = self.consumed.wrapping_add(1);
        }
        Ok(())
    }
}

/// The receiver's state.
pub(super) struct Inward {
    /// The window in bytes.
    limit: u64,
    /// Frames received and not consumed, and their bytes.
    held: (u64, u64),
    /// Frames consumed in all.
    consumed: u64,
    /// Frames whose credit was returned.
    told: u64,
    /// Bytes whose credit was not returned.
    untold: u64,
    /// The peer waits for credit.
    asked: bool,
}

impl Inward {
    /// Makes one with a window of `limit` bytes.
    pub(super) fn new(limit: u64) -> Inward {
        Inward { limit, held: (0, 0), consumed: 0, told: 0, untold: 0, asked: false }
    }

    /// Counts a received frame, which is within the limit for one.
    #[inline]
    pub(super) fn came(&mut self, len: usize) -> Result<(), Violation> {
        self.held.0 += 1;
        self.held.1 += len as u64;
        // Unreturned credit counts as held by the peer, never vice versa: a frame it sends alone is alone.
        let fits = self.held.1 <= self.limit || self.held.0 == 1;
        match fits && self.held.0 <= MAX_FRAMES {
            true => Ok(()),
            false => Err(Violation("sends more than the window of this process")),
        }
    }

    /// Counts the oldest as consumed.
    #[inline]
    pub(super) fn done(&mut self, len: usize) {
        self.held.0 -= 1;
        self.held.1 -= len as u64;
        self.consumed += 1;
        self.untold += len as u64;
    }

    /// Records that the peer has no credit.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// Returns whether it is time for a message that only returns credit.
    #[inline]
    pub(super) fn must_tell(&self) -> bool {
        let frames = self.consumed - self.told;
        frames >= MAX_FRAMES / 4 || self.untold >= self.limit / 4 && frames > 0 || self.asked && frames > 0
    }

    /// Returns the credit to send now: all frames consumed, modulo 2^32.
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
        // Another message carries the count meanwhile, and adds nothing.
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
            // Up to twice the window.
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
