//! Received messages of one endpoint: filled by UCX's callbacks, emptied by [`super`].
//!
//! Each frame has a number, because UCX may send the pieces of a long message over several devices and
//! deliver a later short one first. Frames leave in numerical order; one that is being fetched delays the
//! rest.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use farjump_core::frame::{DELIVERED_HEADER_LEN, FrameError, LINE, TRANSPORT_WORD_LEN};
use farjump_core::transport::Cause;
use farjump_ucx_sys::{
    UCP_AM_RECV_ATTR_FLAG_DATA, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_ERR,
    UCS_PTR_IS_PTR, UCS_PTR_STATUS, ucp_am_recv_param_t, ucp_request_param_t, ucs_status_t,
};

use super::buffers::{Buffer, Spares};
use super::credit::{MAX_FRAMES, RecvCredit, SendCredit, Violation};
use crate::ucx::moving;
use crate::ucx::worker::{Worker, status_of};

/// A frame. Its number and the value of [`CREDIT`], `u16` each, are the transport's word in it. The header
/// repeats them for a frame that may stay with its sender until it is fetched.
pub(super) const FRAME: c_uint = 1;
/// Returns credit: the number of frames that the sender has consumed, modulo 2^16, in the header.
pub(super) const CREDIT: c_uint = 2;
/// The same, from a sender without credit.
pub(super) const CREDIT_REQUEST: c_uint = 3;

/// The transport's word in a frame.
#[inline]
pub(super) fn word_of(number: u16, consumed: u16) -> [u8; 4] {
    let [[a, b], [c, d]] = [number, consumed].map(u16::to_le_bytes);
    [a, b, c, d]
}

/// Received frames and the peer's state. Callbacks reach it while UCX makes progress, so everything in it
/// changes behind shared references, and no borrow lasts while UCX works.
pub(super) struct Inbox {
    /// Dropped first: it may write into buffers until it is gone.
    worker: Worker,
    /// Longest frame that this endpoint accepts, in bytes.
    max_frame: usize,
    /// Frames that have come or are missing before one that has: `State::frames.len()`. Polls that find
    /// nothing look at this and the next alone.
    waiting: Cell<usize>,
    /// The link has failed, or credit may be due.
    attend: Cell<bool>,
    state: RefCell<State>,
}

/// The part of an inbox that changes.
pub(super) struct State {
    /// Frames from the next one on, `None` where one has not come.
    frames: VecDeque<Option<Message>>,
    /// Number of the next frame.
    due: u16,
    /// A message has come from the peer.
    heard: bool,
    pub(super) recv_credit: RecvCredit,
    pub(super) send_credit: SendCredit,
    pub(super) spares: Spares,
    fault: Option<Cause>,
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
        let state = State {
            frames: VecDeque::new(),
            due: 0,
            heard: false,
            recv_credit: RecvCredit::new(window),
            // Before the peer has stated its window nothing is sent.
            send_credit: SendCredit::new(0),
            spares: Spares::default(),
            fault: None,
        };
        let (waiting, attend) = (Cell::new(0), Cell::new(false));
        Inbox { worker, max_frame, waiting, attend, state: RefCell::new(state) }
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

