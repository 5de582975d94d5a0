//! Received messages of one endpoint: filled by UCX's callbacks, emptied by [`super`].
//!
//! Each frame has a number, because UCX may send the pieces of a long message over several devices and deliver a later
//! short one first. Frames leave in numerical order; a frame that is still being fetched delays the rest.

mod callbacks;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use farjump_core::frame::{DELIVERED_HEADER_LEN, FrameError, LINE, TRANSPORT_WORD_LEN};
use farjump_core::transport::{Cause, Message};
use farjump_ucx_sys::{
    UCP_AM_RECV_ATTR_FLAG_DATA, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_ERR,
    UCS_PTR_IS_PTR, UCS_PTR_STATUS, ucp_request_param_t, ucs_status_t,
};

use super::buffers::{Buffer, Spares};
use super::credit::{MAX_FRAMES, RecvCredit, SendCredit, Violation};
use super::message::{Received, SHORT};
use super::queue::{Kind, Queue, Slot};
use crate::ucx::moving;
use crate::ucx::worker::{Worker, status_of};

/// A frame, header last. Its number and the value of [`CREDIT`], `u16` each, are the transport's word in it. UCX's
/// header repeats them for a frame that may stay with its sender until it is fetched.
pub(super) const FRAME: c_uint = 1;
/// Returns credit: the number of frames that the sender has consumed, modulo 2^16, in the header.
pub(super) const CREDIT: c_uint = 2;
/// Returns credit like [`CREDIT`], from a sender that itself needs credit.
pub(super) const CREDIT_REQUEST: c_uint = 3;
/// A frame, header in front (`message.rs`).
pub(super) const FRONTED: c_uint = 4;

/// The transport's word in a frame.
#[inline]
pub(super) fn word_of(number: u16, consumed: u16) -> [u8; 4] {
    let [[a, b], [c, d]] = [number, consumed].map(u16::to_le_bytes);
    [a, b, c, d]
}

/// The transport's word in a frame's header.
#[inline(always)]
fn word_in(header: &[u8; DELIVERED_HEADER_LEN]) -> [u8; TRANSPORT_WORD_LEN] {
    let [.., a, b, c, d] = *header;
    [a, b, c, d]
}

/// Number and credit in the transport's word.
#[inline]
fn numbers_of([a, b, c, d]: [u8; 4]) -> [u16; 2] {
    [[a, b], [c, d]].map(u16::from_le_bytes)
}

/// Received frames and the peer's state. Callbacks reach it while UCX makes progress, so everything in it
/// changes behind shared references, and no borrow lasts while UCX works.
pub(super) struct Inbox {
    /// Dropped first, because it may write into buffers until it is gone.
    worker: Worker,
    /// Longest frame that this endpoint accepts, in bytes.
    max_frame: usize,
    /// Longest frame that is copied into the queue, in bytes.
    max_short: usize,
    /// True if the link has failed: then the inbox takes no more frames.
    has_failed: Cell<bool>,
    /// True if the link has failed, or needs work besides the frames: [`Inbox::attended`].
    attend: Cell<bool>,
    /// A message has come from the peer.
    heard: Cell<bool>,
    /// Number of the next frame.
    due: Cell<u16>,
    queue: Queue,
    pub(super) recv_credit: RecvCredit,
    pub(super) send_credit: SendCredit,
    state: RefCell<State>,
}

/// The rarely changed part of an inbox.
pub(super) struct State {
    /// Frames in buffers of this process, by number; oldest first unless UCX changed their order.
    kept: VecDeque<(u16, Kept)>,
    pub(super) spares: Spares,
    fault: Option<Cause>,
}

/// A frame in a buffer of this process.
struct Kept {
    buffer: Buffer,
    /// The request that fetches it from the peer's memory; null for a copied frame.
    request: *mut c_void,
}

impl Inbox {
    /// Makes the inbox of `worker`, which accepts frames of up to `max_frame` bytes and keeps `window` bytes of them.
    pub(super) fn new(worker: Worker, max_frame: usize, window: u64) -> Inbox {
        let state = State { kept: VecDeque::new(), spares: Spares::default(), fault: None };
        Inbox {
            worker,
            max_frame,
            max_short: max_frame.min(SHORT),
            has_failed: Cell::new(false),
            attend: Cell::new(false),
            heard: Cell::new(false),
            due: Cell::new(0),
            queue: Queue::new(),
            recv_credit: RecvCredit::new(window),
            // This endpoint sends nothing before the peer has stated its window.
            send_credit: SendCredit::new(0),
            state: RefCell::new(state),
        }
    }

