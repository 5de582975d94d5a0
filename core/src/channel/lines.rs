//! Frames of a few lines in mapped memory that name no code: calls whose payload does not fit one line.

use core::ptr::NonNull;

use super::one_sided::OneSided;
use super::{Channel, Path};
use crate::frame::{LINE, Plan, Trailer};
use crate::transport::TransportError;

/// Space for a frame whose payload starts with its second line, borrowed from the channel until the frame is
/// sent or dropped. The peer sees nothing before the send.
pub struct Lines<'c> {
    path: &'c mut OneSided,
    /// Offset of the frame in the ring.
    at: usize,
    /// Address of the payload, and bytes of space for it.
    payload: NonNull<u8>,
    space: usize,
}

impl core::fmt::Debug for Lines<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Lines").field("at", &self.at).field("space", &self.space).finish_non_exhaustive()
    }
}

impl Channel {
    /// Reserves space for a frame with up to `payload` bytes of payload that wants no alignment over 64 and
    /// names no code. `None` unless the ring is mapped and has the space now: use [`Channel::reserve`] then.
    #[inline]
    pub fn lines(&mut self, payload: usize) -> Option<Lines<'_>> {
        let Path::OneSided(path) = &mut self.path else { return None };
        if !path.lines_are_open() || self.trailer != Trailer::Never || payload > self.send_limit {
            return None;
        }
        // Same rule as `Plan::layout` for a payload that does not fit the header's line.
        let frame_len = LINE + payload.next_multiple_of(LINE);
        if frame_len > self.send_limit {
            return None;
        }
        let at = path.out.space(frame_len)?;
        let start = path.out.ring().pointer(at, frame_len);
        // SAFETY: `pointer` has checked that the frame is inside the ring, and the frame is longer than its
        // first line.
        let at_payload = unsafe { start.add(LINE) };
        Some(Lines { path, at, payload: at_payload, space: frame_len - LINE })
    }
}

impl Lines<'_> {
    /// Address of the payload: the requested number of bytes, aligned to 64, valid for writes until the frame
    /// is sent or dropped. They start with arbitrary contents and may keep them.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        self.payload
    }

    /// Sends the frame `plan`. Its payload is the first `len` bytes of the space, all of it at most. The peer
    /// refuses the frame of a plan that names code. An alignment in the plan is ignored.
    ///
    /// # Errors
    /// When the peer sleeps and cannot be woken. The frame is in its mailbox all the same.
    #[inline(always)]
    pub fn send(self, plan: &Plan<'_>, len: usize) -> Result<(), TransportError> {
        self.path.send_lines(self.at, plan, len.min(self.space))
    }
}
