//! Frames of one line in mapped memory: the most common frames, and the fastest.

use core::ptr::NonNull;

use super::one_sided::OneSided;
use crate::frame::{HEADER_LEN, INLINE_PAYLOAD, Plan};
use crate::transport::TransportError;

/// Space for a frame of one line in the peer's mailbox, borrowed from the channel until the frame is sent or
/// dropped. The peer sees nothing before the send.
pub struct Line<'c> {
    pub(super) path: &'c mut OneSided,
    /// Start of the line: its offset in the ring, and the address of its 64 bytes.
    pub(super) at: usize,
    pub(super) start: NonNull<u8>,
}

impl core::fmt::Debug for Line<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Line").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Line<'_> {
    /// Address of the payload: 40 bytes ([`INLINE_PAYLOAD`]), aligned to 8, valid for writes until the line
    /// is sent or dropped. They start with arbitrary contents and may keep them.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        // SAFETY: the header is the first part of the line.
        unsafe { self.start.add(HEADER_LEN) }
    }

    /// Sends the frame `plan`. Its payload is the first `len` bytes of the space, 40 at most. A line is too
    /// short to name code: the peer refuses the frame of a plan that does. An alignment in the plan is
    /// ignored.
    ///
    /// # Errors
    /// When the peer sleeps and cannot be woken. The frame is in its mailbox all the same.
    #[inline(always)]
    pub fn send(self, plan: &Plan<'_>, len: usize) -> Result<(), TransportError> {
        self.path.send_line(self.at, plan, len.min(INLINE_PAYLOAD))
    }
}

/// A [`Line`] in a part of the ring where frames need no check.
#[derive(Debug)]
pub struct ClearLine<'c>(pub(super) Line<'c>);

impl ClearLine<'_> {
    /// As [`Line::payload`].
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        self.0.payload()
    }

    /// Makes `bytes` the payload.
    ///
    /// # Panics
    /// If there are over 40.
    #[inline(always)]
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= INLINE_PAYLOAD);
        // SAFETY: the line lends 40 bytes, aligned to 8, which do not overlap the caller's bytes.
        unsafe { copy_few(bytes, self.payload()) };
    }

    /// As [`Line::send`]. Returns whether the peer's state has changed. Then call
    /// [`Channel::look_at_changed_peer`](super::Channel::look_at_changed_peer), which wakes a sleeping peer.
    #[must_use = "a sleeping peer would not be woken"]
    #[inline(always)]
    pub fn send(self, plan: &Plan<'_>, len: usize) -> bool {
        self.0.path.send_clear_line(self.0.at, plan, len.min(INLINE_PAYLOAD))
    }
}

/// Copies up to 40 bytes by relaxed atomic stores. For so few bytes, calling memcpy takes longer than the copy,
/// and so does a loop, which the compiler unrolls.
///
/// # Safety
/// `from` must have at most 40 bytes. `to` must be aligned to 8 bytes and valid for writes of `from.len()` bytes.
/// `from` must not overlap them. Nothing else in this process may use them meanwhile.
#[inline(always)]
pub(super) unsafe fn copy_few(from: &[u8], to: NonNull<u8>) {
    // Not the atomics of `crate::sync`: loom has none at an address.
    use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

    let (len, from, to) = (from.len(), from.as_ptr(), to.as_ptr());
    // SAFETY: each copy ends within `len` bytes. Those of words are aligned as `to` is; the shorter ones come in
    // order of their lengths behind them, so each is aligned to its length.
    unsafe {
        let word = |at: usize| {
            AtomicU64::from_ptr(to.add(at).cast())
                .store(from.add(at).cast::<u64>().read_unaligned(), Relaxed);
        };
        if len >= 8 {
            word(0);
            if len >= 16 {
                word(8);
                if len >= 24 {
                    word(16);
                    if len >= 32 {
                        word(24);
                        if len >= 40 {
                            word(32);
                        }
                    }
                }
            }
        }
        if len % 8 != 0 {
            let mut at = len & !7;
            if len & 4 != 0 {
                AtomicU32::from_ptr(to.add(at).cast())
                    .store(from.add(at).cast::<u32>().read_unaligned(), Relaxed);
                at += 4;
            }
            if len & 2 != 0 {
                AtomicU16::from_ptr(to.add(at).cast())
                    .store(from.add(at).cast::<u16>().read_unaligned(), Relaxed);
                at += 2;
            }
            if len & 1 != 0 {
                AtomicU8::from_ptr(to.add(at)).store(from.add(at).read(), Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_bytes_is_copied_and_no_more() {
        let from: [u8; 40] = core::array::from_fn(|at| at as u8 + 1);
        for start in 0..8 {
            for len in 0..=40 - start {
                let mut to = [0_u64; 6];
                // SAFETY: `to` has 48 bytes, aligned to 8.
                unsafe { copy_few(&from[start..][..len], NonNull::from(&mut to).cast()) };
                let bytes: std::vec::Vec<u8> = to.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(bytes[..len], from[start..][..len]);
                assert!(bytes[len..].iter().all(|byte| *byte == 0), "{len} from {start}");
            }
        }
    }
}