    #[inline]
    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The rarely changed part. The borrow must end before UCX makes progress.
    #[inline]
    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Returns whether frames are here, at least in part.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether a message has come from the peer.
    pub(super) fn has_heard(&self) -> bool {
        self.heard.get()
    }

    /// Returns whether the link has failed, or needs work besides the frames.
    #[inline]
    pub(super) fn needs_attention(&self) -> bool {
        self.attend.get()
    }

    /// Demands [`Inbox::attended`].
    pub(super) fn call_attention(&self) {
        self.attend.set(true);
    }

    /// Records that the work is done; `more` if work remains outside the inbox.
    pub(super) fn attended(&self, more: bool) {
        self.attend.set(more || self.has_failed.get() || self.recv_credit.must_return_credit());
    }

    /// Returns the next frame, if all of it is here.
    #[inline]
    pub(super) fn front(&self) -> Option<Message> {
        let slot = self.queue.front();
        let len = slot.len as usize;
        match slot.kind {
            Kind::Short => Some(Message::with_header(slot.start, len, slot.header())),
            Kind::Fronted => Some(Message::with_header(slot.start, len, slot.message())),
            Kind::Lent | Kind::Copied => Some(Message::new(slot.start, len)),
            Kind::Fetched if self.is_fetched() => Some(Message::new(slot.start, len)),
            Kind::Fetched | Kind::Missing => None,
        }
    }

    /// Returns whether fetching the next frame from the peer's memory has ended. If that failed, so has the link.
    #[cold]
    fn is_fetched(&self) -> bool {
        let state = self.state();
        let request = state.find(self.due.get()).map(|index| state.kept[index].1.request);
        match request.map(|request| status_of(self.worker.ucx, request)) {
            Some(UCS_OK) => true,
            None | Some(UCS_INPROGRESS) => false,
            Some(status) => {
                drop(state);
                self.failed(moving(self.worker.ucx, status));
                false
            }
        }
    }

    /// Removes the next frame, which was handled.
    #[inline]
    pub(super) fn pop(&self) {
        let slot = self.queue.front();
        match slot.kind {
            Kind::Missing => return,
            Kind::Short => {}
            // SAFETY: kept by `take`, and released once: the frame is removed below.
            Kind::Lent | Kind::Fronted => unsafe { self.give_back(&slot) },
            Kind::Copied | Kind::Fetched if self.drop_kept() => {}
            // UCX still writes into the buffer of a frame that is being fetched.
            Kind::Copied | Kind::Fetched => return,
        }
        self.queue.pop();
        self.due.set(self.due.get().wrapping_add(1));
        self.recv_credit.done(slot.len as usize);
        if self.recv_credit.must_return_credit() {
            self.attend.set(true);
        }
    }

    /// Returns a frame's memory to UCX.
    ///
    /// # Safety
    /// UCX must have lent it to this frame, which is removed.
    #[inline(always)]
    unsafe fn give_back(&self, slot: &Slot) {
        let message = if slot.kind == Kind::Fronted { slot.message() } else { slot.start };
        // SAFETY: the caller's (see Safety).
        unsafe { self.worker.ucx.ucp_am_data_release(self.worker.handle, message.as_ptr().cast()) };
    }

    /// Takes the next frame's buffer back, unless UCX writes into it.
    #[cold]
    fn drop_kept(&self) -> bool {
        let mut state = self.state();
        let Some(index) = state.find(self.due.get()) else { return false };
        let request = state.kept[index].1.request;
        if !request.is_null() {
            if status_of(self.worker.ucx, request) == UCS_INPROGRESS {
                return false;
            }
            // SAFETY: kept by `fetch`, and freed once: the frame is removed below.
            unsafe { self.worker.ucx.ucp_request_free(request) };
        }
        if let Some((_, kept)) = state.kept.remove(index) {
            state.spares.give(kept.buffer);
        }
        true
    }

