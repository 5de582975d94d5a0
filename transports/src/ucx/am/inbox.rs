//! Received messages of one endpoint: filled by UCX's callbacks, emptied by [`super`].
//!
//! Each frame has a number, because UCX may send the pieces of a long message over several devices and
//! deliver a later short one first. Frames leave in numerical order; one that is being fetched delays the
//! rest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use farjump_core::frame::{FrameError, LINE};
use farjump_core::transport::Cause;
use farjump_ucx_sys::{
    UCP_AM_RECV_ATTR_FLAG_DATA, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_ERR,
    UCS_PTR_IS_PTR, UCS_PTR_STATUS, ucp_am_recv_param_t, ucp_request_param_t, ucs_status_t,
};

use super::buffers::{Buffer, Spares};
use super::credit::{MAX_FRAMES, RecvCredit, SendCredit, Violation};
use crate::ucx::moving;
use crate::ucx::worker::{Worker, status_of};

/// A frame. Its header has its number and the value of [`CREDIT`], `u32` each.
pub(super) const FRAME: c_uint = 1;
/// Returns credit: the number of frames that the sender has consumed, modulo 2^32, in the header.
pub(super) const CREDIT: c_uint = 2;
/// The same, from a sender without credit.
pub(super) const CREDIT_REQUEST: c_uint = 3;

/// Received frames and the peer's state. Callbacks reach it while UCX makes progress, so everything in it
/// changes behind shared references, and no borrow lasts while UCX works.
pub(super) struct Inbox {
    /// Dropped first: it may write into buffers until it is gone.
    worker: Worker,
    /// Longest frame that this endpoint accepts, in bytes.
    max_frame: usize,
    /// Frames from the next one on, `None` where one has not come.
    frames: RefCell<VecDeque<Option<Message>>>,
    /// Number of the next frame.
    due: Cell<u32>,
    pub(super) recv_credit: RefCell<RecvCredit>,
    pub(super) send_credit: RefCell<SendCredit>,
    pub(super) spares: RefCell<Spares>,
    fault: RefCell<Option<Cause>>,
    /// A message has come from the peer.
    heard: Cell<bool>,
}

/// A frame that has come, at least in part.
struct Message {
    body: Body,
    len: usize,
}

enum Body {
    /// In UCX's memory, which is returned to it.
    Lent(NonNull<u8>),
    /// In a buffer of this process.
    Own(Buffer),
    /// Being fetched from the peer's memory into the buffer, by this request.
    Fetched(Buffer, *mut c_void),
}

impl Inbox {
    /// Makes one of `worker` that accepts frames of up to `max_frame` bytes and holds `window` bytes of them.
    pub(super) fn new(worker: Worker, max_frame: usize, window: u64) -> Inbox {
        Inbox {
            worker,
            max_frame,
            frames: RefCell::default(),
            due: Cell::new(0),
            recv_credit: RefCell::new(RecvCredit::new(window)),
            // Before the peer has stated its window nothing is sent.
            send_credit: RefCell::new(SendCredit::new(0)),
            spares: RefCell::default(),
            fault: RefCell::new(None),
            heard: Cell::new(false),
        }
    }

    /// Lets the worker fill it.
    ///
    /// # Safety
    /// It must not move until the worker is gone.
    pub(super) unsafe fn listen(&self) -> Result<(), Cause> {
        let own: *mut c_void = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the callbacks expect an inbox, which the caller keeps in place; they only read through it.
        unsafe {
            self.worker.handle(FRAME, Some(frame_came), own)?;
            self.worker.handle(CREDIT, Some(on_credit), own)?;
            self.worker.handle(CREDIT_REQUEST, Some(on_credit_request), own)
        }
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Returns the permanent fault of the link.
    pub(super) fn fault(&self) -> Option<Cause> {
        self.fault.borrow().clone()
    }

    /// Returns start and length in bytes of the next frame, if all of it is here.
    pub(super) fn front(&self) -> Option<(NonNull<u8>, usize)> {
        let mut frames = self.frames.borrow_mut();
        let message = frames.front_mut()?.as_mut()?;
        let start = match &message.body {
            Body::Lent(start) => *start,
            Body::Own(buffer) => buffer.start(),
            Body::Fetched(buffer, request) => {
                let status = status_of(self.worker.ucx, *request);
                if status == UCS_INPROGRESS {
                    return None;
                }
                if status != UCS_OK {
                    self.fail(moving(self.worker.ucx, status));
                    return None;
                }
                buffer.start()
            }
        };
        Some((start, message.len))
    }

    /// Returns whether a message has come from the peer.
    pub(super) fn has_heard(&self) -> bool {
        self.heard.get()
    }

    /// Returns whether no frame is left.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.borrow().is_empty()
    }

