//! `ucx-am`: each frame is an active message of UCX, over whatever transport UCX chooses.
//!
//! UCX copies frames of up to 64 KiB (eager), and they run in UCX's memory; the shortest run in a line of the
//! receiver's. Longer frames stay in the sender's memory until UCX has fetched them into the receiver's (rendezvous).
//! Farjump's peer writes no memory of this process. The transports of UCX decide the access of other processes. Without
//! TCP, these need rights on this machine or on an RDMA fabric; with TCP, only a port. The operator has to allow TCP
//! ([`Am::with_tcp`]). `docs/design/ucx.md` has the reasons for that, for endpoints without error handling, for
//! windows, and for the ordering of frames.
//!
//! The address is in `address.rs`.

mod buffers;
mod closing;
mod credit;
mod inbox;
pub(in crate::ucx) mod listeners;
mod message;
mod port_closing;
mod queue;
mod sending;
mod unconnected;
mod worker;

use std::collections::VecDeque;
use std::env;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::time::Instant;

use farjump_core::frame::{DELIVERED_HEADER_LEN, MAX_FRAME};
use farjump_core::transport::{
    ArrivalRules, BorrowedFd, Capabilities, Cause, InboxKind, Message, MessageHeader, Messages, OpenRequest,
    Operation, PathInfo, Transport, TransportError, UnconnectedEndpoint, send_in_steps,
};
use farjump_ucx_sys::{
    UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_RNDV, UCP_OP_ATTR_FIELD_FLAGS, Ucx, ucp_ep_h,
    ucp_request_param_t, ucs_status_ptr_t,
};

use crate::ucx::address::AmAddress;
use crate::ucx::context::Context;
use crate::ucx::lanes::Lanes;
use crate::ucx::worker::{CLOSE_TIMEOUT, TURNS};
pub use port_closing::PortClosing;

use buffers::Buffer;
use closing::Closing;
use inbox::{CREDIT, FRONTED, Inbox, word_of};
use message::{MOST_FRONTED, copy, put_header, put_in_front};
use unconnected::UnconnectedAm;
use worker::AmWorker;

/// The backend's name.
pub const NAME: &str = "ucx-am";

/// Longest frame, in bytes, that UCX copies twice. The receiver fetches longer frames, which takes a round trip. The
/// user's `UCX_RNDV_THRESH` overrides it.
const EAGER: usize = 64 << 10;

/// The way in which UCX sends a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// As a copy.
    Eager,
    /// The receiver fetches it.
    Rendezvous,
    /// By the user's setting.
    Chosen,
}

/// The backend. It is stateless: the process has one context of UCX for it, and its endpoints have the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Am {
    tcp: bool,
}

impl Am {
    /// Makes a backend whose workers use everything that UCX finds, except TCP.
    pub const fn new() -> Am {
        Am { tcp: false }
    }

    /// Makes a backend whose workers have TCP too. Each endpoint then listens on a port of every device of this machine
    /// that `UCX_NET_DEVICES` does not exclude, until the peer's first message. **Until then, a process that reaches
    /// such a port may write any address of this process; the peer may as long as the link exists.**
    pub const fn with_tcp() -> Am {
        Am { tcp: true }
    }

    /// Returns its capabilities on this machine.
    ///
    /// # Errors
    /// A sentence for display: the reason why it cannot be used, and the remedy.
    pub fn usable(self) -> Result<Capabilities, String> {
        Context::for_messages(self.tcp).map(|_| self.capabilities())
    }
}

impl Transport for Am {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(InboxKind::TwoSided, ArrivalRules::DELIVERED, MAX_FRAME)
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        if request.max_frame > MAX_FRAME {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max: MAX_FRAME }));
        }
        Ok(Box::new(UnconnectedAm::open(request, self.tcp).map_err(failed)?))
    }
}

/// A frame that UCX has taken and not yet sent.
struct Sending {
    request: *mut c_void,
    buffer: Buffer,
    frame: u64,
}

/// A connected endpoint.
struct AmMessages {
    ucx: &'static Ucx,
    endpoint: ucp_ep_h,
    /// Longest frame that the peer accepts, in bytes.
    max_frame: usize,
    /// Longest frame that is sent eagerly. The receiver fetches longer ones, though never over TCP. `None` if UCX
    /// chooses.
    eager: Option<usize>,
    /// Longest frame that is sent with its header in front.
    most_fronted: usize,
    /// Longest frame for which the lent buffer has space and the peer is known to have credit; at least the reserved
    /// length, until that is committed.
    ready: usize,
    reserved: usize,
    /// The lent buffer's start.
    start: NonNull<u8>,
    /// The parameters of frames that are sent eagerly.
    params: ucp_request_param_t,
    /// The request of the last message beside the frames.
    aside: *mut c_void,
    /// The peer's number of consumed frames at the last request for credit.
    requested: Option<u16>,
    /// The worker may read the buffers below until it is gone.
    worker: ManuallyDrop<AmWorker>,
    /// The buffer that `reserve` lends. Its note is the header of a frame that may be fetched.
    lent: Option<Buffer>,
    /// Oldest first.
    sending: VecDeque<Sending>,
    /// The note of this buffer is the header of messages beside the frames.
    note: ManuallyDrop<Buffer>,
    /// The reason why the peer shares no memory with this process, if it shares none.
    apart: String,
}

