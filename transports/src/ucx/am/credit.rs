//! Flow control: UCX bounds nothing by itself, so the receiver states its window, and the sender counts bytes under
//! way.
//!
//! The receiver accepts a frame longer than the whole window when nothing else is under way: the frame travels alone.
//!
//! Both endpoints count frames. Each message carries the number of frames that its sender has consumed. A
//! receiver with nothing to send returns credit in its own message, at a quarter of the window used or on
//! request.

use std::cell::Cell;

/// Limit of frames under way, whatever their length: a small frame takes up to 8 KiB of UCX. Frame numbers have 16
/// bits, so that a late number differs from an early one.
pub(super) const MAX_FRAMES: usize = 1024;

/// A violation by a dishonest peer, as text to put behind "the peer".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation(pub(super) &'static str);

/// The sender's state. UCX's callbacks change it behind a shared reference.
pub(super) struct SendCredit {
    /// The peer's window in bytes.
    limit: Cell<u64>,
    /// Lengths of the frames under way, by number.
    lengths: Box<[Cell<u32>; MAX_FRAMES]>,
    /// Sum of the lengths of frames from `settled` on.
    bytes: Cell<u64>,
    /// Number of the next frame, modulo 2^16.
    next: Cell<u16>,
    /// Consumed frames of the peer that `bytes` excludes, modulo 2^16. It follows `consumed` only if credit is missing,
    /// so a message with credit costs two comparisons.
    settled: Cell<u16>,
    /// Frames that the peer has consumed, modulo 2^16.
    consumed: Cell<u16>,
}

impl SendCredit {
    /// Makes the credit for a peer with a window of `limit` bytes.
    pub(super) fn new(limit: u64) -> SendCredit {
        SendCredit {
            limit: Cell::new(limit),
            lengths: Box::new([const { Cell::new(0) }; MAX_FRAMES]),
            bytes: Cell::new(0),
            next: Cell::new(0),
            settled: Cell::new(0),
            consumed: Cell::new(0),
        }
    }

    /// Sets the peer's window to `limit` bytes.
    pub(super) fn open(&self, limit: u64) {
        self.limit.set(limit);
    }

    /// Returns whether there is credit for a frame of `len` bytes, which is within the peer's limit for one.
    pub(super) fn has_credit(&self, len: usize) -> bool {
        let fits = || len <= self.space() || self.next.get() == self.settled.get();
        if fits() {
            return true;
        }
        while self.settled.get() != self.consumed.get() {
            let len = self.lengths[usize::from(self.settled.get()) % MAX_FRAMES].get();
            self.bytes.set(self.bytes.get() - u64::from(len));
            self.settled.set(self.settled.get().wrapping_add(1));
        }
        fits()
    }

    /// Returns the length of the longest frame for which there is credit, without reading the peer's number again. A
    /// frame that travels alone may be longer.
    #[inline]
    pub(super) fn space(&self) -> usize {
        if usize::from(self.next.get().wrapping_sub(self.settled.get())) >= MAX_FRAMES {
            return 0;
        }
        self.limit.get().saturating_sub(self.bytes.get()) as usize
    }

    /// Counts a frame that is sent.
    #[inline]
    pub(super) fn sent(&self, len: u32) {
        self.lengths[usize::from(self.next.get()) % MAX_FRAMES].set(len);
        self.bytes.set(self.bytes.get() + u64::from(len));
        self.next.set(self.next.get().wrapping_add(1));
    }

    /// Returns the number of the next frame, modulo 2^16.
    #[inline]
    pub(super) fn next(&self) -> u16 {
        self.next.get()
    }

    /// Returns the peer's last stated number of consumed frames, modulo 2^16.
    pub(super) fn consumed(&self) -> u16 {
        self.consumed.get()
    }

    /// Takes the peer's number of consumed frames, modulo 2^16. A late, earlier number changes nothing.
    #[inline]
    pub(super) fn returned(&self, total: u16) -> Result<(), Violation> {
        if self.next.get().wrapping_sub(total).cast_signed() < 0 {
            return Err(Violation("claims to have consumed frames that were not sent"));
        }
        if total.wrapping_sub(self.consumed.get()).cast_signed() > 0 {
            self.consumed.set(total);
        }
        Ok(())
    }
}

/// Number of consumed frames at which a receiver returns credit without a request.
const UNREQUESTED_AT: u64 = MAX_FRAMES as u64 / 4;

/// The receiver's state. UCX's callbacks change it behind a shared reference.
pub(super) struct RecvCredit {
    /// The window in bytes; `quarter` is the part of it at which credit is returned without a request.
    limit: u64,
    quarter: u64,
    /// Bytes received in all, and consumed.
    bytes: (Cell<u64>, Cell<u64>),
    /// Frames consumed in all.
    consumed: Cell<u64>,
    /// Frames and bytes whose credit was returned.
    returned: (Cell<u64>, Cell<u64>),
    /// Number of frames at which this endpoint returns credit: one, once the peer waits for it.
    due: Cell<u64>,
}

impl RecvCredit {
    /// Makes the credit of a window of `limit` bytes.
    pub(super) fn new(limit: u64) -> RecvCredit {
        RecvCredit {
            limit,
            quarter: (limit / 4).max(1),
            bytes: (Cell::new(0), Cell::new(0)),
            consumed: Cell::new(0),
            returned: (Cell::new(0), Cell::new(0)),
            due: Cell::new(UNREQUESTED_AT),
        }
    }

