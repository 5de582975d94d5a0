//! Memory that both processes share: two words that end a measurement, two for sleepers, a region for each
//! endpoint's raw ring, and the data for work without code at the target.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use farjump_os::limits;
use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::program::failure::Failure;

/// Offsets of the words, each in a line of its own.
const STOPPED: usize = 0;
const FINISHED: usize = 128;
const BELL: usize = 256;
const STAMP: usize = 384;
/// Offset of the length of the data, which lies behind the regions.
const STORE: usize = 512;
/// Offset of the regions.
const REGIONS: usize = 4096;

pub(in crate::perf) struct Memory {
    map: MmapRaw,
    file: OwnedFd,
}

impl Memory {
    /// Creates zeroed memory: two regions of `region` bytes, and `store` bytes of data, both multiples of
    /// 4096.
    pub(in crate::perf) fn create(region: usize, store: usize) -> Result<Memory, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(format!("no memory for the raw ring: {error}{}", limits::behind(&error)))
        };
        // Without CLOEXEC: the other process inherits it.
        let file = memfd_create("farjump-perf", MemfdFlags::empty()).map_err(|error| failed(error.into()))?;
        ftruncate(&file, (REGIONS + 2 * region + store) as u64).map_err(|error| failed(error.into()))?;
        let memory = Memory::map(file).map_err(failed)?;
        memory.word(STORE).store(store as u64, Ordering::Release);
        Ok(memory)
    }

    /// Maps the memory whose descriptor this process inherited.
    pub(in crate::perf) fn inherit(descriptor: RawFd) -> Result<Memory, Failure> {
        // SAFETY: `perf` started this process with this descriptor open, and only this function owns it here.
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

    /// Returns the descriptor, to be inherited.
    pub(in crate::perf) fn descriptor(&self) -> RawFd {
        self.file.as_fd().as_raw_fd()
    }

    /// Returns the regions: the source's, the target's, and the length of each in bytes.
    pub(in crate::perf) fn regions(&self) -> (*mut u8, *mut u8, usize) {
        let region = (self.map.len() - REGIONS - self.store_len()) / 2;
        let first = self.map.as_mut_ptr().wrapping_add(REGIONS);
        (first, first.wrapping_add(region), region)
    }

    /// Returns the start of the data and its length in bytes.
    pub(in crate::perf) fn store(&self) -> (*mut u8, usize) {
        let len = self.store_len();
        (self.map.as_mut_ptr().wrapping_add(self.map.len() - len), len)
    }

    fn store_len(&self) -> usize {
        self.word(STORE).load(Ordering::Acquire) as usize
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is one of the constants above, so it is in the mapping and aligned; all accesses to
        // the words are atomic, and the mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }

    /// Clears both words before a measurement.
    pub(in crate::perf) fn reset(&self) {
        self.word(STOPPED).store(0, Ordering::Relaxed);
        self.word(FINISHED).store(0, Ordering::Release);
    }

    /// Stops the target's endpoint.
    pub(in crate::perf) fn stop(&self) {
        self.word(STOPPED).store(1, Ordering::Release);
    }

    #[inline]
    pub(in crate::perf) fn stopped(&self) -> bool {
        self.word(STOPPED).load(Ordering::Acquire) != 0
    }

    /// Returns the futex: the low half of its word.
    pub(in crate::perf) fn bell(&self) -> &AtomicU32 {
        // SAFETY: as in `word`; this word is accessed only through this half.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(BELL).cast()) }
    }

    /// Returns the time, by [`clock::now`](crate::perf::machine::clock::now), at which the sleeper had run the message that
    /// woke it; 0 before that.
    pub(in crate::perf) fn stamp(&self) -> &AtomicU64 {
        self.word(STAMP)
    }

    /// Announces that the target's endpoint has counted all announced messages.
    pub(in crate::perf) fn finish(&self) {
        self.word(FINISHED).store(1, Ordering::Release);
    }

    #[inline]
    pub(in crate::perf) fn finished(&self) -> bool {
        self.word(FINISHED).load(Ordering::Acquire) != 0
    }
}
