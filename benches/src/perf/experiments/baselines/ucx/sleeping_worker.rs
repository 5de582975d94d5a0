//! A UCX worker that sleeps until an active message comes, and its sender: `ucp_worker_arm`, and epoll on the
//! worker's descriptor, as the manual of `ucp_worker_arm` describes. Each process has a context with
//! `UCP_FEATURE_AM`; the sleeper's has `UCP_FEATURE_WAKEUP` as well.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_ucx_sys::{
    UCP_FEATURE_AM, UCP_FEATURE_WAKEUP, UCS_ERR_BUSY, UCS_OK, ucp_am_recv_param_t, ucp_ep_h,
    ucp_request_param_t, ucs_status_t,
};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use super::context::{Worker, check, no_fields};
use super::requests::Requests;
use crate::perf::machine::clock;
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::{LONGEST_SLEEP, Watch};
use crate::perf::process::shared_memory::Memory;
use crate::program::failure::Failure;

/// The sleeping worker. Its handler reports each run by a write.
pub(crate) struct Waiting<'a> {
    worker: Worker,
    epoll: OwnedFd,
    stop: Arc<OwnedFd>,
    /// The memory that the handler writes to; it outlives the worker.
    _memory: &'a Memory,
}

/// Ends its sleep.
pub(crate) struct Stopper(Arc<OwnedFd>);

impl Stopper {
    pub(crate) fn stop(&self) {
        // The only failure is a full counter, which wakes the sleeper as well.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// The source of a wake-up.
const WORKER: u64 = 0;
const STOP: u64 = 1;

impl<'a> Waiting<'a> {
    pub(crate) fn create(memory: &'a Memory) -> Result<Waiting<'a>, Failure> {
        let worker = Worker::create(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP)?;
        let stamp: *const AtomicU64 = memory.stamp();
        // SAFETY: the handler expects this word, whose mapping outlives the worker, and uses it atomically.
        unsafe { worker.on_message(Some(came), stamp.cast_mut().cast()) }?;
        let failed = |errno: Errno| Failure::new(format!("nothing to sleep on can be made: {errno}"));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let mut bell = 0;
        // SAFETY: `worker` is alive, and `bell` has space for the descriptor.
        let status = unsafe { worker.ucx.ucp_worker_get_efd(worker.handle, &mut bell) };
        check(worker.ucx, "has nothing to sleep on", status)?;
        // SAFETY: UCX keeps the descriptor open as long as the worker, which outlives this borrow.
        let bell = unsafe { BorrowedFd::borrow_raw(bell) };
        for (fd, data) in [(bell, WORKER), (stop.as_fd(), STOP)] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN).map_err(failed)?;
        }
        Ok(Waiting { worker, epoll, stop, _memory: memory })
    }

    /// Returns the worker's address for the peer.
    pub(crate) fn offer(&self) -> Result<Offer, Failure> {
        Ok(Offer { worker: self.worker.address()?, ..Offer::default() })
    }

    pub(crate) fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Sleeps, and serves each wake-up, until it is stopped.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        let longest = Timespec { tv_sec: LONGEST_SLEEP.as_secs() as i64, tv_nsec: 0 };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(WORKER) }; 2];
        loop {
            // SAFETY: `self` keeps the worker alive, and no callback calls this.
            while unsafe { self.worker.ucx.ucp_worker_progress(self.worker.handle) } != 0 {}
            // SAFETY: `self` keeps the worker alive.
            match unsafe { self.worker.ucx.ucp_worker_arm(self.worker.handle) } {
                // A message came before the worker was armed.
                UCS_ERR_BUSY => continue,
                status => check(self.worker.ucx, "does not sleep", status)?,
            }
            let count = match epoll::wait(&self.epoll, &mut events[..], Some(&longest)) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(errno) => return Err(Failure::new(format!("epoll does not wait: {errno}"))),
            };
            if events[..count].iter().any(|event| event.data.u64() == STOP) {
                return Ok(());
            }
        }
    }
}

unsafe extern "C" fn came(
    stamp: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    _data: *mut c_void,
    _len: usize,
    _param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: the handler was set with such a word, whose mapping outlives the worker.
    let stamp = unsafe { &*stamp.cast::<AtomicU64>() };
    stamp.store(clock::now(), Ordering::Release);
    // A message in fragments that was not fetched is dropped by this.
    UCS_OK
}

/// The sender that wakes it.
pub(crate) struct Sending {
    endpoint: ucp_ep_h,
    /// The parameters of every message: none.
    params: ucp_request_param_t,
    requests: Requests,
    worker: Worker,
}

impl Sending {
    pub(crate) fn connect(offer: &Offer) -> Result<Sending, Failure> {
        let worker = Worker::create(UCP_FEATURE_AM)?;
        let endpoint = worker.connect(&offer.worker)?;
        Ok(Sending { endpoint, params: no_fields(), requests: Requests::new(worker.ucx), worker })
    }

    /// Returns the transports that carry the messages.
    pub(crate) fn lanes(&self) -> Option<String> {
        self.worker.lanes(self.endpoint)
    }

    /// Sends a message, and waits until UCX no longer needs it.
    pub(crate) fn send(&mut self, payload: &[u8], watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the UCX endpoint is connected; payload and parameters live until the wait for the request
        // is over.
        let returned = unsafe { self.worker.send_message(self.endpoint, payload, &self.params) };
        self.requests.take(returned, &self.worker, watch)?;
        self.requests.wait(0, &self.worker, watch)
    }

    pub(crate) fn progress(&self) {
        self.worker.progress();
    }
}
