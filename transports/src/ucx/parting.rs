//! Ends that were dropped before UCX has set the path to their peer up.
//!
//! A worker that ends while that goes on aborts the process (UCX 1.13, over TCP: `ucp_request_send_state_ff`). It goes on for
//! long only where the peer has met this side and then stands still. Such ends stay here until UCX has closed them, which is looked
//! at whenever another end is opened or dropped.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use farjump_ucx_sys::{UCS_INPROGRESS, UCS_PTR_IS_PTR};

use super::am::Sending;
use super::buffer::Buffer;
use super::station::Station;
use super::worker::status_of;

/// An end that is being closed, and all that UCX may still read.
pub(super) struct Parting {
    /// What closing it, and what was sent beside frames, returned.
    pub(super) requests: [*mut c_void; 2],
    /// Dropped before the buffers below, which its worker may read until it is gone.
    pub(super) station: Station,
    pub(super) sending: VecDeque<Sending>,
    pub(super) _note: Buffer,
}

// SAFETY: requests belong to the station's worker, which may move between threads and is owned here.
unsafe impl Send for Parting {}

impl Parting {
    /// Whether UCX has closed it.
    pub(super) fn is_over(&self) -> bool {
        status_of(self.station.inbox().worker().ucx, self.requests[0]) != UCS_INPROGRESS
    }

    /// Lets UCX work. Returns whether it has closed the end.
    pub(super) fn progress(&self) -> bool {
        self.station.inbox().worker().progress();
        self.is_over()
    }

    /// Whether the path to the peer may still be being set up: nothing has come by it.
    pub(super) fn is_new(&self) -> bool {
        !self.station.inbox().has_heard()
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        let ucx = self.station.inbox().worker().ucx;
        let requests = self.sending.iter().map(|sending| sending.request).chain(self.requests);
        for request in requests.filter(|request| UCS_PTR_IS_PTR(*request)) {
            // SAFETY: a request that was not freed. What it reads lives longer than the worker (`Parting::station`).
            unsafe { ucx.ucp_request_free(request) };
        }
    }
}

static KEPT: Mutex<Vec<Parting>> = Mutex::new(Vec::new());

/// Keeps an end until UCX has closed it.
pub(super) fn keep(parting: Parting) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(parting);
}

/// Drops those that UCX has closed meanwhile.
pub(super) fn tend() {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).retain(|parting| !parting.progress());
}
