//! `ucx-am`: each frame is an active message of UCX, over whatever transport UCX chooses.
//!
//! Short frames travel inline and are run where UCX put them; long ones stay with the sender until UCX has fetched them into
//! memory of the receiver's. Farjump's peer writes no memory of this side. What strangers can do is decided by the transports that
//! UCX has: without TCP, which the operator has to allow ([`Am::with_tcp`]), they need rights on this machine or on an RDMA
//! fabric; with it, a port. Why that is so, why endpoints have no error handling, why there are windows, and how frames are put
//! in order is in `docs/decisions/ucx-am.md`.
//!
//! The address is in `address.rs`.

use std::collections::VecDeque;
use std::env;
use std::ffi::{c_uint, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::time::Instant;

use farjump_core::frame::MAX_FRAME;
use farjump_core::transport::{
    ArrivalRules, BorrowedFd, Capabilities, Cause, InboxKind, Messages, OpenRequest, Opening, Operation,
    Route, Transport, TransportError, WakeSource,
};
use farjump_ucx_sys::{
    UCP_AM_SEND_FLAG_EAGER, UCP_OP_ATTR_FIELD_FLAGS, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, Ucx, ucp_ep_h,
    ucp_request_param_t, ucs_status_ptr_t,
};

use super::address::Inbox as ToldInbox;
use super::buffer::Buffer;
use super::context::Context;
use super::inbox::{ASK, FRAME, Inbox, TELL};
use super::lanes::Lanes;
use super::moving;
use super::opening::AmOpening;
use super::parting::{self, Parting};
use super::station::Station;
use super::worker::{PARTING, TURNS, status_of};

/// The backend's name.
pub const NAME: &str = "ucx-am";

/// Frames of up to so many bytes are copied twice rather than asked for by the receiver, which takes a round trip; unless the user
/// says where UCX is to begin with that (`UCX_RNDV_THRESH`).
const EAGER: usize = 64 << 10;

/// What those are told whose `ucx-am` may have TCP.
pub const TCP_WARNING: &str =
    "UCX's TCP is on (--ucx-tcp): a process that reaches its ports may write this process's memory";

/// The backend. It holds nothing: the process has one context of UCX's for it, and all else is in the ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Am {
    tcp: bool,
}

impl Am {
    /// A backend whose workers have all that UCX finds, except TCP.
    pub const fn new() -> Am {
        Am { tcp: false }
    }

    /// A backend whose workers have TCP too. Each end then listens on a port of every device of this machine that
    /// `UCX_NET_DEVICES` does not leave out, until the peer is heard of. **A process that reaches one may write any address of this
    /// process meanwhile, without being asked for anything; the peer may as long as the link lasts.**
    pub const fn with_tcp() -> Am {
        Am { tcp: true }
    }

    /// What it can do on this machine, or why it cannot be used and the mend.
    ///
    /// # Errors
    /// A sentence for people.
    pub fn usable(self) -> Result<Capabilities, String> {
        Context::for_messages(self.tcp).map(|_| self.capabilities())
    }
}

impl Transport for Am {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(InboxKind::TwoSided, ArrivalRules::DELIVERED, MAX_FRAME);
        capabilities.wake = WakeSource::Descriptor;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        if request.max_frame > MAX_FRAME {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max: MAX_FRAME }));
        }
        Ok(Box::new(AmOpening::open(request, self.tcp).map_err(failed)?))
    }
}

/// A frame that UCX has taken and not yet sent.
pub(super) struct Sending {
    pub(super) request: *mut c_void,
    buffer: Buffer,
    frame: u64,
}

/// A connected end.
pub(super) struct Post {
    ucx: &'static Ucx,
    end: ucp_ep_h,
    /// Longest frame that the peer takes, in bytes.
    max_frame: usize,
    /// Frames of up to so many bytes are sent at once, however UCX would send them; longer ones as it sees fit.
    eager: usize,
    /// The request of what was sent beside frames last.
    aside: *mut c_void,
    /// How many frames the peer had consumed when it was asked last for room.
    asked: Option<u32>,
    /// Its worker may read the buffers below until it is gone.
    station: ManuallyDrop<Station>,
    /// What `reserve` lends. Its note is the frame's header.
    room: Option<Buffer>,
    /// Oldest first.
    sending: VecDeque<Sending>,
    /// Its note is the header of what is sent beside frames.
    note: ManuallyDrop<Buffer>,
    /// Why the peer shares no memory with this process, should it be so.
    apart: String,
}

// SAFETY: requests and the end belong to the station's worker, which may move between threads and is owned here.
unsafe impl Send for Post {}

