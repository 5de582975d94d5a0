//! Endpoints that were dropped before UCX has set up the path to their peer.
//!
//! A worker that ends during that setup aborts the process (UCX 1.13, over TCP: `ucp_request_send_state_ff`).
//! The setup takes long only if the peer has finished the handshake and then stands still. Such endpoints
//! stay here until UCX has closed them, which is checked whenever another endpoint is opened or dropped.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use farjump_ucx_sys::{UCS_INPROGRESS, UCS_PTR_IS_PTR};

use super::Sending;
use super::buffers::Buffer;
use super::worker::AmWorker;
use crate::ucx::worker::status_of;

/// An endpoint that is being closed, and everything that UCX may still read.
pub(super) struct Closing {
    /// Requests of the close, and of the last message beside the frames.
    pub(super) requests: [*mut c_void; 2],
    /// Dropped before the buffers below, which its worker may read until it is gone.
    pub(super) worker: AmWorker,
    pub(super) sending: VecDeque<Sending>,
    pub(super) _note: Buffer,
}

// SAFETY: the requests belong to the UCX worker, which is `Send` and owned here.
unsafe impl Send for Closing {}

impl Closing {
    /// Returns whether UCX has closed it.
    pub(super) fn is_over(&self) -> bool {
        status_of(self.worker.inbox().worker().ucx, self.requests[0]) != UCS_INPROGRESS
    }

    /// Progresses UCX. Returns whether it has closed the endpoint.
    pub(super) fn progress(&self) -> bool {
        self.worker.inbox().worker().progress();
        self.is_over()
    }

    /// Returns whether the path to the peer may still be in setup: nothing has come by it.
    pub(super) fn is_new(&self) -> bool {
        !self.worker.inbox().has_heard()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let ucx = self.worker.inbox().worker().ucx;
        let requests = self.sending.iter().map(|sending| sending.request).chain(self.requests);
        for request in requests.filter(|request| UCS_PTR_IS_PTR(*request)) {
            // SAFETY: not freed before. The data that it reads outlives the worker (`Closing::worker`).
            unsafe { ucx.ucp_request_free(request) };
        }
    }
}

static KEPT: Mutex<Vec<Closing>> = Mutex::new(Vec::new());

/// Keeps an endpoint until UCX has closed it.
pub(super) fn keep(parting: Closing) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(parting);
}

/// Drops the endpoints that UCX has closed meanwhile.
pub(super) fn tend() {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).retain(|parting| !parting.progress());
}
