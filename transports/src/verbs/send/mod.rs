//! `verbs-send`: each frame is a message, received into buffers of the link's.
//!
//! A message up to a buffer's length is one send, and runs in the buffer that received it. A longer one is sent in
//! pieces and assembled. Neither peer sends more than fits the other's buffers; each writes the number of returned
//! buffers into a word of the sender's. `docs/design/verbs.md` has the reasons against a rendezvous.

mod buffers;
mod reassembly;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use farjump_core::frame::{DELIVERED_HEADER_LEN, LINE};
use farjump_core::transport::{
    Address, ArrivalRules, BorrowedFd, Capabilities, Cause, Endpoint, InboxKind, Lender, LocalAddress,
    Message, MessageHeader, Messages, OpenRequest, Operation, PathInfo, ReadBytes, Reads, Transport,
    TransportError, UnconnectedEndpoint, send_in_steps,
};
use farjump_rdma_sys::{IBV_WR_SEND, IBV_WR_SEND_WITH_IMM};

use crate::verbs::Chosen;
use crate::verbs::device::Device;
use crate::verbs::device::address::{Backend, EndpointAddress};
use crate::verbs::device::domain::Domain;
use crate::verbs::endpoints::{OfferedEndpoints, PortEndpoint};
use crate::verbs::memory::{Memory, Use};
use crate::verbs::options::Options;
use crate::verbs::queue::{CHAIN, Queue, Request};
use crate::verbs::reads::{DeviceLender, QueueReads};
use buffers::{Buffers, PIECE, WINDOW};
use reassembly::Inbox;

/// The backend's name.
pub const NAME: &str = "verbs-send";
/// Longest frame, in bytes: 64 MiB of payload, and the bytes around it.
pub const MAX_FRAME: usize = (64 << 20) + (1 << 20);

/// Number of buffers kept for later messages; [`LONG_SPARE`] of them may be longer than a piece.
const SPARE: usize = 64;
const LONG_SPARE: usize = 2;

/// The backend: messages over one port of a device.
#[derive(Default)]
pub struct Send {
    chosen: Chosen,
}

impl Send {
    /// Makes a backend for the device of [`Options::of_process`].
    pub fn new() -> Send {
        Send::default()
    }

    /// Makes a backend for this device.
    pub fn with_options(options: Options) -> Send {
        Send { chosen: Chosen::by(Some(options)) }
    }

    /// The backend's capabilities on this machine.
    ///
    /// # Errors
    /// A sentence with the reason why it does not work, and a remedy.
    pub fn usable() -> Result<Capabilities, String> {
        Chosen::default().device().map(|_| capabilities())
    }
}

fn capabilities() -> Capabilities {
    Capabilities::new(InboxKind::TwoSided, ArrivalRules::DELIVERED, MAX_FRAME)
}

impl Transport for Send {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        if request.max_frame > MAX_FRAME {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max: MAX_FRAME }));
        }
        let device = self.chosen.device().map_err(|why| failed(Cause::System(why)))?;
        let wished = self.chosen.wished().map_err(|why| failed(Cause::System(why)))?;
        let end = SendEndpoint::open(&device, request.max_frame.max(LINE)).map_err(failed)?;
        Ok(Box::new(OfferedEndpoints::new(end, wished)))
    }
}

/// A queue pair and its receiving half. Before the peer is known, this is the unconnected endpoint on one port.
struct SendEndpoint {
    // Dropped in this order: the queue pair before the buffers that it receives into.
    queue: Queue,
    inbox: Inbox,
}

impl SendEndpoint {
    fn open(device: &Arc<Device>, max_frame: usize) -> Result<SendEndpoint, Cause> {
        let domain = Domain::create(device)?;
        let buffers = Buffers::create(&domain)?;
        let queue = Queue::create(&domain, WINDOW)?;
        buffers.post(&queue, &Buffers::all())?;
        Ok(SendEndpoint { queue, inbox: Inbox::new(buffers, max_frame) })
    }
}

impl PortEndpoint for SendEndpoint {
    const BACKEND: Backend = Backend::Send;

