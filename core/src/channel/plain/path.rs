//! The paths of frames without code, each with the shortest way to take a frame and to reply to it.

use core::ptr::NonNull;

use super::PlainSent;
use crate::channel::one_sided::OneSided;
use crate::channel::two_sided::{self, TwoSided};
use crate::channel::{Channel, Path};
use crate::frame::{Flags, INLINE_PAYLOAD, Kind, PlainWords, Plan};
use crate::mailbox;
use crate::transport::TransportError;

/// A path of frames without code: [`Mapped`], [`Put`] or [`Delivered`].
#[allow(private_bounds)]
pub trait PlainPath: Sealed {
    /// True if a poll finds frames without code of all kinds, not only of the requested kind.
    const FINDS_ALL_KINDS: bool;
}

/// A one-sided path whose peer's memory is mapped.
#[derive(Clone, Copy, Debug)]
pub enum Mapped {}

/// A one-sided path where a backend moves the bytes, under an arrival rule without checksums.
#[derive(Clone, Copy, Debug)]
pub enum Put {}

/// A two-sided path.
#[derive(Clone, Copy, Debug)]
pub enum Delivered {}

impl PlainPath for Mapped {
    const FINDS_ALL_KINDS: bool = false;
}

impl PlainPath for Put {
    const FINDS_ALL_KINDS: bool = false;
}

impl PlainPath for Delivered {
    const FINDS_ALL_KINDS: bool = true;
}

/// The result of a poll.
pub(crate) enum Seen {
    Nothing,
    /// A frame, checked, and its payload.
    Frame(PlainWords, NonNull<u8>),
    Other,
}

pub(crate) trait Sealed {
    /// Returns whether the channel has this path.
    fn is_of(channel: &Channel) -> bool;

    /// Polls for the next frame, of this kind.
    ///
    /// # Safety
    /// The path must be the channel's.
    unsafe fn poll(channel: &mut Channel, kind: Kind) -> Seen;

    /// Sends a reply while a frame stays at the head.
    fn reply(channel: &mut Channel, plan: &Plan<'_>, bytes: &[u8]) -> PlainSent;

    /// Releases the frame with these words.
    ///
    /// # Safety
    /// The path must be the channel's, and the frame the one at the head.
    unsafe fn release(channel: &mut Channel, words: &PlainWords) -> Result<(), TransportError>;

    /// The start of the frame with these words and this payload, and the payload's offset.
    ///
    /// # Safety
    /// As [`Sealed::release`].
    unsafe fn place(channel: &mut Channel, words: &PlainWords, payload: NonNull<u8>) -> (NonNull<u8>, usize);
}

impl Channel {
    /// The path, if it is one-sided and the peer's memory is mapped.
    #[inline(always)]
    pub(in crate::channel) fn mapped_path(&mut self) -> Option<&mut OneSided> {
        // SAFETY: `Channel::new` sets `is_mapped` only for a one-sided path, and nothing replaces either.
        if self.is_mapped { Some(unsafe { self.known_one_sided_path() }) } else { None }
    }

