//! Memory of the target that the source accesses by gets and puts.

use std::ptr;
use std::rc::Rc;

use super::Opening;
use super::context::Worker;
use super::memory::{Region, RemoteMemory};
use crate::perf::experiments::work::one_sided::Remote;
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// The source's endpoint.
pub(crate) struct Reach {
    memory: RemoteMemory,
    rows_one_by_one: usize,
    // Leaked buffers of UCX's writes and reads: an operation that timed out may finish at any later time.
    fetched: &'static mut [u8],
    word: &'static mut u64,
}

impl Reach {
    /// Connects to the target's endpoint, whose memory is as long as this one's.
    pub(crate) fn join(opening: Opening, offer: &Offer) -> Result<Reach, Failure> {
        let Opening { worker, region } = opening;
        let len = region.as_ref().map_or(0, |region| region.len);
        let endpoint = worker.connect(&offer.worker)?;
        let memory = RemoteMemory::new(worker, endpoint, offer, len)?;
        // A get takes UCX some 25 ns in shared memory and some 5 us over TCP; a table of 1 MiB some 25 us and
        // 1 ms.
        let lanes = memory.lanes().unwrap_or_default();
        let shared = lanes.contains("posix") || lanes.contains("sysv");
        let rows_one_by_one = if shared { 1024 } else { 256 };
        let (fetched, word) = (vec![0; len].leak(), Box::leak(Box::new(0)));
        Ok(Reach { memory, rows_one_by_one, fetched, word })
    }
}

impl Remote for Reach {
    fn rows_one_by_one(&self) -> usize {
        self.rows_one_by_one
    }

    #[inline]
    fn get(&mut self, at: usize, len: usize, to: usize, watch: &Watch) -> Result<(), Failure> {
        let into = self.fetched[to..to + len].as_mut_ptr();
        // SAFETY: the buffer has space for the bytes, which are read only after their arrival.
        unsafe { self.memory.get(into, len, at, watch) }
    }

    #[inline]
    fn put(&mut self, at: usize, bytes: &'static [u8], watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the bytes are static.
        unsafe { self.memory.put(bytes.as_ptr(), bytes.len(), at, watch) }
    }

    fn put_word(&mut self, at: usize, word: u64, watch: &Watch) -> Result<(), Failure> {
        self.memory.wait(watch)?;
        *self.word = word;
        // SAFETY: the word is written again only after all requests have completed.
        unsafe { self.memory.put(ptr::from_ref::<u64>(self.word).cast(), 8, at, watch) }
    }

    #[inline]
    fn arrive(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.memory.wait(watch)
    }

    #[inline]
    fn flush(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.memory.flush(watch)
    }

    fn fetched(&mut self) -> &mut [u8] {
        self.fetched
    }

    fn lanes(&self) -> Option<String> {
        self.memory.lanes()
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
