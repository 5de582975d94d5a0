//! A frame as its receiver has it.

use core::ptr::NonNull;

use crate::frame::Header;

/// A frame that has arrived. Its bytes stay where they are until [`Channel::release`](super::Channel::release); on a one-sided
/// path the peer, if it breaks the protocol, can change them meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    // Whole words, so that they stay in registers: an enum among them would pass the value through memory piece by piece.
    // `Header::from_words` or `Header::plain` has accepted the first two.
    lengths: u64,
    rest: u64,
    /// Offset of the payload, checked.
    pub(super) payload: u64,
    pub(super) start: NonNull<u8>,
}

// SAFETY: it is an address and what was checked of the bytes there; whoever uses the address does so by unsafe code of
// their own, from the thread that has the channel.
unsafe impl Send for Received {}

impl Received {
    /// The frame at `start` whose header and payload offset were checked.
    #[inline(always)]
    pub(super) fn new(header: Header, payload: u32, start: NonNull<u8>) -> Self {
        let [lengths, rest] = header.to_words();
        Received { lengths, rest, payload: u64::from(payload), start }
    }

    /// The header's fields, our own copy.
    #[inline(always)]
    pub fn header(&self) -> Header {
        Header::of_checked([self.lengths, self.rest])
    }

    /// Where the payload is: valid for reads and writes of `header.payload_len` bytes until the frame is released.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        // SAFETY: the payload was checked to lie within the frame, which starts at `start`.
        unsafe { self.start.add(self.payload as usize) }
    }

    /// Whether the payload is aligned to `align` bytes, a power of two. Always true in a mailbox for the alignment that the
    /// header states; a delivered message may start less aligned than that.
    #[inline(always)]
    pub fn payload_is_aligned(&self, align: usize) -> bool {
        self.payload().as_ptr().addr() & (align - 1) == 0
    }
}
