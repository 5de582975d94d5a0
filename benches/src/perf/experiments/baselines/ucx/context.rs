//! A context and its one worker: the UCX objects of a baseline.

use std::ffi::{CStr, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

use farjump_transports::ucx::transports_of;
use farjump_ucx_sys::{
    UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_HANDLER_PARAM_FIELD_CB, UCP_AM_HANDLER_PARAM_FIELD_ID,
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_PARAM_FIELD_FEATURES, UCP_WORKER_PARAM_FIELD_THREAD_MODE,
    UCS_ERR_UNREACHABLE, UCS_OK, UCS_THREAD_MODE_SINGLE, Ucx, ucp_am_handler_param_t, ucp_am_recv_callback_t,
    ucp_context_h, ucp_ep_h, ucp_ep_params_t, ucp_feature, ucp_params_t, ucp_request_param_t, ucp_worker_h,
    ucp_worker_params_t, ucs_status_ptr_t, ucs_status_t,
};

use crate::perf::process::ports;
use crate::program::failure::Failure;

/// The id of all active messages.
const ID: c_uint = 1;

/// A worker, in a context of its own.
pub(crate) struct Worker {
    pub(crate) ucx: &'static Ucx,
    pub(crate) context: ucp_context_h,
    pub(crate) handle: ucp_worker_h,
}

impl Worker {
    /// Creates a worker with this feature alone, for one thread. The environment names transports; TCP is on loopback
    /// alone.
    pub(crate) fn create(feature: ucp_feature) -> Result<Worker, Failure> {
        let settings = ports::settings().to_pairs();
        let settings: Vec<_> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        Worker::create_with(feature, &settings)
    }

    /// Creates such a worker, with these settings in place of the environment's.
    pub(crate) fn create_with(feature: ucp_feature, settings: &[(&CStr, &CStr)]) -> Result<Worker, Failure> {
        let ucx = Ucx::open().map_err(|error| Failure::new(error.to_string()))?;
        let mut config = ptr::null_mut();
        // SAFETY: without a prefix and a file UCX reads the environment alone; `config` has space for the
        // result.
        let status = unsafe { ucx.ucp_config_read(ptr::null(), ptr::null(), &mut config) };
        check(ucx, "does not understand its settings", status)?;
        for (name, value) in settings {
            // SAFETY: `config` was made above; UCX copies both strings.
            let status = unsafe { ucx.ucp_config_modify(config, name.as_ptr(), value.as_ptr()) };
            if status != UCS_OK {
                // SAFETY: `config` was made above, and is not used again.
                unsafe { ucx.ucp_config_release(config) };
                return Err(failed(ucx, "does not take its settings", status));
            }
        }
        // SAFETY: UCX reads only the fields of the mask; all others are numbers and pointers, for which 0 is
        // valid.
        let mut params: ucp_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_PARAM_FIELD_FEATURES);
        params.features = u64::from(feature);
        let mut context = ptr::null_mut();
        // SAFETY: all three pointers are valid, and `config` was made above.
        let status = unsafe { ucx.ucp_init(&params, config, &mut context) };
        // SAFETY: `config` was made above, and is not used again.
        unsafe { ucx.ucp_config_release(config) };
        check(ucx, "cannot be used here", status)?;
        // SAFETY: UCX reads only the fields of the mask; all others are numbers and pointers, for which 0 is
        // valid.
        let mut params: ucp_worker_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE);
        params.thread_mode = UCS_THREAD_MODE_SINGLE;
        let mut handle = ptr::null_mut();
        // SAFETY: `context` was made above, and `handle` has space for the result.
        let status = unsafe { ucx.ucp_worker_create(context, &params, &mut handle) };
        if status != UCS_OK {
            // SAFETY: `context` was made above, and has no worker.
            unsafe { ucx.ucp_cleanup(context) };
            return Err(failed(ucx, "makes no worker", status));
        }
        Ok(Worker { ucx, context, handle })
    }

    /// Returns the address by which other workers reach this one.
    pub(crate) fn address(&self) -> Result<Vec<u8>, Failure> {
        let (mut start, mut len) = (ptr::null_mut(), 0);
        // SAFETY: `self` keeps the worker alive, and both variables have space for the result.
        let status = unsafe { self.ucx.ucp_worker_get_address(self.handle, &mut start, &mut len) };
        check(self.ucx, "returns no address", status)?;
        // SAFETY: UCX has just written `len` bytes there, and keeps them until they are released.
        let bytes = unsafe { slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec();
        // SAFETY: `start` comes from this worker, and is not used again.
        unsafe { self.ucx.ucp_worker_release_address(self.handle, start) };
        Ok(bytes)
    }

    /// Connects to the worker with this address, which the same UCX made in the other process. The UCX
    /// endpoint lives as long as this worker.
    pub(crate) fn connect(&self, address: &[u8]) -> Result<ucp_ep_h, Failure> {
        // SAFETY: UCX reads only the fields of the mask; all others are numbers and pointers, for which 0 is
        // valid.
        let mut params: ucp_ep_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
        params.address = address.as_ptr().cast();
        let mut end = ptr::null_mut();
        // SAFETY: `self` keeps the worker alive, and the same UCX made the address in the other process.
        match unsafe { self.ucx.ucp_ep_create(self.handle, &params, &mut end) } {
            UCS_ERR_UNREACHABLE => Err(Failure::new(
                "UCX has no transport by which the two processes reach each other: see the variable UCX_TLS",
            )),
            status => check(self.ucx, "reaches no peer", status).map(|()| end),
        }
    }

    /// Names the UCX transports to the peer of `end`, each once, in order: `posix`, or `tcp, self`.
    pub(crate) fn lanes(&self, end: ucp_ep_h) -> Option<String> {
        // SAFETY: `end` is an endpoint of this worker, which is used by one thread.
        let names = unsafe { transports_of(self.ucx, end) };
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Sets the handler of active messages.
    ///
    /// # Safety
    /// `handler` accepts `argument`, which stays valid as long as this worker.
    pub(crate) unsafe fn on_message(
        &self,
        handler: ucp_am_recv_callback_t,
        argument: *mut c_void,
    ) -> Result<(), Failure> {
        let fields =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        let params = ucp_am_handler_param_t {
            field_mask: u64::from(fields),
            id: ID,
            flags: 0,
            cb: handler,
            arg: argument,
        };
        // SAFETY: `self` keeps the worker alive, and the caller vouches for handler and argument.
        let status = unsafe { self.ucx.ucp_worker_set_am_recv_handler(self.handle, &params) };
        check(self.ucx, "takes no active messages", status)
    }

    /// Begins to send an active message.
    ///
    /// # Safety
    /// `end` is a UCX endpoint of this worker. `bytes` stay unchanged, and `params` valid, until the request
    /// has completed.
    #[inline]
    pub(crate) unsafe fn send_message(
        &self,
        end: ucp_ep_h,
        bytes: &[u8],
        params: &ucp_request_param_t,
    ) -> ucs_status_ptr_t {
        // SAFETY: `self` keeps the worker alive, and the caller vouches for the rest.
        unsafe {
            self.ucx.ucp_am_send_nbx(end, ID, ptr::null(), 0, bytes.as_ptr().cast(), bytes.len(), params)
        }
    }

    #[inline]
    pub(crate) fn progress(&self) {
        // SAFETY: `self` keeps the worker alive, and no callback calls this.
        unsafe { self.ucx.ucp_worker_progress(self.handle) };
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: `create` made both; all objects of the worker are dropped before it.
        unsafe {
            self.ucx.ucp_worker_destroy(self.handle);
            self.ucx.ucp_cleanup(self.context);
        }
    }
}

/// Returns parameters of a request without any field.
pub(crate) fn no_fields() -> ucp_request_param_t {
    // SAFETY: UCX reads only the fields of the mask; all others are numbers and pointers, for which 0 is
    // valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Turns a bad status into a failure.
pub(crate) fn check(ucx: &Ucx, what: &str, status: ucs_status_t) -> Result<(), Failure> {
    match status {
        UCS_OK => Ok(()),
        status => Err(failed(ucx, what, status)),
    }
}

#[cold]
fn failed(ucx: &Ucx, what: &str, status: ucs_status_t) -> Failure {
    // SAFETY: UCX has a static text for every number.
    let words = unsafe { CStr::from_ptr(ucx.ucs_status_string(status)) };
    Failure::new(format!("UCX {} {what}: {}", ucx.version(), words.to_string_lossy()))
}
