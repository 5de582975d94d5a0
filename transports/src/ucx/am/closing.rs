//! Dropped endpoints whose workers UCX still needs.
//!
//! UCX 1.13 aborts the process if a worker ends while a message of a path's setup waits in it
//! (`ucp_request_send_state_ff`): its own request, or the reply to a peer's request. For the reply UCX makes its own
//! endpoint, which outlives the dropped one. Both messages wait only while a peer that has finished the handshake makes
//! no progress. Such workers stay here until they have sent everything. Opening or dropping another endpoint checks
//! that.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farjump_core::transport::Cause;
use farjump_os::PerProcess;
use farjump_ucx_sys::{UCS_INPROGRESS, UCS_PTR_IS_PTR};

use super::Sending;
use super::buffers::Buffer;
use super::worker::AmWorker;
use crate::ucx::worker::status_of;

/// Most workers that stay here. Each has its own sockets and some MiB of memory.
const MOST: usize = 32;

/// A closing endpoint, and everything that UCX may still read.
pub(super) struct Closing {
    /// Requests of the close, and of the last message beside the frames.
    requests: [*mut c_void; 2],
    /// The request to flush the worker, if one is under way.
    flush: *mut c_void,
    /// Dropped before the buffers below, because the worker may read them until it is gone.
    worker: AmWorker,
    sending: VecDeque<Sending>,
    _note: Buffer,
}

// SAFETY: the requests belong to the UCX worker, which is `Send` and owned here.
unsafe impl Send for Closing {}

impl Closing {
    pub(super) fn new(
        requests: [*mut c_void; 2],
        worker: AmWorker,
        sending: VecDeque<Sending>,
        note: Buffer,
    ) -> Closing {
        Closing { requests, flush: ptr::null_mut(), worker, sending, _note: note }
    }

    /// Progresses UCX. Returns whether UCX has closed the endpoint and does not need the worker.
    pub(super) fn progress(&mut self) -> bool {
        let worker = self.worker.inbox().worker();
        worker.progress();
        status_of(worker.ucx, self.requests[0]) != UCS_INPROGRESS && self.is_quiet()
    }

    /// Returns whether a message of a path's setup may wait in the worker. No message waits for a peer that has sent
    /// one, unless the worker also waits for another peer.
    pub(super) fn must_stay(&mut self) -> bool {
        !self.worker.inbox().has_heard() || !self.is_quiet()
    }

    /// Returns whether all endpoints of the worker have sent everything, those that UCX has made too. A flush then ends
    /// at once: over TCP it counts the connections in setup and all unsent bytes.
    fn is_quiet(&mut self) -> bool {
        let worker = self.worker.inbox().worker();
        if UCS_PTR_IS_PTR(self.flush) {
            if status_of(worker.ucx, self.flush) == UCS_INPROGRESS {
                return false;
            }
            // SAFETY: not freed before, and replaced below.
            unsafe { worker.ucx.ucp_request_free(self.flush) };
        }
        self.flush = worker.flush();
        !UCS_PTR_IS_PTR(self.flush)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let ucx = self.worker.inbox().worker().ucx;
        let own = [self.requests[0], self.requests[1], self.flush];
        let requests = self.sending.iter().map(|sending| sending.request).chain(own);
        for request in requests.filter(|request| UCS_PTR_IS_PTR(*request)) {
            // SAFETY: not freed before. The data that it reads outlives the worker (`Closing::worker`).
            unsafe { ucx.ucp_request_free(request) };
        }
    }
}

static KEPT: PerProcess<Mutex<Vec<Closing>>> = PerProcess::new();

fn kept() -> MutexGuard<'static, Vec<Closing>> {
    KEPT.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an endpoint until UCX has closed it.
pub(super) fn keep(closing: Closing) {
    let mut kept = kept();
    kept.push(closing);
    log::warn!("a dropped endpoint waits until its peer goes on or ends ({} wait)", kept.len());
}

/// Drops the endpoints that UCX has closed since.
pub(super) fn tend() {
    kept().retain_mut(|closing| !closing.progress());
}

/// Fails if too many endpoints wait to be closed for another one to be opened.
pub(super) fn check() -> Result<(), Cause> {
    tend();
    match kept().len() {
        MOST.. => Err(Cause::System(format!(
            "{MOST} dropped endpoints wait for peers that stand still, and UCX 1.13 aborts a process that does not wait: continue \
             or end these peers"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use farjump_core::transport::{OpenRequest, UnconnectedEndpoint};
    use farjump_fixtures::this_test;

    use super::*;
    use crate::ucx::am::tests::in_roles_over_tcp;
    use crate::ucx::am::unconnected::UnconnectedAm;

    /// Turns after which every endpoint could have ended, and turns of a stage in which requests are under way. UCX
    /// accepts connections on its own thread, which runs between turns.
    const MANY: u32 = 60_000;
    const STAGE: u32 = 20;

    fn open() -> UnconnectedAm {
        UnconnectedAm::open(&OpenRequest::new(1 << 16, 4096), true).unwrap()
    }

    /// Drops an endpoint that has just connected to `peer`, which does nothing.
    fn drop_connected(peer: &UnconnectedAm) {
        drop(open().join(peer.address().try_to_owned().unwrap()).unwrap());
    }

    fn turn(mut work: impl FnMut()) {
        work();
        tend();
        thread::sleep(Duration::from_millis(1));
    }

    fn until_none_is_kept(mut work: impl FnMut()) {
        for _ in 0..MANY {
            if kept().is_empty() {
                return;
            }
            turn(&mut work);
        }
        panic!("{} are kept for good", kept().len());
    }

    /// Drops an endpoint whose peer makes no progress, `distance` turns after the request of another peer, which then
    /// makes no progress either. UCX closes the endpoint once the first peer continues. By then it has made another
    /// endpoint, for the reply to the request.
    fn drop_between_two_peers(distance: u32) {
        let (dropped, still, late) = (open(), open(), open());
        let to_dropped = dropped.address().try_to_owned().unwrap();
        let dropped = dropped.join(still.address().try_to_owned().unwrap()).unwrap();
        let mut late = late.join(to_dropped).unwrap();
        drop(dropped);
        assert_eq!(kept().len(), 1, "it was not kept, though its peer does nothing");
        let mut progress = || {
            still.worker().progress();
        };
        (0..distance).for_each(|_| turn(|| late.work().map(drop).unwrap()));
        (0..STAGE).for_each(|_| turn(&mut progress));
        until_none_is_kept(|| {
            progress();
            late.work().unwrap();
        });
        drop(late);
        until_none_is_kept(|| {});
    }

    fn drop_too_many() {
        let still = open();
        (0..MOST).for_each(|_| drop_connected(&still));
        assert_eq!(kept().len(), MOST);
        let refused = UnconnectedAm::open(&OpenRequest::new(1 << 16, 4096), true).err();
        assert!(matches!(refused, Some(Cause::System(text)) if text.contains("stand still")));
        until_none_is_kept(|| {
            still.worker().progress();
        });
        drop(open());
    }

    #[test]
    fn a_dropped_endpoint_stays_until_the_reply_to_another_peer_has_left() {
        in_roles_over_tcp(this_test!(), &["alone"], |_| (0..12).for_each(drop_between_two_peers));
    }

    #[test]
    fn opening_is_refused_while_too_many_dropped_endpoints_have_stalled_peers() {
        in_roles_over_tcp(this_test!(), &["alone"], |_| drop_too_many());
    }
}
