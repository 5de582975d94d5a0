//! A worker of UCX: sends and receives for one endpoint, with its own sockets and memory.

use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::slice;
use std::time::{Duration, Instant};

use farjump_core::frame::LINE;
use farjump_core::transport::Cause;
use farjump_os::limits;
use farjump_ucx_sys::{
    UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_HANDLER_PARAM_FIELD_CB, UCP_AM_HANDLER_PARAM_FIELD_ID,
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
    UCP_WORKER_PARAM_FIELD_THREAD_MODE, UCS_ERR_BUSY, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY,
    UCS_ERR_NO_RESOURCE, UCS_ERR_UNREACHABLE, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, UCS_PTR_STATUS,
    UCS_THREAD_MODE_SERIALIZED, Ucx, ucp_am_handler_param_t, ucp_am_recv_callback_t, ucp_ep_h,
    ucp_ep_params_t, ucp_request_param_t, ucp_worker_h, ucp_worker_params_t, ucs_status_t,
};

use super::context::Context;
use super::words;

/// Time in which a dropped endpoint may send messages that UCX has taken. A live peer takes them in far less.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_millis(20);
/// Attempts to sleep before a nap: UCX refuses until it has seen all wake-ups, usually once a message.
pub(super) const TURNS: u32 = 16;

/// Free descriptors without which UCX may fail an assertion while it makes a worker: without memory events its thread
/// starts behind the worker's own, and the two take ten (1.13.1).
const OF_A_WORKER: usize = 14;

/// Free descriptors below which an error attributes UCX's failure to reach a peer to their lack.
const OF_AN_ENDPOINT: usize = 8;

/// A worker of this process's context. Used by one thread at a time.
pub(super) struct Worker {
    pub(super) ucx: &'static Ucx,
    pub(super) handle: ucp_worker_h,
}

// SAFETY: made with `UCS_THREAD_MODE_SERIALIZED`: any thread may use the worker, one at a time, and `Worker` is not
// `Sync`.
unsafe impl Send for Worker {}