    fn on(&self, device: &Arc<Device>) -> Result<Self, Cause> {
        SendEndpoint::open(device, self.inbox.max_frame())
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn address(&self) -> EndpointAddress {
        EndpointAddress { max_frame: self.inbox.max_frame() as u64, ..self.queue.endpoint_address(WINDOW) }
    }
}

impl UnconnectedEndpoint for OfferedEndpoints<SendEndpoint> {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.describe(), descriptors: Vec::new() }
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        self.adapt_to(peer).map_err(|(operation, cause)| error(operation, cause))?;
        Ok(ArrivalRules::all())
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let failed = |cause| error(Operation::Connect, cause);
        if !peer.descriptors.is_empty() {
            return Err(failed(Cause::Address("descriptors came with it, and it has none".to_owned())));
        }
        let (mut endpoint, peer_address) = self.pair_with(&peer.bytes).map_err(failed)?;
        endpoint.queue.connect(&peer_address).map_err(failed)?;
        Ok(Endpoint::TwoSided(Box::new(SendMessages {
            endpoint,
            max_frame: usize::try_from(peer_address.max_frame).unwrap_or(MAX_FRAME).min(MAX_FRAME),
            receives: u64::from(peer_address.receives),
            taken: 0,
            lent: None,
            sending: None,
            sent: VecDeque::new(),
            spares: Vec::new(),
            is_starved: false,
            reads: Box::default(),
        })))
    }
}

/// A message whose pieces are not all posted.
struct Sending {
    lent: Memory,
    len: usize,
    /// Bytes posted.
    at: usize,
    frame: u64,
}

/// A connected endpoint.
struct SendMessages {
    endpoint: SendEndpoint,
    /// Longest frame that the peer accepts, in bytes.
    max_frame: usize,
    /// Number of the peer's buffers. `taken` counts those used since the start.
    receives: u64,
    taken: u64,
    /// The buffer that `reserve` lends.
    lent: Option<Memory>,
    sending: Option<Sending>,
    /// Buffers that the device may still read, and the requests after which it does not. Oldest first.
    sent: VecDeque<(u64, Memory)>,
    spares: Vec<Memory>,
    /// True if there was no credit for a frame, as no event reports new credit.
    is_starved: bool,
    // Dropped after the queue pair in `endpoint`. Boxed, because no frame uses it.
    reads: Box<QueueReads>,
}

impl SendMessages {
    /// Returns whether the peer has a buffer for one more piece. The peer may lie, so this counts no more returned
    /// buffers than were used.
    #[inline]
    fn has_window(&self) -> bool {
        let given = self.endpoint.queue.returned_by_peer().min(self.taken);
        self.taken - given < self.receives
    }

    /// The next piece of the message being sent, if there is credit and a slot for it behind `ahead` others to be
    /// posted.
    fn piece(&mut self, ahead: usize) -> Option<Request> {
        let (has_window, free) = (self.has_window(), self.endpoint.queue.free_slots());
        let sending = self.sending.as_mut()?;
        let len = (sending.len - sending.at).min(PIECE);
        if len == 0 || !has_window || free <= ahead {
            return None;
        }
        self.taken += 1;
        let is_last = sending.at + len == sending.len;
        // A longer message wakes a sleeper as often as the sleeper would return buffers.
        let asks_back = self.taken.is_multiple_of((self.receives / 4).max(1));
        let piece = Request {
            operation: if sending.at == 0 { IBV_WR_SEND_WITH_IMM } else { IBV_WR_SEND },
            word: None,
            from: sending.lent.start().as_ptr().wrapping_add(sending.at),
            len,
            key: sending.lent.local_key(),
            to: 0,
            remote_key: 0,
            // No frame is longer than `MAX_FRAME`.
            immediate: sending.len as u32,
            solicited: is_last || asks_back,
            has_completion: is_last && !self.endpoint.queue.is_inline(len),
            frame: sending.frame,
        };
        sending.at += len;
        Some(piece)
    }

    /// Posts as many pieces as possible. Returns whether these were all.
    fn push(&mut self) -> Result<bool, TransportError> {
        while let Some(first) = self.piece(0) {
            let mut pieces = [first; CHAIN];
            let mut count = 1;
            while count < CHAIN
                && let Some(piece) = self.piece(count)
            {
                pieces[count] = piece;
                count += 1;
            }
            // SAFETY: this value keeps the buffer until the last request posted for it is done.
            unsafe { self.endpoint.queue.post(&pieces[..count]) }
                .map_err(|cause| error(Operation::Send, cause).with_frame(first.frame))?;
        }
        match self.sending.take() {
            Some(sending) if sending.at < sending.len => {
                self.sending = Some(sending);
                return Ok(false);
            }
            Some(Sending { lent, len, .. }) => {
                let inside = self.endpoint.queue.is_inline(len);
                if inside && self.lent.is_none() {
                    // The post has copied the bytes.
                    self.lent = Some(lent);
                } else {
                    self.sent.push_back((self.endpoint.queue.next(), lent));
                }
            }
            None => {}
        }
        Ok(true)
    }

