//! Flow control: limits the bytes of messages under way.
//!
//! Counts are modulo 2^32, and a message counts as whole lines: a receiver needs a line for the shortest. At
//! most 2^31 bytes are under way: no window and no message is longer.

use std::cmp;

use farjump_core::frame::LINE;

/// Largest window in bytes.
pub(super) const MOST: u32 = 1 << 31;
/// Largest size that a window grows to, in bytes.
const GROWN: u32 = 64 << 20;

/// The bytes that a message of `len` counts as; none is longer than 2^31.
#[inline]
const fn counted(len: u32) -> u32 {
    len.next_multiple_of(LINE as u32)
}

/// Flow control of both directions.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) send_credit: SendCredit,
    pub(super) recv_credit: RecvCredit,
}

/// The credit for sending.
#[derive(Debug)]
pub(super) struct SendCredit {
    sent: u32,
    /// The peer's last stated consumed position and window.
    consumed: u32,
    window: u32,
}

impl SendCredit {
    /// Makes the credit towards a peer that accepts `window` bytes at first.
    pub(super) const fn new(window: u32) -> SendCredit {
        SendCredit { sent: 0, consumed: 0, window }
    }

    /// Returns whether the peer accepts a message of `len` bytes now. A message longer than the window travels alone.
    #[inline]
    pub(super) fn has_credit(&self, len: usize) -> bool {
        let under_way = self.sent.wrapping_sub(self.consumed);
        under_way == 0 || len.next_multiple_of(LINE) as u64 + u64::from(under_way) <= u64::from(self.window)
    }

    /// Spends credit for a message of `len` bytes.
    #[inline]
    pub(super) fn send(&mut self, len: u32) {
        self.sent = self.sent.wrapping_add(counted(len));
    }

    /// Takes the credit in a record. `false` if it is for bytes that were not sent.
    #[inline]
    #[must_use]
    pub(super) fn take(&mut self, consumed: u32, window: u32) -> bool {
        let (more, under_way) = (consumed.wrapping_sub(self.consumed), self.sent.wrapping_sub(self.consumed));
        (self.consumed, self.window) = (consumed, window);
        more <= under_way && window <= MOST
    }

    /// The peer's last statement: the consumed position, and the window.
    pub(super) fn state(&self) -> (u32, u32) {
        (self.consumed, self.window)
    }
}

/// The credit given to the peer.
#[derive(Debug)]
pub(super) struct RecvCredit {
    received: u32,
    consumed: u32,
    window: u32,
    /// The last two as last sent to the peer.
    returned: (u32, u32),
    /// True if the peer has reported that it waits for credit, and got none since.
    waits: bool,
    /// True if this endpoint has found nothing to receive since the window last grew: the peer does not wait for it.
    idle: bool,
    /// The received position when the window last grew.
    grown: u32,
}

impl RecvCredit {
    /// Makes the credit of a window of `window` bytes, as sent to the peer.
    pub(super) const fn new(window: u32) -> RecvCredit {
        RecvCredit {
            received: 0,
            consumed: 0,
            window,
            returned: (0, window),
            waits: false,
            idle: false,
            grown: 0,
        }
    }

    /// Returns whether the peer may send a message of `len` bytes now.
    #[inline]
    pub(super) fn takes(&self, len: u32) -> bool {
        let (consumed, window) = self.returned;
        let under_way = self.received.wrapping_sub(consumed);
        under_way == 0 || u64::from(counted(len)) + u64::from(under_way) <= u64::from(window)
    }

    /// Records the arrival of a message of `len` bytes.
    #[inline]
    pub(super) fn receive(&mut self, len: u32) {
        self.received = self.received.wrapping_add(counted(len));
    }

    /// Records the release of a message of `len` bytes.
    #[inline]
    pub(super) fn consume(&mut self, len: u32) {
        self.consumed = self.consumed.wrapping_add(counted(len));
    }

    /// Records that there is nothing to receive and nothing is held.
    #[inline]
    pub(super) fn starve(&mut self) {
        self.idle = true;
    }

    /// Records that the peer waits for credit. If this endpoint has waited too, the window is too short for
    /// the path, and doubles. It does not double again before half of it has arrived.
    pub(super) fn peer_waits(&mut self) {
        self.waits = true;
        let since = self.received.wrapping_sub(self.grown);
        if self.idle && self.window < GROWN && since >= self.window / 2 {
            self.window = cmp::min(self.window.saturating_mul(2).max(64), GROWN);
            (self.grown, self.idle) = (self.received, false);
        }
    }

