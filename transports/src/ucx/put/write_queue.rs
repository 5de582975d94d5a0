//! Puts and doorbells under way: UCX has taken them, but not finished them.

use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farjump_core::transport::{Cause, Operation, ReadBytes, TransportError};
use farjump_ucx_sys::{
    UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, Ucx, ucp_am_recv_param_t, ucp_ep_h, ucp_request_param_t,
    ucs_status_ptr_t, ucs_status_t,
};

use super::error;
use super::fence::{self, Fence, Flushes};
use super::proof::{LONGEST, Post};
use super::reads::Gets;
use super::remote_region::Peer;
use crate::ucx::lanes::Lanes;
use crate::ucx::moving;
use crate::ucx::worker::{TURNS, Worker, status_of};

/// The active message that is a doorbell.
pub(super) const DOORBELL: c_uint = 1;
/// Limit of puts under way.
const QUEUE: usize = 128;

/// A put under way.
struct Sending {
    request: *mut c_void,
    frame: u64,
}

/// Shared state of an endpoint's halves: UCX permits one caller at a time, and either may be dropped first.
pub(super) struct WriteQueue {
    ucx: &'static Ucx,
    /// Oldest first.
    sending: VecDeque<Sending>,
    /// True if a doorbell must follow once all in `sending` are done.
    owes_doorbell: bool,
    /// The request of the last doorbell.
    doorbell: *mut c_void,
    /// The fence, if it is a flush.
    fence: Fence,
    next_word: usize,
    // Dropped in this order.
    peer: Peer,
    worker: Worker,
    /// Data of the worker's callbacks.
    _post: Post,
    /// Words of puts, allocated at the first. A word is reused after `QUEUE` others, when its put is done. Unfinished
    /// puts continue until the worker is gone.
    words: Option<Box<[u64; QUEUE]>>,
    gets: Box<Gets>,
}

// SAFETY: requests, peer and words belong to the worker, which is `Send` and owned here.
unsafe impl Send for WriteQueue {}

impl WriteQueue {
    /// Makes the queue of a connected endpoint. `post` is the data of the worker's callbacks.
    pub(super) fn new(peer: Peer, worker: Worker, post: Post) -> WriteQueue {
        WriteQueue {
            ucx: worker.ucx,
            sending: VecDeque::new(),
            owes_doorbell: false,
            doorbell: ptr::null_mut(),
            fence: Fence::new(),
            next_word: 0,
            peer,
            worker,
            _post: post,
            words: None,
            gets: Box::default(),
        }
    }

    /// Starts to read memory that the peer lent.
    pub(super) fn start_read(&mut self, key: &[u8], len: usize) -> Result<(), Cause> {
        self.gets.start(&self.worker, self.peer.endpoint, key, len)
    }

    /// The bytes of the read under way, if all have arrived.
    pub(super) fn poll_read(&mut self) -> Result<Option<ReadBytes>, Cause> {
        self.gets.poll(&self.worker, self.peer.endpoint)
    }

    /// Starts to write `len` bytes at `from` to `offset` of the peer's region.
    ///
    /// # Safety
    /// The range lies in the region. The bytes stay unchanged until the put is done.
    pub(super) unsafe fn put(
        &mut self,
        offset: usize,
        from: *const u8,
        len: usize,
        frame: u64,
    ) -> Result<(), Cause> {
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let Peer { endpoint, key, address, .. } = self.peer;
        self.fence.note_put();
        // For longer puts, no query has shown whether UCX emulates them.
        for piece in (0..len).step_by(LONGEST) {
            let (at, rest) = (address + (offset + piece) as u64, LONGEST.min(len - piece));
            // SAFETY: the UCX endpoint is connected; the caller has checked the range, and keeps the bytes.
            let sent =
                unsafe { self.ucx.ucp_put_nbx(endpoint, from.add(piece).cast(), rest, at, key, &params) };
            self.sent(sent, frame)?;
        }
        Ok(())
    }

