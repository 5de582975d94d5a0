//! Receiving frames without code in mapped memory: the most common frames, along the shortest path.

use core::ptr::NonNull;

use super::one_sided::OneSided;
use super::received_frame::Held;
use super::{Channel, ClearLine, Path, Taken};
use crate::frame::{Flags, Kind, PlainWords};
use crate::mailbox;
use crate::shared;
use crate::transport::TransportError;

/// Frames of one kind, without code, of a mapped ring, in the order in which they come. While this value lives
/// the channel holds no frame, so nothing is stored for a frame but the receiver's progress.
#[derive(Debug)]
pub struct PlainFrames<'c> {
    channel: &'c mut Channel,
    kind: Kind,
}

/// The result of [`PlainFrames::next`].
#[derive(Debug)]
pub enum PlainPoll<'c> {
    /// Nothing.
    Nothing,
    /// A frame, checked. It stays at the head until [`PlainFrame::release`].
    Frame(PlainFrame<'c>),
    /// Something else: use [`Channel::poll`].
    Other,
}

/// A frame that was found, borrowed from its channel. Its header was read once, and is kept here. After a drop
/// the next poll reads the frame again.
#[derive(Debug)]
#[must_use = "a frame stays at the head until `release`"]
pub struct PlainFrame<'c> {
    channel: &'c mut Channel,
    words: PlainWords,
    payload: NonNull<u8>,
}

impl Channel {
    /// Begins to receive frames of this kind. `None` for kinds that name code, where the ring is not mapped, and
    /// while a frame is held.
    #[inline(always)]
    pub fn plain_frames(&mut self, kind: Kind) -> Option<PlainFrames<'_>> {
        let is_plain = !kind.names_code() && kind != Kind::Skip;
        (is_plain && self.is_mapped && !self.held.is_some()).then_some(PlainFrames { channel: self, kind })
    }

    /// The path, if it is one-sided and the peer's memory is mapped.
    #[inline(always)]
    pub(super) fn mapped_path(&mut self) -> Option<&mut OneSided> {
        // SAFETY: just checked.
        if self.is_mapped { Some(unsafe { self.known_mapped_path() }) } else { None }
    }

    /// The path, which is one-sided.
    ///
    /// # Safety
    /// `is_mapped` must be set.
    #[inline(always)]
    unsafe fn known_mapped_path(&mut self) -> &mut OneSided {
        match &mut self.path {
            Path::OneSided(path) => path,
            // SAFETY: `Channel::new` sets `is_mapped` only for a one-sided path, and nothing replaces either.
            Path::TwoSided(_) => unsafe { core::hint::unreachable_unchecked() },
        }
    }
}

impl PlainFrames<'_> {
    /// Polls for the next frame. If a reply is wanted, prefetches the line for it.
    // Not an iterator: a frame borrows from this value.
    #[allow(clippy::should_implement_trait)]
    #[inline(always)]
    pub fn next(&mut self) -> PlainPoll<'_> {
        // SAFETY: `Channel::plain_frames` makes a value for a mapped path only.
        let path = unsafe { self.channel.known_mapped_path() };
        match path.inbound.poll_plain(self.kind) {
            mailbox::PlainPoll::Nothing => PlainPoll::Nothing,
            mailbox::PlainPoll::Frame(words, payload) => {
                if words.flags().contains(Flags::WANTS_REPLY) {
                    path.out.prefetch();
                }
                PlainPoll::Frame(PlainFrame { channel: self.channel, words, payload })
            }
            mailbox::PlainPoll::Look => PlainPoll::Other,
        }
    }
}

impl PlainFrame<'_> {
    /// The code index, or a reply's status.
    #[inline(always)]
    pub fn index(&self) -> u16 {
        self.words.index()
    }

    /// The token.
    #[inline(always)]
    pub fn token(&self) -> u32 {
        self.words.token()
    }

    /// The sender's expectations, and the payload's alignment.
    #[inline(always)]
    pub fn flags(&self) -> Flags {
        self.words.flags()
    }

    /// Address of the payload: valid for reads and writes of [`PlainFrame::payload_len`] bytes until the frame is
    /// released.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        self.payload
    }

    /// Length of the payload in bytes.
    #[inline(always)]
    pub fn payload_len(&self) -> usize {
        self.words.payload_len()
    }

    /// Copies as much of the payload as fits to the start of `into`.
    #[inline(always)]
    pub fn copy_payload_to(&self, into: &mut [u8]) {
        let len = self.payload_len().min(into.len());
        // SAFETY: the payload is valid for reads of `payload_len` bytes, and `into` is the caller's and long
        // enough. The peer may write at the same time, which `copy_out` allows.
        unsafe { shared::copy_out(self.payload.as_ptr(), into.as_mut_ptr(), len) };
    }

    /// [`Channel::prefetch_reserved`], for a frame that is sent once this one is released.
    #[inline(always)]
    pub fn prefetch_reserved(&self) {
        self.channel.prefetch_reserved();
    }

    /// Space for a reply of one line, where that needs no check. The frame stays at the head.
    #[inline(always)]
    pub fn clear_line(&mut self) -> Option<ClearLine<'_>> {
        self.channel.clear_line()
    }

    /// Releases the frame and its space. The bytes at [`PlainFrame::payload`] may be overwritten from now on.
    ///
    /// # Errors
    /// When returning credit to the peer fails.
    #[inline(always)]
    pub fn release(self) -> Result<(), TransportError> {
        // SAFETY: `Channel::plain_frames`, which this comes from, makes a value for a mapped path only.
        unsafe { self.channel.known_mapped_path() }.release_plain(self.words.frame_len())
    }

    /// Ends the borrow and has the channel hold the frame until [`Channel::release`] has the result.
    #[cold]
    pub fn hold(self) -> Taken {
        // SAFETY: as in `release`.
        let path = unsafe { self.channel.known_mapped_path() };
        // The frame is at the head: it was not released.
        let start = path.inbound.head();
        self.channel.take_plain(Held::of_plain(self.words, start))
    }
}
