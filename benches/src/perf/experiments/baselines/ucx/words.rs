//! Words in the memory of several workers, which a client gets one by one.

use std::rc::Rc;

use farjump_ucx_sys::UCP_FEATURE_RMA;

use super::context::Worker;
use super::memory::{Region, RemoteMemory};
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// Memory with words, and a worker that makes progress where the device does not.
pub(crate) struct Words {
    // Dropped before its worker.
    region: Region,
    worker: Worker,
}

impl Words {
    /// Allocates memory for these words, and copies them there.
    pub(crate) fn copy(words: &[u64]) -> Result<Words, Failure> {
        let worker = Worker::create(UCP_FEATURE_RMA)?;
        let region = Region::allocate(&worker, size_of_val(words))?;
        // SAFETY: the region has as many bytes, and nothing else knows it yet.
        unsafe {
            region.start.copy_from_nonoverlapping(words.as_ptr().cast(), size_of_val(words));
        }
        Ok(Words { region, worker })
    }

    /// Returns the data that the client needs.
    pub(crate) fn offer(&self) -> Result<Offer, Failure> {
        let (worker, key, start) = (self.worker.address()?, self.region.key()?, self.region.start());
        Ok(Offer { worker, key, start, ..Offer::default() })
    }

    #[inline]
    pub(crate) fn progress(&self) {
        self.worker.progress();
    }
}

/// The client.
pub(crate) struct WordGets {
    memories: Vec<RemoteMemory>,
    /// The buffer of all gets. It is leaked: a get that timed out may finish at any later time.
    word: *mut u64,
    watch: Watch,
}

impl WordGets {
    /// Connects to memories of `len` bytes each.
    pub(crate) fn connect(offers: &[Offer], len: usize) -> Result<WordGets, Failure> {
        let worker = Rc::new(Worker::create(UCP_FEATURE_RMA)?);
        let memory = |offer: &Offer| {
            let endpoint = worker.connect(&offer.worker)?;
            RemoteMemory::new(worker.clone(), endpoint, offer, len)
        };
        let memories = offers.iter().map(memory).collect::<Result<_, Failure>>()?;
        Ok(WordGets { memories, word: Box::leak(Box::new(0)), watch: Watch::alone() })
    }

    /// Gets the word with number `word` from a memory, and waits for it.
    #[inline]
    pub(crate) fn get(&mut self, memory: usize, word: usize) -> Result<u64, Failure> {
        let WordGets { memories, word: buffer, watch } = self;
        let memory = &mut memories[memory];
        // SAFETY: the buffer has space for a word, and no other get is under way.
        unsafe { memory.get(buffer.cast(), size_of::<u64>(), word * size_of::<u64>(), watch) }?;
        memory.wait(watch)?;
        // SAFETY: the get has completed.
        Ok(unsafe { buffer.read_volatile() })
    }

    /// Names the transports to the first memory.
    pub(crate) fn lanes(&self) -> Option<String> {
        self.memories.first()?.lanes()
    }
}
