//! Frames of one line in mapped memory: most frames, and nothing else is as quick.

use core::ptr::NonNull;

use super::one_sided::OneSided;
use crate::frame::{HEADER_LEN, INLINE_PAYLOAD, Plan};
use crate::transport::TransportError;

/// Room for a frame of one line in the peer's mailbox, borrowed from the channel until it is sent or dropped. The peer sees
/// nothing before it is sent.
pub struct Line<'c> {
    pub(super) path: &'c mut OneSided,
    /// Where it starts: offset in the ring, and address of so many bytes as a line has.
    pub(super) at: usize,
    pub(super) start: NonNull<u8>,
}

impl core::fmt::Debug for Line<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Line").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Line<'_> {
    /// Where the payload goes: 40 bytes ([`INLINE_PAYLOAD`]), aligned to 8, valid for writes until the line is sent or dropped.
    /// They may hold anything, and may keep it.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        // SAFETY: the header is the first part of the line.
        unsafe { self.start.add(HEADER_LEN) }
    }

    /// Sends the frame `plan`, with the first `len` bytes of the room as its payload; no more than there are. A plan that names
    /// code, for which a line is too short, makes a frame that the peer refuses; a wish for an alignment is not heeded.
    ///
    /// # Errors
    /// When the peer sleeps and cannot be woken. The frame is in its mailbox all the same.
    #[inline(always)]
    pub fn send(self, plan: &Plan<'_>, len: usize) -> Result<(), TransportError> {
        self.path.send_line(self.at, plan, len.min(INLINE_PAYLOAD))
    }
}
