//! Sending: buffers that are lent, messages that UCX has taken, and messages beside the frames.

use std::ffi::{c_uint, c_void};
use std::ptr::{self, NonNull};

use farjump_core::frame::TRANSPORT_WORD_LEN;
use farjump_core::transport::{Cause, Operation, TransportError};
use farjump_ucx_sys::{UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, ucs_status_ptr_t};

use super::inbox::{CREDIT, CREDIT_REQUEST, FRAME};
use super::{AmMessages, Protocol, Sending, error};
use crate::ucx::moving;
use crate::ucx::worker::status_of;

/// Number of messages that may wait for space in UCX's queue before a further message waits briefly for them.
const FEW_WAITING: usize = 16;
/// Calls of UCX during that wait, of a microsecond or two.
const TURNS_FOR_SPACE: u32 = 64;

impl AmMessages {
    /// Passes a message to UCX.
    ///
    /// # Safety
    /// If a request is returned, `header` and `data` stay unchanged until it is done.
    #[inline]
    pub(super) unsafe fn pass(
        &self,
        id: c_uint,
        protocol: Protocol,
        header: &[u8],
        data: *const c_void,
        len: usize,
    ) -> ucs_status_ptr_t {
        let header_at = if header.is_empty() { ptr::null() } else { header.as_ptr().cast() };
        // SAFETY: the UCX endpoint is connected since `new`, and the caller keeps header and data.
        unsafe {
            self.ucx.ucp_am_send_nbx(
                self.endpoint,
                id,
                header_at,
                header.len(),
                data,
                len,
                &protocol.params(),
            )
        }
    }

    /// Drops the messages that UCX has sent.
    pub(super) fn retire(&mut self) -> Result<(), TransportError> {
        while let Some(oldest) = self.sending.front() {
            let status = status_of(self.ucx, oldest.request);
            if status == UCS_INPROGRESS {
                break;
            }
            let Some(Sending { request, buffer, frame }) = self.sending.pop_front() else { break };
            // SAFETY: the request was not freed before, and is dropped here.
            unsafe { self.ucx.ucp_request_free(request) };
            self.inbox().state().spares.give(buffer);
            if status != UCS_OK {
                return Err(error(Operation::Send, moving(self.ucx, status)).with_frame(frame));
            }
        }
        Ok(())
    }

    /// Returns credit to the peer, and requests the peer's if `id` is [`CREDIT_REQUEST`]. Returns whether it sent the
    /// message.
    pub(super) fn send_aside(&mut self, id: c_uint) -> Result<bool, TransportError> {
        if !self.aside.is_null() {
            let status = status_of(self.ucx, self.aside);
            if status == UCS_INPROGRESS {
                return Ok(false);
            }
            // SAFETY: the request was not freed before, and is cleared here.
            unsafe { self.ucx.ucp_request_free(self.aside) };
            self.aside = ptr::null_mut();
            if status != UCS_OK {
                return Err(error(Operation::Send, moving(self.ucx, status)));
            }
        }
        let consumed = self.inbox().recv_credit.return_credit();
        let at = self.note.note().cast::<[u8; 2]>();
        // SAFETY: UCX does not read the note between requests, and the next send waits for this request.
        let sent = unsafe {
            at.write(consumed.to_le_bytes());
            self.pass(id, Protocol::Eager, at.as_ref(), ptr::null(), 0)
        };
        if UCS_PTR_IS_PTR(sent) {
            self.aside = sent;
            return Ok(true);
        }
        match status_of(self.ucx, sent) {
            UCS_OK => Ok(true),
            status => Err(error(Operation::Send, moving(self.ucx, status))),
        }
    }

    /// Sends a first message at once if the peer, like this process, waits for it to close listening sockets.
    pub(super) fn greet(&mut self) -> Result<(), TransportError> {
        if self.worker.has_listeners() {
            self.send_aside(CREDIT)?;
        }
        Ok(())
    }

