//! The path through an inbox: one frame in each message of a transport that delivers whole messages.

use alloc::boxed::Box;
use core::ptr::NonNull;

use super::{Armed, ChannelParams, SendError, protocol};
use crate::frame::{
    DEFAULT_ALIGN_LOG2, DELIVERED_HEADER_LEN, Flags, FrameError, FrameView, Header, Layout, Parts,
    PlainWords, Plan, delivered_words,
};
use crate::transport::{Message, MessageHeader, Messages, TransportError};

// The fields that a poll touches come first, then those that each send touches.
#[repr(C)]
pub(super) struct TwoSided {
    pub(super) messages: Box<dyn Messages>,
    /// Longest frame that the fast poll takes, in bytes.
    pub(super) fast_limit: usize,
    /// Stamp of the next frame to receive.
    due: u32,
    /// Stamp of the first frame to send.
    first: u32,
    /// Bytes of the frames released so far.
    pub(super) received: u64,
    /// Number of the next frame to send.
    sent: u64,
    /// The backend's error when the fast path requested a buffer.
    refused: Option<Box<TransportError>>,
    /// The error of a fast poll, for the general poll that follows.
    failed: Option<Box<TransportError>>,
    receive_limit: usize,
}

/// The result of a fast poll.
pub(super) enum FastPoll {
    /// Nothing.
    Nothing,
    /// A frame without code: its header, and the address at which the frame and its payload start.
    Plain(PlainWords, NonNull<u8>),
    /// Something else: call [`TwoSided::poll`].
    Look,
}

impl TwoSided {
    pub(super) fn new(messages: Box<dyn Messages>, terms: &ChannelParams) -> Self {
        TwoSided {
            messages,
            fast_limit: terms.receive_limit,
            due: terms.receive_key.stamp(0),
            first: terms.send_key.stamp(0),
            received: 0,
            sent: 0,
            refused: None,
            failed: None,
            receive_limit: terms.receive_limit,
        }
    }

    pub(super) fn reserve(
        &mut self,
        plan: &Plan<'_>,
        payload: usize,
        limit: usize,
    ) -> Result<(NonNull<u8>, Layout), SendError> {
        let layout = plan.layout_delivered(payload);
        if layout.frame_len > limit {
            return Err(SendError::TooLarge { len: layout.frame_len, max: limit });
        }
        if let Some(error) = self.refused.take() {
            return Err(SendError::from_transport(*error));
        }
        let start = self.messages.reserve(layout.frame_len).map_err(SendError::from_transport)?;
        Ok((start, layout))
    }

    /// Sends the frame in the buffer at `start` with this header.
    ///
    /// # Safety
    /// [`TwoSided::reserve`] or [`TwoSided::lend`] returned `start` last, for a frame at least as long, and
    /// no commit has taken it since.
    #[inline]
    pub(super) unsafe fn commit(&mut self, start: NonNull<u8>, header: Header) -> Result<(), SendError> {
        // SAFETY: the caller guarantees the buffer (see Safety).
        unsafe { self.begin(start, header) };
        let sent = self.messages.commit(header.frame_len as usize, self.sent);
        self.ended(sent)
    }

    /// A buffer for a frame without code with up to `payload` bytes of payload, if the backend has one now.
    #[inline(always)]
    pub(super) fn plain_space(&mut self, payload: usize, limit: usize) -> Option<NonNull<u8>> {
        // As `Plan::layout_delivered` lays it out.
        let frame_len = payload.saturating_add(DELIVERED_HEADER_LEN);
        if frame_len > limit { None } else { self.lend(frame_len) }
    }

    /// Sends a frame without code, which wants no alignment of its own, with the `used` bytes of payload in the
    /// buffer at `start`. Returns `false`, with nothing sent, if the backend cannot take it now; an error is
    /// kept for the next [`TwoSided::reserve`].
    ///
    /// # Safety
    /// [`TwoSided::plain_space`] returned `start` last, for as many bytes of payload, and no commit has taken it
    /// since.
    #[inline(always)]
    pub(super) unsafe fn send_plain(&mut self, start: NonNull<u8>, plan: &Plan<'_>, used: usize) -> bool {
        let header = plain_header(plan, used);
        // SAFETY: the caller guarantees the buffer (see Safety).
        unsafe { self.begin(start, header) };
        let sent = self.messages.commit(header.frame_len as usize, self.sent);
        self.plain_ended(sent)
    }

    /// [`TwoSided::send_plain`] for a payload that lies elsewhere, within `limit` for the frame.
    #[inline(always)]
    pub(super) fn send_plain_bytes(&mut self, plan: &Plan<'_>, bytes: &[u8], limit: usize) -> bool {
        if bytes.len().saturating_add(DELIVERED_HEADER_LEN) > limit || self.refused.is_some() {
            return false;
        }
        let [first, second] = delivered_words(plain_header(plan, bytes.len()), self.stamp());
        let sent = self.messages.send(bytes, MessageHeader(first, second), self.sent);
        self.plain_ended(sent)
    }

    #[inline(always)]
    fn plain_ended(&mut self, sent: Result<(), TransportError>) -> bool {
        match sent {
            Ok(()) => {
                self.sent += 1;
                true
            }
            Err(error) => {
                self.refuse(error);
                false
            }
        }
    }

    /// `LinkKey::stamp` of the next frame to send.
    #[inline(always)]
    fn stamp(&self) -> u32 {
        self.first.wrapping_add(self.sent as u32)
    }

