//! UCX's pending requests.

use std::collections::VecDeque;
use std::ffi::c_void;

use farjump_ucx_sys::{UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, UCS_PTR_STATUS, Ucx, ucs_status_ptr_t};

use super::context::{Worker, check};
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// Most pending requests.
const LIMIT: usize = 64;

/// Requests, the oldest first.
pub(crate) struct Requests {
    ucx: &'static Ucx,
    pending: VecDeque<*mut c_void>,
}

impl Requests {
    pub(crate) fn new(ucx: &'static Ucx) -> Requests {
        Requests { ucx, pending: VecDeque::with_capacity(LIMIT) }
    }

    /// Takes the result of a UCX call: an error, done or pending. Waits while there are too many.
    #[inline]
    pub(crate) fn take(
        &mut self,
        returned: ucs_status_ptr_t,
        worker: &Worker,
        watch: &Watch,
    ) -> Result<(), Failure> {
        if returned.is_null() { Ok(()) } else { self.keep(returned, worker, watch) }
    }

    fn keep(&mut self, returned: ucs_status_ptr_t, worker: &Worker, watch: &Watch) -> Result<(), Failure> {
        self.hold(returned)?;
        self.wait(LIMIT - 1, worker, watch)
    }

    /// Waits until at most `most` are pending.
    pub(crate) fn wait(&mut self, most: usize, worker: &Worker, watch: &Watch) -> Result<(), Failure> {
        self.retire()?;
        if self.pending.len() <= most {
            return Ok(());
        }
        watch.until(|| {
            worker.progress();
            self.retire()?;
            Ok(self.pending.len() <= most)
        })
    }

    /// Takes the result of a UCX call without waiting.
    pub(crate) fn hold(&mut self, returned: ucs_status_ptr_t) -> Result<(), Failure> {
        match returned.is_null() {
            true => Ok(()),
            false if UCS_PTR_IS_PTR(returned) => {
                self.pending.push_back(returned);
                Ok(())
            }
            false => check(self.ucx, "does not send", UCS_PTR_STATUS(returned)),
        }
    }

    /// Frees completed requests.
    pub(crate) fn retire(&mut self) -> Result<(), Failure> {
        while let Some(oldest) = self.pending.front() {
            // SAFETY: `pending` holds only requests that have not been freed.
            let status = unsafe { self.ucx.ucp_request_check_status(*oldest) };
            if status == UCS_INPROGRESS {
                break;
            }
            // SAFETY: as above; the next line forgets the request.
            unsafe { self.ucx.ucp_request_free(*oldest) };
            self.pending.pop_front();
            if status != UCS_OK {
                return check(self.ucx, "did not send", status);
            }
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        for request in self.pending.drain(..) {
            // SAFETY: `pending` holds only unfreed requests. UCX frees incomplete ones on completion.
            unsafe { self.ucx.ucp_request_free(request) };
        }
    }
}
