//! Work at the source: it fetches the target's data that it needs, and writes its results there.

use farjump::Library;

use super::Task;
use super::data::{CALLS, ENTRY, Store, TABLE};
use super::functions::{AREA, Function, KEY, ROWS};
use super::native::{self, Native};
use super::source::{Job, Perform, WorkSource};
use super::target::Serving;
use crate::perf::experiments::role::{Receiver, Source};
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// The source's access to the target's memory.
pub(crate) trait Remote {
    /// Returns the number of rows up to which single fetches are faster than fetching all.
    fn rows_one_by_one(&self) -> usize;

    /// Requests `len` bytes from offset `at`, to be stored at offset `to` of the fetched bytes.
    fn get(&mut self, at: usize, len: usize, to: usize, watch: &Watch) -> Result<(), Failure>;

    /// Writes bytes at offset `at`.
    fn put(&mut self, at: usize, bytes: &'static [u8], watch: &Watch) -> Result<(), Failure>;

    fn put_word(&mut self, at: usize, word: u64, watch: &Watch) -> Result<(), Failure>;

    /// Waits until all requested bytes have arrived.
    fn arrive(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Waits until all writes have arrived.
    fn flush(&mut self, watch: &Watch) -> Result<(), Failure>;

    fn fetched(&mut self) -> &mut [u8];

    /// Returns UCX's transports, if it reports them.
    fn lanes(&self) -> Option<String> {
        None
    }
}

/// The source's endpoint.
struct Fetches<R> {
    remote: R,
    /// The function, and its data, for functions that only read.
    native: Native,
    store: &'static Store,
}

impl<R: Remote> Perform<Job> for Fetches<R> {
    #[inline]
    fn perform(&mut self, job: &Job, reply: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure> {
        let remote = &mut self.remote;
        match job.function {
            Function::Sum => {
                let keys = job.args.as_chunks().0.iter().map(|key| u64::from_le_bytes(*key) as usize);
                let table = keys.len() > remote.rows_one_by_one();
                if table {
                    remote.get(AREA, ROWS * 8, 0, watch)?;
                } else {
                    for (number, key) in keys.clone().enumerate() {
                        remote.get(AREA + key * 8, 8, number * 8, watch)?;
                    }
                }
                remote.arrive(watch)?;
                let (rows, _) = remote.fetched().as_chunks();
                let row = |number: usize| u64::from_le_bytes(rows[number]);
                let total = keys
                    .enumerate()
                    .map(|(number, key)| row(if table { key } else { number }))
                    .fold(0, u64::wrapping_add);
                reply.extend(total.to_le_bytes());
            }
            Function::IndirectPut => {
                remote.get(TABLE + KEY as usize * ENTRY, ENTRY, 0, watch)?;
                remote.arrive(watch)?;
                let [offset, space] = [0, 8].map(|at| {
                    let word = remote.fetched()[at..].first_chunk().copied().unwrap_or_default();
                    u64::from_le_bytes(word)
                });
                if job.size as u64 > space {
                    return Err(Failure::new("there are more bytes than fit the key's memory"));
                }
                remote.put(offset as usize, &job.args[8..], watch)?;
                remote.flush(watch)?;
                reply.extend([offset, job.size as u64].map(u64::to_le_bytes).as_flattened());
            }
            Function::Histogram => {
                remote.get(AREA, job.size, 0, watch)?;
                remote.arrive(watch)?;
                self.store.show(remote.fetched(), job.size);
                // SAFETY: the function ignores its payload; its data lives as long as `remote`, which does
                // not write there meanwhile.
                unsafe { self.native.call(std::ptr::null_mut(), 0) };
                native::with_reply(|own| reply.extend_from_slice(own));
            }
            // Without a function at the target to decompress them, the bytes go there as they are.
            Function::Codec => {
                remote.put(AREA, job.args, watch)?;
                remote.flush(watch)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, calls: u64, watch: &Watch) -> Result<(), Failure> {
        self.remote.put_word(CALLS, calls, watch)?;
        self.remote.flush(watch)
    }

    fn lanes(&self) -> Option<String> {
        self.remote.lanes()
    }
}

/// Returns the source's endpoint of a task, over an access to the target's memory.
pub(crate) fn source<R: Remote + 'static>(task: &Task, remote: R) -> Result<Box<dyn Source>, Failure> {
    // `show` gives it other data than the store's own.
    let store = Store::own(0);
    let native = Native::place(&Library::open(&task.library)?, store)?;
    let fetches = Fetches { remote, native, store };
    Ok(Box::new(WorkSource::of(task.function, fetches, task.longest)))
}

/// The target's endpoint: its data, and the progress that lets the source reach it.
pub(super) struct Holds<P> {
    pub(super) store: &'static Store,
    pub(super) progress: P,
}

impl<P: FnMut()> Receiver for Holds<P> {
    fn prepare(&mut self, _size: usize, _streams: bool) -> Result<(), Failure> {
        self.store.report(0);
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        (self.progress)();
        Ok(0)
    }

    fn reply(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        (self.progress)();
        Ok(self.store.calls())
    }
}

/// Returns the target's endpoint of a task. `progress` is called while the source may access the memory.
///
/// # Safety
/// The conditions of [`Store::new`].
pub(crate) unsafe fn receiver(
    task: &Task,
    start: *mut u8,
    len: usize,
    progress: impl FnMut() + 'static,
) -> Box<dyn Receiver> {
    // SAFETY: the caller keeps the contract of `Store::new`.
    let store = unsafe { Store::new(start, len) };
    Box::new(Serving::new(task.function, store, Holds { store, progress }))
}
