//! Flow control: UCX bounds nothing by itself, so the receiver states its window, and the sender counts.
//!
//! A frame longer than the whole window is accepted when nothing else is under way, and then travels alone.
//!
//! Both endpoints count frames. Each message carries the number of frames that its sender has consumed. A
//! receiver with nothing to send returns credit in its own message, at a quarter of the window used or on
//! request.

use std::collections::VecDeque;

/// Limit of frames under way, whatever their length: a small one takes UCX up to 8 KiB. Numbers of frames have
/// 16 bits, so that a late one differs from an early one.
pub(super) const MAX_FRAMES: u64 = 1024;

/// A fault of a dishonest peer, as words to put behind "the peer".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation(pub(super) &'static str);

/// The sender's state.
pub(super) struct SendCredit {
    /// The peer's window in bytes.
    limit: u64,
    /// Lengths of frames under way, oldest first.
    under_way: VecDeque<u32>,
    /// Sum of the lengths.
    bytes: u64,
    /// Frames that the peer has consumed, modulo 2^16.
    consumed: u16,
}

impl SendCredit {
    /// Makes one for a peer with a window of `limit` bytes.
    pub(super) fn new(limit: u64) -> SendCredit {
        SendCredit { limit, under_way: VecDeque::new(), bytes: 0, consumed: 0 }
    }

