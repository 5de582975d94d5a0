//! Memory that the ranks of a job write into: one window of MPI, and the regions that links take of it.
//!
//! MPI makes windows collectively, but a link concerns two ranks only. So the ranks make one window when they start, each with
//! the same number of bytes in it, and a link takes a *region* of each side's part. In front of a region lies its label, a page
//! that says what it is: who comes with an address reads there whether it is good, and writes there that it has left.
//! Only then does the region go to another link, which nobody who is late can write into thereby.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mpi::Threading;
use mpi::ffi::{self, MPI_Aint, MPI_Op, MPI_Win};
use mpi::topology::Communicator;
use range_alloc::RangeAllocator;

/// What regions are aligned to, and a label takes, in bytes.
const PAGE: usize = 4096;
/// Where in a label the region's token is, its length, and whether its peer has left.
const TOKEN_AT: usize = 0;
const LEN_AT: usize = 8;
const LEFT_AT: usize = 16;
/// What tokens begin with.
const MARK: u64 = u64::from_be_bytes(*b"farj\0\0\0\0");

unsafe extern "C" {
    /// `MPI_REPLACE`, from `replace.c`.
    static farjump_replace: MPI_Op;
}

/// Why there is no pool, or an operation on one failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// MPI was started for fewer threads.
    #[error(
        "MPI was initialised for {0:?} and not for MPI_THREAD_MULTIPLE: call mpi::initialize_with_threading"
    )]
    Threads(Threading),
    /// What is written into a window cannot be read there by loads.
    #[error("the windows of this MPI are not of the unified memory model, so nothing can be polled in them")]
    Separate,
    /// A window that is of no use, or too large for MPI to count its bytes.
    #[error("a window of {0} bytes a rank: it takes at least one, and less than 2 GiB")]
    Size(usize),
    /// MPI said so.
    #[error("{call}: {said}")]
    Mpi {
        /// The function.
        call: &'static str,
        /// Its error, in words.
        said: String,
    },
    /// There are not so many bytes free in a row.
    #[error("no {0} bytes in a row are free in this rank's part of the window: make it larger")]
    Exhausted(usize),
    /// An address that is not that of a region.
    #[error("{0}")]
    Address(&'static str),
    /// Links, targets or transports are still there.
    #[error("the window is still in use: drop links, targets and transports first")]
    InUse,
}

/// This rank's share in the window. Clones are the same one.
///
/// It may be used from all threads. [`Pool::free`] gives it back; a pool that is merely dropped stays until MPI ends.
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
}

// SAFETY: `Pool::allocate` has made sure that MPI may be called by all threads at once. What `base` points to is only used by
// regions, which share none of it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Which bytes of this rank's part are free.
struct Pages {
    free: RangeAllocator<usize>,
    /// Regions that are used here no more, but may still be written into.
    parting: Vec<Range<usize>>,
    /// How many regions there have been.
    taken: u64,
}

