//! Memory that the ranks of a job write into: one window of MPI, and the regions that links take of it.
//!
//! MPI makes windows collectively, but a link concerns two ranks only. So the ranks make one window when they
//! start, each with the same number of bytes in it, and a link takes a *region* of each rank's part. In front
//! of a region lies its label, a page that describes it. A peer with an address reads there whether the
//! region is valid, and writes there when it has left. Only then does the region go to another link, so a
//! late peer cannot write into it.

mod error;
mod regions;

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use farjump_core::mailbox;
use mpi::Threading;
use mpi::ffi::{self, MPI_Aint, MPI_Comm, MPI_Op, MPI_Win};
use mpi::topology::Communicator;
use range_alloc::RangeAllocator;

pub use error::PoolError;
use error::{check, one_mpi};
pub(crate) use regions::{Place, Reached, Region};

/// Alignment of regions, and length of a label, in bytes.
const PAGE: usize = 4096;
/// Offsets in a label of the region's token, its length, and the word that says whether its peer has left.
const TOKEN_AT: usize = 0;
const LEN_AT: usize = 8;
const LEFT_AT: usize = 16;
/// Prefix of tokens.
const MARK: u64 = u64::from_be_bytes(*b"farj\0\0\0\0");

/// Longest time in which a rank watches for the trial writes of rank 0. A rank that is too slow to see them
/// in time gets a worker that it does not need.
const TRIAL: Duration = Duration::from_millis(250);
/// Bytes of a trial write: more than any MPI sends along with the first message.
const TRIAL_LEN: usize = 64 << 10;

unsafe extern "C" {
    /// `MPI_REPLACE`, from `constants.c`.
    static farjump_replace: MPI_Op;
    /// `MPI_WIN_UNIFIED`.
    static farjump_win_unified: c_int;
}

/// This rank's share in the window. Clones are the same one.
///
/// It may be used from all threads. [`Pool::free`] frees it; a pool that is merely dropped stays until MPI
/// ends.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    window: MPI_Win,
    /// Start of this rank's part.
    base: NonNull<u8>,
    /// Bytes of each rank's part.
    size: usize,
    rank: usize,
    ranks: usize,
    pages: Mutex<Pages>,
    /// A communicator of the window's ranks on which nothing is sent.
    silent: MPI_Comm,
    /// True if writes arrive while their target calls no function of MPI.
    arrives_unaided: bool,
    /// Number of workers of this rank.
    workers: AtomicUsize,
    waits: Mutex<Waits>,
}

/// The calls of MPI that may be waiting for another rank.
#[derive(Default)]
struct Waits {
    /// Number of calls so far.
    begun: u64,
    calls: Vec<(u64, Wait)>,
}

/// A call of MPI that has not returned.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    /// The function.
    pub(crate) call: &'static str,
    /// The rank that it concerns.
    pub(crate) rank: c_int,
    pub(crate) since: Instant,
}

/// Removes its call from the list when dropped.
struct Waiting<'a>(&'a Shared, u64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.calls.retain(|(number, _)| *number != self.1);
    }
}

// SAFETY: `Pool::allocate` has checked that all threads may call MPI at once. Only regions use the memory
// behind `base`, and they share none of it.
unsafe impl Send for Shared {}
// SAFETY: all threads may call MPI at once, as for `Send`.
unsafe impl Sync for Shared {}

/// The free bytes of this rank's part.
struct Pages {
    free: RangeAllocator<usize>,
    /// Regions that are no longer used here, but may still be written into.
    leaving: Vec<Range<usize>>,
    /// Number of regions so far.
    taken: u64,
}