    /// Makes UCX send the messages that wait for space in its queue. UCX sends them only when it is called, and every
    /// message behind them waits too, at twice the cost. While the peer makes no progress, a stream would otherwise
    /// fill the peer's window with them before any moves.
    #[inline(never)]
    fn drain_queue(&mut self) -> Result<(), TransportError> {
        for _ in 0..TURNS_FOR_SPACE {
            self.work()?;
            if self.sending.len() <= FEW_WAITING {
                break;
            }
        }
        Ok(())
    }

    /// Lends a buffer for a frame of `len` bytes, if there is credit for it.
    #[inline(never)]
    pub(super) fn lend(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        (self.ready, self.reserved) = (0, 0);
        if len > self.max_frame {
            return Err(error(Operation::Send, Cause::TooLarge { len, max: self.max_frame }));
        }
        let inbox = self.worker.inbox();
        if inbox.state().fault().is_some() {
            return Err(self.failed(Operation::Send));
        }
        if !self.sending.is_empty() {
            self.drain_queue()?;
        }
        let inbox = self.worker.inbox();
        if !inbox.send_credit.has_credit(len) {
            return Err(self.full()?);
        }
        let lent = match self.lent.take() {
            Some(lent) if lent.len() >= len => lent,
            other => {
                let mut state = inbox.state();
                other.into_iter().for_each(|lent| state.spares.give(lent));
                state.spares.take(len).map_err(|cause| error(Operation::Send, cause))?
            }
        };
        // A frame that travels alone may be longer than the window.
        self.ready = lent.len().min(inbox.send_credit.space()).min(self.max_frame).max(len);
        (self.reserved, self.start) = (len, lent.start());
        self.lent = Some(lent);
        Ok(self.start)
    }

    /// Sends the frame of `len` bytes in the lent buffer with its header last; `word` is the transport's in it.
    #[inline(never)]
    pub(super) fn send_long(&self, word: [u8; 4], len: usize) -> ucs_status_ptr_t {
        let protocol = match self.eager {
            Some(eager) if len <= eager => Protocol::Eager,
            Some(_) => Protocol::Rendezvous,
            None => Protocol::Chosen,
        };
        let Some(lent) = &self.lent else { return ptr::null_mut() };
        let note = lent.note().cast::<[u8; 4]>();
        // SAFETY: `len` is at most the length of the lent buffer, and the frame has a header. Note and message lie in
        // `lent`, which is kept until UCX is done with it.
        unsafe {
            lent.start().add(len - TRANSPORT_WORD_LEN).cast().write(word);
            note.write(word);
            // The receiver has to know the number of a frame before fetching it.
            let header = if protocol == Protocol::Eager { &[][..] } else { note.as_ref() };
            self.pass(FRAME, protocol, header, lent.start().as_ptr().cast(), len)
        }
    }

    /// Keeps the lent buffer for a message that UCX has taken and not yet sent, or returns UCX's error.
    #[inline(never)]
    pub(super) fn keep(&mut self, sent: ucs_status_ptr_t, frame: u64) -> Result<(), TransportError> {
        if !UCS_PTR_IS_PTR(sent) {
            return match status_of(self.ucx, sent) {
                UCS_OK => Ok(()),
                status => Err(error(Operation::Send, moving(self.ucx, status)).with_frame(frame)),
            };
        }
        if let Some(buffer) = self.lent.take() {
            self.sending.push_back(Sending { request: sent, buffer, frame });
            self.inbox().call_attention();
        }
        Ok(())
    }

    /// Without credit for a frame, requests it from the peer once for each state of the window.
    #[cold]
    pub(super) fn full(&mut self) -> Result<TransportError, TransportError> {
        let consumed = self.inbox().send_credit.consumed();
        if self.requested != Some(consumed) && self.send_aside(CREDIT_REQUEST)? {
            self.requested = Some(consumed);
        }
        Ok(error(Operation::Send, Cause::Full))
    }
}
