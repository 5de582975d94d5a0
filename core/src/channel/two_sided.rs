//! The path through an inbox: one frame in each message of a transport that delivers whole messages.

use alloc::boxed::Box;
use core::ptr::NonNull;

use super::{Armed, ChannelParams, SendError, protocol};
use crate::frame::{FrameError, FrameView, Header, Kind, LINE, Layout, Parts, Plan, Trailer};
use crate::memory::{Memory, Region};
use crate::signal::LinkKey;
use crate::sync::Ordering;
use crate::transport::{Messages, TransportError};

// What a poll touches comes first, then what each send touches.
#[repr(C)]
pub(super) struct TwoSided {
    pub(super) messages: Box<dyn Messages>,
    /// Position of the next frame to receive.
    pub(super) received: u64,
    receive_key: LinkKey,
    /// Longest frame that the fast poll takes, in bytes.
    pub(super) fast_limit: usize,
    /// Position of the next frame to send.
    sent: u64,
    send_key: LinkKey,
    /// The backend's error when the fast path asked for a buffer.
    refused: Option<Box<TransportError>>,
    /// The error of a fast poll, for the general poll that follows.
    failed: Option<Box<TransportError>>,
    receive_limit: usize,
}

/// The result of a fast poll.
pub(super) enum FastPoll {
    /// Nothing.
    Nothing,
    /// A frame without code: its header, the offset of its payload, and where it starts.
    Plain(Header, u32, NonNull<u8>),
    /// Something else: call [`TwoSided::poll`].
    Look,
}

impl TwoSided {
    pub(super) fn new(messages: Box<dyn Messages>, terms: &ChannelParams) -> Self {
        TwoSided {
            messages,
            send_key: terms.send_key,
            receive_key: terms.receive_key,
            receive_limit: terms.receive_limit,
            fast_limit: terms.receive_limit,
            failed: None,
            refused: None,
            sent: 0,
            received: 0,
        }
    }

    pub(super) fn reserve(
        &mut self,
        plan: &Plan<'_>,
        payload: usize,
        limit: usize,
    ) -> Result<(NonNull<u8>, Layout), SendError> {
        let layout = plan.layout(0, payload, Trailer::Never);
        if layout.frame_len > limit {
            return Err(SendError::TooLarge { len: layout.frame_len, max: limit });
        }
        if let Some(error) = self.refused.take() {
            return Err(SendError::from_transport(*error));
        }
        let start = self.messages.reserve(layout.frame_len).map_err(SendError::from_transport)?;
        Ok((start, layout))
    }

    /// Sends the frame in the buffer at `start` with this header and a payload that ends at `end`.
    ///
    /// # Safety
    /// [`TwoSided::reserve`] or [`TwoSided::lend`] returned `start` last, for a frame at least as long, and
    /// no commit has taken it since.
    #[inline]
    pub(super) unsafe fn commit(
        &mut self,
        start: NonNull<u8>,
        header: Header,
        end: usize,
    ) -> Result<(), SendError> {
        let len = header.frame_len as usize;
        // SAFETY: the caller's (see Safety).
        unsafe { self.begin(start, header, len) };
        // In a single line `clear_line` did this.
        if len > LINE && end < len {
            // SAFETY: the buffer has `len` bytes.
            unsafe { start.add(end).write_bytes(0, len - end) };
        }
        let sent = self.messages.commit(len, self.sent);
        self.ended(sent, len)
    }

    /// [`TwoSided::commit`] for a frame whose payload, `bytes`, lies elsewhere. Its first line is in the
    /// buffer.
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
        let len = header.frame_len as usize;
        // SAFETY: the caller's (see Safety).
        unsafe { self.begin(start, header, len) };
        let sent = self.messages.commit_beside(LINE, bytes, self.sent);
        self.ended(sent, len)
    }

    /// Writes the header of a frame of `len` bytes into the buffer at `start`.
    ///
    /// # Safety
    /// As [`TwoSided::commit`].
    #[inline]
    unsafe fn begin(&mut self, start: NonNull<u8>, header: Header, len: usize) {
        let [lengths, rest] = header.to_words();
        // SAFETY: the backend lends at least `len` bytes at `start`, aligned to 64, until its commit or the
        // next `reserve`. There was neither since (see Safety).
        let frame = unsafe { Region::new(start, len) };
        frame.store(0, self.send_key.header(self.sent), Ordering::Relaxed);
        frame.store(8, lengths, Ordering::Relaxed);
        frame.store(16, rest, Ordering::Relaxed);
    }

    /// Records the result of handing over a frame of `len` bytes.
    #[inline]
    fn ended(&mut self, sent: Result<(), TransportError>, len: usize) -> Result<(), SendError> {
        sent.map_err(SendError::from_transport)?;
        self.sent += len as u64;
        Ok(())
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
            Err(error) if error.is_full() => None,
            Err(error) => {
                // The error may end the link; the backend is not asked twice.
                self.refused = Some(Box::new(error));
                None
            }
        }
    }

    /// The fast poll: finds nothing or a frame without code, and leaves everything else to `poll`.
    #[inline]
    pub(super) fn poll_fast(&mut self) -> FastPoll {
        let (start, len) = match self.messages.poll() {
            Ok(None) => return FastPoll::Nothing,
            Ok(Some(message)) => message,
            Err(error) => {
                self.failed = Some(Box::new(error));
                return FastPoll::Look;
            }
        };
        if len < LINE {
            return FastPoll::Look;
        }
        // SAFETY: the backend lends the message at `start` until `release` (`Messages`); it has at least a
        // line.
        let frame = unsafe { Region::new(start, LINE) };
        let [signal, lengths, rest] = [0, 8, 16].map(|at| frame.load(at, Ordering::Relaxed));
        if signal != self.receive_key.header(self.received) {
            return FastPoll::Look;
        }
        match Header::plain([lengths, rest], 0, len, self.fast_limit) {
            Some((header, payload)) if header.frame_len as usize == len => {
                FastPoll::Plain(header, payload, start)
            }
            _ => FastPoll::Look,
        }
    }

    /// The message at the head: its header, parts and start.
    pub(super) fn poll(&mut self) -> Result<Option<(Header, Parts, NonNull<u8>)>, TransportError> {
        if let Some(error) = self.failed.take() {
            return Err(*error);
        }
        let Some((start, len)) = self.messages.poll()? else { return Ok(None) };
        // SAFETY: the backend lends `len` bytes at `start`, which nothing else writes, until `release`
        // (`Messages`).
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len) };
        let view = FrameView::new_checked(bytes, 0, self.receive_limit).map_err(protocol)?;
        if view.signal() != self.receive_key.header(self.received) {
            return Err(protocol(FrameError::Signal));
        }
        let header = view.header();
        if header.kind == Kind::Skip {
            return Err(protocol(FrameError::Kind(Kind::Skip as u8)));
        }
        Ok(Some((header, view.parts(), start)))
    }

    pub(super) fn release(&mut self, frame_len: u32) {
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