    /// Returns whether credit is due that no message has carried.
    #[inline]
    pub(super) fn must_return_credit(&self) -> bool {
        let unreturned = self.consumed.wrapping_sub(self.returned.0);
        if !self.waits {
            return unreturned != 0 && unreturned >= self.window / 2;
        }
        let all = self.consumed == self.received;
        self.window != self.returned.1 || unreturned != 0 && (all || unreturned >= self.window / 4)
    }

    /// The credit for the next record: the consumed position, and the window.
    #[inline]
    pub(super) fn return_credit(&mut self) -> (u32, u32) {
        let news = (self.consumed, self.window);
        self.waits &= news == self.returned;
        self.returned = news;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_if_it_fits_the_window_or_is_alone() {
        let (mut out, mut recv_credit) = (SendCredit::new(1024), RecvCredit::new(1024));
        assert!(out.has_credit(4096) && recv_credit.takes(4096), "alone");
        for len in [960, 64] {
            assert!(out.has_credit(len as usize) && recv_credit.takes(len));
            out.send(len);
            recv_credit.receive(len);
        }
        assert!(!out.has_credit(64) && !recv_credit.takes(64));
        recv_credit.consume(960);
        assert!(
            recv_credit.must_return_credit() && !recv_credit.takes(64),
            "what was not returned is not taken"
        );
        let (consumed, window) = recv_credit.return_credit();
        assert!(!recv_credit.must_return_credit() && out.take(consumed, window));
        assert!(
            out.has_credit(960)
                && !out.has_credit(1024)
                && recv_credit.takes(960)
                && !recv_credit.takes(1024)
        );
    }

    #[test]
    fn credit_for_what_was_not_sent_is_refused_also_where_counts_wrap() {
        for start in [0u32, u32::MAX - 63] {
            let mut out = SendCredit { sent: start, consumed: start, window: 4096 };
            out.send(128);
            assert!(out.take(start.wrapping_add(64), 4096));
            assert!(!copy(&out).take(start.wrapping_add(192), 4096));
            assert!(!copy(&out).take(start, 4096), "it takes credit back");
            assert!(!copy(&out).take(start.wrapping_add(64), MOST + 1));
            assert!(out.take(start.wrapping_add(128), 4096) && out.has_credit(1 << 31));
        }
    }

    fn copy(out: &SendCredit) -> SendCredit {
        SendCredit { sent: out.sent, consumed: out.consumed, window: out.window }
    }

    #[test]
    fn a_waiting_peer_gets_credit_early_and_others_at_half_a_window() {
        let mut recv_credit = RecvCredit::new(1024);
        recv_credit.receive(1024);
        recv_credit.consume(448);
        assert!(!recv_credit.must_return_credit());
        recv_credit.peer_waits();
        assert!(recv_credit.must_return_credit());
        assert_eq!(recv_credit.return_credit(), (448, 1024));
        assert!(!recv_credit.must_return_credit(), "nothing is new");
        recv_credit.consume(64);
        assert!(!recv_credit.must_return_credit());
        recv_credit.consume(448);
        assert!(recv_credit.must_return_credit(), "half a window");
        recv_credit.peer_waits();
        recv_credit.consume(64);
        assert!(recv_credit.must_return_credit(), "all that came is consumed");
    }

    #[test]
    fn the_window_grows_only_if_both_peers_waited_and_it_was_used() {
        let mut recv_credit = RecvCredit::new(1024);
        recv_credit.peer_waits();
        assert_eq!(recv_credit.return_credit().1, 1024, "this side did not wait");
        recv_credit.starve();
        recv_credit.peer_waits();
        assert_eq!(recv_credit.return_credit().1, 1024, "the peer sent nothing");
        recv_credit.receive(512);
        recv_credit.consume(512);
        recv_credit.peer_waits();
        assert!(recv_credit.must_return_credit());
        assert_eq!(recv_credit.return_credit().1, 2048);
        recv_credit.receive(1024);
        recv_credit.peer_waits();
        assert_eq!(recv_credit.return_credit().1, 2048, "this side did not wait since");
        let mut recv_credit = RecvCredit::new(1 << 20);
        for _ in 0..20 {
            let window = recv_credit.window;
            recv_credit.receive(window);
            recv_credit.consume(window);
            recv_credit.starve();
            recv_credit.peer_waits();
        }
        assert_eq!(recv_credit.window, GROWN);
    }
}