    /// Sets the peer's window to `limit` bytes.
    pub(super) fn open(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Returns whether there is credit for a frame of `len` bytes, which is within the peer's limit for one.
    #[inline]
    pub(super) fn has_credit(&self, len: usize) -> bool {
        let fits = len as u64 <= self.limit.saturating_sub(self.bytes) || self.under_way.is_empty();
        fits && (self.under_way.len() as u64) < MAX_FRAMES
    }

    /// Counts a frame that is sent.
    #[inline]
    pub(super) fn sent(&mut self, len: u32) {
        self.under_way.push_back(len);
        self.bytes += u64::from(len);
    }

    /// Returns the number of the next frame, modulo 2^16.
    #[inline]
    pub(super) fn next(&self) -> u16 {
        self.consumed.wrapping_add(self.under_way.len() as u16)
    }

    /// Returns the peer's last stated number of consumed frames, modulo 2^16.
    pub(super) fn consumed(&self) -> u16 {
        self.consumed
    }

    /// Takes the peer's number of consumed frames, modulo 2^16. A late, earlier number changes nothing.
    #[inline]
    pub(super) fn returned(&mut self, total: u16) -> Result<(), Violation> {
        let more = total.wrapping_sub(self.consumed).cast_signed();
        if i64::from(more) > self.under_way.len() as i64 {
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
pub(super) struct RecvCredit {
    /// The window in bytes.
    limit: u64,
    /// Frames received and not consumed, and their bytes.
    held: (u64, u64),
    /// Frames consumed in all.
    consumed: u64,
    /// Frames whose credit was returned.
    returned: u64,
    /// Bytes whose credit was not returned.
    unreturned: u64,
    /// The peer waits for credit.
    requested: bool,
}

impl RecvCredit {
    /// Makes one with a window of `limit` bytes.
    pub(super) fn new(limit: u64) -> RecvCredit {
        RecvCredit { limit, held: (0, 0), consumed: 0, returned: 0, unreturned: 0, requested: false }
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
        self.unreturned += len as u64;
    }

    /// Records that the peer has no credit.
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// Returns whether it is time for a message that only returns credit.
    #[inline]
    pub(super) fn must_return_credit(&self) -> bool {
        let frames = self.consumed - self.returned;
        frames >= MAX_FRAMES / 4
            || self.unreturned >= self.limit / 4 && frames > 0
            || self.requested && frames > 0
    }

    /// Returns the credit to send now: all frames consumed, modulo 2^16.
    #[inline]
    pub(super) fn return_credit(&mut self) -> u16 {
        if self.returned != self.consumed {
            self.requested = false;
            self.returned = self.consumed;
            self.unreturned = 0;
        }
        self.consumed as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_under_way_end_at_the_limit_and_frames_at_theirs() {
        let mut out = SendCredit::new(1000);
        assert!(out.has_credit(1000));
        out.sent(640);
        assert!(out.has_credit(360) && !out.has_credit(361));
        out.returned(1).unwrap();
        assert!(out.has_credit(1000));
        let mut out = SendCredit::new(u64::MAX);
        (0..MAX_FRAMES).for_each(|_| out.sent(64));
        assert!(!out.has_credit(0));
        out.returned(1).unwrap();
        assert!(out.has_credit(64));
    }

    #[test]
    fn a_frame_longer_than_the_limit_goes_alone_and_nothing_with_it() {
        let (mut out, mut recv_credit) = (SendCredit::new(1000), RecvCredit::new(1000));
        out.sent(64);
        recv_credit.came(64).unwrap();
        assert!(!out.has_credit(1 << 20), "one is under way");
        recv_credit.done(64);
        out.returned(recv_credit.return_credit()).unwrap();
        assert!(out.has_credit(1 << 20));
        out.sent(1 << 20);
        recv_credit.came(1 << 20).unwrap();
        assert!(!out.has_credit(64) && !out.has_credit(1 << 20));
        recv_credit.done(1 << 20);
        assert!(recv_credit.must_return_credit());
        out.returned(recv_credit.return_credit()).unwrap();
        assert!(out.has_credit(1000));
    }

    #[test]
    fn a_peer_that_consumed_what_was_not_sent_is_found_out_and_old_news_change_nothing() {
        let mut out = SendCredit::new(1000);
        out.sent(64);
        out.sent(64);
        assert!(out.returned(3).is_err() && out.returned(u16::MAX / 2).is_err());
        out.returned(2).unwrap();
        out.returned(1).unwrap();
        assert_eq!((out.consumed(), out.next()), (2, 2));
        assert!(out.has_credit(1000));
    }

    #[test]
    fn a_peer_that_sends_more_than_is_held_is_found_out() {
        let mut recv_credit = RecvCredit::new(1000);
        recv_credit.came(960).unwrap();
        assert!(recv_credit.came(64).is_err());
        for lengths in [[64, 1024], [1024, 64], [1024, 1024]] {
            let mut recv_credit = RecvCredit::new(1000);
            recv_credit.came(lengths[0]).unwrap();
            assert!(recv_credit.came(lengths[1]).is_err(), "{lengths:?}");
        }
        let mut recv_credit = RecvCredit::new(u64::MAX);
        (0..MAX_FRAMES).for_each(|_| recv_credit.came(64).unwrap());
        assert!(recv_credit.came(64).is_err());
    }

    #[test]
    fn what_is_consumed_is_told_by_the_quarter_or_when_asked() {
        let mut recv_credit = RecvCredit::new(1 << 20);
        recv_credit.came(64).unwrap();
        recv_credit.done(64);
        assert!(!recv_credit.must_return_credit());
        recv_credit.request();
        assert!(recv_credit.must_return_credit());
        assert_eq!(recv_credit.return_credit(), 1);
        assert!(!recv_credit.must_return_credit());
        for _ in 0..MAX_FRAMES / 4 {
            assert!(!recv_credit.must_return_credit());
            recv_credit.came(64).unwrap();
            recv_credit.done(64);
        }
        assert!(recv_credit.must_return_credit());
        recv_credit.return_credit();
        recv_credit.came(1 << 18).unwrap();
        recv_credit.done(1 << 18);
        assert!(recv_credit.must_return_credit());
    }

    #[test]
    fn counts_go_on_past_2_to_the_16() {
        let mut out = SendCredit { consumed: u16::MAX - 1, ..SendCredit::new(1000) };
        (0..4).for_each(|_| out.sent(64));
        assert_eq!(out.next(), 2);
        assert!(out.returned(3).is_err());
        out.returned(u16::MAX).unwrap();
        out.returned(2).unwrap();
        assert!(out.has_credit(1000));
    }

    #[test]
    fn who_asks_before_anything_is_consumed_is_told_of_the_first() {
        let mut recv_credit = RecvCredit::new(1 << 20);
        recv_credit.came(64).unwrap();
        recv_credit.request();
        assert!(!recv_credit.must_return_credit());
        // Another message carries the count meanwhile, and adds nothing.
        assert_eq!(recv_credit.return_credit(), 0);
        recv_credit.done(64);
        assert!(recv_credit.must_return_credit());
    }

    #[test]
    fn two_sides_with_any_lengths_always_go_on() {
        let mut dice = 1u64;
        let (mut out, mut recv_credit) = (SendCredit::new(4096), RecvCredit::new(4096));
        let mut queue = VecDeque::new();
        for _ in 0..100_000 {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Up to twice the window.
            let len = 64 * (1 + (dice >> 33) as u32 % 128);
            while !out.has_credit(len as usize) {
                recv_credit.request();
                if !recv_credit.must_return_credit() {
                    recv_credit.done(queue.pop_front().expect("there is no credit and nothing under way"));
                }
                if recv_credit.must_return_credit() {
                    out.returned(recv_credit.return_credit()).unwrap();
                }
            }
            out.sent(len);
            recv_credit.came(len as usize).unwrap();
            queue.push_back(len as usize);
        }
    }
}