    /// Starts to write a word to `offset` of the peer's region.
    ///
    /// # Safety
    /// The word lies in the region, and [`WriteQueue::has_space`] was true since the last put.
    pub(super) unsafe fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), Cause> {
        let slot = self.next_word;
        self.next_word = (slot + 1) % QUEUE;
        let words = self.words.get_or_insert_with(|| Box::new([0; QUEUE]));
        words[slot] = word.to_le();
        let from = words[slot..].as_ptr().cast();
        // SAFETY: the word is reused after `QUEUE` puts, of which fewer are under way at a time, because `has_space`
        // was true (this function's `# Safety`).
        unsafe { self.put(offset, from, size_of::<u64>(), frame) }
    }

    /// Returns whether puts are under way.
    pub(super) fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Makes later events of the worker wake this process. `false` if there are events to handle first.
    pub(super) fn arm(&self) -> Result<bool, Cause> {
        self.worker.arm()
    }

    /// Returns the lanes to the peer.
    pub(super) fn lanes(&self) -> Lanes {
        self.peer.lanes()
    }

    fn sent(&mut self, sent: ucs_status_ptr_t, frame: u64) -> Result<(), Cause> {
        if UCS_PTR_IS_PTR(sent) {
            self.sending.push_back(Sending { request: sent, frame });
            return Ok(());
        }
        match status_of(self.ucx, sent) {
            UCS_OK => Ok(()),
            status => Err(moving(self.ucx, status)),
        }
    }

    /// Returns whether UCX takes one more put now.
    pub(super) fn has_space(&mut self) -> Result<bool, TransportError> {
        if self.sending.len() >= QUEUE {
            self.work()?;
        }
        Ok(self.sending.len() < QUEUE)
    }

    /// Progresses UCX, and drops finished puts.
    pub(super) fn work(&mut self) -> Result<bool, TransportError> {
        let moved = self.worker.progress();
        while let Some(oldest) = self.sending.front() {
            let status = status_of(self.ucx, oldest.request);
            if status == UCS_INPROGRESS {
                break;
            }
            let Some(Sending { request, frame }) = self.sending.pop_front() else { break };
            // SAFETY: the request was not freed before, and is dropped here.
            unsafe { self.ucx.ucp_request_free(request) };
            if status != UCS_OK {
                return Err(error(Operation::Put, moving(self.ucx, status)).with_frame(frame));
            }
        }
        if self.owes_doorbell && self.sending.is_empty() {
            self.owes_doorbell = false;
            self.send_doorbell().map_err(|cause| error(Operation::Wake, cause))?;
        }
        Ok(moved)
    }

    /// Orders later puts behind earlier ones. `false` if that is not done yet: call again.
    pub(super) fn pass_fence(&mut self) -> Result<bool, Cause> {
        if fence::waits(self.ucx.version()) {
            let mut flushes = EndpointFlushes { worker: &self.worker, endpoint: self.peer.endpoint };
            return self.fence.is_passed(&mut flushes, TURNS);
        }
        // SAFETY: `self.worker` owns the handle.
        match unsafe { self.ucx.ucp_worker_fence(self.worker.handle) } {
            UCS_OK => Ok(true),
            status => Err(moving(self.ucx, status)),
        }
    }

    /// Returns whether the last doorbell is still under way.
    pub(super) fn is_doorbell_pending(&mut self) -> Result<bool, Cause> {
        if self.doorbell.is_null() {
            return Ok(false);
        }
        let status = status_of(self.ucx, self.doorbell);
        if status == UCS_INPROGRESS {
            return Ok(true);
        }
        // SAFETY: the request was not freed before, and is cleared here.
        unsafe { self.ucx.ucp_request_free(self.doorbell) };
        self.doorbell = ptr::null_mut();
        if status == UCS_OK { Ok(false) } else { Err(moving(self.ucx, status)) }
    }

    /// Sends a doorbell behind the puts under way, so that the peer finds them; [`WriteQueue::work`] sends it
    /// later.
    pub(super) fn wake_peer(&mut self) -> Result<(), Cause> {
        self.owes_doorbell = !self.sending.is_empty();
        if self.owes_doorbell { Ok(()) } else { self.send_doorbell() }
    }

    /// Sends a doorbell, unless the last one is still under way: one has the same effect as many.
    fn send_doorbell(&mut self) -> Result<(), Cause> {
        if !self.doorbell.is_null() {
            self.worker.progress();
            if self.is_doorbell_pending()? {
                return Ok(());
            }
        }
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the UCX endpoint is connected; there is neither header nor data.
        let sent = unsafe {
            self.ucx.ucp_am_send_nbx(self.peer.endpoint, DOORBELL, ptr::null(), 0, ptr::null(), 0, &params)
        };
        if UCS_PTR_IS_PTR(sent) {
            self.doorbell = sent;
            return Ok(());
        }
        match status_of(self.ucx, sent) {
            UCS_OK => Ok(()),
            status => Err(moving(self.ucx, status)),
        }
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        // SAFETY: the UCX endpoint is connected, and not used again. Data of its unfinished puts lies in
        // memory that core keeps until both halves are dropped, or in `words`.
        unsafe { self.worker.close(self.peer.endpoint) };
        let requests =
            self.sending.iter().map(|sending| sending.request).chain([self.doorbell, self.fence.request()]);
        for request in requests.filter(|request| UCS_PTR_IS_PTR(*request)) {
            // SAFETY: the request was not freed before.
            unsafe { self.ucx.ucp_request_free(request) };
        }
        self.gets.end();
    }
}

/// Flushes of the UCX endpoint to the peer.
struct EndpointFlushes<'a> {
    worker: &'a Worker,
    endpoint: ucp_ep_h,
}

impl Flushes for EndpointFlushes<'_> {
    fn begin(&mut self) -> ucs_status_ptr_t {
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: `WriteQueue` keeps the UCX endpoint connected.
        unsafe { self.worker.ucx.ucp_ep_flush_nbx(self.endpoint, &params) }
    }

    fn look(&mut self, flush: ucs_status_ptr_t) -> ucs_status_t {
        self.worker.progress();
        status_of(self.worker.ucx, flush)
    }

    fn free(&mut self, flush: ucs_status_ptr_t) {
        if UCS_PTR_IS_PTR(flush) {
            // SAFETY: a request from `begin`, which `Fence` frees once.
            unsafe { self.worker.ucx.ucp_request_free(flush) };
        }
    }

    fn cause(&self, status: ucs_status_t) -> Cause {
        moving(self.worker.ucx, status)
    }
}

/// UCX's callback for [`DOORBELL`], whose only effect is its arrival.
pub(super) unsafe extern "C" fn on_doorbell(
    _argument: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    _data: *mut c_void,
    _len: usize,
    _params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    UCS_OK
}

pub(super) fn locked(queue: &Mutex<WriteQueue>) -> MutexGuard<'_, WriteQueue> {
    // A panic leaves nothing inconsistent: none can occur between two steps that belong together.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