    /// Removes the next frame, which was handled.
    pub(super) fn pop(&self) {
        if self.front().is_none() {
            return;
        }
        let Some(Some(message)) = self.frames.borrow_mut().pop_front() else { return };
        self.due.set(self.due.get().wrapping_add(1));
        self.recv_credit.borrow_mut().done(message.len);
        self.give_back(message);
    }

    fn give_back(&self, message: Message) {
        match message.body {
            Body::Lent(start) => {
                // SAFETY: kept by `take`, and released once: the message is gone.
                unsafe { self.worker.ucx.ucp_am_data_release(self.worker.handle, start.as_ptr().cast()) };
            }
            Body::Own(buffer) => self.spares.borrow_mut().give(buffer),
            Body::Fetched(buffer, request) => {
                // SAFETY: kept by `fetch`, and freed once: the message is gone.
                unsafe { self.worker.ucx.ucp_request_free(request) };
                self.spares.borrow_mut().give(buffer);
            }
        }
    }

    /// Fails the link; the first cause stays.
    fn fail(&self, cause: Cause) {
        self.fault.borrow_mut().get_or_insert(cause);
    }

    fn violated(&self, violation: Violation) {
        self.fail(Cause::System(format!("the peer broke the protocol: it {}", violation.0)));
    }

    fn returned(&self, consumed: u32) {
        self.heard.set(true);
        let known = self.send_credit.borrow_mut().returned(consumed);
        if let Err(violation) = known {
            self.violated(violation);
        }
    }

    /// Takes a frame. Returns for UCX whether the data stays in use.
    fn take(&self, header: &[u8], data: *mut c_void, len: usize, attributes: u64) -> ucs_status_t {
        if self.fault.borrow().is_some() {
            return UCS_OK;
        }
        let [Some(number), Some(consumed)] = [0, 4].map(|at| word(header, at)) else {
            self.violated(Violation("sends a message without its number"));
            return UCS_OK;
        };
        self.returned(consumed);
        if self.fault.borrow().is_some() {
            return UCS_OK;
        }
        if len > self.max_frame {
            self.fail(Cause::Protocol(FrameError::Overlong { frame: self.max_frame, found: len }));
            return UCS_OK;
        }
        let ahead = number.wrapping_sub(self.due.get()) as usize;
        let mut frames = self.frames.borrow_mut();
        let twice = frames.get(ahead).is_some_and(Option::is_some);
        if len == 0 || twice || ahead >= MAX_FRAMES as usize {
            self.violated(Violation("sends an empty message, or one out of its turn"));
            return UCS_OK;
        }
        if let Err(violation) = self.recv_credit.borrow_mut().came(len) {
            self.violated(violation);
            return UCS_OK;
        }
        let (body, status) = match self.body(data, len, attributes) {
            Ok(taken) => taken,
            Err(cause) => {
                self.fail(cause);
                return UCS_OK;
            }
        };
        if ahead >= frames.len() {
            frames.resize_with(ahead + 1, || None);
        }
        frames[ahead] = Some(Message { body, len });
        status
    }

