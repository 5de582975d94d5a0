//! The checksum of the next frame, under the arrival rule that has one.
//!
//! A torn frame has its signal and a wrong checksum until the rest arrives, and a lying peer can leave it so.
//! A checksum of the whole frame at each poll would cost time in proportion to its length. So a poll sums up
//! at most [`AT_ONCE`] bytes and the next poll continues behind them. After a wrong sum, polls *save up* for
//! the next one.

use crate::frame::{Header, TRAILER_LEN};
use crate::memory::Memory;
use crate::signal::{Checksum, LinkKey};
use crate::sync::{Ordering, fence};
use crate::wire::layout::frame::LENGTHS;

/// Most bytes that one poll sums up. The poll that finds a shorter frame whole takes it.
pub(super) const AT_ONCE: usize = 16 << 10;
/// Bytes that a poll saves up for the next sum: at most one poll in four sums up [`AT_ONCE`]. A smaller
/// number would lower the cost of a lying peer for its target, but delay an honest long frame that was torn
/// at its first sum. Such a frame of 16 MiB waits for 4096 polls.
pub(super) const SAVED: usize = 4 << 10;
/// Bytes that a poll saves up if a nap follows it.
pub(super) const SAVED_BY_NAP: usize = 256 << 10;

/// The progress of the sum of the frame at one position.
pub(super) struct Summing {
    /// Position of the frame, and its header as read when the sum began.
    position: u64,
    words: [u64; 2],
    /// The sum under way, and the bytes of the frame in it.
    sum: Option<(Checksum, usize)>,
    /// True if the frame was found whole. No poll sums it up again, even if it changes.
    whole: bool,
    /// Bytes that may be summed up after the sum under way.
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

    /// Returns whether a sum is under way. If so, the next poll continues it.
    pub(super) fn is_in_progress(&self, position: u64) -> bool {
        self.position == position && self.sum.is_some()
    }

    /// Notes that the next poll comes only after a nap.
    pub(super) fn save_by_nap(&mut self) {
        self.saved = self.saved.saturating_add(SAVED_BY_NAP);
    }

    /// Returns whether the frame at `at` of the ring, expected at `position` with this header, is whole. Then
    /// each of its words was read once, and the words read match the checksum behind them. `false` may mean
    /// that a later poll has to complete the sum.
    pub(super) fn is_whole(
        &mut self,
        ring: &impl Memory,
        key: LinkKey,
        position: u64,
        at: usize,
        header: &Header,
    ) -> bool {
        let words = header.to_words();
        // From after the signal to the checksum.
        let len = header.extent() - 8 - TRAILER_LEN;
        if self.position != position {
            // A new frame: its first sum is free, and so is the second, because the rest of a frame usually
            // follows its signal closely.
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
                // The saved bytes are spent: naps do not add up to many sums at once.
                self.saved = 0;
                (key.summing(position), 0)
            }
        };
        let end = len.min(done + AT_ONCE);
        sum.add((done..end).step_by(8).map(|offset| ring.load(at + LENGTHS + offset, Ordering::Relaxed)));
        self.total += (end - done) as u64;
        if end < len {
            self.sum = Some((sum, end));
            return false;
        }
        let found = ring.load(at + LENGTHS + len, Ordering::Acquire);
        // Later reads of the frame return nothing older than the summed words.
        fence(Ordering::Acquire);
        self.whole = found == sum.value();
        self.whole
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
