//! The checksum of a frame that is due, under the arrival rule that has one.
//!
//! A torn frame has its signal and a checksum that is not its own until the rest lands, and a peer that lies leaves it so. To sum
//! up all of it at each look would take as long as the frame is long, at each look. So a look sums up [`AT_ONCE`] bytes at most and
//! the next one goes on behind them, and when a sum turns out to be wrong looks *save up* for the next one.

use crate::frame::{Header, TRAILER_LEN};
use crate::memory::Memory;
use crate::signal::{Checksum, LinkKey};
use crate::sync::{Ordering, fence};

/// Most bytes that one look sums up. A frame that is no longer is taken by the look that finds it whole.
pub(super) const AT_ONCE: usize = 16 << 10;
/// What a look saves up for the next sum, in bytes: one look in four sums up [`AT_ONCE`] at most. Less would cost a lying peer's
/// target less and make an honest long frame late, which was torn when it was summed up: one of 16 MiB waits for 4096 looks.
pub(super) const SAVED: usize = 4 << 10;
/// What a look saves up behind which the receiver naps.
pub(super) const SAVED_BY_NAP: usize = 256 << 10;

/// How far the frame at one position has been summed up.
pub(super) struct Summing {
    /// The frame that this is about: its position, and its header as it was read when the sum began.
    position: u64,
    words: [u64; 2],
    /// The sum that is under way, and how many bytes of the frame are in it.
    sum: Option<(Checksum, usize)>,
    /// The frame was found to be whole: it is not summed up again, whatever becomes of it.
    whole: bool,
    /// Bytes that may be summed up beyond the sum that is under way.
    saved: usize,
    /// Bytes summed up since the link was made.
    total: u64,
}

impl Summing {
    pub(super) fn new() -> Summing {
        // No frame has this position: positions are multiples of a line.
        Summing { position: u64::MAX, words: [0; 2], sum: None, whole: false, saved: 0, total: 0 }
    }

    /// Bytes summed up since the link was made.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether a sum is under way: the next look goes on with it.
    pub(super) fn is_under_way(&self, position: u64) -> bool {
        self.position == position && self.sum.is_some()
    }

    /// The next look comes only after a nap.
    pub(super) fn save_by_nap(&mut self) {
        self.saved = self.saved.saturating_add(SAVED_BY_NAP);
    }

    /// Whether the frame at `at` of the ring, which is due at `position` and has this header, is whole: each of its words was read
    /// once, and those that were read have the checksum that was found behind them. It may be said of a later look than this one.
    pub(super) fn is_whole(
        &mut self,
        ring: &impl Memory,
        key: LinkKey,
        position: u64,
        at: usize,
        header: &Header,
    ) -> bool {
        let words = header.to_words();
        // From behind the signal up to the checksum.
        let len = header.extent() - 8 - TRAILER_LEN;
        if self.position != position {
            // A frame that was not looked at before: its first sum costs nothing, and neither does the second, as the rest of a
            // frame mostly comes right behind its signal.
            let (sum, saved) = (Some((key.summing(position), 0)), len.max(AT_ONCE));
            *self = Summing { position, words, sum, whole: false, saved, ..*self };
        } else if self.words == words && self.whole {
            return true;
        } else {
            self.saved = self.saved.saturating_add(SAVED);
        }
        if self.words != words {
            (self.words, self.sum, self.whole) = (words, None, false);
        }
        let (mut sum, done) = match self.sum.take() {
            Some(begun) => begun,
            None if self.saved < len => return false,
            None => {
                // What was saved for is spent: naps do not add up to many sums at once.
                self.saved = 0;
                (key.summing(position), 0)
            }
        };
        let end = len.min(done + AT_ONCE);
        sum.add((done..end).step_by(8).map(|offset| ring.load(at + 8 + offset, Ordering::Relaxed)));
        self.total += (end - done) as u64;
        if end < len {
            self.sum = Some((sum, end));
            return false;
        }
        let found = ring.load(at + 8 + len, Ordering::Acquire);
        // Whatever is read of the frame from now on is not older than what was summed up.
        fence(Ordering::Acquire);
        self.whole = found == sum.value();
        self.whole
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
