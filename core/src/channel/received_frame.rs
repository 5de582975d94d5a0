//! A received frame, from the poll to its release.

use core::ptr::NonNull;

use super::{Channel, Contents, Path, failed};
use crate::frame::{Header, PlainWords};
use crate::transport::{Cause, Operation, TransportError};

/// The frame that the last poll found, borrowed from its channel until it is released, taken or dropped. Its
/// bytes stay in place until the release. On a one-sided path a peer that breaks the protocol can change them
/// meanwhile. After a drop the next poll returns the same frame, as first read.
///
/// A frame cannot be read after its release:
/// ```compile_fail,E0382
/// # use farjump_core::channel::Received;
/// fn late(frame: Received<'_>) {
///     frame.release().unwrap();
///     frame.payload();
/// }
/// ```
/// Nor can the next frame be polled before the release:
/// ```compile_fail,E0499
/// # use farjump_core::channel::{Channel, Polled};
/// fn early(channel: &mut Channel) {
///     let first = channel.poll().unwrap();
///     let second = channel.poll().unwrap();
///     drop(first);
/// }
/// ```
#[must_use = "a frame stays at the head until `release`"]
pub struct Received<'c> {
    pub(super) channel: &'c mut Channel,
}

/// A frame that stays held while its channel sends. There is one for each frame: polls find nothing until it
/// is passed to [`Channel::release`].
///
/// A frame is released once:
/// ```compile_fail,E0382
/// # use farjump_core::channel::{Channel, Taken};
/// fn twice(channel: &mut Channel, frame: Taken) {
///     channel.release(frame).unwrap();
///     channel.release(frame).unwrap();
/// }
/// ```
#[must_use = "a frame stays at the head until `Channel::release`"]
#[derive(Debug)]
pub struct Taken {
    held: Held,
}

/// The frame that was found and is not released, as first read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    // Whole words, so that they stay in registers: an enum among them would pass the value through memory
    // piece by piece. `Header::from_words` or `Header::plain` has accepted the first two.
    lengths: u64,
    rest: u64,
    /// Offset of the payload, checked.
    pub(super) payload: u64,
    /// `None` without a frame.
    pub(super) start: Option<NonNull<u8>>,
}

// SAFETY: the value is an address and checked facts about the bytes there. Using the address takes `unsafe`
// code of the caller's, in the thread that has the channel.
unsafe impl Send for Held {}

impl Held {
    pub(super) const NOTHING: Held = Held { lengths: 0, rest: 0, payload: 0, start: None };

    /// The frame at `start`, whose header and payload offset were checked.
    #[inline(always)]
    pub(super) fn new(header: Header, payload: u32, start: NonNull<u8>) -> Self {
        let [lengths, rest] = header.to_words();
        Held { lengths, rest, payload: u64::from(payload), start: Some(start) }
    }

    /// The frame at `start` with these words and this payload offset, which were checked.
    #[inline(always)]
    pub(super) fn of_plain(words: PlainWords, payload: usize, start: NonNull<u8>) -> Self {
        let [lengths, rest] = words.words();
        Held { lengths, rest, payload: payload as u64, start: Some(start) }
    }

    #[inline(always)]
    pub(super) fn is_some(&self) -> bool {
        self.start.is_some()
    }

    /// The header; that of a `Skip` without a frame.
    #[inline(always)]
    pub(super) fn header(&self) -> Header {
        Header::of_checked([self.lengths, self.rest])
    }

    /// Address of the payload.
    ///
    /// # Safety
    /// There must be a frame.
    #[inline(always)]
    unsafe fn payload_at(&self) -> NonNull<u8> {
        // SAFETY: the caller guarantees that there is a frame (see Safety). The payload was checked to lie
        // within the frame.
        unsafe { self.start.unwrap_unchecked().add(self.payload as usize) }
    }
}

impl core::fmt::Debug for Received<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Received").field(&self.header()).finish()
    }
}

impl Received<'_> {
    /// A private copy of the header's fields.
    #[inline(always)]
    pub fn header(&self) -> Header {
        self.channel.held.header()
    }

    /// Address of the payload: valid for reads and writes of `header.payload_len` bytes until the frame is
    /// released.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        // SAFETY: the channel holds a frame while it is lent as this value.
        unsafe { self.channel.held.payload_at() }
    }

    /// Returns whether the payload is aligned to `align` bytes, a power of two. In a mailbox, always true for
    /// the alignment that the header states. A delivered message may start less aligned than that.
    #[inline(always)]
    pub fn payload_is_aligned(&self, align: usize) -> bool {
        self.payload().as_ptr().addr() & (align - 1) == 0
    }

    /// The parts of the frame.
    #[inline(always)]
    pub fn contents(&self) -> Contents<'_> {
        self.channel.held_contents()
    }

    /// [`Channel::prefetch_reserved`], for a frame that is sent once this one is released.
    #[inline(always)]
    pub fn prefetch_reserved(&self) {
        self.channel.prefetch_reserved();
    }

    /// Ends the borrow and leaves the frame at the head until the result is passed to [`Channel::release`].
    #[inline(always)]
    pub fn take(self) -> Taken {
        self.channel.taken = true;
        Taken { held: self.channel.held }
    }

    /// Releases the frame and its space. The bytes at [`Received::payload`] may be overwritten from now on.
    ///
    /// # Errors
    /// When returning credit to the peer fails.
    #[inline(always)]
    pub fn release(self) -> Result<(), TransportError> {
        self.channel.release_held()
    }
}

impl Taken {
    /// A private copy of the header's fields.
    #[inline(always)]
    pub fn header(&self) -> Header {
        self.held.header()
    }

    /// As [`Received::payload`].
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        // SAFETY: made of a frame that was held (`Received::take`).
        unsafe { self.held.payload_at() }
    }

    /// As [`Received::payload_is_aligned`].
    #[inline(always)]
    pub fn payload_is_aligned(&self, align: usize) -> bool {
        self.payload().as_ptr().addr() & (align - 1) == 0
    }
}

impl Channel {
    /// Releases a frame that was taken, and its space. The bytes of its payload may be overwritten from now
    /// on.
    ///
    /// # Errors
    /// When returning credit to the peer fails, and for a frame of another channel.
    #[inline(always)]
    pub fn release(&mut self, frame: Taken) -> Result<(), TransportError> {
        if !self.holds(&frame) {
            return Err(foreign());
        }
        self.release_held()
    }

    /// Holds a frame that names no code, as taken.
    pub(super) fn take_plain(&mut self, held: Held) -> Taken {
        self.hold(held, false);
        self.taken = true;
        Taken { held }
    }

    /// Returns whether the frame was taken from this channel.
    #[inline(always)]
    pub(super) fn holds(&self, frame: &Taken) -> bool {
        self.held.start == frame.held.start
    }

    #[inline(always)]
    fn release_held(&mut self) -> Result<(), TransportError> {
        let frame_len = self.held.header().frame_len;
        self.held.start = None;
        match &mut self.path {
            Path::OneSided(path) => path.release(frame_len),
            Path::TwoSided(path) => {
                path.release(frame_len);
                Ok(())
            }
        }
    }
}

#[cold]
fn foreign() -> TransportError {
    failed(Operation::Receive, Cause::Unsupported("releasing a frame of another channel"))
}
