//! A table, mapped: read ahead of its readers, and dropped behind them, so that it may be larger than memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{Advice as FileAdvice, fadvise};
use thiserror::Error;

use crate::cut::Watch;
use crate::table::{Geometry, TableError, UNIT};

/// Bytes that are read ahead or dropped at a time.
const SEGMENT: u64 = 8 << 20;
/// The least budget of memory, in bytes: a segment that is read and one ahead, of two readers.
pub const LEAST_BUDGET: u64 = 4 * SEGMENT;

/// A table that cannot be used.
#[derive(Debug, Error)]
#[error("{}: {cause}", path.display())]
pub struct MapError {
    /// The file's path as given.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub cause: TableError,
}

/// The fault of a file that is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// It was cut.
    #[error("the table was cut to {0} bytes")]
    Cut(u64),
    /// It was written.
    #[error("the table was changed")]
    Changed,
    /// The system could not read it.
    #[error("the table could not be read from its disk")]
    Unreadable,
}

impl Fault {
    /// Returns its number in `scan.h`.
    fn number(self) -> u64 {
        match self {
            Fault::Cut(left) => left,
            Fault::Unreadable => u64::MAX - 1,
            Fault::Changed => u64::MAX - 2,
        }
    }

    /// Returns the fault with this number.
    pub(crate) fn of(number: u64) -> Fault {
        [Fault::Unreadable, Fault::Changed]
            .into_iter()
            .find(|fault| fault.number() == number)
            .unwrap_or(Fault::Cut(number))
    }
}

/// A mapped table. A process has one at a time.
#[derive(Debug)]
pub struct Mapped {
    // Dropped before the mapping.
    watch: Watch,
    map: MmapRaw,
    file: File,
    /// The time of the file's last write, in seconds and nanoseconds.
    written: (i64, i64),
    geometry: Geometry,
    /// Segments in memory, the one that was read last at the end.
    segments: Mutex<VecDeque<u64>>,
    /// Most segments in memory.
    budget: usize,
}

/// The target_args of injected functions: `struct scan_table` of `scan.h`, and this process's own data behind it.
#[derive(Debug)]
#[repr(C)]
pub struct Args {
    blocks: u64,
    len: u64,
    block_len: u32,
    width: u32,
    // Behind the fields that functions know.
    mapped: Mapped,
}

impl Args {
    /// Makes the arguments of functions that read this table.
    pub fn new(mapped: Mapped) -> Args {
        let Geometry { block_len, width, blocks } = mapped.geometry;
        Args { blocks, len: mapped.map.len() as u64, block_len, width, mapped }
    }
}