impl Pool {
    /// Makes the window, with `bytes` bytes of each rank's for regions: all ranks of `communicator` must call
    /// it with the same number.
    ///
    /// [`Pool::bytes_for`] returns the number for some links. For a large frame a link takes a large mailbox besides,
    /// for as long as that is needed. Unwritten parts take no memory in most MPIs.
    ///
    /// # Errors
    /// If MPI was not started for all threads, has no unified memory, or fails; if the program is made of
    /// parts of two MPIs.
    pub fn allocate(communicator: &impl Communicator, bytes: usize) -> Result<Pool, PoolError> {
        one_mpi()?;
        let threading = mpi::environment::threading_support();
        if threading != Threading::Multiple {
            return Err(PoolError::Threads(threading));
        }
        if bytes == 0 || c_int::try_from(bytes.saturating_add(2 * PAGE)).is_err() {
            return Err(PoolError::Size(bytes));
        }
        let usable = bytes.next_multiple_of(PAGE);
        // MPI may start it anywhere.
        let size = usable + PAGE;
        let mut base = ptr::null_mut::<c_void>();
        // SAFETY: it is a constant of MPI.
        let mut window = unsafe { ffi::RSMPI_WIN_NULL };
        // SAFETY: MPI is initialised, which a communicator proves; both results are written to variables of
        // their types.
        check("MPI_Win_allocate", unsafe {
            let (no_info, base) = (ffi::RSMPI_INFO_NULL, (&raw mut base).cast());
            ffi::MPI_Win_allocate(size as MPI_Aint, 1, no_info, communicator.as_raw(), base, &raw mut window)
        })?;
        // SAFETY: the window exists, and all of its ranks call this. From now on it is accessed without
        // epochs.
        unsafe {
            check("MPI_Win_set_errhandler", ffi::MPI_Win_set_errhandler(window, ffi::RSMPI_ERRORS_RETURN))?;
            let (mut model, mut found) = (ptr::null_mut::<c_int>(), 0);
            let (key, value) = (ffi::MPI_WIN_MODEL as c_int, (&raw mut model).cast());
            check("MPI_Win_get_attr", ffi::MPI_Win_get_attr(window, key, value, &raw mut found))?;
            if found == 0 || *model != farjump_win_unified {
                return Err(PoolError::Separate);
            }
            check("MPI_Win_lock_all", ffi::MPI_Win_lock_all(ffi::MPI_MODE_NOCHECK as c_int, window))?;
        }
        // SAFETY: it is a constant of MPI.
        let mut silent = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: all ranks of the communicator call this, and the result is written to a variable of its
        // type.
        unsafe {
            check("MPI_Comm_dup", ffi::MPI_Comm_dup(communicator.as_raw(), &raw mut silent))?;
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(silent, ffi::RSMPI_ERRORS_RETURN))?;
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(PoolError::Exhausted(size))?;
        let first = base.addr().get().next_multiple_of(PAGE) - base.addr().get();
        let pages = Pages { free: RangeAllocator::new(first..first + usable), leaving: Vec::new(), taken: 0 };
        let (rank, ranks) = (communicator.rank() as usize, communicator.size() as usize);
        let mut shared = Shared {
            window,
            base,
            size,
            rank,
            ranks,
            pages: Mutex::new(pages),
            silent,
            arrives_unaided: false,
            workers: AtomicUsize::new(0),
            waits: Mutex::default(),
        };
        shared.arrives_unaided = shared.try_unaided()?;
        Ok(Pool(Arc::new(shared)))
    }

    /// Returns the bytes of a rank's part for `links` links that end in it, with mailboxes of `mailbox` bytes each. The
    /// links are those of its target's sources (`TargetBuilder::mailbox_size`), and those of its own links to other
    /// ranks (`LinkBuilder::reply_mailbox_size`).
    pub fn bytes_for(links: usize, mailbox: usize) -> usize {
        // With each comes its label.
        links.saturating_mul(mailbox::region_len(mailbox.next_power_of_two()) + PAGE)
    }

    /// Returns whether each rank needs a [`Worker`](crate::Worker): this MPI writes into a rank's window only while
    /// that rank calls MPI.
    ///
    /// All ranks tried it when they made the window, and all have the same result.
    pub fn needs_worker(&self) -> bool {
        !self.0.arrives_unaided
    }

