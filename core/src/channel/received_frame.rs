//! A frame as its receiver has it.

use core::ptr::NonNull;

use crate::frame::Header;

/// A frame that has arrived. Its bytes stay in place until [`Channel::release`](super::Channel::release). On
/// a one-sided path a peer that breaks the protocol can change them meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    // Whole words, so that they stay in registers: an enum among them would pass the value through memory
    // piece by piece. `Header::from_words` or `Header::plain` has accepted the first two.
    lengths: u64,
    rest: u64,
    /// Offset of the payload, checked.
    pub(super) payload: u64,
    pub(super) start: NonNull<u8>,
}

// SAFETY: the value is an address and checked facts about the bytes there. Using the address takes `unsafe`
// code of the caller's, in the thread that has the channel.
unsafe impl Send for Received {}

impl Received {
    /// The frame at `start`, whose header and payload offset were checked.
    #[inline(always)]
    pub(super) fn new(header: Header, payload: u32, start: NonNull<u8>) -> Self {
        let [lengths, rest] = header.to_words();
        Received { lengths, rest, payload: u64::from(payload), start }
    }

    /// A private copy of the header's fields.
    #[inline(always)]
    pub fn header(&self) -> Header {
        Header::of_checked([self.lengths, self.rest])
    }

    /// Address of the payload: valid for reads and writes of `header.payload_len` bytes until the frame is
    /// released.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        // SAFETY: the payload was checked to lie within the frame, which starts at `start`.
        unsafe { self.start.add(self.payload as usize) }
    }

    /// Whether the payload is aligned to `align` bytes, a power of two. In a mailbox, always true for the
    /// alignment that the header states. A delivered message may start less aligned than that.
    #[inline(always)]
    pub fn payload_is_aligned(&self, align: usize) -> bool {
        self.payload().as_ptr().addr() & (align - 1) == 0
    }
}