    /// Takes completions off the send queue: at once, or if there may be some.
    fn retire(&mut self, at_once: bool) -> Result<(), TransportError> {
        let queue = &mut self.endpoint.queue;
        let retired = if at_once { queue.look() } else { queue.work() };
        retired.map_err(not_sent)
    }

    /// All steps of progress.
    fn work(&mut self) -> Result<(), TransportError> {
        self.send_on()?;
        self.receive()
    }

    /// Takes completions off the send queue, and posts pieces that wait for space in it.
    #[inline]
    fn send_on(&mut self) -> Result<(), TransportError> {
        self.retire(false)?;
        let done = self.endpoint.queue.done();
        while self.sent.front().is_some_and(|(until, _)| *until <= done) {
            if let Some((_, lent)) = self.sent.pop_front() {
                self.spare(lent);
            }
        }
        if self.sending.is_some() {
            self.push()?;
        }
        Ok(())
    }

    /// Takes received pieces, and returns buffers to the peer.
    #[inline(always)]
    fn receive(&mut self) -> Result<(), TransportError> {
        if let Err(cause) = self.endpoint.inbox.work(&self.endpoint.queue) {
            return Err(self.why_receives_end(cause));
        }
        match self.endpoint.inbox.due() {
            Some(given) => self.return_credit(given),
            None => Ok(()),
        }
    }

    /// The error after receives have ended with the queue pair. The last send has the reason.
    #[cold]
    fn why_receives_end(&mut self, cause: Cause) -> TransportError {
        self.retire(true).err().unwrap_or_else(|| error(Operation::Receive, cause))
    }

    /// Sends the peer the number `given` of returned buffers.
    #[cold]
    fn return_credit(&mut self, given: u64) -> Result<(), TransportError> {
        if self.endpoint.queue.free_slots() > 0 {
            let return_credit = self.endpoint.queue.return_credit(given);
            // SAFETY: the word is inside the request or in the registered memory of the queue.
            unsafe { self.endpoint.queue.post(&[return_credit]) }
                .map_err(|cause| error(Operation::Receive, cause))?;
            self.endpoint.inbox.returned(given);
        }
        Ok(())
    }

    fn spare(&mut self, lent: Memory) {
        let long = |lent: &Memory| lent.len() > PIECE;
        let keeps = if long(&lent) {
            self.spares.iter().filter(|lent| long(lent)).count() < LONG_SPARE
        } else {
            self.spares.len() < SPARE
        };
        if keeps {
            self.spares.push(lent);
        }
    }

    /// Takes a buffer of at least `len` bytes.
    fn take(&mut self, len: usize) -> Result<Memory, Cause> {
        if let Some(at) = self.spares.iter().rposition(|lent| lent.len() >= len) {
            return Ok(self.spares.swap_remove(at));
        }
        let len = len.max(PIECE).next_power_of_two();
        Memory::create(&self.endpoint.queue.domain, len, Use::Received)
    }
}