impl Pool {
    /// Makes the window, with `bytes` bytes of each rank's for regions: to be called by all ranks of `communicator`, with
    /// the same number.
    ///
    /// A link takes a mailbox of each side's, and a page with it; for a frame that is too long for its mailbox, a longer one
    /// for as long as that is needed. What is not written to takes no memory in most MPIs.
    ///
    /// # Errors
    /// If MPI was not started for all threads, has no unified memory, or refuses.
    pub fn allocate(communicator: &impl Communicator, bytes: usize) -> Result<Pool, PoolError> {
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
        // SAFETY: a constant of MPI.
        let mut window = unsafe { ffi::RSMPI_WIN_NULL };
        // SAFETY: MPI is initialised, which a communicator proves; both results are written where they belong.
        check("MPI_Win_allocate", unsafe {
            let (no_info, base) = (ffi::RSMPI_INFO_NULL, (&raw mut base).cast());
            ffi::MPI_Win_allocate(size as MPI_Aint, 1, no_info, communicator.as_raw(), base, &raw mut window)
        })?;
        // SAFETY: the window is there, and all of its ranks come by here. From now on it is accessed without epochs.
        unsafe {
            check("MPI_Win_set_errhandler", ffi::MPI_Win_set_errhandler(window, ffi::RSMPI_ERRORS_RETURN))?;
            let (mut model, mut found) = (ptr::null_mut::<c_int>(), 0);
            let (key, value) = (ffi::MPI_WIN_MODEL as c_int, (&raw mut model).cast());
            check("MPI_Win_get_attr", ffi::MPI_Win_get_attr(window, key, value, &raw mut found))?;
            if found == 0 || *model != ffi::MPI_WIN_UNIFIED as c_int {
                return Err(PoolError::Separate);
            }
            check("MPI_Win_lock_all", ffi::MPI_Win_lock_all(ffi::MPI_MODE_NOCHECK as c_int, window))?;
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(PoolError::Exhausted(size))?;
        let first = base.addr().get().next_multiple_of(PAGE) - base.addr().get();
        let pages = Pages { free: RangeAllocator::new(first..first + usable), parting: Vec::new(), taken: 0 };
        let (rank, ranks) = (communicator.rank() as usize, communicator.size() as usize);
        Ok(Pool(Arc::new(Shared { window, base, size, rank, ranks, pages: Mutex::new(pages) })))
    }

    /// Gives the window back: to be called by all ranks, and by each before MPI ends.
    ///
    /// # Errors
    /// If something of this rank still uses it, or MPI refuses. An error of one rank leaves the others waiting.
    pub fn free(self) -> Result<(), PoolError> {
        let mut shared = Arc::into_inner(self.0).ok_or(PoolError::InUse)?;
        // SAFETY: nobody in this rank uses the window any more, and what other ranks still wrote they have completed
        // when they come here: `MPI_Win_free` waits for them.
        unsafe {
            check("MPI_Win_unlock_all", ffi::MPI_Win_unlock_all(shared.window))?;
            check("MPI_Win_free", ffi::MPI_Win_free(&raw mut shared.window))
        }
    }

    /// Takes a region of `len` bytes, a multiple of 4096, all of them zero.
    pub(crate) fn take(&self, len: usize) -> Result<Region, PoolError> {
        let shared = &self.0;
        let (range, token) = {
            let pages = &mut *shared.pages.lock().unwrap_or_else(PoisonError::into_inner);
            let (left, parting) = pages.parting.drain(..).partition(|parting| shared.has_left(parting.start));
            pages.parting = parting;
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
        let told = AtomicBool::new(false);
        let region = Region { shared: Arc::clone(shared), pages: range, len, token, told };
        // SAFETY: the window lives as long as `shared`. What was stored here is there for the peer's `MPI_Get` then.
        check("MPI_Win_sync", unsafe { ffi::MPI_Win_sync(shared.window) })?;
        Ok(region)
    }
}

impl Shared {
    /// A word of this rank's part.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.size, "labels lie inside");
        // SAFETY: inside this rank's part, which is there as long as `self`, and aligned. Other ranks write words by
        // `MPI_Accumulate`, in one piece.
        unsafe { AtomicU64::from_ptr(self.base.add(at).as_ptr().cast()) }
    }

    /// Whether the peer of the region that starts there has left it.
    fn has_left(&self, start: usize) -> bool {
        self.word(start + LEFT_AT).load(Ordering::Acquire) != 0
    }
}

/// A region of this rank's, which one other end writes into.
pub(crate) struct Region {
    shared: Arc<Shared>,
    /// Its label and itself, from the start of this rank's part.
    pages: Range<usize>,
    len: usize,
    token: u64,
    /// Whether anybody may know where it is.
    told: AtomicBool,
}

impl Region {
    /// Where it is. From now on it is not given back before the peer has left it.
    pub(crate) fn place(&self) -> Place {
        self.told.store(true, Ordering::Relaxed);
        Place {
            rank: self.shared.rank as u64,
            at: self.pages.start as u64,
            len: self.len as u64,
            token: self.token,
        }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        // SAFETY: behind the label there are `len` bytes of the region's own.
        unsafe { self.shared.base.add(self.pages.start + PAGE) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let pages = &mut *self.shared.pages.lock().unwrap_or_else(PoisonError::into_inner);
        match *self.told.get_mut() && !self.shared.has_left(self.pages.start) {
            true => pages.parting.push(self.pages.clone()),
            false => pages.free.free_range(self.pages.clone()),
        }
    }
}

/// Where a region is, as its owner says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    rank: u64,
    /// Of its label, from the start of that rank's part.
    at: u64,
    len: u64,
    token: u64,
}

impl Place {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.rank, self.at, self.len, self.token].into_iter().flat_map(u64::to_le_bytes).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Place> {
        let words: &[[u8; 8]; 4] = bytes.as_chunks().0.try_into().ok().filter(|_| bytes.len() == 32)?;
        let [rank, at, len, token] = words.map(u64::from_le_bytes);
        Some(Place { rank, at, len, token })
    }
}

/// A region of another rank's, or of this one's, to write into. Its owner is told when this is dropped.
pub(crate) struct Reached {
    shared: Arc<Shared>,
    rank: c_int,
    /// Start of its label.
    at: usize,
    len: usize,
    /// Whether anything was put that is not known to be there.
    unsettled: bool,
}