    /// [`TwoSided::commit`] for a frame that names no code and whose payload, `bytes`, lies elsewhere.
    ///
    /// # Safety
    /// As [`TwoSided::commit`].
    #[inline]
    pub(super) unsafe fn commit_beside(
        &mut self,
        start: NonNull<u8>,
        header: Header,
        bytes: &[u8],
    ) -> Result<(), SendError> {
        // SAFETY: the caller guarantees the buffer (see Safety).
        unsafe { self.begin(start, header) };
        let sent = self.messages.commit_beside(header.frame_len as usize, bytes, self.sent);
        self.ended(sent)
    }

    /// Writes a frame's header to the frame's end in the buffer at `start`.
    ///
    /// # Safety
    /// As [`TwoSided::commit`].
    #[inline(always)]
    unsafe fn begin(&mut self, start: NonNull<u8>, header: Header) {
        let [first, second] = delivered_words(header, self.stamp());
        let at = header.frame_len as usize - DELIVERED_HEADER_LEN;
        // SAFETY: the backend lends at least the frame's bytes at `start` until its commit or the next
        // `reserve`. There was neither since (see Safety), and no frame is shorter than its header. Nothing
        // else uses these bytes.
        unsafe { start.add(at).cast().write_unaligned([first.to_le(), second.to_le()]) };
    }

    /// Records the result of handing over a frame.
    #[inline]
    fn ended(&mut self, sent: Result<(), TransportError>) -> Result<(), SendError> {
        match sent {
            Ok(()) => {
                self.sent += 1;
                Ok(())
            }
            Err(error) => Err(SendError::from_transport(error)),
        }
    }

    /// Reserves a buffer for a frame of `frame_len` bytes if the backend has one now. Errors other than
    /// "full" are kept for the next `reserve`.
    #[inline]
    pub(super) fn lend(&mut self, frame_len: usize) -> Option<NonNull<u8>> {
        if self.refused.is_some() {
            return None;
        }
        match self.messages.reserve(frame_len) {
            Ok(start) => Some(start),
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }

    /// Keeps an error that may end the link: the backend gets no second request.
    #[cold]
    fn refuse(&mut self, error: TransportError) {
        if !error.is_full() {
            self.refused = Some(Box::new(error));
        }
    }

    /// The fast poll: finds nothing or a frame without code, and leaves everything else to `poll`.
    #[inline(always)]
    pub(super) fn poll_fast(&mut self) -> FastPoll {
        let message = match self.messages.poll() {
            Ok(None) => return FastPoll::Nothing,
            Ok(Some(message)) => message,
            Err(error) => return self.look(error),
        };
        let Some(words) = words_of(&message) else { return FastPoll::Look };
        if words[0] as u32 != self.due {
            return FastPoll::Look;
        }
        match PlainWords::of_delivered(words, message.len(), self.fast_limit) {
            Some(words) => FastPoll::Plain(words, message.start()),
            None => FastPoll::Look,
        }
    }

    /// Keeps the error of a fast poll for the general one.
    #[cold]
    fn look(&mut self, error: TransportError) -> FastPoll {
        self.failed = Some(Box::new(error));
        FastPoll::Look
    }

    /// The message at the head: its header, parts and start.
    pub(super) fn poll(&mut self) -> Result<Option<(Header, Parts, NonNull<u8>)>, TransportError> {
        if let Some(error) = self.failed.take() {
            return Err(*error);
        }
        let Some(message) = self.messages.poll()? else { return Ok(None) };
        let (start, len) = (message.start(), message.len());
        let Some(words) = words_of(&message) else {
            return Err(protocol(FrameError::Truncated { needed: DELIVERED_HEADER_LEN, found: len }));
        };
        // SAFETY: the backend lends the message less its header at `start`, which nothing else writes, until
        // `release` (`Messages`).
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len - DELIVERED_HEADER_LEN) };
        let view = FrameView::of_parts(bytes, words, self.receive_limit).map_err(protocol)?;
        if view.signal() != u64::from(self.due) {
            return Err(protocol(FrameError::Signal));
        }
        Ok(Some((view.header(), view.parts(), start)))
    }

    pub(super) fn release(&mut self, frame_len: u32) {
        self.due = self.due.wrapping_add(1);
        self.received = self.received.wrapping_add(u64::from(frame_len));
        self.messages.release();
    }

    pub(super) fn arm(&mut self) -> Result<Armed, TransportError> {
        let wakes = self.messages.descriptor().is_some();
        Ok(match (self.messages.arm()?, wakes) {
            (true, true) => Armed::Sleep,
            (true, false) => Armed::Nap,
            (false, _) if self.messages.poll()?.is_some() => Armed::Ready,
            (false, _) => Armed::Nap,
        })
    }
}

/// The header of a frame that `plan` describes, which names no code and wants no alignment of its own.
#[inline(always)]
fn plain_header(plan: &Plan<'_>, payload: usize) -> Header {
    // As `Plan::layout_delivered` lays it out.
    let flags = Flags::from_bits_retain(DEFAULT_ALIGN_LOG2);
    plan.header_of((payload + DELIVERED_HEADER_LEN) as u32, payload as u32, flags)
}

/// The header of a message that was polled and not released; `None` if it is too short for one.
#[inline(always)]
fn words_of(message: &Message) -> Option<[u64; 2]> {
    if message.len() < DELIVERED_HEADER_LEN {
        return None;
    }
    // SAFETY: a message of 16 bytes or more has a header, which the backend lends until `release`, and nothing
    // writes it meanwhile (`Messages`).
    let words: [u64; 2] = unsafe { message.header().cast().read_unaligned() };
    Some(words.map(u64::from_le))
}