impl Mapped {
    /// Maps the table at `path`, of which at most `budget` bytes stay in memory: [`LEAST_BUDGET`] at least.
    ///
    /// # Errors
    /// It is no table, or cannot be mapped.
    pub fn open(path: &Path, budget: u64) -> Result<Mapped, MapError> {
        let failed = |cause: TableError| MapError { path: path.to_owned(), cause };
        let system = |error: io::Error| failed(error.into());
        // Opening a pipe would otherwise wait for a writer.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(system)?;
        let metadata = file.metadata().map_err(system)?;
        if !metadata.is_file() {
            return Err(system(io::Error::other("it is no regular file")));
        }
        let geometry = Geometry::read(&file, metadata.len()).map_err(failed)?;
        let too_long = || system(io::Error::from(io::ErrorKind::FileTooLarge));
        let len = geometry.len().and_then(|len| usize::try_from(len).ok()).ok_or_else(too_long)?;
        let map = MmapOptions::new().len(len).map_raw_read_only(&file).map_err(system)?;
        let start = NonNull::new(map.as_mut_ptr()).expect("the system maps nothing at address 0");
        // SAFETY: both stay as long as the watch, which is the first field of the value. The mapping cannot be written,
        // and bytes that were read are trusted only where nothing is missing (`fault`).
        let watch = unsafe { Watch::begin(start, len, file.as_fd()) }.map_err(system)?;
        // This program itself requests the segments ahead.
        let _ = map.advise(Advice::Random);
        let budget = (budget.max(LEAST_BUDGET) / SEGMENT) as usize;
        let written = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Mapped { watch, map, file, written, geometry, segments: Mutex::default(), budget })
    }

    /// Returns the contents of its head.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the start of a block; `None` if there is no such block. All its bytes may be read until this is dropped.
    /// Some may be missing and read as zeros, or be others: [`Mapped::fault`] reports that afterwards.
    pub fn block(&self, number: u64) -> Option<NonNull<u8>> {
        if number >= self.geometry.blocks {
            return None;
        }
        let from = self.geometry.offset(number);
        let end = from + u64::from(self.geometry.block_len);
        for segment in from / SEGMENT..=(end - 1) / SEGMENT {
            self.read(segment);
        }
        NonNull::new(self.map.as_mut_ptr().wrapping_add(from as usize))
    }

    /// Copies a block.
    ///
    /// # Errors
    /// There is no such block, or the file was cut.
    pub fn copy(&self, number: u64, into: &mut Vec<u8>) -> Result<(), String> {
        let start = self.block(number).ok_or_else(|| format!("there is no block {number}"))?;
        into.clear();
        into.reserve(self.geometry.block_len as usize);
        // SAFETY: the block's bytes are mapped (`block`), and the vector has space for them. Another process may write
        // the file meanwhile; no byte is relied on.
        unsafe {
            ptr::copy_nonoverlapping(start.as_ptr(), into.as_mut_ptr(), self.geometry.block_len as usize);
            into.set_len(self.geometry.block_len as usize);
        }
        self.fault().map_or(Ok(()), |fault| Err(fault.to_string()))
    }

    /// Returns the fault of the file, if bytes that were read may not be the table's.
    pub fn fault(&self) -> Option<Fault> {
        let Ok(metadata) = self.file.metadata() else { return Some(Fault::Unreadable) };
        if metadata.len() < self.map.len() as u64 {
            Some(Fault::Cut(metadata.len()))
        } else if (metadata.mtime(), metadata.mtime_nsec()) != self.written {
            Some(Fault::Changed)
        } else if self.watch.were_missing() {
            Some(Fault::Unreadable)
        } else {
            None
        }
    }

    /// Records that a segment is read, requests the next one, and drops those not read for the longest time.
    fn read(&self, segment: u64) {
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if segments.back() == Some(&segment) {
            return;
        }
        for wanted in [segment + 1, segment] {
            let known = segments.iter().position(|known| *known == wanted);
            match known {
                Some(at) => drop(segments.remove(at)),
                None => self.advise(wanted, Advice::WillNeed),
            }
            segments.push_back(wanted);
        }
        while segments.len() > self.budget {
            let Some(dropped) = segments.pop_front() else { break };
            self.drop_pages(dropped);
        }
    }

    /// Returns the part of a segment that the table has: its offset and length in bytes.
    fn part(&self, segment: u64) -> Option<(usize, usize)> {
        let from = segment.checked_mul(SEGMENT)?;
        let len = (self.map.len() as u64).checked_sub(from).filter(|len| *len > 0)?.min(SEGMENT);
        Some((from as usize, len as usize))
    }

    fn advise(&self, segment: u64, advice: Advice) {
        if let Some((from, len)) = self.part(segment) {
            // A system that cannot do this is slower.
            let _ = self.map.advise_range(advice, from, len);
        }
    }

    fn drop_pages(&self, segment: u64) {
        let Some((from, len)) = self.part(segment) else { return };
        let at = self.map.as_mut_ptr().wrapping_add(from);
        // SAFETY: pages of the file's mapping, which nothing writes: they are read from the file again when they are
        // used.
        let _ = unsafe { rustix::mm::madvise(at.cast(), len, rustix::mm::Advice::LinuxDontNeed) };
        // The system's own copy, unless another process maps it.
        let len = std::num::NonZeroU64::new(len as u64);
        let _ = fadvise(self.file.as_fd(), from as u64, len, FileAdvice::DontNeed);
    }
}

const _: () = assert!(SEGMENT.is_multiple_of(UNIT));

/// Export for injected functions: see `scan.h`.
///
/// # Safety
/// `args` is the target_args of the call.
pub unsafe extern "C" fn scan_block(args: *const Args, number: u64) -> *const u8 {
    // SAFETY: the target keeps its arguments while it runs calls, and nothing else changes them.
    let args = unsafe { &*args };
    args.mapped.block(number).map_or(ptr::null(), |start| start.as_ptr())
}

/// Export for injected functions: see `scan.h`.
///
/// # Safety
/// As [`scan_block`].
pub unsafe extern "C" fn scan_fault(args: *const Args) -> u64 {
    // SAFETY: as in `scan_block`.
    let args = unsafe { &*args };
    args.mapped.fault().map_or(u64::MAX, Fault::number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{BLOCK, make};

    #[test]
    fn a_block_beyond_a_cut_files_end_is_zeros_and_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let len = make(&path, 40, false, 1).unwrap().len().unwrap();
        let mapped = Mapped::open(&path, LEAST_BUDGET).unwrap();
        let again = Mapped::open(&path, LEAST_BUDGET).unwrap_err().to_string();
        assert!(again.contains("a table already"), "{again}");
        let mut block = Vec::new();
        mapped.copy(39, &mut block).unwrap();
        assert!(block.iter().any(|byte| *byte != 0));
        let file = File::options().write(true).open(&path).unwrap();
        let left = UNIT + 3 * u64::from(BLOCK) + 100;
        file.set_len(left).unwrap();
        let why = mapped.copy(30, &mut block).unwrap_err();
        assert_eq!(why, format!("the table was cut to {left} bytes"));
        assert_eq!(block, vec![0; BLOCK as usize]);
        // A block that is still in the file is refused, too.
        assert!(mapped.copy(1, &mut block).is_err());
        // Bytes that come back are other bytes.
        file.set_len(len).unwrap();
        // The system's clock for this stands still for milliseconds.
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(mapped.copy(35, &mut block).unwrap_err(), "the table was changed");
        assert_eq!(mapped.block(40), None);
        drop(mapped);
        let anew = Mapped::open(&path, LEAST_BUDGET).unwrap();
        anew.copy(39, &mut block).unwrap();
        assert_eq!(block, vec![0; BLOCK as usize]);
    }
}