// SAFETY: requests and UCX endpoint belong to the UCX worker, which is `Send` and owned here.
unsafe impl Send for AmMessages {}

impl Protocol {
    fn params(self) -> ucp_request_param_t {
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let (mask, flags) = match self {
            Protocol::Eager => (UCP_OP_ATTR_FIELD_FLAGS, UCP_AM_SEND_FLAG_EAGER),
            Protocol::Rendezvous => (UCP_OP_ATTR_FIELD_FLAGS, UCP_AM_SEND_FLAG_RNDV),
            Protocol::Chosen => (0, 0),
        };
        (params.op_attr_mask, params.flags) = (mask, flags);
        params
    }
}

impl AmMessages {
    /// Makes an endpoint over `end` of the UCX worker, to a peer with the address `peer_address`. `apart` is the reason
    /// why the peer may share no memory with this process.
    fn new(
        worker: AmWorker,
        endpoint: ucp_ep_h,
        peer_address: &AmAddress,
        apart: String,
    ) -> Result<AmMessages, Cause> {
        let inbox = worker.inbox();
        let ucx = inbox.worker().ucx;
        let note = inbox.state().spares.take(0)?;
        inbox.send_credit.open(peer_address.window);
        if worker.has_listeners() {
            inbox.call_attention();
        }
        let eager = match env::var_os("UCX_RNDV_THRESH") {
            // A message to fetch travels by zcopy, which is not safe over TCP (`Context`).
            _ if worker.has_listeners() && Lanes::of(ucx, endpoint).have_tcp() => Some(usize::MAX),
            Some(_) => None,
            None => Some(EAGER),
        };
        Ok(AmMessages {
            ucx,
            endpoint,
            max_frame: usize::try_from(peer_address.max_frame).unwrap_or(MAX_FRAME).min(MAX_FRAME),
            eager,
            most_fronted: eager.map_or(0, |_| MOST_FRONTED),
            ready: 0,
            reserved: 0,
            start: NonNull::dangling(),
            params: Protocol::Eager.params(),
            aside: ptr::null_mut(),
            requested: None,
            worker: ManuallyDrop::new(worker),
            lent: None,
            sending: VecDeque::new(),
            note: ManuallyDrop::new(note),
            apart,
        })
    }

    #[inline]
    fn inbox(&self) -> &Inbox {
        self.worker.inbox()
    }

    /// The transport's word in the next frame, which returns credit.
    #[inline(always)]
    fn word(&self) -> [u8; 4] {
        let inbox = self.worker.inbox();
        word_of(inbox.send_credit.next(), inbox.recv_credit.return_credit())
    }

    /// Counts the frame of `len` bytes that UCX has taken with the result `sent`.
    #[inline(always)]
    fn sent(&mut self, sent: ucs_status_ptr_t, len: usize, frame: u64) -> Result<(), TransportError> {
        if !sent.is_null() {
            self.keep(sent, frame)?;
        }
        let inbox = self.worker.inbox();
        // No frame is longer than `MAX_FRAME`.
        inbox.send_credit.sent(len as u32);
        self.ready = self.lent.as_ref().map_or(0, Buffer::len).min(inbox.send_credit.space());
        Ok(())
    }

    /// The error of a link that has failed for good.
    #[cold]
    fn failed(&self, operation: Operation) -> TransportError {
        let cause = self.inbox().state().fault().cloned();
        error(operation, cause.unwrap_or(Cause::PeerGone))
    }

    /// Makes progress and handles its results.
    #[inline]
    fn work(&mut self) -> Result<bool, TransportError> {
        let moved = self.inbox().worker().progress();
        if self.inbox().needs_attention() {
            self.tend()?;
        }
        Ok(moved)
    }

    /// The rarer parts of progress.
    #[inline(never)]
    fn tend(&mut self) -> Result<(), TransportError> {
        if self.worker.has_listeners() {
            self.worker.tend_listeners();
        }
        if self.inbox().state().fault().is_some() {
            self.ready = 0;
            return Err(self.failed(Operation::Progress));
        }
        self.retire()?;
        if self.inbox().recv_credit.must_return_credit() {
            self.send_aside(CREDIT)?;
        }
        self.inbox().attended(!self.sending.is_empty() || self.worker.has_listeners());
        Ok(())
    }

    /// [`Messages::poll`] after progress that demands attention.
    #[cold]
    fn poll_attended(&mut self) -> Result<Option<Message>, TransportError> {
        self.tend()?;
        if !self.inbox().has_frames() {
            return Ok(None);
        }
        let front = self.inbox().front();
        if front.is_none() && self.inbox().state().fault().is_some() {
            return Err(self.failed(Operation::Receive));
        }
        Ok(front)
    }

    /// [`Messages::poll`] while the next frame has not arrived whole.
    #[cold]
    fn poll_again(&mut self) -> Result<Option<Message>, TransportError> {
        self.inbox().worker().progress();
        self.poll_attended()
    }
}