    /// Counts a received frame, which is within the limit for one. `is_alone`: the queue has no other frame.
    #[inline]
    pub(super) fn came(&self, len: usize, is_alone: bool) -> Result<(), Violation> {
        let bytes = self.bytes.0.get() + len as u64;
        // The peer counts at least the bytes counted here, never fewer: a frame that it sends alone arrives alone.
        if bytes - self.bytes.1.get() > self.limit && !is_alone {
            return Err(Violation("sends more than the window of this process"));
        }
        self.bytes.0.set(bytes);
        Ok(())
    }

    /// Counts the oldest frame as consumed.
    #[inline]
    pub(super) fn done(&self, len: usize) {
        self.bytes.1.set(self.bytes.1.get() + len as u64);
        self.consumed.set(self.consumed.get() + 1);
    }

    /// Records that the peer has no credit.
    pub(super) fn request(&self) {
        self.due.set(1);
    }

    /// Returns whether it is time for a message that only returns credit.
    #[inline]
    pub(super) fn must_return_credit(&self) -> bool {
        let (frames, bytes) = (self.returned.0.get(), self.returned.1.get());
        self.consumed.get() - frames >= self.due.get() || self.bytes.1.get() - bytes >= self.quarter
    }

    /// Returns the credit to send now: all frames consumed, modulo 2^16.
    #[inline]
    pub(super) fn return_credit(&self) -> u16 {
        let consumed = self.consumed.get();
        if self.returned.0.get() != consumed {
            self.returned.0.set(consumed);
            self.returned.1.set(self.bytes.1.get());
            self.due.set(UNREQUESTED_AT);
        }
        consumed as u16
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn bytes_and_frames_in_flight_are_limited_separately() {
        let out = SendCredit::new(1000);
        assert!(out.has_credit(1000));
        out.sent(640);
        assert!(out.has_credit(360) && !out.has_credit(361));
        out.returned(1).unwrap();
        assert!(out.has_credit(1000));
        let out = SendCredit::new(u64::MAX);
        (0..MAX_FRAMES).for_each(|_| out.sent(64));
        assert!(!out.has_credit(16));
        out.returned(1).unwrap();
        assert!(out.has_credit(64));
    }

    #[test]
    fn a_frame_longer_than_the_limit_goes_alone_and_nothing_with_it() {
        let (out, recv_credit) = (SendCredit::new(1000), RecvCredit::new(1000));
        out.sent(64);
        recv_credit.came(64, false).unwrap();
        assert!(!out.has_credit(1 << 20), "one is under way");
        recv_credit.done(64);
        out.returned(recv_credit.return_credit()).unwrap();
        assert!(out.has_credit(1 << 20));
        out.sent(1 << 20);
        recv_credit.came(1 << 20, true).unwrap();
        assert!(!out.has_credit(64) && !out.has_credit(1 << 20));
        recv_credit.done(1 << 20);
        assert!(recv_credit.must_return_credit());
        out.returned(recv_credit.return_credit()).unwrap();
        assert!(out.has_credit(1000));
    }

    #[test]
    fn credit_for_unsent_frames_is_an_error_and_old_counts_change_nothing() {
        let out = SendCredit::new(1000);
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
        let recv_credit = RecvCredit::new(1000);
        recv_credit.came(960, true).unwrap();
        assert!(recv_credit.came(64, false).is_err());
        for lengths in [[64, 1024], [1024, 64], [1024, 1024]] {
            let recv_credit = RecvCredit::new(1000);
            recv_credit.came(lengths[0], true).unwrap();
            assert!(recv_credit.came(lengths[1], false).is_err(), "{lengths:?}");
        }
    }

    #[test]
    fn a_quarter_consumed_or_a_request_makes_credit_due() {
        let recv_credit = RecvCredit::new(1 << 20);
        recv_credit.came(64, false).unwrap();
        recv_credit.done(64);
        assert!(!recv_credit.must_return_credit());
        recv_credit.request();
        assert!(recv_credit.must_return_credit());
        assert_eq!(recv_credit.return_credit(), 1);
        assert!(!recv_credit.must_return_credit());
        for _ in 0..UNREQUESTED_AT {
            assert!(!recv_credit.must_return_credit());
            recv_credit.came(64, false).unwrap();
            recv_credit.done(64);
        }
        assert!(recv_credit.must_return_credit());
        recv_credit.return_credit();
        recv_credit.came(1 << 18, false).unwrap();
        recv_credit.done(1 << 18);
        assert!(recv_credit.must_return_credit());
    }

    #[test]
    fn counts_go_on_past_2_to_the_16() {
        let out = SendCredit::new(1000);
        [&out.next, &out.settled, &out.consumed].iter().for_each(|number| number.set(u16::MAX - 1));
        (0..4).for_each(|_| out.sent(64));
        assert_eq!(out.next(), 2);
        assert!(out.returned(3).is_err());
        out.returned(u16::MAX).unwrap();
        out.returned(2).unwrap();
        assert!(out.has_credit(1000));
    }

    #[test]
    fn an_early_credit_request_is_served_once_a_frame_is_consumed() {
        let recv_credit = RecvCredit::new(1 << 20);
        recv_credit.came(64, false).unwrap();
        recv_credit.request();
        assert!(!recv_credit.must_return_credit());
        // Another message carries the same count, and adds nothing.
        assert_eq!(recv_credit.return_credit(), 0);
        recv_credit.done(64);
        assert!(recv_credit.must_return_credit());
    }

    #[test]
    fn credit_never_deadlocks_endpoints_with_frames_of_random_lengths() {
        let mut dice = 1u64;
        let (out, recv_credit) = (SendCredit::new(4096), RecvCredit::new(4096));
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
            recv_credit.came(len as usize, queue.is_empty()).unwrap();
            queue.push_back(len as usize);
        }
    }
}
