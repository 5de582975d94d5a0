//! Receiving frames without code: the most common frames, along the shortest path.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::received_frame::Held;
use super::{Channel, Taken};
use crate::frame::{Flags, Kind, PlainWords, Plan};
use crate::shared;
use crate::transport::TransportError;

mod path;

pub use path::{Delivered, Mapped, PlainPath, Put};

/// Frames of one kind, without code, in the order in which they come, along a path of the type `P`. While this
/// value lives the channel holds no frame, so nothing is stored for a frame but the receiver's progress.
#[derive(Debug)]
pub struct PlainFrames<'c, P> {
    channel: &'c mut Channel,
    kind: Kind,
    path: PhantomData<P>,
}

/// The result of [`PlainFrames::next`].
#[derive(Debug)]
pub enum PlainPoll<'c, P> {
    /// Nothing.
    Nothing,
    /// A frame, checked. It stays at the head until [`PlainFrame::release`].
    Frame(PlainFrame<'c, P>),
    /// A frame without code of another kind, checked: [`PlainFrame::hold`] takes it. Only on a [`Delivered`] path.
    OfOtherKind(PlainFrame<'c, P>),
    /// Something else: use [`Channel::poll`].
    Other,
}

/// A frame that was found, borrowed from its channel. Its header was read once, and is kept here. After a drop
/// the next poll reads the frame again.
#[derive(Debug)]
#[must_use = "a frame stays at the head until `release`"]
pub struct PlainFrame<'c, P> {
    channel: &'c mut Channel,
    words: PlainWords,
    payload: NonNull<u8>,
    path: PhantomData<P>,
}

/// The result of [`PlainFrame::reply`] and [`Channel::send_put`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a frame may not have been sent"]
pub enum PlainSent {
    /// The frame is sent.
    Sent,
    /// The frame is sent, and the peer's state has changed: call [`Channel::look_at_changed_peer`], which
    /// wakes a sleeping peer.
    Look,
    /// Nothing was sent: use the general path.
    NotSent,
}

impl Channel {
    /// Begins to receive frames of this kind. `None` for kinds that name code, on another path, and while a frame
    /// is held.
    #[inline(always)]
    pub fn plain_frames<P: PlainPath>(&mut self, kind: Kind) -> Option<PlainFrames<'_, P>> {
        let is_plain = !kind.names_code() && kind != Kind::Skip;
        let may = is_plain && P::is_of(self) && !self.held.is_some();
        may.then_some(PlainFrames { channel: self, kind, path: PhantomData })
    }
}

impl<P: PlainPath> PlainFrames<'_, P> {
    /// Polls for the next frame. If a reply is wanted, prefetches the line for it.
    // Not an iterator: a frame borrows from this value.
    #[allow(clippy::should_implement_trait)]
    #[inline(always)]
    pub fn next(&mut self) -> PlainPoll<'_, P> {
        // SAFETY: `Channel::plain_frames` makes a value for this path only.
        match unsafe { P::poll(self.channel, self.kind) } {
            path::Seen::Nothing => PlainPoll::Nothing,
            path::Seen::Frame(words, payload) => {
                let is_other = P::FINDS_ALL_KINDS && !words.is_of(self.kind);
                let frame = PlainFrame { channel: self.channel, words, payload, path: PhantomData };
                if is_other { PlainPoll::OfOtherKind(frame) } else { PlainPoll::Frame(frame) }
            }
            path::Seen::Other => PlainPoll::Other,
        }
    }
}

impl<P: PlainPath> PlainFrame<'_, P> {
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

    /// Sends the frame `plan`, which names no code and wants no alignment, with the payload `bytes`, if the
    /// shortest path applies. This frame stays at the head.
    #[inline(always)]
    pub fn reply(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> PlainSent {
        P::reply(self.channel, plan, bytes)
    }

    /// Releases the frame and its space. The bytes at [`PlainFrame::payload`] may be overwritten from now on.
    ///
    /// # Errors
    /// When returning credit to the peer fails.
    #[inline(always)]
    pub fn release(self) -> Result<(), TransportError> {
        // SAFETY: `Channel::plain_frames`, which this comes from, makes a value for this path only. The frame is at
        // the head: it was not released.
        unsafe { P::release(self.channel, &self.words) }
    }

    /// Ends the borrow. The channel holds the frame until the result is passed to [`Channel::release`].
    #[cold]
    pub fn hold(self) -> Taken {
        // SAFETY: as in `release`.
        let (start, payload) = unsafe { P::place(self.channel, &self.words, self.payload) };
        self.channel.take_plain(Held::of_plain(self.words, payload, start))
    }
}
