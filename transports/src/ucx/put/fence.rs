//! A fence that is a flush of the UCX endpoint.
//!
//! With the newer protocols (UCX 1.16 and later) `ucp_worker_fence` is a flush that reads from the peer's
//! device. UCX waits for it without a timeout, and it fails on devices without such a flush (`rc_verbs`
//! without Mellanox's extensions). A flush of the UCX endpoint works on all of them, and can be polled.

use std::mem;
use std::ptr;

use farjump_core::transport::Cause;
use farjump_ucx_sys::{UCS_INPROGRESS, UCS_OK, Version, ucs_status_ptr_t, ucs_status_t};

/// Returns whether `ucp_worker_fence` of this UCX waits for the peer's device.
pub(super) fn waits(version: Version) -> bool {
    (version.major, version.minor) >= (1, 16)
}

/// Flushes of one UCX endpoint.
pub(super) trait Flushes {
    /// Begins a flush, and returns UCX's result: a request, or a status.
    fn begin(&mut self) -> ucs_status_ptr_t;
    /// Progresses UCX, and returns the status of `flush`, which [`Flushes::begin`] returned.
    fn look(&mut self, flush: ucs_status_ptr_t) -> ucs_status_t;
    /// Frees `flush`, which has ended, if it is a request.
    fn free(&mut self, flush: ucs_status_ptr_t);
    /// Returns the cause of a failure with this status.
    fn cause(&self, status: ucs_status_t) -> Cause;
}

/// State of a UCX endpoint's fence.
pub(super) struct Fence {
    /// The request of a flush that has not ended.
    flush: ucs_status_ptr_t,
    /// True if there were puts since the last flush began.
    is_dirty: bool,
}

impl Fence {
    /// Makes the fence of a UCX endpoint without puts.
    pub(super) const fn new() -> Fence {
        Fence { flush: ptr::null_mut(), is_dirty: false }
    }

    /// Records a put.
    pub(super) fn note_put(&mut self) {
        self.is_dirty = true;
    }

    /// Returns the request of the flush under way, or null. The caller frees it after this value's last use.
    pub(super) fn request(&self) -> ucs_status_ptr_t {
        self.flush
    }

    /// Returns whether all puts have landed, after up to `turns` polls. `false`: call again.
    ///
    /// # Errors
    /// UCX failed.
    pub(super) fn is_passed(&mut self, ucx: &mut impl Flushes, turns: u32) -> Result<bool, Cause> {
        for _ in 0..turns {
            if self.flush.is_null() {
                if !self.is_dirty {
                    return Ok(true);
                }
                // A flush covers puts before its start. Puts while it is under way need another one.
                self.is_dirty = false;
                self.flush = ucx.begin();
            }
            let status = ucx.look(self.flush);
            if status != UCS_INPROGRESS {
                ucx.free(mem::replace(&mut self.flush, ptr::null_mut()));
                if status != UCS_OK {
                    self.is_dirty = true;
                    return Err(ucx.cause(status));
                }
            }
        }
        Ok(self.flush.is_null() && !self.is_dirty)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use farjump_ucx_sys::{UCS_ERR_IO_ERROR, UCS_ERR_UNREACHABLE};

    use super::*;

    /// Flushes with results scripted by a test.
    #[derive(Default)]
    struct Scripted {
        begun: u32,
        freed: u32,
        /// The results of polls, then `UCS_INPROGRESS`.
        outcomes: VecDeque<ucs_status_t>,
    }

    impl Flushes for Scripted {
        fn begin(&mut self) -> ucs_status_ptr_t {
            self.begun += 1;
            ptr::without_provenance_mut(64)
        }

        fn look(&mut self, _: ucs_status_ptr_t) -> ucs_status_t {
            self.outcomes.pop_front().unwrap_or(UCS_INPROGRESS)
        }

        fn free(&mut self, _: ucs_status_ptr_t) {
            self.freed += 1;
        }

        fn cause(&self, status: ucs_status_t) -> Cause {
            Cause::System(status.to_string())
        }
    }

    #[test]
    fn nothing_is_flushed_where_nothing_was_put() {
        let (mut fence, mut ucx) = (Fence::new(), Scripted::default());
        assert_eq!(fence.is_passed(&mut ucx, 4), Ok(true));
        assert_eq!(ucx.begun, 0);
        fence.note_put();
        ucx.outcomes.extend([UCS_INPROGRESS, UCS_OK]);
        assert_eq!(fence.is_passed(&mut ucx, 4), Ok(true));
        assert_eq!(fence.is_passed(&mut ucx, 4), Ok(true));
        assert_eq!((ucx.begun, ucx.freed), (1, 1));
    }

    #[test]
    fn an_unfinished_flush_is_polled_until_it_completes() {
        let (mut fence, mut ucx) = (Fence::new(), Scripted::default());
        fence.note_put();
        for _ in 0..3 {
            assert_eq!(fence.is_passed(&mut ucx, 4), Ok(false));
        }
        assert!(!fence.request().is_null());
        ucx.outcomes.push_back(UCS_OK);
        assert_eq!(fence.is_passed(&mut ucx, 4), Ok(true));
        assert_eq!((ucx.begun, ucx.freed), (1, 1));
        assert!(fence.request().is_null());
    }

    #[test]
    fn a_put_during_a_flush_needs_another_flush() {
        let (mut fence, mut ucx) = (Fence::new(), Scripted::default());
        fence.note_put();
        assert_eq!(fence.is_passed(&mut ucx, 1), Ok(false));
        fence.note_put();
        ucx.outcomes.push_back(UCS_OK);
        assert_eq!(fence.is_passed(&mut ucx, 4), Ok(false), "the first flush covers the first put alone");
        assert_eq!((ucx.begun, ucx.freed), (2, 1));
        ucx.outcomes.push_back(UCS_OK);
        assert_eq!(fence.is_passed(&mut ucx, 1), Ok(true));
        assert_eq!((ucx.begun, ucx.freed), (2, 2));
    }

    #[test]
    fn a_flush_that_failed_lets_nothing_pass() {
        let (mut fence, mut ucx) = (Fence::new(), Scripted::default());
        fence.note_put();
        ucx.outcomes.extend([UCS_ERR_UNREACHABLE, UCS_ERR_IO_ERROR]);
        assert!(fence.is_passed(&mut ucx, 4).is_err());
        assert!(fence.is_passed(&mut ucx, 4).is_err());
        assert_eq!((ucx.begun, ucx.freed), (2, 2));
    }
}
