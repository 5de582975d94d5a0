//! UCX's own active messages, sent as `ucx_perftest -t ucp_am_lat` and `ucp_am_bw` send them. By default the
//! handler counts, as the injected function does.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use farjump_ucx_sys::{
    UCP_AM_RECV_ATTR_FLAG_RNDV, UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_USER_DATA, UCS_ERR_CANCELED,
    UCS_OK, UCS_PTR_IS_ERR, UCS_PTR_STATUS, Ucx, ucp_am_recv_param_t, ucp_ep_h, ucp_request_param_t,
    ucs_status_t,
};

use super::Opening;
use super::context::{Worker, check, no_fields};
use super::requests::Requests;
use crate::perf::experiments::role::Peer;
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// The handling of a message besides counting it.
pub(crate) trait Handler {
    /// Handles a message of `len` bytes.
    ///
    /// # Safety
    /// `data` must be valid for reads and writes of `len` bytes during the call. It may have any alignment.
    unsafe fn came(&self, data: *mut c_void, len: usize);
}

/// A handler that only counts.
pub(crate) struct Counting;

impl Handler for Counting {
    #[inline]
    unsafe fn came(&self, _data: *mut c_void, _len: usize) {}
}

/// A connected endpoint.
pub(crate) struct Messages<H = Counting> {
    endpoint: ucp_ep_h,
    /// The parameters of every message: none.
    params: ucp_request_param_t,
    requests: Requests,
    sent: usize,
    /// The count at the start of the present measurement.
    before: u64,
    // Dropped in this order: the worker uses the others until it is dropped.
    worker: Rc<Worker>,
    inbox: Box<Inbox<H>>,
    payload: &'static [u8],
}

/// The handler's state.
struct Inbox<H> {
    handler: H,
    ucx: &'static Ucx,
    worker: farjump_ucx_sys::ucp_worker_h,
    count: Cell<u64>,
    /// The first error.
    fault: Cell<ucs_status_t>,
    /// Buffer for fetched payloads; each overwrites the last.
    space: *mut u8,
    space_len: usize,
}

impl<H: Handler> Messages<H> {
    /// Connects to the peer; payloads have up to `longest` bytes.
    pub(crate) fn join(
        opening: Opening,
        offer: &Offer,
        longest: usize,
        handler: H,
    ) -> Result<Messages<H>, Failure> {
        Messages::join_for(opening, offer, [longest; 2], handler)
    }

    /// Connects to the peer. Payloads of messages without bytes of their own have up to `sent` bytes, and
    /// those of the peer's messages up to `taken`.
    pub(crate) fn join_for(
        opening: Opening,
        offer: &Offer,
        [sent, taken]: [usize; 2],
        handler: H,
    ) -> Result<Messages<H>, Failure> {
        let Opening { worker, .. } = opening;
        let space = Box::leak(vec![0_u8; taken].into_boxed_slice());
        let inbox = Box::new(Inbox {
            handler,
            ucx: worker.ucx,
            worker: worker.handle,
            count: Cell::new(0),
            fault: Cell::new(UCS_OK),
            space: space.as_mut_ptr(),
            space_len: taken,
        });
        let own: *mut c_void = ptr::from_ref(&*inbox).cast_mut().cast();
        // SAFETY: the handler expects an inbox, whose box outlives the worker, and only reads through it.
        unsafe { worker.on_message(Some(came::<H>), own) }?;
        let endpoint = worker.connect(&offer.worker)?;
        let (params, requests) = (no_fields(), Requests::new(worker.ucx));
        let payload = vec![7; sent].leak();
        Ok(Messages { endpoint, params, requests, payload, sent: 0, before: 0, worker, inbox })
    }

    pub(crate) fn handler(&self) -> &H {
        &self.inbox.handler
    }

    pub(crate) fn begin(&mut self) {
        self.before = self.inbox.count.get();
    }

