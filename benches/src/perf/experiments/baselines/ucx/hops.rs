//! A worker that takes active messages and sends others to several workers, also from within its handler.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;

use farjump_ucx_sys::{
    UCP_AM_RECV_ATTR_FLAG_RNDV, UCP_FEATURE_AM, UCS_ERR_CANCELED, UCS_OK, ucp_am_recv_param_t, ucp_ep_h,
    ucp_request_param_t, ucs_status_t,
};

use super::context::{Worker, check, no_fields};
use super::requests::Requests;
use crate::program::failure::Failure;

/// Longest message in bytes.
const LONGEST: usize = 64;

/// The handling of a message.
pub(crate) trait Hop {
    /// Handles a message of `len` bytes, and may send others by `post`.
    ///
    /// # Safety
    /// `data` must be valid for reads of `len` bytes during the call. It may have any alignment.
    unsafe fn came(&self, data: *mut c_void, len: usize, post: &Post);
}

/// The sending side.
pub(crate) struct Post {
    worker: Worker,
    endpoints: RefCell<Vec<ucp_ep_h>>,
    /// The parameters of every message: none.
    params: ucp_request_param_t,
    requests: RefCell<Requests>,
    /// A buffer for each slot. They are leaked, as everything that UCX reads.
    slots: *mut [u8; LONGEST],
    count: usize,
    /// The first error in the handler.
    fault: Cell<ucs_status_t>,
    handled: Cell<u64>,
}

impl Post {
    /// Sends bytes to the worker with this number among those connected.
    ///
    /// At most one message of each `slot` may be on its way at a time.
    #[inline]
    pub(crate) fn send(&self, to: usize, slot: usize, bytes: &[u8]) -> Result<(), Failure> {
        assert!(slot < self.count && bytes.len() <= LONGEST);
        let end = self.endpoints.borrow()[to];
        // SAFETY: the assertion keeps both within the slot's buffer. The slot's last message has come, so UCX
        // no longer reads that.
        let bytes = unsafe {
            let buffer = self.slots.add(slot).cast::<u8>();
            ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len());
            std::slice::from_raw_parts(buffer, bytes.len())
        };
        // SAFETY: the endpoint is of this worker; buffer and parameters outlive the worker's requests.
        let returned = unsafe { self.worker.send_message(end, bytes, &self.params) };
        if returned.is_null() { Ok(()) } else { self.requests.borrow_mut().hold(returned) }
    }

    /// Notes an error of the handler.
    pub(crate) fn fail(&self) {
        self.fault.set(UCS_ERR_CANCELED);
    }
}

/// The worker.
pub(crate) struct Hopper<H> {
    // Dropped in this order: UCX calls the handler until the worker is destroyed.
    post: Box<Post>,
    inbox: Box<Inbox<H>>,
}

/// The handler's state.
struct Inbox<H> {
    handler: H,
    post: *const Post,
}

impl<H: Hop> Hopper<H> {
    /// Creates a worker whose messages have so many slots.
    pub(crate) fn create(slots: usize, handler: H) -> Result<Hopper<H>, Failure> {
        let worker = Worker::create(UCP_FEATURE_AM)?;
        let requests = RefCell::new(Requests::new(worker.ucx));
        let post = Box::new(Post {
            requests,
            worker,
            endpoints: RefCell::default(),
            params: no_fields(),
            slots: vec![[0; LONGEST]; slots].leak().as_mut_ptr(),
            count: slots,
            fault: Cell::new(UCS_OK),
            handled: Cell::new(0),
        });
        let inbox = Box::new(Inbox { handler, post: &raw const *post });
        let own: *mut c_void = ptr::from_ref(&*inbox).cast_mut().cast();
        // SAFETY: the handler expects an inbox, whose box outlives the worker, and only reads through it.
        unsafe { post.worker.on_message(Some(came::<H>), own) }?;
        Ok(Hopper { post, inbox })
    }

    pub(crate) fn address(&self) -> Result<Vec<u8>, Failure> {
        self.post.worker.address()
    }

    /// Connects to these workers, which have the numbers in this order.
    pub(crate) fn connect(&self, addresses: &[Vec<u8>]) -> Result<(), Failure> {
        let endpoints = addresses.iter().map(|address| self.post.worker.connect(address));
        *self.post.endpoints.borrow_mut() = endpoints.collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(crate) fn post(&self) -> &Post {
        &self.post
    }

    pub(crate) fn handler(&self) -> &H {
        &self.inbox.handler
    }

    /// Handles what has come.
    #[inline]
    pub(crate) fn progress(&self) -> Result<(), Failure> {
        let Post { worker, requests, fault, .. } = &*self.post;
        worker.progress();
        if !requests.borrow().is_empty() {
            requests.borrow_mut().retire()?;
        }
        match fault.get() {
            UCS_OK => Ok(()),
            status => check(worker.ucx, "did not handle a message", status),
        }
    }

    /// Returns the number of messages that were handled.
    pub(crate) fn handled(&self) -> u64 {
        self.post.handled.get()
    }

    /// Names the transports to the first connected worker.
    pub(crate) fn lanes(&self) -> Option<String> {
        let end = *self.post.endpoints.borrow().first()?;
        self.post.worker.lanes(end)
    }
}

unsafe extern "C" fn came<H: Hop>(
    inbox: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: `create` set this handler with an inbox, which outlives the worker that calls it, as does its
    // post. The parameters are valid during the call.
    let (own, param) = unsafe { (&*inbox.cast::<Inbox<H>>(), &*param) };
    // SAFETY: as above.
    let post = unsafe { &*own.post };
    if param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 {
        // Messages of so few bytes are not announced.
        post.fail();
        return UCS_OK;
    }
    post.handled.set(post.handled.get() + 1);
    // SAFETY: UCX keeps the bytes valid during the call.
    unsafe { own.handler.came(data, len, post) };
    UCS_OK
}