    fn returned(&self, consumed: u16) {
        self.heard.set(true);
        if let Err(violation) = self.send_credit.returned(consumed) {
            self.violated(violation);
        }
    }

    /// Takes a message that has arrived whole and is the next frame behind those in the queue; `fronted` if its header
    /// is in front. Returns `None` for all others, and for messages that no honest peer sends: nothing has then
    /// changed. Otherwise returns, for UCX, whether the data stays in use.
    ///
    /// # Safety
    /// `data` and `attributes` are those that UCX passes to a callback, with `len` and no header.
    #[inline(always)]
    unsafe fn take_next(
        &self,
        fronted: bool,
        data: *mut c_void,
        len: usize,
        attributes: u64,
    ) -> Option<ucs_status_t> {
        const RNDV: u64 = UCP_AM_RECV_ATTR_FLAG_RNDV as u64;
        const DATA: u64 = UCP_AM_RECV_ATTR_FLAG_DATA as u64;

        if attributes & RNDV != 0 {
            return None;
        }
        // SAFETY: UCX lends `len` bytes for the time of the callback.
        let found = unsafe { Received::of(NonNull::new(data.cast())?, len, fronted) }?;
        // SAFETY: as above.
        let header = unsafe { found.header() };
        let [number, consumed] = numbers_of(word_in(&header));
        if number != self.due.get().wrapping_add(self.queue.len() as u16) {
            return None;
        }
        let frame_len = found.frame_len;
        let is_lent = attributes & DATA != 0 && found.body.addr().get().is_multiple_of(LINE);
        let start = if is_lent { found.body } else { self.queue.space()? };
        if frame_len > if is_lent { self.max_frame } else { self.max_short } {
            return None;
        }
        if self.send_credit.returned(consumed).is_err() {
            return None;
        }
        if self.queue.is_full() || self.recv_credit.came(frame_len, self.queue.is_empty()).is_err() {
            return None;
        }
        self.heard.set(true);
        let (kind, status) = if is_lent {
            (if fronted { Kind::Fronted } else { Kind::Lent }, UCS_INPROGRESS)
        } else {
            // SAFETY: UCX lends the message for the time of the callback. The space is one of the queue's,
            // used by no frame in it, and fits frames of `max_short` bytes.
            unsafe { found.copy_short_to(start) };
            (Kind::Short, UCS_OK)
        };
        self.queue.push(Slot { start, len: frame_len as u32, kind });
        Some(status)
    }

    /// Takes a frame. Returns, for UCX, whether the data stays in use.
    ///
    /// # Safety
    /// `data` and `attributes` are those that UCX passes to a callback, with `len`.
    #[inline(never)]
    unsafe fn take(
        &self,
        fronted: bool,
        header: &[u8],
        data: *mut c_void,
        len: usize,
        attributes: u64,
    ) -> ucs_status_t {
        if self.has_failed.get() {
            return UCS_OK;
        }
        // SAFETY: the caller's (see Safety).
        unsafe { self.take_any(fronted, header, data, len, attributes) }.unwrap_or_else(|cause| {
            self.failed(cause);
            UCS_OK
        })
    }