// SAFETY: a buffer is this value's memory until the device has sent it. A message lies in the inbox until `release`, in
// buffers that the device has finished writing and gets back only then. Both start on a page or on a line of one.
unsafe impl Messages for SendMessages {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        if len > self.max_frame {
            return Err(error(Operation::Send, Cause::TooLarge { len, max: self.max_frame }));
        }
        if self.sending.is_some() || !self.has_window() || self.endpoint.queue.free_slots() == 0 {
            self.work()?;
            if self.sending.is_some() || !self.has_window() || self.endpoint.queue.free_slots() == 0 {
                self.is_starved = true;
                return Err(error(Operation::Send, Cause::Full));
            }
        }
        self.is_starved = false;
        let lent = match self.lent.take() {
            Some(lent) if lent.len() >= len => lent,
            other => {
                other.into_iter().for_each(|lent| self.spare(lent));
                self.take(len).map_err(|cause| error(Operation::Send, cause))?
            }
        };
        Ok(self.lent.insert(lent).start())
    }

    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        let failed = |cause| error(Operation::Send, cause).with_frame(frame);
        if self.sending.is_some() {
            return Err(failed(Cause::Full));
        }
        let Some(lent) = self.lent.take().filter(|lent| len <= lent.len() && len != 0) else {
            return Err(failed(Cause::Unsupported("committing without reserving")));
        };
        self.sending = Some(Sending { lent, len, at: 0, frame });
        // `work` posts the pieces that find no slot now: the message is accepted.
        self.push().map(|_| ())
    }

    fn send(&mut self, body: &[u8], header: MessageHeader, frame: u64) -> Result<(), TransportError> {
        let len = body.len() + DELIVERED_HEADER_LEN;
        let is_short = self.endpoint.queue.is_inline(len) && len <= self.max_frame;
        let is_next = self.sending.is_none() && self.endpoint.queue.free_slots() != 0 && self.has_window();
        match &self.lent {
            Some(lent) if is_short && is_next && len <= lent.len() => {
                let start = lent.start();
                // SAFETY: the buffer belongs to this value, has `len` bytes, and is not in use: the device never reads
                // a lent one.
                let bytes = unsafe {
                    start.copy_from_nonoverlapping(NonNull::from(body).cast(), body.len());
                    start.add(body.len()).cast().write_unaligned(header.to_le());
                    std::slice::from_raw_parts(start.as_ptr(), len)
                };
                self.taken += 1;
                self.is_starved = false;
                let posted =
                    self.endpoint.queue.post_inline(IBV_WR_SEND_WITH_IMM, bytes, (0, 0), len as u32, frame);
                posted.map_err(|cause| error(Operation::Send, cause).with_frame(frame))
            }
            _ => send_in_steps(self, body, header, frame),
        }
    }

    fn poll(&mut self) -> Result<Option<Message>, TransportError> {
        if let Some(front) = self.endpoint.inbox.front() {
            return Ok(Some(front));
        }
        self.receive()?;
        let front = self.endpoint.inbox.front();
        if front.is_none() {
            self.send_on()?;
        }
        Ok(front)
    }

    fn release(&mut self) {
        self.endpoint.inbox.release();
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        self.work()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.queue.received.descriptor()
    }

    fn arm(&mut self) -> Result<bool, TransportError> {
        self.retire(true)?;
        self.work()?;
        self.endpoint.queue.check().map_err(|cause| error(Operation::Wake, cause))?;
        if self.is_starved && self.has_window() {
            self.is_starved = false;
            return Ok(false);
        }
        // No event reports buffers that the peer returns.
        let waits = self.is_starved || self.sending.is_some() || self.endpoint.inbox.due().is_some();
        if waits || !self.endpoint.inbox.is_empty() {
            return Ok(false);
        }
        self.endpoint.queue.received.arm().map_err(|cause| error(Operation::Wake, cause))?;
        // No event reports earlier messages.
        self.work()?;
        Ok(self.endpoint.inbox.is_empty())
    }

    fn disarm(&mut self) -> Result<(), TransportError> {
        self.endpoint.queue.received.disarm();
        Ok(())
    }

    fn path_info(&self) -> PathInfo {
        let how = "each frame is a message that the devices deliver into buffers of the receiver's";
        crate::verbs::path_info(&self.endpoint.queue.device, how)
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        Some(DeviceLender::boxed(&self.endpoint.queue.domain, NAME))
    }

    fn reads(&mut self) -> Option<&mut dyn Reads> {
        Some(self)
    }
}

impl Reads for SendMessages {
    fn start(&mut self, key: &[u8], len: usize) -> Result<(), TransportError> {
        let started = self.reads.start(&mut self.endpoint.queue, key, len);
        started.map_err(|cause| error(Operation::Read, cause))
    }

    fn poll(&mut self) -> Result<Option<ReadBytes>, TransportError> {
        self.reads.poll(&mut self.endpoint.queue).map_err(|cause| error(Operation::Read, cause))
    }
}

fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}

/// The error of a failed request, with its frame.
#[cold]
fn not_sent((cause, frame): (Cause, Option<u64>)) -> TransportError {
    let error = error(Operation::Send, cause);
    match frame {
        Some(frame) => error.with_frame(frame),
        None => error,
    }
}

#[cfg(test)]
mod tests;
