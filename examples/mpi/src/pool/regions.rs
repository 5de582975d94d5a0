//! Regions of the window: this rank's own, and those of other ranks that it writes into.

use std::ffi::c_int;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use mpi::ffi::{self, MPI_Aint};

use super::error::check;
use super::{LEFT_AT, PAGE, Pool, PoolError, Shared, farjump_replace};

/// A region of this rank's, which one peer endpoint writes into.
pub(crate) struct Region {
    pub(super) shared: Arc<Shared>,
    /// Its label and itself, as offsets in this rank's part.
    pub(super) pages: Range<usize>,
    pub(super) len: usize,
    pub(super) token: u64,
    /// Whether a peer may know its place.
    pub(super) announced: AtomicBool,
}

impl Region {
    /// Returns its place. From now on the region is not reused before the peer has left it.
    pub(crate) fn place(&self) -> Place {
        self.announced.store(true, Ordering::Relaxed);
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
        match *self.announced.get_mut() && !self.shared.has_left(self.pages.start) {
            true => pages.leaving.push(self.pages.clone()),
            false => pages.free.free_range(self.pages.clone()),
        }
    }
}

/// The place of a region, as its owner announces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    rank: u64,
    /// Offset of its label in that rank's part.
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

/// A region of another rank's, or of this one's, to write into. Dropping this notifies its owner.
pub(crate) struct Reached {
    shared: Arc<Shared>,
    rank: c_int,
    /// Offset of its label.
    at: usize,
    len: usize,
    /// True if a put may not have arrived yet.
    unsettled: bool,
}

impl Reached {
    /// Opens the region at `place`, which is not trusted: it has to be inside, and have its own label.
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
        let waiting = shared.waiting("MPI_Get", rank);
        // SAFETY: the bytes that are read are inside the other rank's part, and have arrived after the flush.
        unsafe {
            let (to, count) = ((&raw mut label).cast(), size_of_val(&label) as c_int);
            let (byte, window) = (ffi::RSMPI_UINT8_T, shared.window);
            check("MPI_Get", ffi::MPI_Get(to, count, byte, rank, at as MPI_Aint, count, byte, window))?;
            check("MPI_Win_flush", ffi::MPI_Win_flush(rank, window))?;
        }
        drop(waiting);
        if label != [place.token, place.len] {
            return Err(PoolError::Address("there is no such region, or no more"));
        }
        Ok(Reached { shared, rank, at, len, unsettled: false })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes `bytes` at `offset`. MPI has read them when this returns, and they have arrived once all is
    /// [settled](Reached::settle).
    ///
    /// # Panics
    /// If they are not all inside.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PoolError> {
        let displacement = self.displacement(offset, bytes.len());
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as c_int);
        self.unsettled = true;
        let _waiting = self.shared.waiting("MPI_Put", self.rank);
        // SAFETY: all of it is inside the other rank's part, and MPI has done with the bytes after the flush.
        unsafe {
            let (byte, window) = (ffi::RSMPI_UINT8_T, self.shared.window);
            let put = ffi::MPI_Put(from, count, byte, self.rank, displacement, count, byte, window);
            check("MPI_Put", put)?;
            check("MPI_Win_flush_local", ffi::MPI_Win_flush_local(self.rank, window))
        }
    }

    /// Writes a word, in one piece. It has arrived when this returns.
    ///
    /// # Panics
    /// If it is not inside.
    pub(crate) fn put_word(&mut self, offset: usize, word: u64) -> Result<(), PoolError> {
        let displacement = self.displacement(offset, size_of::<u64>());
        self.replace(displacement, word)
    }

    /// Waits until all puts have arrived.
    pub(crate) fn settle(&mut self) -> Result<(), PoolError> {
        if self.unsettled {
            let _waiting = self.shared.waiting("MPI_Win_flush", self.rank);
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
        let waiting = self.shared.waiting("MPI_Accumulate", self.rank);
        // SAFETY: inside the other rank's part, and `word` lives until all is settled. Of MPI's writes only
        // accumulations are of one piece (MPI 3.1, 11.7.1).
        check("MPI_Accumulate", unsafe {
            let (from, kind, window) = ((&raw const word).cast(), ffi::RSMPI_UINT64_T, self.shared.window);
            ffi::MPI_Accumulate(from, 1, kind, self.rank, displacement, 1, kind, farjump_replace, window)
        })?;
        drop(waiting);
        self.settle()
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        // All puts come before. An error keeps the region from being reused, which is right.
        let _ = self.settle().and_then(|()| self.replace((self.at + LEFT_AT) as MPI_Aint, 1));
    }
}
