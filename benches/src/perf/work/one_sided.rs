//! Work that is done at the source: what it needs of the target's data comes to it, and what it makes goes there.

use farjump::Library;

use super::Task;
use super::data::{AREA, CALLS, ENTRY, ROWS, Store, TABLE};
use super::functions::{Function, KEY};
use super::native::{self, Native};
use super::source::{Ask, Asking, Job};
use super::target::{Host, Serving};
use crate::perf::liveness::Watch;
use crate::perf::role::{Other, Source};
use crate::program::failure::Failure;

/// The target's memory, as the source reaches it.
pub(crate) trait Remote {
    /// How many rows come sooner one by one than all there are at once.
    fn rows_one_by_one(&self) -> usize;

    /// Asks for `len` bytes from `at` on, to be put `to` bytes behind the beginning of what was fetched.
    fn get(&mut self, at: usize, len: usize, to: usize, watch: &Watch) -> Result<(), Failure>;

    /// Writes bytes from `at` on.
    fn put(&mut self, at: usize, bytes: &'static [u8], watch: &Watch) -> Result<(), Failure>;

    /// Writes one word.
    fn put_word(&mut self, at: usize, word: u64, watch: &Watch) -> Result<(), Failure>;

    /// Waits until all that was asked for has come.
    fn arrive(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// Waits until all that was written is there.
    fn flush(&mut self, watch: &Watch) -> Result<(), Failure>;

    /// What was fetched.
    fn fetched(&mut self) -> &mut [u8];
}

/// The source's side.
struct Fetches<R> {
    remote: R,
    /// The function, and the data that it finds, for those that only read.
    native: Native,
    store: &'static Store,
}

impl<R: Remote> Ask for Fetches<R> {
    #[inline]
    fn ask(&mut self, job: &Job, answer: &mut Vec<u8>, watch: &Watch) -> Result<(), Failure> {
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
                answer.extend(total.to_le_bytes());
            }
            Function::IndirectPut => {
                remote.get(TABLE + KEY as usize * ENTRY, ENTRY, 0, watch)?;
                remote.arrive(watch)?;
                let [offset, room] = [0, 8].map(|at| {
                    let word = remote.fetched()[at..].first_chunk().copied().unwrap_or_default();
                    u64::from_le_bytes(word)
                });
                if job.size as u64 > room {
                    return Err(Failure::new("there are more bytes than the key has room for"));
                }
                remote.put(offset as usize, &job.args[8..], watch)?;
                remote.flush(watch)?;
                answer.extend([offset, job.size as u64].map(u64::to_le_bytes).as_flattened());
            }
            Function::Histogram => {
                remote.get(AREA, job.size, 0, watch)?;
                remote.arrive(watch)?;
                self.store.show(remote.fetched(), job.size);
                // SAFETY: it does not look at its payload; its data stays as long as the remote end, and nothing comes there
                // meanwhile.
                unsafe { self.native.call(std::ptr::null_mut(), 0) };
                native::with_reply(|reply| answer.extend_from_slice(reply));
            }
            // No function is at the target that could decompress: the bytes go there as they are.
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
}

/// The source's side of a task, over what it reaches the target's memory by.
pub(crate) fn source<R: Remote + 'static>(task: &Task, remote: R) -> Result<Box<dyn Source>, Failure> {
    // It is shown other data than its own.
    let store = Store::own(0);
    let native = Native::place(&Library::open(&task.library)?, store)?;
    let fetches = Fetches { remote, native, store };
    Ok(Box::new(Asking::new(task.function, fetches, task.longest)))
}

/// The target's side: its data, and what has to be done for the source to reach it.
struct Holds<W>(W);

impl<W: FnMut()> Host for Holds<W> {
    fn prepare(&mut self) {}

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        (self.0)();
        Ok(0)
    }

    fn answer(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    fn done(&mut self, store: &Store) -> u64 {
        (self.0)();
        store.calls()
    }
}

/// The target's side of a task. `work` is called again and again while the source may reach the memory.
///
/// # Safety
/// As for [`Store::new`].
pub(crate) unsafe fn other(
    task: &Task,
    start: *mut u8,
    len: usize,
    work: impl FnMut() + 'static,
) -> Box<dyn Other> {
    // SAFETY: as the caller vouches.
    let store = unsafe { Store::new(start, len) };
    Box::new(Serving::new(task.function, store, Holds(work)))
}
