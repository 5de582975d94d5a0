//! Frames of one line in mapped memory: most frames, and nothing else is as quick.

use core::ptr::NonNull;

use super::one_sided::OneSided;
use crate::frame::{Flags, HEADER_LEN, Header, INLINE_ALIGN_LOG2, INLINE_PAYLOAD, Kind, LINE};
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

    /// Sends the frame, with the first `len` bytes of the room as its payload; no more than there are. `kind` is one that
    /// does not name code: the peer refuses others, for which a line is too short.
    ///
    /// # Errors
    /// When the peer sleeps and cannot be woken. The frame is in its mailbox all the same.
    #[inline(always)]
    pub fn send(
        self,
        pace: Pace,
        kind: Kind,
        wants_reply: bool,
        index: u16,
        token: u32,
        len: usize,
    ) -> Result<(), TransportError> {
        let wants_reply = if wants_reply { Flags::WANTS_REPLY.bits() } else { 0 };
        let header = Header {
            frame_len: LINE as u32,
            payload_len: len.min(INLINE_PAYLOAD) as u32,
            kind,
            flags: Flags::from_bits_retain(INLINE_ALIGN_LOG2 | wants_reply),
            index,
            token,
        };
        self.path.send_line(self.at, header, pace == Pace::Alone)
    }
}

/// How frames of one line follow each other. Either is right at any time; the fitting one is quicker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// One is sent, and before the next one something comes back: as long as nearly all is consumed they stay near the ring's
    /// start, in the nearest caches.
    Alone,
    /// One after another: they use the whole ring, and the lines of later ones come over while this one is filled.
    Stream,
}
