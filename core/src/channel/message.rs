//! Frames without code as messages of a two-sided path: the most common frames there, along the shortest path.

use core::ptr::NonNull;

use super::two_sided::TwoSided;
use super::{Channel, Path};
use crate::frame::Plan;

/// Space for a frame without code in a message, borrowed from the channel until the frame is sent or dropped. The
/// peer sees nothing before the send.
pub struct MessageSpace<'c> {
    pub(super) path: &'c mut TwoSided,
    /// Address of the payload, with which the message starts.
    pub(super) start: NonNull<u8>,
    /// Payload bytes that fit.
    len: usize,
}

impl core::fmt::Debug for MessageSpace<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("MessageSpace").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Channel {
    /// Reserves space for a frame on a two-sided path that names no code and wants no alignment, with up to
    /// `payload` bytes of payload. `None` when the fast path does not apply: use [`Channel::reserve`] then.
    #[inline(always)]
    pub fn message(&mut self, payload: usize) -> Option<MessageSpace<'_>> {
        let Path::TwoSided(path) = &mut self.path else { return None };
        if self.keeps {
            return None;
        }
        let start = path.plain_space(payload, self.send_limit)?;
        Some(MessageSpace { path, start, len: payload })
    }

    /// Sends a frame on a two-sided path with the payload `bytes`. The plan names no code and wants no alignment.
    /// Returns `false`, with nothing sent, when the fast path does not apply: use [`Channel::reserve`] then.
    #[must_use = "the frame may not have been sent"]
    #[inline(always)]
    pub fn send_message(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> bool {
        match &mut self.path {
            Path::TwoSided(path) if !self.keeps => path.send_plain_bytes(plan, bytes, self.send_limit),
            _ => false,
        }
    }
}

impl MessageSpace<'_> {
    /// Address of the payload: aligned to 64, valid for writes of the requested number of bytes until the frame is
    /// sent or dropped. They start with arbitrary contents and may keep them.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        self.start
    }

    /// Sends the frame `plan`. Its payload is the first `len` bytes of the space. The plan names no code and wants
    /// no alignment. Returns `false`, with nothing sent, if the transport cannot take the frame now:
    /// [`Channel::reserve`] says why.
    #[must_use = "the frame may not have been sent"]
    #[inline(always)]
    pub fn send(self, plan: &Plan<'_>, len: usize) -> bool {
        // SAFETY: `Channel::message` got the buffer for at least `len` bytes of payload, and this value borrows the
        // path: nothing was reserved or committed since.
        unsafe { self.path.send_plain(self.start, plan, len.min(self.len)) }
    }
}