    /// Sends these bytes.
    ///
    /// # Safety
    /// They must stay unchanged until [`Messages::is_sent`], or to the end of the process.
    #[inline]
    pub(crate) unsafe fn send_bytes(&mut self, bytes: &[u8], watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the UCX endpoint is connected; the parameters live as long as `self` and its worker, which
        // reads them. The caller keeps the bytes unchanged.
        let returned = unsafe { self.worker.send_message(self.endpoint, bytes, &self.params) };
        self.requests.take(returned, &self.worker, watch)
    }

    /// Waits until UCX no longer needs the sent bytes.
    #[inline]
    pub(crate) fn is_sent(&mut self, watch: &Watch) -> Result<(), Failure> {
        if self.requests.is_empty() { Ok(()) } else { self.requests.wait(0, &self.worker, watch) }
    }
}

impl<H: Handler> Peer for Messages<H> {
    fn prepare(&mut self, sent: usize, _taken: usize, _streams: bool) {
        self.sent = sent;
        self.begin();
    }

    #[inline]
    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        let payload = self.payload;
        // SAFETY: the payload is static and never changes.
        unsafe { self.send_bytes(&payload[..self.sent], watch) }
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        self.worker.progress();
        match self.inbox.fault.get() {
            UCS_OK => Ok(self.came()),
            status => check(self.worker.ucx, "did not fetch a message", status).map(|()| 0),
        }
    }

    #[inline]
    fn came(&self) -> u64 {
        self.inbox.count.get() - self.before
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.requests.wait(0, &self.worker, watch)
    }

    fn lanes(&self) -> Option<String> {
        self.worker.lanes(self.endpoint)
    }
}

impl<H: Handler> Inbox<H> {
    /// # Safety
    /// The conditions of [`Handler::came`].
    #[inline]
    unsafe fn add(&self, data: *mut c_void, len: usize) {
        // SAFETY: the caller keeps the contract of `came`.
        unsafe { self.handler.came(data, len) };
        self.count.set(self.count.get() + 1);
    }
}

/// Counts a message, at once or when it has been fetched.
unsafe extern "C" fn came<H: Handler>(
    inbox: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: `join` set this handler with an inbox, which outlives the worker that calls it. The parameters
    // are valid during the call.
    let (own, param) = unsafe { (&*inbox.cast::<Inbox<H>>(), &*param) };
    if param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 {
        // SAFETY: UCX keeps the bytes valid during the call, for reads and writes.
        unsafe { own.add(data, len) };
        return UCS_OK;
    }
    if len > own.space_len {
        own.fault.set(UCS_ERR_CANCELED);
        return UCS_OK;
    }
    let mut params = no_fields();
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb.recv_am = Some(fetched::<H>);
    params.user_data = inbox;
    // SAFETY: `space` has space for `len` bytes, unused until they are fetched; UCX has just announced
    // `data`.
    let returned = unsafe { own.ucx.ucp_am_recv_data_nbx(own.worker, data, own.space.cast(), len, &params) };
    if returned.is_null() {
        // SAFETY: the bytes are now in `space`, which this value owns.
        unsafe { own.add(own.space.cast(), len) };
    } else if UCS_PTR_IS_ERR(returned) {
        own.fault.set(UCS_PTR_STATUS(returned));
    }
    UCS_OK
}

unsafe extern "C" fn fetched<H: Handler>(
    request: *mut c_void,
    status: ucs_status_t,
    len: usize,
    inbox: *mut c_void,
) {
    // SAFETY: `came` passed the inbox along, and its condition holds here too.
    let own = unsafe { &*inbox.cast::<Inbox<H>>() };
    match status {
        // SAFETY: the bytes are now in `space`, which this value owns.
        UCS_OK => unsafe { own.add(own.space.cast(), len) },
        // The worker is being destroyed.
        UCS_ERR_CANCELED => {}
        status => own.fault.set(status),
    }
    // SAFETY: the request has completed, and UCX passed it only here.
    unsafe { own.ucx.ucp_request_free(request) };
}

impl<H> Drop for Inbox<H> {
    fn drop(&mut self) {
        // SAFETY: `space` comes from the box that `join` leaked; the worker, which wrote there, is destroyed.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.space, self.space_len)) });
    }
}
