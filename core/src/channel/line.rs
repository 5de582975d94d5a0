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