impl Reached {
    /// Goes to the region at `place`, which is not believed: it has to be inside, and the label there has to be its own.
    pub(crate) fn new(pool: &Pool, place: Place) -> Result<Reached, PoolError> {
        let shared = Arc::clone(&pool.0);
        let rank = c_int::try_from(place.rank).ok().filter(|rank| (*rank as usize) < shared.ranks);
        let rank = rank.ok_or(PoolError::Address("there is no such rank"))?;
        let end = place.at.checked_add(place.len).and_then(|end| end.checked_add(PAGE as u64));
        if place.len == 0 || end.is_none_or(|end| end > shared.size as u64) {
            return Err(PoolError::Address("its region is not inside the window"));
        }
        let (at, len) = (place.at as usize, place.len as usize);
        let mut label = [0_u64; 2];
        // SAFETY: the bytes that are read are inside the other rank's part, and have arrived after the flush.
        unsafe {
            let (to, count) = ((&raw mut label).cast(), size_of_val(&label) as c_int);
            let (byte, window) = (ffi::RSMPI_UINT8_T, shared.window);
            check("MPI_Get", ffi::MPI_Get(to, count, byte, rank, at as MPI_Aint, count, byte, window))?;
            check("MPI_Win_flush", ffi::MPI_Win_flush(rank, window))?;
        }
        if label != [place.token, place.len] {
            return Err(PoolError::Address("there is no such region, or no more"));
        }
        Ok(Reached { shared, rank, at, len, unsettled: false })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Has `bytes` written at `offset`: they are no longer read here when this returns, and are there once all is
    /// [settled](Reached::settle).
    ///
    /// # Panics
    /// If they are not all inside.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PoolError> {
        let displacement = self.displacement(offset, bytes.len());
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as c_int);
        self.unsettled = true;
        // SAFETY: all of it is inside the other rank's part, and MPI has done with the bytes after the flush.
        unsafe {
            let (byte, window) = (ffi::RSMPI_UINT8_T, self.shared.window);
            let put = ffi::MPI_Put(from, count, byte, self.rank, displacement, count, byte, window);
            check("MPI_Put", put)?;
            check("MPI_Win_flush_local", ffi::MPI_Win_flush_local(self.rank, window))
        }
    }

    /// Writes a word, in one piece. It is there when this returns.
    ///
    /// # Panics
    /// If it is not inside.
    pub(crate) fn put_word(&mut self, offset: usize, word: u64) -> Result<(), PoolError> {
        let displacement = self.displacement(offset, size_of::<u64>());
        self.replace(displacement, word)
    }

    /// Waits until all that was put is there.
    pub(crate) fn settle(&mut self) -> Result<(), PoolError> {
        if self.unsettled {
            // SAFETY: the window lives as long as `shared`.
            check("MPI_Win_flush", unsafe { ffi::MPI_Win_flush(self.rank, self.shared.window) })?;
            self.unsettled = false;
        }
        Ok(())
    }

    fn displacement(&self, offset: usize, len: usize) -> MPI_Aint {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "who calls has looked");
        (self.at + PAGE + offset) as MPI_Aint
    }

    fn replace(&mut self, displacement: MPI_Aint, word: u64) -> Result<(), PoolError> {
        let word = word.to_le();
        self.unsettled = true;
        // SAFETY: inside the other rank's part, and `word` is there until all is settled. Of what MPI writes only
        // accumulations are of one piece (MPI 3.1, 11.7.1).
        check("MPI_Accumulate", unsafe {
            let (from, kind, window) = ((&raw const word).cast(), ffi::RSMPI_UINT64_T, self.shared.window);
            ffi::MPI_Accumulate(from, 1, kind, self.rank, displacement, 1, kind, farjump_replace, window)
        })?;
        self.settle()
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        // All that was put comes before. An error keeps the region from being used again, which is as well.
        let _ = self.settle().and_then(|()| self.replace((self.at + LEFT_AT) as MPI_Aint, 1));
    }
}

/// Lets MPI work for other ranks: one that has no thread of its own moves what is written into this rank's memory only
/// while this rank is in one of its functions.
pub(crate) fn nudge(_: &Pool) -> Result<(), PoolError> {
    let mut found = 0;
    // SAFETY: MPI runs as long as there is a pool. Nobody sends anything to himself here, and nothing is taken.
    check("MPI_Iprobe", unsafe {
        let (from, tag, no_status) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG, ffi::RSMPI_STATUS_IGNORE);
        ffi::MPI_Iprobe(from, tag, ffi::RSMPI_COMM_SELF, &raw mut found, no_status)
    })
}

/// What a function of MPI returned.
fn check(call: &'static str, code: c_int) -> Result<(), PoolError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: there is room for the longest text.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &raw mut len) };
    let said = text.get(..len as usize).unwrap_or_default();
    Err(PoolError::Mpi { call, said: String::from_utf8_lossy(said).into_owned() })
}
