//! Frames of a few lines in mapped memory that name no code: calls whose payload a line is too short for.

use core::ptr::NonNull;

use super::one_sided::OneSided;
use super::{Channel, Path};
use crate::frame::{LINE, Plan, Trailer};
use crate::transport::TransportError;

/// Room for a frame whose payload starts with its second line, borrowed from the channel until it is sent or dropped. The peer
/// sees nothing before it is sent.
pub struct Lines<'c> {
    path: &'c mut OneSided,
    /// Where the frame starts: offset in the ring.
    at: usize,
    /// Where the payload starts, and bytes of room for it.
    payload: NonNull<u8>,
    room: usize,
}

impl core::fmt::Debug for Lines<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Lines").field("at", &self.at).field("room", &self.room).finish_non_exhaustive()
    }
}

impl Channel {
    /// Room for a frame with up to `payload` bytes of payload, which wants no alignment over 64 and names no code, where the ring is
    /// mapped and has some right now. `None` where another way has to be gone ([`Channel::reserve`]).
    #[inline]
    pub fn lines(&mut self, payload: usize) -> Option<Lines<'_>> {
        let Path::OneSided(path) = &mut self.path else { return None };
        if !path.is_mapped() || self.trailer != Trailer::Never || payload > self.terms.send_limit {
            return None;
        }
        // As `Plan::layout` does it for a payload that does not fit the header's line.
        let frame_len = LINE + payload.next_multiple_of(LINE);
        if frame_len > self.terms.send_limit {
            return None;
        }
        let at = path.out.room(frame_len)?;
        let start = path.out.ring().pointer(at, frame_len);
        // SAFETY: the frame has more than its first line, which `pointer` has checked to be inside.
        let at_payload = unsafe { start.add(LINE) };
        Some(Lines { path, at, payload: at_payload, room: frame_len - LINE })
    }
}

impl Lines<'_> {
    /// Where the payload goes: as many bytes as were asked for, aligned to 64, valid for writes until the frame is sent or dropped.
    /// They may hold anything, and may keep it.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        self.payload
    }

    /// Sends the frame `plan`, with the first `len` bytes of the room as its payload; no more than there are. A plan that names
    /// code makes a frame that the peer refuses; a wish for an alignment is not heeded.
    ///
    /// # Errors
    /// When the peer sleeps and cannot be woken. The frame is in its mailbox all the same.
    #[inline(always)]
    pub fn send(self, plan: &Plan<'_>, len: usize) -> Result<(), TransportError> {
        self.path.send_lines(self.at, plan, len.min(self.room))
    }
}