impl Post {
    /// Over `end` of the station's worker, to a peer that said `told`; `apart` says why it may share no memory with this process.
    pub(super) fn new(
        station: Station,
        end: ucp_ep_h,
        told: &ToldInbox,
        apart: String,
    ) -> Result<Post, Cause> {
        let inbox = station.inbox();
        let ucx = inbox.worker().ucx;
        let note = inbox.spares.borrow_mut().take(0)?;
        inbox.outward.borrow_mut().open(told.window);
        Ok(Post {
            ucx,
            end,
            max_frame: usize::try_from(told.max_frame).unwrap_or(MAX_FRAME).min(MAX_FRAME),
            eager: if env::var_os("UCX_RNDV_THRESH").is_some() { 0 } else { EAGER },
            aside: ptr::null_mut(),
            asked: None,
            station: ManuallyDrop::new(station),
            room: None,
            sending: VecDeque::new(),
            note: ManuallyDrop::new(note),
            apart,
        })
    }

    #[inline]
    fn inbox(&self) -> &Inbox {
        self.station.inbox()
    }

    fn check(&self, operation: Operation) -> Result<(), TransportError> {
        match self.inbox().fault() {
            Some(cause) => Err(error(operation, cause)),
            None => Ok(()),
        }
    }

    /// Hands a message over to UCX.
    ///
    /// # Safety
    /// `header` and `data` stay as they are until the request that is returned is done, if one is.
    unsafe fn send(&self, id: c_uint, header: &[u8], data: *const c_void, len: usize) -> ucs_status_ptr_t {
        // SAFETY: UCX looks at the fields that the mask names; all others are numbers and pointers, for which zero will do.
        let mut params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        if len <= self.eager {
            params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            params.flags = UCP_AM_SEND_FLAG_EAGER;
        }
        // SAFETY: the end is connected, and the caller keeps header and data.
        unsafe {
            self.ucx.ucp_am_send_nbx(self.end, id, header.as_ptr().cast(), header.len(), data, len, &params)
        }
    }

    /// Forgets what UCX is done with.
    fn retire(&mut self) -> Result<(), TransportError> {
        while let Some(oldest) = self.sending.front() {
            let status = status_of(self.ucx, oldest.request);
            if status == UCS_INPROGRESS {
                break;
            }
            let Some(Sending { request, buffer, frame }) = self.sending.pop_front() else { break };
            // SAFETY: a request that was not freed, and is dropped here.
            unsafe { self.ucx.ucp_request_free(request) };
            self.inbox().spares.borrow_mut().give(buffer);
            if status != UCS_OK {
                return Err(error(Operation::Send, moving(self.ucx, status)).with_frame(frame));
            }
        }
        Ok(())
    }