    fn body(&self, data: *mut c_void, len: usize, attributes: u64) -> Result<(Body, ucs_status_t), Cause> {
        if attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 {
            // UCX owns the descriptor from the start of the fetch.
            return Ok((self.fetch(data, len)?, UCS_OK));
        }
        let start = NonNull::new(data.cast::<u8>()).filter(|start| start.addr().get().is_multiple_of(LINE));
        if let Some(start) = start
            && attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_DATA) != 0
        {
            return Ok((Body::Lent(start), UCS_INPROGRESS));
        }
        // For a UCX that ignores the requested alignment, or does not lend.
        let buffer = self.spares.borrow_mut().take(len)?;
        // SAFETY: UCX lends `len` bytes for the time of the callback, and the buffer has as many.
        unsafe { ptr::copy_nonoverlapping(data.cast::<u8>(), buffer.start().as_ptr(), len) };
        Ok((Body::Own(buffer), UCS_OK))
    }

    /// Begins to fetch a message that stays with the peer until then.
    fn fetch(&self, data: *mut c_void, len: usize) -> Result<Body, Cause> {
        let buffer = self.spares.borrow_mut().take(len)?;
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let (ucx, worker) = (self.worker.ucx, self.worker.handle);
        // SAFETY: `data` describes the message of `len` bytes of this callback, and the buffer has as many
        // and lives until it is whole or the worker is gone (`Inbox::worker`).
        let request =
            unsafe { ucx.ucp_am_recv_data_nbx(worker, data, buffer.start().as_ptr().cast(), len, &params) };
        if UCS_PTR_IS_ERR(request) {
            return Err(moving(ucx, UCS_PTR_STATUS(request)));
        }
        if UCS_PTR_IS_PTR(request) {
            return Ok(Body::Fetched(buffer, request));
        }
        Ok(Body::Own(buffer))
    }

    /// Returns UCX's memory and requests, and accepts no more frames. Fetches go on until the worker ends.
    pub(super) fn clear(&self) {
        self.fail(Cause::PeerGone);
        for message in self.frames.borrow_mut().iter_mut().flatten() {
            let ucx = self.worker.ucx;
            match &message.body {
                // SAFETY: lent to this message, which is not read again.
                Body::Lent(start) => unsafe {
                    ucx.ucp_am_data_release(self.worker.handle, start.as_ptr().cast());
                },
                // SAFETY: the request of this message, which is not read again. Its buffer stays.
                Body::Fetched(_, request) => unsafe { ucx.ucp_request_free(*request) },
                Body::Own(_) => {}
            }
        }
    }

    /// Returns whether there is credit to return that no frame has carried.
    pub(super) fn must_return_credit(&self) -> bool {
        self.recv_credit.borrow().must_return_credit()
    }
}

/// Returns a little-endian word of a header.
fn word(header: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the inbox and the header that UCX passes to a callback.
///
/// # Safety
/// Called from a callback that [`Inbox::listen`] set, with UCX's arguments.
unsafe fn given<'a>(argument: *mut c_void, header: *const c_void, len: usize) -> (&'a Inbox, &'a [u8]) {
    // SAFETY: `listen` passed an inbox that stays in place as long as its worker, which runs this callback.
    let inbox = unsafe { &*argument.cast_const().cast::<Inbox>() };
    let header = match len {
        0 => &[][..],
        // SAFETY: UCX lends `len` bytes for the time of the callback.
        len => unsafe { std::slice::from_raw_parts(header.cast::<u8>(), len) },
    };
    (inbox, header)
}

unsafe extern "C" fn frame_came(
    argument: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: set by `listen`, called by UCX with its arguments.
    let (inbox, header) = unsafe { given(argument, header, header_len) };
    // SAFETY: UCX lends `params` for the time of the callback.
    let attributes = unsafe { (*params).recv_attr };
    inbox.take(header, data, len, attributes)
}

unsafe extern "C" fn on_credit(
    argument: *mut c_void,
    header: *const c_void,
    header_len: usize,
    _data: *mut c_void,
    _len: usize,
    _params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: set by `listen`, called by UCX with its arguments.
    let (inbox, header) = unsafe { given(argument, header, header_len) };
    match word(header, 0) {
        Some(consumed) => inbox.returned(consumed),
        None => inbox.violated(Violation("returns credit without a number")),
    }
    UCS_OK
}

unsafe extern "C" fn on_credit_request(
    argument: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: set by `listen` and called by UCX, like this callback.
    let status = unsafe { on_credit(argument, header, header_len, data, len, params) };
    // SAFETY: set by `listen`, called by UCX with its arguments.
    let (inbox, _) = unsafe { given(argument, header, header_len) };
    inbox.recv_credit.borrow_mut().request();
    status
}