    /// [`Inbox::take`] on a link that has not failed; returns the cause if the link fails now.
    ///
    /// # Safety
    /// As [`Inbox::take`].
    unsafe fn take_any(
        &self,
        fronted: bool,
        header: &[u8],
        data: *mut c_void,
        len: usize,
        attributes: u64,
    ) -> Result<ucs_status_t, Cause> {
        let is_here = attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
        let found = match NonNull::new(data.cast::<u8>()) {
            // SAFETY: UCX lends `len` bytes for the time of the callback.
            Some(data) if is_here => unsafe { Received::of(data, len, fronted) },
            _ => None,
        };
        let word = match (header.first_chunk(), &found) {
            (Some(word), found) if !fronted && (found.is_some() || !is_here || len == 0) => *word,
            // SAFETY: UCX lends the message for the time of the callback.
            (_, Some(found)) => word_in(&unsafe { found.header() }),
            _ => return Err(Violation("sends a message without its number").into()),
        };
        let frame_len = found.as_ref().map_or(len, |found| found.frame_len);
        let [number, consumed] = numbers_of(word);
        self.heard.set(true);
        self.send_credit.returned(consumed)?;
        if frame_len > self.max_frame {
            return Err(Cause::Protocol(FrameError::Overlong { frame: self.max_frame, found: frame_len }));
        }
        let ahead = usize::from(number.wrapping_sub(self.due.get()));
        if len == 0 || ahead >= MAX_FRAMES || self.queue.has(ahead) {
            return Err(Violation("sends an empty message, or one out of its turn").into());
        }
        self.recv_credit.came(frame_len, self.queue.is_empty())?;
        let may_stay = attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
        let mut state = self.state();
        let (start, kind, status) = match found {
            Some(found) if may_stay && found.body.addr().get().is_multiple_of(LINE) => {
                (found.body, if fronted { Kind::Fronted } else { Kind::Lent }, UCS_INPROGRESS)
            }
            // A short message for which the queue has no space, or a UCX that ignores the requested alignment.
            Some(found) => {
                let buffer = state.spares.take(frame_len)?;
                let start = buffer.start();
                // SAFETY: UCX lends the message for the time of the callback, and the buffer has as many bytes
                // as the frame.
                unsafe { found.copy_to(start) };
                state.kept.push_back((number, Kept { buffer, request: ptr::null_mut() }));
                (start, Kind::Copied, UCS_OK)
            }
            None => {
                let kept = self.fetch(&mut state.spares, data, len)?;
                let (start, kind) = (kept.buffer.start(), kept.kind());
                state.kept.push_back((number, kept));
                (start, kind, UCS_OK)
            }
        };
        // No frame is longer than `MAX_FRAME`.
        self.queue.put(ahead, Slot { start, len: frame_len as u32, kind });
        Ok(status)
    }

    #[cold]
    pub(super) fn failed(&self, cause: Cause) {
        self.state().fault.get_or_insert(cause);
        self.has_failed.set(true);
        self.attend.set(true);
    }

    #[cold]
    fn violated(&self, violation: Violation) {
        self.failed(violation.into());
    }

    /// Begins to fetch a message that has stayed in the peer's memory. From then on, UCX owns the descriptor `data`.
    #[cold]
    fn fetch(&self, spares: &mut Spares, data: *mut c_void, len: usize) -> Result<Kept, Cause> {
        let buffer = spares.take(len)?;
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let (ucx, worker) = (self.worker.ucx, self.worker.handle);
        // SAFETY: `data` describes the message of `len` bytes of this callback, and the buffer has as many bytes and
        // lives until the message is whole or the worker is gone (`Inbox::worker`).
        let request =
            unsafe { ucx.ucp_am_recv_data_nbx(worker, data, buffer.start().as_ptr().cast(), len, &params) };
        if UCS_PTR_IS_ERR(request) {
            return Err(moving(ucx, UCS_PTR_STATUS(request)));
        }
        Ok(Kept { buffer, request: if UCS_PTR_IS_PTR(request) { request } else { ptr::null_mut() } })
    }

    /// Returns UCX's memory and requests, and accepts no more frames. Fetches continue until the worker ends.
    pub(super) fn clear(&self) {
        self.failed(Cause::PeerGone);
        let ucx = self.worker.ucx;
        while !self.queue.is_empty() {
            let slot = self.queue.pop();
            if matches!(slot.kind, Kind::Lent | Kind::Fronted) {
                // SAFETY: lent to this frame, which is removed.
                unsafe { self.give_back(&slot) };
            }
        }
        // The buffers stay.
        for (_, kept) in &mut self.state().kept {
            let request = std::mem::replace(&mut kept.request, ptr::null_mut());
            if !request.is_null() {
                // SAFETY: the request of this frame, which is removed, and freed once.
                unsafe { ucx.ucp_request_free(request) };
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

    /// Returns the index in `kept` of the frame with this number.
    fn find(&self, number: u16) -> Option<usize> {
        self.kept.iter().position(|(kept, _)| *kept == number)
    }
}

impl Kept {
    fn kind(&self) -> Kind {
        if self.request.is_null() { Kind::Copied } else { Kind::Fetched }
    }
}

impl From<Violation> for Cause {
    fn from(violation: Violation) -> Cause {
        Cause::System(format!("the peer broke the protocol: it {}", violation.0))
    }
}