impl Worker {
    pub(super) fn create(context: &'static Context) -> Result<Worker, Cause> {
        let ucx = context.ucx;
        if let Some(limit) = limits::lack_of_descriptors(OF_A_WORKER) {
            return Err(Cause::System(format!("UCX makes no worker: {limit}")));
        }
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_worker_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask =
            u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT);
        params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
        params.am_alignment = LINE;
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives as long as the process, and `handle` is a local for the result.
        let status = unsafe { ucx.ucp_worker_create(context.handle, &params, &mut handle) };
        match status {
            UCS_OK => Ok(Worker { ucx, handle }),
            status => Err(no_worker(ucx, status)),
        }
    }

    /// Returns the address by which other workers reach it.
    pub(super) fn address(&self) -> Result<Vec<u8>, Cause> {
        let (mut start, mut len) = (ptr::null_mut(), 0);
        // SAFETY: `self` owns the handle, and both pointers are to locals.
        let status = unsafe { self.ucx.ucp_worker_get_address(self.handle, &mut start, &mut len) };
        if status != UCS_OK {
            return Err(system(self.ucx, "returns no address", status));
        }
        // SAFETY: UCX has just written `len` bytes there, and keeps them until they are released.
        let bytes = unsafe { slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec();
        // SAFETY: from this worker, and not used again.
        unsafe { self.ucx.ucp_worker_release_address(self.handle, start) };
        Ok(bytes)
    }

    /// Returns the descriptor that becomes readable when an armed worker has work. It is open as long as the
    /// worker.
    pub(super) fn descriptor(&self) -> Result<RawFd, Cause> {
        let mut descriptor = -1;
        // SAFETY: `self` owns the handle, and `descriptor` is a local for the number.
        match unsafe { self.ucx.ucp_worker_get_efd(self.handle, &mut descriptor) } {
            UCS_OK => Ok(descriptor),
            status => Err(system(self.ucx, "has nothing to sleep on", status)),
        }
    }

    /// Makes [`Worker::progress`] call `callback` with `argument` for each message `id`. The callback may keep data
    /// that UCX permits to keep.
    ///
    /// # Safety
    /// `argument` is valid for `callback` until the worker is gone.
    pub(super) unsafe fn handle(
        &self,
        id: c_uint,
        callback: ucp_am_recv_callback_t,
        argument: *mut c_void,
    ) -> Result<(), Cause> {
        let params = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id,
            flags: 0,
            cb: callback,
            arg: argument,
        };
        // SAFETY: `self` owns the handle; the caller guarantees callback and argument.
        match unsafe { self.ucx.ucp_worker_set_am_recv_handler(self.handle, &params) } {
            UCS_OK => Ok(()),
            status => Err(system(self.ucx, "takes no active messages", status)),
        }
    }

    /// Makes a UCX endpoint that sends to the worker with this address; if UCX has no lane, `unreachable` explains
    /// that. Does not wait: a missing peer is detected later.
    pub(super) fn connect(
        &self,
        address: &[u8],
        unreachable: impl FnOnce() -> String,
    ) -> Result<ucp_ep_h, Cause> {
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_ep_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
        params.address = address.as_ptr().cast();
        let mut end = ptr::null_mut();
        // SAFETY: `self` owns the handle, and UCX of this version made the address (`super::address`).
        match unsafe { self.ucx.ucp_ep_create(self.handle, &params, &mut end) } {
            UCS_OK => Ok(end),
            UCS_ERR_UNREACHABLE => Err(Cause::System(unreachable())),
            status => Err(system(self.ucx, "reaches no peer", status)),
        }
    }

    /// Closes a UCX endpoint of this worker, after sending the messages that it has taken, for at most
    /// `CLOSE_TIMEOUT`.
    ///
    /// # Safety
    /// The UCX endpoint is not used again.
    pub(super) unsafe fn close(&self, endpoint: ucp_ep_h) {
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the UCX endpoint is this worker's, and the caller does not use it again.
        let closing = unsafe { self.ucx.ucp_ep_close_nbx(endpoint, &params) };
        let began = Instant::now();
        while status_of(self.ucx, closing) == UCS_INPROGRESS && began.elapsed() < CLOSE_TIMEOUT {
            self.progress();
        }
        if UCS_PTR_IS_PTR(closing) {
            // SAFETY: the request was not freed before. If it continues, it ends with the worker.
            unsafe { self.ucx.ucp_request_free(closing) };
        }
    }

    /// Progresses UCX. Returns whether anything moved. Callbacks run only in this call.
    #[inline]
    pub(super) fn progress(&self) -> bool {
        // SAFETY: `self` owns the handle, and no callback calls this.
        unsafe { self.ucx.ucp_worker_progress(self.handle) != 0 }
    }

    /// Flushes all endpoints. Returns UCX's result: a request, which the caller frees, or a status.
    pub(super) fn flush(&self) -> *mut c_void {
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: `self` owns the handle, and UCX reads the parameters only during the call.
        unsafe { self.ucx.ucp_worker_flush_nbx(self.handle, &params) }
    }

    /// Arms the descriptor to become readable at the next event; `false` if one has already occurred.
    pub(super) fn arm(&self) -> Result<bool, Cause> {
        // SAFETY: `self` owns the handle, and its context has `UCP_FEATURE_WAKEUP`.
        match unsafe { self.ucx.ucp_worker_arm(self.handle) } {
            UCS_OK => Ok(true),
            UCS_ERR_BUSY => Ok(false),
            status => Err(system(self.ucx, "cannot be slept on", status)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: made by `create`; the owner has kept no request or data.
        unsafe { self.ucx.ucp_worker_destroy(self.handle) };
    }
}

/// Returns the status of a request from UCX's result `returned`.
pub(super) fn status_of(ucx: &Ucx, returned: *mut c_void) -> ucs_status_t {
    if UCS_PTR_IS_PTR(returned) {
        // SAFETY: the request was not freed before.
        unsafe { ucx.ucp_request_check_status(returned) }
    } else {
        UCS_PTR_STATUS(returned)
    }
}

/// Returns the cause for a worker that UCX could not make. UCX reports many shortages alike, so this checks the
/// process's limits first. The statuses are UCX's for a full /dev/shm, and for a value that one of its devices does not
/// accept.
fn no_worker(ucx: &Ucx, status: ucs_status_t) -> Cause {
    let shortage = limits::shortage().map(|limit| format!(": {limit}"));
    let mend = match status {
        UCS_ERR_INVALID_PARAM => ": mend the variable of UCX's that its log names",
        _ if shortage.is_some() => shortage.as_deref().unwrap_or_default(),
        UCS_ERR_NO_MEMORY | UCS_ERR_NO_RESOURCE => {
            ": is /dev/shm full? Each link takes about 1 MiB of it in either process; free some, or exclude it by UCX_TLS=^posix"
        }
        _ => "",
    };
    Cause::System(format!("UCX makes no worker: {}{mend}", words(ucx, status)))
}

fn system(ucx: &Ucx, what: &str, status: ucs_status_t) -> Cause {
    let limit = limits::lack_of_descriptors(OF_AN_ENDPOINT).map(|limit| format!(": {limit}"));
    Cause::System(format!("UCX {what}: {}{}", words(ucx, status), limit.unwrap_or_default()))
}