    /// Counts a worker of this rank.
    pub(crate) fn add_worker(&self) {
        self.0.workers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_worker(&self) {
        self.0.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Fails if a worker is needed and there is none.
    pub(crate) fn check_worker(&self) -> Result<(), PoolError> {
        match self.needs_worker() && self.0.workers.load(Ordering::Relaxed) == 0 {
            true => Err(PoolError::NoWorker),
            false => Ok(()),
        }
    }

    /// Returns the call that has waited longest for another rank.
    pub(crate) fn longest_wait(&self) -> Option<Wait> {
        let waits = self.0.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.calls.iter().map(|(_, wait)| *wait).min_by_key(|wait| wait.since)
    }

    /// Returns the number of this rank.
    pub(crate) fn rank(&self) -> usize {
        self.0.rank
    }

    /// Frees the window: to be called by all ranks, and by each before MPI ends.
    ///
    /// # Errors
    /// If this rank still uses it, or MPI fails. An error of one rank leaves the others waiting.
    pub fn free(self) -> Result<(), PoolError> {
        let mut shared = Arc::into_inner(self.0).ok_or(PoolError::InUse)?;
        // SAFETY: nothing in this rank uses the window any more, and other ranks have completed their writes
        // when they call this: `MPI_Win_free` waits for them.
        unsafe {
            check("MPI_Win_unlock_all", ffi::MPI_Win_unlock_all(shared.window))?;
            check("MPI_Win_free", ffi::MPI_Win_free(&raw mut shared.window))?;
            check("MPI_Comm_free", ffi::MPI_Comm_free(&raw mut shared.silent))
        }
    }

    /// Takes a region of `len` bytes, a multiple of 4096, all of them zero.
    pub(crate) fn take(&self, len: usize) -> Result<Region, PoolError> {
        let shared = &self.0;
        let (range, token) = {
            let pages = &mut *shared.pages.lock().unwrap_or_else(PoisonError::into_inner);
            let (left, leaving) = pages.leaving.drain(..).partition(|leaving| shared.has_left(leaving.start));
            pages.leaving = leaving;
            let left: Vec<_> = left;
            left.into_iter().for_each(|range| pages.free.free_range(range));
            let wanted = len.checked_add(PAGE).ok_or(PoolError::Exhausted(len))?;
            let range = pages.free.allocate_range(wanted).map_err(|_| PoolError::Exhausted(wanted))?;
            pages.taken += 1;
            (range, MARK ^ pages.taken)
        };
        // SAFETY: the range is inside this rank's part, and no other region's.
        unsafe { shared.base.add(range.start).write_bytes(0, range.len()) };
        shared.word(range.start + TOKEN_AT).store(token, Ordering::Relaxed);
        shared.word(range.start + LEN_AT).store(len as u64, Ordering::Relaxed);
        let announced = AtomicBool::new(false);
        let region = Region { shared: Arc::clone(shared), pages: range, len, token, announced };
        // SAFETY: the window lives as long as `shared`. The peer's `MPI_Get` then sees the bytes stored here.
        check("MPI_Win_sync", unsafe { ffi::MPI_Win_sync(shared.window) })?;
        Ok(region)
    }
}

impl Shared {
    /// Tests whether writes arrive while their target calls no function of MPI. Called by all ranks; all get
    /// the same result.
    ///
    /// Rank 0 writes to each other rank and waits for the end of its writes, as links do. The others only
    /// read their memory.
    fn try_unaided(&self) -> Result<bool, PoolError> {
        let len = TRIAL_LEN.min(self.size - size_of::<u64>());
        let last = (self.size - size_of::<u64>()) as MPI_Aint;
        let window = self.window;
        // SAFETY: it is a byte of this rank's part, which nothing else accesses before the pool exists.
        let seen = unsafe { AtomicU8::from_ptr(self.base.add(self.size - 1).as_ptr()) };
        seen.store(0, Ordering::Relaxed);
        // SAFETY: the window lives as long as `self`, and all ranks call this.
        unsafe {
            check("MPI_Win_sync", ffi::MPI_Win_sync(window))?;
            check("MPI_Barrier", ffi::MPI_Barrier(self.silent))?;
        }
        let mut arrived: c_int = 1;
        if self.rank == 0 {
            let zeroes = vec![0_u8; len];
            for rank in 1..self.ranks as c_int {
                // SAFETY: all of it is inside the other rank's part, and MPI has done with `zeroes` after the
                // flush.
                unsafe {
                    let (byte, from, len) = (ffi::RSMPI_UINT8_T, zeroes.as_ptr().cast(), len as c_int);
                    check("MPI_Put", ffi::MPI_Put(from, len, byte, rank, 0, len, byte, window))?;
                    check("MPI_Win_flush", ffi::MPI_Win_flush(rank, window))?;
                }
                // The second is sent only when a flush has seen the first arrive.
                for word in [0, u64::MAX] {
                    // SAFETY: `word` goes inside the other rank's part, and MPI has done with it after the
                    // flush.
                    unsafe {
                        let (from, kind, op) =
                            ((&raw const word).cast(), ffi::RSMPI_UINT64_T, farjump_replace);
                        let sent = ffi::MPI_Accumulate(from, 1, kind, rank, last, 1, kind, op, window);
                        check("MPI_Accumulate", sent)?;
                        check("MPI_Win_flush", ffi::MPI_Win_flush(rank, window))?;
                    }
                }
            }
        } else {
            let begun = Instant::now();
            while seen.load(Ordering::Acquire) == 0 && begun.elapsed() < TRIAL {
                sleep(Duration::from_micros(100));
            }
            arrived = (seen.load(Ordering::Acquire) != 0).into();
        }
        let mut everywhere: c_int = 0;
        // SAFETY: one number each, which both outlive the call, and all ranks call this.
        check("MPI_Allreduce", unsafe {
            let (from, to) = ((&raw const arrived).cast(), (&raw mut everywhere).cast());
            ffi::MPI_Allreduce(from, to, 1, ffi::RSMPI_INT32_T, ffi::RSMPI_MIN, self.silent)
        })?;
        Ok(everywhere != 0)
    }

    /// Records a call that may wait for another rank, until the result is dropped. Only a worker reads the records.
    fn waiting(&self, call: &'static str, rank: c_int) -> Option<Waiting<'_>> {
        if self.workers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.begun += 1;
        let number = waits.begun;
        waits.calls.push((number, Wait { call, rank, since: Instant::now() }));
        Some(Waiting(self, number))
    }

    /// Returns a word of this rank's part.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.size, "labels lie inside");
        // SAFETY: it is inside this rank's part, which lives as long as `self`, and aligned. Other ranks
        // write words by `MPI_Accumulate`, in one piece.
        unsafe { AtomicU64::from_ptr(self.base.add(at).as_ptr().cast()) }
    }

    /// Returns whether the peer of the region that starts there has left it.
    fn has_left(&self, start: usize) -> bool {
        self.word(start + LEFT_AT).load(Ordering::Acquire) != 0
    }
}

/// Lets MPI make progress for other ranks. An MPI without a thread of its own writes into this rank's memory
/// only while this rank calls MPI.
///
/// The probe is of a communicator of several ranks. MPICH serves a probe of `MPI_COMM_SELF` from the rank's own queue,
/// and does no other work.
pub(crate) fn nudge(pool: &Pool) -> Result<(), PoolError> {
    let mut found = 0;
    // SAFETY: the communicator lives as long as the pool. Nothing is ever sent on it, so nothing is found.
    check("MPI_Iprobe", unsafe {
        let (from, tag, no_status) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG, ffi::RSMPI_STATUS_IGNORE);
        ffi::MPI_Iprobe(from, tag, pool.0.silent, &raw mut found, no_status)
    })
}
