//! Memory of both processes: two words by which a measurement ends, two for what sleeps, a region for each side's raw ring, and
//! the data that work is done on without any code at the target.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::program::failure::Failure;

/// Where the words lie, each in a line of its own.
const STOPPED: usize = 0;
const FINISHED: usize = 128;
const BELL: usize = 256;
const STAMP: usize = 384;
/// Where it says how many bytes of data there are, behind the regions.
const STORE: usize = 512;
/// Where the regions begin.
const REGIONS: usize = 4096;

/// The memory.
pub(super) struct Memory {
    map: MmapRaw,
    file: OwnedFd,
}

impl Memory {
    /// New memory, zeroed, with two regions of `region` bytes and `store` bytes of data, both multiples of 4096.
    pub(super) fn create(region: usize, store: usize) -> Result<Memory, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("no memory for the raw ring: {error}"));
        // Without CLOEXEC: the other process inherits it.
        let file = memfd_create("farjump-perf", MemfdFlags::empty()).map_err(|error| failed(error.into()))?;
        ftruncate(&file, (REGIONS + 2 * region + store) as u64).map_err(|error| failed(error.into()))?;
        let memory = Memory::map(file).map_err(failed)?;
        memory.word(STORE).store(store as u64, Ordering::Release);
        Ok(memory)
    }

    /// The memory whose descriptor this process inherited.
    pub(super) fn inherit(descriptor: RawFd) -> Result<Memory, Failure> {
        // SAFETY: `perf` started this process with the descriptor open under this number, and nobody else owns it here.
        let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Memory::map(file)
            .map_err(|error| Failure::new(format!("the memory of both cannot be mapped: {error}")))
    }

    fn map(file: OwnedFd) -> std::io::Result<Memory> {
        let map = MmapRaw::map_raw(&File::from(file.try_clone()?))?;
        if map.len() < REGIONS {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Memory { map, file })
    }

    /// The descriptor, to be inherited.
    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_fd().as_raw_fd()
    }

    /// The regions: the source's, the target's, and the length of each in bytes.
    pub(super) fn regions(&self) -> (*mut u8, *mut u8, usize) {
        let region = (self.map.len() - REGIONS - self.store_len()) / 2;
        let first = self.map.as_mut_ptr().wrapping_add(REGIONS);
        (first, first.wrapping_add(region), region)
    }

    /// Where the data is, and its length in bytes.
    pub(super) fn store(&self) -> (*mut u8, usize) {
        let len = self.store_len();
        (self.map.as_mut_ptr().wrapping_add(self.map.len() - len), len)
    }

    fn store_len(&self) -> usize {
        self.word(STORE).load(Ordering::Acquire) as usize
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is one of the constants above, in the mapping and aligned; the words are only ever used atomically, and
        // the mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }

    /// Neither is stopped nor finished: before a measurement.
    pub(super) fn reset(&self) {
        self.word(STOPPED).store(0, Ordering::Relaxed);
        self.word(FINISHED).store(0, Ordering::Release);
    }

    /// The target's side is to stop.
    pub(super) fn stop(&self) {
        self.word(STOPPED).store(1, Ordering::Release);
    }

    #[inline]
    pub(super) fn stopped(&self) -> bool {
        self.word(STOPPED).load(Ordering::Acquire) != 0
    }

    /// What a futex is waited for on: the low half of the word.
    pub(super) fn bell(&self) -> &AtomicU32 {
        // SAFETY: as in `word`, and this one is used as such a half alone.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(BELL).cast()) }
    }

    /// When what was asleep had run what woke it, by [`clock::now`](super::clock::now); 0 if it has not.
    pub(super) fn stamp(&self) -> &AtomicU64 {
        self.word(STAMP)
    }

    /// The target's side has counted all that was announced.
    pub(super) fn finish(&self) {
        self.word(FINISHED).store(1, Ordering::Release);
    }

    #[inline]
    pub(super) fn finished(&self) -> bool {
        self.word(FINISHED).load(Ordering::Acquire) != 0
    }
}
