//! The path through an inbox: one frame in each message of a transport that delivers whole messages.

use alloc::boxed::Box;
use core::ptr::NonNull;

use super::{Armed, SendError, Terms, failed, protocol};
use crate::frame::{FrameError, FrameView, Header, Kind, Layout, Parts, Plan, Trailer};
use crate::memory::{Memory, Region};
use crate::signal::LinkKey;
use crate::sync::Ordering;
use crate::transport::{Cause, Messages, Operation, TransportError};

pub(super) struct TwoSided {
    pub(super) messages: Box<dyn Messages>,
    send_key: LinkKey,
    receive_key: LinkKey,
    receive_limit: usize,
    /// Position of the frame that is sent next.
    sent: u64,
    /// Position of the frame that is due.
    pub(super) received: u64,
    /// Room that the backend lends: where, and how many bytes.
    room: Option<(NonNull<u8>, usize)>,
}

// SAFETY: the pointer is room that belongs to `messages`, which may move between threads and is owned here.
unsafe impl Send for TwoSided {}

impl TwoSided {
    pub(super) fn new(messages: Box<dyn Messages>, terms: &Terms) -> Self {
        TwoSided {
            messages,
            send_key: terms.send_key,
            receive_key: terms.receive_key,
            receive_limit: terms.receive_limit,
            sent: 0,
            received: 0,
            room: None,
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.sent
    }

    pub(super) fn reserve(
        &mut self,
        plan: &Plan<'_>,
        payload: usize,
        limit: usize,
    ) -> Result<(NonNull<u8>, Layout), SendError> {
        self.room = None;
        let layout = plan.layout(0, payload, Trailer::Never);
        if layout.frame_len > limit {
            return Err(SendError::TooLarge { len: layout.frame_len, max: limit });
        }
        let start = self.messages.reserve(layout.frame_len).map_err(SendError::from_transport)?;
        self.room = Some((start, layout.frame_len));
        Ok((start, layout))
    }

    pub(super) fn commit(&mut self, header: Header) -> Result<(), SendError> {
        let len = header.frame_len as usize;
        let Some((start, _)) = self.room.filter(|(_, room)| len <= *room) else {
            return Err(failed(Operation::Send, Cause::Unsupported("committing without reserving")).into());
        };
        let [lengths, rest] = header.to_words();
        // SAFETY: the backend lends at least `len` bytes at `start`, aligned to 64, until its commit or the next `reserve`,
        // both of which replace `room`.
        let frame = unsafe { Region::new(start, len) };
        frame.store(0, self.send_key.header(self.sent), Ordering::Relaxed);
        frame.store(8, lengths, Ordering::Relaxed);
        frame.store(16, rest, Ordering::Relaxed);
        self.messages.commit(len, self.sent).map_err(SendError::from_transport)?;
        self.sent += len as u64;
        self.room = None;
        Ok(())
    }

    /// The message at the head: its header, its parts and where it starts.
    pub(super) fn poll(&mut self) -> Result<Option<(Header, Parts, NonNull<u8>)>, TransportError> {
        let Some((start, len)) = self.messages.poll()? else { return Ok(None) };
        // SAFETY: the backend lends `len` bytes at `start`, which nobody else writes, until `release` (`Messages`).
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