    /// The part that changes. The borrow must end before UCX makes progress.
    #[inline]
    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Whether frames are here, at least in part.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.waiting.get() != 0
    }

    /// Whether the link has failed, or credit may be due.
    #[inline]
    pub(super) fn needs_attention(&self) -> bool {
        self.attend.get()
    }

    /// Records whether credit is still due.
    pub(super) fn attended(&self) {
        let state = self.state();
        self.attend.set(state.fault.is_some() || state.recv_credit.must_return_credit());
    }

    /// Returns start and length in bytes of the next frame, if all of it is here.
    #[inline]
    pub(super) fn front(&self) -> Option<(NonNull<u8>, usize)> {
        let mut state = self.state();
        let message = state.frames.front()?.as_ref()?;
        let start = match &message.body {
            Body::Lent(start) => *start,
            Body::Own(buffer) => buffer.start(),
            Body::Fetched(buffer, request) => {
                let status = status_of(self.worker.ucx, *request);
                if status == UCS_INPROGRESS {
                    return None;
                }
                if status != UCS_OK {
                    state.fail(moving(self.worker.ucx, status));
                    self.attend.set(true);
                    return None;
                }
                buffer.start()
            }
        };
        Some((start, message.len))
    }

    /// Removes the next frame, which was handled.
    #[inline]
    pub(super) fn pop(&self) {
        let mut state = self.state();
        // UCX still writes into the buffer of one that is being fetched.
        if let Some(Some(Message { body: Body::Fetched(_, request), .. })) = state.frames.front()
            && status_of(self.worker.ucx, *request) == UCS_INPROGRESS
        {
            return;
        }
        let Some(Some(message)) = state.frames.pop_front() else { return };
        self.waiting.set(state.frames.len());
        state.due = state.due.wrapping_add(1);
        state.recv_credit.done(message.len);
        if state.recv_credit.must_return_credit() {
            self.attend.set(true);
        }
        match message.body {
            Body::Lent(start) => {
                // SAFETY: kept by `take`, and released once: the message is gone.
                unsafe { self.worker.ucx.ucp_am_data_release(self.worker.handle, start.as_ptr().cast()) };
            }
            Body::Own(buffer) => state.spares.give(buffer),
            Body::Fetched(buffer, request) => {
                // SAFETY: kept by `fetch`, and freed once: the message is gone.
                unsafe { self.worker.ucx.ucp_request_free(request) };
                state.spares.give(buffer);
            }
        }
    }

    fn returned(&self, consumed: u16) {
        let mut state = self.state();
        state.heard = true;
        if let Err(violation) = state.send_credit.returned(consumed) {
            self.attend.set(true);
            state.violated(violation);
        }
    }

    /// Takes a frame. Returns for UCX whether the data stays in use.
    ///
    /// # Safety
    /// `data` and `attributes` are those that UCX passes to a callback, with `len`.
    #[inline]
    unsafe fn take(&self, header: &[u8], data: *mut c_void, len: usize, attributes: u64) -> ucs_status_t {
        // SAFETY: the caller's (see Safety).
        let status = unsafe { self.take_into(&mut self.state(), header, data, len, attributes) };
        status.unwrap_or_else(|()| {
            self.attend.set(true);
            UCS_OK
        })
    }

    /// [`Inbox::take`]; an error if the link has failed.
    ///
    /// # Safety
    /// As [`Inbox::take`].
    #[inline]
    unsafe fn take_into(
        &self,
        state: &mut State,
        header: &[u8],
        data: *mut c_void,
        len: usize,
        attributes: u64,
    ) -> Result<ucs_status_t, ()> {
        let is_here = attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
        if state.fault.is_some() {
            return Err(());
        }
        let word = match header.first_chunk() {
            Some(word) => *word,
            None if is_here && len >= DELIVERED_HEADER_LEN => {
                // SAFETY: UCX lends `len` bytes for the time of the callback.
                unsafe { data.cast::<u8>().add(len - TRANSPORT_WORD_LEN).cast::<[u8; 4]>().read() }
            }
            None => {
                state.violated(Violation("sends a message without its number"));
                return Err(());
            }
        };
        let number = u16::from_le_bytes([word[0], word[1]]);
        let consumed = u16::from_le_bytes([word[2], word[3]]);
        state.heard = true;
        if let Err(violation) = state.send_credit.returned(consumed) {
            state.violated(violation);
            return Err(());
        }
        if len > self.max_frame {
            state.fail(Cause::Protocol(FrameError::Overlong { frame: self.max_frame, found: len }));
            return Err(());
        }
        let ahead = usize::from(number.wrapping_sub(state.due));
        let twice = state.frames.get(ahead).is_some_and(Option::is_some);
        if len == 0 || twice || ahead >= MAX_FRAMES as usize {
            state.violated(Violation("sends an empty message, or one out of its turn"));
            return Err(());
        }
        if let Err(violation) = state.recv_credit.came(len) {
            state.violated(violation);
            return Err(());
        }
        let may_stay = attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
        let start = NonNull::new(data.cast::<u8>()).filter(|start| start.addr().get().is_multiple_of(LINE));
        let taken = match start {
            _ if !is_here => self.fetch(&mut state.spares, data, len).map(|body| (body, UCS_OK)),
            Some(start) if may_stay => Ok((Body::Lent(start), UCS_INPROGRESS)),
            // A short message in an element of UCX's queue; or a UCX that ignores the requested alignment.
            _ => state.spares.take(len).map(|buffer| {
                // SAFETY: UCX lends `len` bytes for the time of the callback, and the buffer has as many.
                unsafe { ptr::copy_nonoverlapping(data.cast::<u8>(), buffer.start().as_ptr(), len) };
                (Body::Own(buffer), UCS_OK)
            }),
        };
        let (body, status) = match taken {
            Ok(taken) => taken,
            Err(cause) => {
                state.fail(cause);
                return Err(());
            }
        };
        let message = Some(Message { body, len });
        if ahead == state.frames.len() {
            state.frames.push_back(message);
        } else {
            if ahead > state.frames.len() {
                state.frames.resize_with(ahead + 1, || None);
            }
            state.frames[ahead] = message;
        }
        self.waiting.set(state.frames.len());
        Ok(status)
    }

    /// Begins to fetch a message that stays with the peer until then. UCX owns the descriptor `data` from
    /// then on.
    #[cold]
    fn fetch(&self, spares: &mut Spares, data: *mut c_void, len: usize) -> Result<Body, Cause> {
        let buffer = spares.take(len)?;
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
        let mut state = self.state();
        state.fail(Cause::PeerGone);
        for message in state.frames.iter_mut().flatten() {
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
}

impl State {
    /// The permanent fault of the link.
    #[inline]
    pub(super) fn fault(&self) -> Option<&Cause> {
        self.fault.as_ref()
    }

    /// Whether a message has come from the peer.
    pub(super) fn has_heard(&self) -> bool {
        self.heard
    }

    /// Whether no frame is left.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Fails the link; the first cause stays.
    #[cold]
    fn fail(&mut self, cause: Cause) {
        self.fault.get_or_insert(cause);
    }

    #[cold]
    fn violated(&mut self, violation: Violation) {
        self.fail(Cause::System(format!("the peer broke the protocol: it {}", violation.0)));
    }
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
    // SAFETY: UCX's arguments.
    unsafe { inbox.take(header, data, len, attributes) }
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
    match header.first_chunk() {
        Some(consumed) => inbox.returned(u16::from_le_bytes(*consumed)),
        None => {
            inbox.attend.set(true);
            inbox.state().violated(Violation("returns credit without a number"));
        }
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
    inbox.state().recv_credit.request();
    inbox.attended();
    status
}