    /// Tells the peer how much was consumed, and asks it for the same where `id` is [`ASK`]. Returns whether it could.
    fn send_aside(&mut self, id: c_uint) -> Result<bool, TransportError> {
        if !self.aside.is_null() {
            let status = status_of(self.ucx, self.aside);
            if status == UCS_INPROGRESS {
                return Ok(false);
            }
            // SAFETY: a request that was not freed, and is forgotten here.
            unsafe { self.ucx.ucp_request_free(self.aside) };
            self.aside = ptr::null_mut();
            if status != UCS_OK {
                return Err(error(Operation::Send, moving(self.ucx, status)));
            }
        }
        let consumed = self.inbox().inward.borrow_mut().tell();
        let at = self.note.note().cast::<[u8; 4]>();
        // SAFETY: the note is ours until it is sent again, which waits for the request.
        let sent = unsafe {
            at.write(consumed.to_le_bytes());
            self.send(id, at.as_ref(), ptr::null(), 0)
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

    /// Has the peer hear of this side at once where it waits for that to close its listening sockets, as this side does.
    pub(super) fn greet(&mut self) -> Result<(), TransportError> {
        if self.station.has_doors() {
            self.send_aside(TELL)?;
        }
        Ok(())
    }

    /// Everything that progress brings about.
    fn work(&mut self) -> Result<bool, TransportError> {
        let moved = self.inbox().worker().progress();
        self.check(Operation::Progress)?;
        if self.station.has_doors() {
            self.station.tend_doors();
        }
        if !self.sending.is_empty() {
            self.retire()?;
        }
        if self.inbox().must_tell() {
            self.send_aside(TELL)?;
        }
        Ok(moved)
    }

    /// There is no room for a frame: the peer is asked once for each state of the window.
    #[cold]
    fn full(&mut self) -> Result<TransportError, TransportError> {
        let consumed = self.inbox().outward.borrow().consumed();
        if self.asked != Some(consumed) && self.send_aside(ASK)? {
            self.asked = Some(consumed);
        }
        Ok(error(Operation::Send, Cause::Full))
    }
}

// SAFETY: a room is a buffer of this value's own until UCX is done with it; a message lies in the inbox until `pop`, in memory
// that UCX has finished writing. Buffers start on a line (`Buffer`).
unsafe impl Messages for Post {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        if len > self.max_frame {
            return Err(error(Operation::Send, Cause::TooLarge { len, max: self.max_frame }));
        }
        self.check(Operation::Send)?;
        let has_room = self.inbox().outward.borrow().has_room(len);
        if !has_room {
            return Err(self.full()?);
        }
        let room = match self.room.take() {
            Some(room) if room.len() >= len => room,
            other => {
                let mut spares = self.inbox().spares.borrow_mut();
                other.into_iter().for_each(|room| spares.give(room));
                spares.take(len).map_err(|cause| error(Operation::Send, cause))?
            }
        };
        Ok(self.room.insert(room).start())
    }

    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        let failed = |cause| error(Operation::Send, cause).with_frame(frame);
        let Some(room) = self.room.take().filter(|room| len <= room.len()) else {
            return Err(failed(Cause::Unsupported("committing without reserving")));
        };
        let inbox = self.station.inbox();
        let number = inbox.outward.borrow().next();
        let consumed = inbox.inward.borrow_mut().tell();
        let [[a, b, c, d], [e, f, g, h]] = [number, consumed].map(u32::to_le_bytes);
        let header = room.note().cast::<[u8; 8]>();
        // SAFETY: header and message lie in the room, which is kept until UCX is done with it.
        let sent = unsafe {
            header.write([a, b, c, d, e, f, g, h]);
            self.send(FRAME, header.as_ref(), room.start().as_ptr().cast(), len)
        };
        if UCS_PTR_IS_PTR(sent) {
            self.sending.push_back(Sending { request: sent, buffer: room, frame });
        } else {
            self.room = Some(room);
            match status_of(self.ucx, sent) {
                UCS_OK => {}
                status => return Err(failed(moving(self.ucx, status))),
            }
        }
        // No frame is longer than `MAX_FRAME`.
        self.inbox().outward.borrow_mut().sent(len as u32);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(NonNull<u8>, usize)>, TransportError> {
        if let Some(front) = self.inbox().front() {
            return Ok(Some(front));
        }
        self.work()?;
        let front = self.inbox().front();
        if front.is_none() {
            self.check(Operation::Receive)?;
        }
        Ok(front)
    }

    fn release(&mut self) {
        self.inbox().pop();
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        self.work().map(|_| ())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.station.descriptor())
    }

    fn arm(&mut self) -> Result<bool, TransportError> {
        for _ in 0..TURNS {
            while self.work()? {
                if self.inbox().front().is_some() {
                    return Ok(false);
                }
            }
            // What UCX could not send yet it sends only when it is called, whatever the descriptor says; and the rest of a
            // message that has begun to come may not ring.
            if !self.sending.is_empty() || self.inbox().must_tell() || !self.inbox().is_empty() {
                return Ok(false);
            }
            // Nothing rings when sockets are to be closed.
            if self.station.has_doors() && self.inbox().has_heard() {
                return Ok(false);
            }
            let armed = self.inbox().worker().arm().map_err(|cause| error(Operation::Wake, cause))?;
            // An RDMA device rings for what comes once it is armed, and not for what came since the last look.
            if armed && !self.work()? {
                // A long message may be the last for a long time.
                self.inbox().spares.borrow_mut().rest();
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn route(&self) -> Route {
        let lanes = Lanes::of(self.ucx, self.end);
        let mut notes = Vec::new();
        if lanes.are_tcp() {
            notes.push(format!("TCP, because nothing faster joins both sides: {}", self.apart));
        }
        notes.extend(lanes.sizes_in_words());
        notes.push(
            "the receiver runs frames where UCX put them; no address of it is known to the sender".to_owned(),
        );
        Route::new(lanes.in_words(), notes)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        // SAFETY: UCX looks at the fields that the mask names: none.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the end is connected, and used no more. Closing sends first what was taken.
        let closing = unsafe { self.ucx.ucp_ep_close_nbx(self.end, &params) };
        // SAFETY: neither is used again: this is the end of the value that has them.
        let (station, note) =
            unsafe { (ManuallyDrop::take(&mut self.station), ManuallyDrop::take(&mut self.note)) };
        let sending = std::mem::take(&mut self.sending);
        let parting = Parting { requests: [closing, self.aside], station, sending, _note: note };
        let began = Instant::now();
        while !parting.is_over() && began.elapsed() < PARTING {
            parting.progress();
        }
        parting::tend();
        if !parting.is_over() && parting.is_new() {
            parting::keep(parting);
        }
    }
}

pub(super) fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}

#[cfg(test)]
#[path = "am_tests.rs"]
mod tests;
