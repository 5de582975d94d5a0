//! Memory of the target that the source accesses by gets and puts.

use std::mem::MaybeUninit;
use std::ptr;
use std::rc::Rc;

use farjump_ucx_sys::{ucp_ep_h, ucp_request_param_t, ucs_status_ptr_t};

use super::Opening;
use super::context::Worker;
use super::lanes::lanes;
use super::put::{Key, Region};
use super::requests::Requests;
use crate::perf::child_protocol::Offer;
use crate::perf::liveness::Watch;
use crate::perf::work::one_sided::Remote;
use crate::program::failure::Failure;

/// The source's endpoint.
pub(crate) struct Reach {
    requests: Requests,
    end: ucp_ep_h,
    params: ucp_request_param_t,
    /// The target's memory, in its own address space.
    start: u64,
    len: usize,
    rows_one_by_one: usize,
    // Leaked buffers of UCX's writes and reads: an operation that timed out may finish at any later time.
    fetched: &'static mut [u8],
    word: &'static mut u64,
    // Dropped in this order: each needs those behind it.
    key: Key,
    worker: Rc<Worker>,
}

impl Reach {
    /// Connects to the target's endpoint, whose memory is as long as this one's.
    pub(crate) fn join(opening: Opening, offer: &Offer) -> Result<Reach, Failure> {
        let Opening { worker, region } = opening;
        let len = region.as_ref().map_or(0, |region| region.len);
        let end = worker.connect(&offer.worker)?;
        let key = Key::unpack(&worker, end, offer)?;
        // SAFETY: UCX reads only the fields of the mask: none.
        let params = unsafe { MaybeUninit::zeroed().assume_init() };
        // A get takes UCX some 25 ns in shared memory and some 5 us over TCP; a table of 1 MiB some 25 us and
        // 1 ms.
        let lanes = lanes(&worker, end).unwrap_or_default();
        let shared = lanes.contains("posix") || lanes.contains("sysv");
        let rows_one_by_one = if shared { 1024 } else { 256 };
        Ok(Reach {
            rows_one_by_one,
            requests: Requests::new(worker.ucx),
            end,
            params,
            start: offer.start,
            len,
            fetched: vec![0; len].leak(),
            word: Box::leak(Box::new(0)),
            key,
            worker,
        })
    }

    pub(crate) fn lanes(&self) -> Option<String> {
        lanes(&self.worker, self.end)
    }

    /// # Safety
    /// `from` has `len` bytes that stay unchanged until UCX has sent them.
    #[inline]
    unsafe fn send(&self, from: *const u8, len: usize, at: usize) -> ucs_status_ptr_t {
        assert!(at + len <= self.len);
        let to = self.start + at as u64;
        // SAFETY: endpoint and key belong to the live worker; the assertion keeps the bytes in the target's
        // memory.
        unsafe { self.worker.ucx.ucp_put_nbx(self.end, from.cast(), len, to, self.key.handle, &self.params) }
    }
}

impl Remote for Reach {
    fn rows_one_by_one(&self) -> usize {
        self.rows_one_by_one
    }

    #[inline]
    fn get(&mut self, at: usize, len: usize, to: usize, watch: &Watch) -> Result<(), Failure> {
        assert!(at + len <= self.len);
        let into: *mut u8 = self.fetched[to..to + len].as_mut_ptr();
        let from = self.start + at as u64;
        // SAFETY: as in `send`; the buffer has space for the bytes, which are read only after their arrival.
        let returned = unsafe {
            let (ucx, key) = (self.worker.ucx, self.key.handle);
            ucx.ucp_get_nbx(self.end, into.cast(), len, from, key, &self.params)
        };
        self.requests.take(returned, &self.worker, watch)
    }

    #[inline]
    fn put(&mut self, at: usize, bytes: &'static [u8], watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the bytes are static.
        let returned = unsafe { self.send(bytes.as_ptr(), bytes.len(), at) };
        self.requests.take(returned, &self.worker, watch)
    }

    fn put_word(&mut self, at: usize, word: u64, watch: &Watch) -> Result<(), Failure> {
        self.requests.wait(0, &self.worker, watch)?;
        *self.word = word;
        // SAFETY: the word is written again only after all requests have completed.
        let returned = unsafe { self.send(ptr::from_ref::<u64>(self.word).cast(), 8, at) };
        self.requests.take(returned, &self.worker, watch)
    }

    #[inline]
    fn arrive(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.requests.wait(0, &self.worker, watch)
    }

    #[inline]
    fn flush(&mut self, watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the UCX endpoint is alive, and the parameters name no field.
        let returned = unsafe { self.worker.ucx.ucp_ep_flush_nbx(self.end, &self.params) };
        self.requests.take(returned, &self.worker, watch)?;
        self.requests.wait(0, &self.worker, watch)
    }

    fn fetched(&mut self) -> &mut [u8] {
        self.fetched
    }
}

/// The target's endpoint: the memory, and a worker that makes progress where the device does not.
pub(crate) struct Reached {
    // Dropped before its worker.
    region: Region,
    worker: Rc<Worker>,
}

impl Reached {
    /// Connects to the source's endpoint.
    pub(crate) fn join(opening: Opening, offer: &Offer) -> Result<Reached, Failure> {
        let Opening { worker, region } = opening;
        let region = region.ok_or_else(|| Failure::new("there is no memory to be reached"))?;
        worker.connect(&offer.worker)?;
        Ok(Reached { region, worker })
    }

    /// Returns start and length of the memory. It lives as long as this value.
    pub(crate) fn memory(&self) -> (*mut u8, usize) {
        (self.region.start, self.region.len)
    }

    #[inline]
    pub(crate) fn progress(&self) {
        self.worker.progress();
    }
}
