//! A frame as its receiver has it.

use core::ptr::NonNull;

use crate::frame::{Header, Parts};

/// A frame that has arrived. Its bytes stay where they are until [`Channel::release`](super::Channel::release); on a one-sided path the peer, if it
/// breaks the protocol, can change them meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub(super) header: Header,
    pub(super) parts: Parts,
    pub(super) start: NonNull<u8>,
}

// SAFETY: it is an address and what was checked of the bytes there; whoever uses the address does so by unsafe code of
// their own, from the thread that has the channel.
unsafe impl Send for Received {}

impl Received {
    /// The header's fields, our own copy.
    #[inline]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where its parts lie, checked.
    #[inline]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Where the payload is: valid for reads and writes of `header.payload_len` bytes until the frame is released.
    #[inline]
    pub fn payload(&self) -> NonNull<u8> {
        // SAFETY: `parts` was checked to lie within the frame, which starts at `start`.
        unsafe { self.start.add(self.parts.payload as usize) }
    }

    /// Whether the payload is aligned to `1 << log2` bytes. Always true in a mailbox for the alignment that the header
    /// states; a delivered message may start less aligned than that.
    #[inline]
    pub fn payload_is_aligned(&self, log2: u8) -> bool {
        self.payload().as_ptr().addr() & ((1 << log2) - 1) == 0
    }
}