    /// The path, which is one-sided.
    ///
    /// # Safety
    /// The path must be one-sided.
    #[inline(always)]
    unsafe fn known_one_sided_path(&mut self) -> &mut OneSided {
        match &mut self.path {
            Path::OneSided(path) => path,
            // SAFETY: the caller guarantees a one-sided path (see Safety).
            Path::TwoSided(_) => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// The path, which is two-sided.
    ///
    /// # Safety
    /// The path must be two-sided.
    #[inline(always)]
    unsafe fn known_delivered_path(&mut self) -> &mut TwoSided {
        match &mut self.path {
            Path::TwoSided(path) => path,
            // SAFETY: the caller guarantees a two-sided path (see Safety).
            Path::OneSided(_) => unsafe { core::hint::unreachable_unchecked() },
        }
    }
}

impl Sealed for Mapped {
    #[inline(always)]
    fn is_of(channel: &Channel) -> bool {
        channel.is_mapped
    }

    #[inline(always)]
    unsafe fn poll(channel: &mut Channel, kind: Kind) -> Seen {
        // SAFETY: the caller guarantees the path (see Safety).
        let path = unsafe { channel.known_one_sided_path() };
        match path.inbound.poll_plain(kind) {
            mailbox::PlainPoll::Nothing => Seen::Nothing,
            mailbox::PlainPoll::Frame(words, payload) => {
                if words.flags().contains(Flags::WANTS_REPLY) {
                    path.out.prefetch();
                }
                Seen::Frame(words, payload)
            }
            mailbox::PlainPoll::Look => Seen::Other,
        }
    }

    #[inline(always)]
    fn reply(channel: &mut Channel, plan: &Plan<'_>, bytes: &[u8]) -> PlainSent {
        if bytes.len() <= INLINE_PAYLOAD
            && let Some(mut line) = channel.clear_line()
        {
            if !bytes.is_empty() {
                line.write(bytes);
            }
            if line.send(plan, bytes.len()) { PlainSent::Look } else { PlainSent::Sent }
        } else {
            PlainSent::NotSent
        }
    }

    #[inline(always)]
    unsafe fn release(channel: &mut Channel, words: &PlainWords) -> Result<(), TransportError> {
        // SAFETY: the caller guarantees the path (see Safety).
        unsafe { channel.known_one_sided_path() }.release_plain(words.frame_len())
    }

    unsafe fn place(channel: &mut Channel, words: &PlainWords, _: NonNull<u8>) -> (NonNull<u8>, usize) {
        // SAFETY: the caller guarantees the path (see Safety).
        (unsafe { channel.known_one_sided_path() }.inbound.head(), words.payload())
    }
}

impl Sealed for Put {
    #[inline(always)]
    fn is_of(channel: &Channel) -> bool {
        matches!(&channel.path, Path::OneSided(path) if path.finds_puts())
    }

    #[inline(always)]
    unsafe fn poll(channel: &mut Channel, kind: Kind) -> Seen {
        // SAFETY: the caller guarantees the path (see Safety).
        match unsafe { channel.known_one_sided_path() }.poll_put(kind) {
            mailbox::PlainPoll::Nothing => Seen::Nothing,
            mailbox::PlainPoll::Frame(words, payload) => Seen::Frame(words, payload),
            mailbox::PlainPoll::Look => Seen::Other,
        }
    }

    #[inline(always)]
    fn reply(channel: &mut Channel, plan: &Plan<'_>, bytes: &[u8]) -> PlainSent {
        channel.send_put(plan, bytes)
    }

    #[inline(always)]
    unsafe fn release(channel: &mut Channel, words: &PlainWords) -> Result<(), TransportError> {
        // SAFETY: the caller guarantees the path (see Safety).
        unsafe { channel.known_one_sided_path() }.release(words.frame_len())
    }

    unsafe fn place(channel: &mut Channel, words: &PlainWords, payload: NonNull<u8>) -> (NonNull<u8>, usize) {
        // SAFETY: the caller guarantees the path (see Safety). A mailbox is the same, mapped or not.
        unsafe { Mapped::place(channel, words, payload) }
    }
}

impl Sealed for Delivered {
    #[inline(always)]
    fn is_of(channel: &Channel) -> bool {
        matches!(channel.path, Path::TwoSided(_))
    }

    #[inline(always)]
    unsafe fn poll(channel: &mut Channel, _: Kind) -> Seen {
        // SAFETY: the caller guarantees the path (see Safety).
        let path = unsafe { channel.known_delivered_path() };
        match path.poll_fast() {
            two_sided::FastPoll::Nothing => Seen::Nothing,
            two_sided::FastPoll::Plain(words, start) => Seen::Frame(words, start),
            two_sided::FastPoll::Look => Seen::Other,
        }
    }

    #[inline(always)]
    fn reply(channel: &mut Channel, plan: &Plan<'_>, bytes: &[u8]) -> PlainSent {
        if channel.send_message(plan, bytes) { PlainSent::Sent } else { PlainSent::NotSent }
    }

    #[inline(always)]
    unsafe fn release(channel: &mut Channel, words: &PlainWords) -> Result<(), TransportError> {
        // SAFETY: the caller guarantees the path (see Safety).
        unsafe { channel.known_delivered_path() }.release(words.frame_len());
        Ok(())
    }

    unsafe fn place(_: &mut Channel, _: &PlainWords, payload: NonNull<u8>) -> (NonNull<u8>, usize) {
        // A message starts with the payload.
        (payload, 0)
    }
}