// SAFETY: `lent` is a buffer owned here until UCX is done with it; a message lies in the inbox until `pop`,
// in memory that UCX has finished writing. Buffers start on a line (`Buffer`).
unsafe impl Messages for AmMessages {
    #[inline]
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        self.reserved = len;
        if len <= self.ready { Ok(self.start) } else { self.lend(len) }
    }

    #[inline]
    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        let reserved = std::mem::take(&mut self.reserved);
        if !(DELIVERED_HEADER_LEN..=reserved).contains(&len) || len > self.ready {
            return Err(
                error(Operation::Send, Cause::Unsupported("committing without reserving")).with_frame(frame)
            );
        }
        let word = self.word();
        let sent = if len <= self.most_fronted {
            // SAFETY: `ready` is at most the length of the lent buffer, which has a line in front. The frame has a
            // header. The buffer is kept until UCX is done with it, and the UCX endpoint is connected since `new`.
            unsafe {
                let (start, len) = put_in_front(self.start, len, word);
                let start = start.as_ptr().cast();
                self.ucx.ucp_am_send_nbx(self.endpoint, FRONTED, ptr::null(), 0, start, len, &self.params)
            }
        } else {
            self.send_long(word, len)
        };
        self.sent(sent, len, frame)
    }

    #[inline]
    fn send(&mut self, body: &[u8], header: MessageHeader, frame: u64) -> Result<(), TransportError> {
        let len = body.len() + DELIVERED_HEADER_LEN;
        if len > self.ready.min(self.most_fronted) {
            return send_in_steps(self, body, header, frame);
        }
        self.reserved = 0;
        let word = self.word();
        // SAFETY: `ready` is at most the length of the lent buffer, which has a line in front. Nothing else uses it: it
        // was not reserved, or is discarded. It is kept until UCX is done with it, and the UCX endpoint is connected
        // since `new`.
        let sent = unsafe {
            copy(body, self.start);
            let (start, len) = put_header(self.start, len, header, word);
            let start = start.as_ptr().cast();
            self.ucx.ucp_am_send_nbx(self.endpoint, FRONTED, ptr::null(), 0, start, len, &self.params)
        };
        self.sent(sent, len, frame)
    }

    #[inline]
    fn poll(&mut self) -> Result<Option<Message>, TransportError> {
        let inbox = self.worker.inbox();
        if !inbox.has_frames() {
            inbox.worker().progress();
            if inbox.needs_attention() {
                return self.poll_attended();
            }
            if !inbox.has_frames() {
                return Ok(None);
            }
        }
        match inbox.front() {
            None => self.poll_again(),
            front => Ok(front),
        }
    }

    fn release(&mut self) {
        self.inbox().pop();
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        self.work().map(|_| ())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.worker.descriptor())
    }

    fn arm(&mut self) -> Result<bool, TransportError> {
        for _ in 0..TURNS {
            while self.work()? {
                if self.inbox().front().is_some() {
                    return Ok(false);
                }
            }
            // UCX sends pending messages only when it is called, whatever the descriptor says; and the rest
            // of a message that has begun to arrive may cause no wake-up.
            let inbox = self.inbox();
            let is_busy = inbox.recv_credit.must_return_credit() || inbox.has_frames();
            // Listening sockets that are due to be closed cause no wake-up.
            let has_due_close = self.worker.has_listeners() && inbox.has_heard();
            if is_busy || has_due_close || !self.sending.is_empty() {
                return Ok(false);
            }
            let armed = self.inbox().worker().arm().map_err(|cause| error(Operation::Wake, cause))?;
            // An armed RDMA device signals later events, but not those since the last poll.
            if armed && !self.work()? {
                // A long message may be the last for a long time.
                self.inbox().state().spares.rest();
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn path_info(&self) -> PathInfo {
        let lanes = Lanes::of(self.ucx, self.endpoint);
        let mut notes = Vec::new();
        if lanes.are_tcp() {
            notes.push(format!("TCP, because nothing faster connects both processes: {}", self.apart));
        }
        notes.extend(lanes.sizes_in_words());
        notes.push(
            "the receiver runs frames where UCX put them; no address of it is known to the sender".to_owned(),
        );
        PathInfo::new(lanes.in_words(), notes)
    }
}

impl Drop for AmMessages {
    fn drop(&mut self) {
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the UCX endpoint is connected, and not used again. Closing first sends taken messages.
        let request = unsafe { self.ucx.ucp_ep_close_nbx(self.endpoint, &params) };
        // SAFETY: neither is used again: this is `drop`.
        let (worker, note) =
            unsafe { (ManuallyDrop::take(&mut self.worker), ManuallyDrop::take(&mut self.note)) };
        let sending = std::mem::take(&mut self.sending);
        let mut closing = Closing::new([request, self.aside], worker, sending, note);
        let began = Instant::now();
        let mut is_over = closing.progress();
        while !is_over && began.elapsed() < CLOSE_TIMEOUT {
            is_over = closing.progress();
        }
        closing::tend();
        if !is_over && closing.must_stay() {
            closing::keep(closing);
        }
    }
}

fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}

#[cfg(test)]
mod tests;
