//! The target's memory, mapped by both processes.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::one_sided::Remote;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// The memory, and the bytes fetched from it.
pub(crate) struct Mapped {
    start: *mut u8,
    len: usize,
    fetched: Vec<u8>,
}

impl Mapped {
    /// Makes an accessor of `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are writable as long as the value lives, and there are no references to them. The other
    /// process does not access them during a measurement.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Mapped {
        Mapped { start, len, fetched: vec![0; len] }
    }
}

impl Remote for Mapped {
    /// Returns the number of all rows: loads fetch only the lines of the rows.
    fn rows_one_by_one(&self) -> usize {
        usize::MAX
    }

    #[inline]
    fn get(&mut self, at: usize, len: usize, to: usize, _watch: &Watch) -> Result<(), Failure> {
        assert!(at + len <= self.len);
        let into = &mut self.fetched[to..to + len];
        // SAFETY: the assertion keeps the source in the memory; the destination is this endpoint's own
        // buffer.
        unsafe { ptr::copy_nonoverlapping(self.start.add(at), into.as_mut_ptr(), len) };
        Ok(())
    }

    #[inline]
    fn put(&mut self, at: usize, bytes: &'static [u8], _watch: &Watch) -> Result<(), Failure> {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: as in `get`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
        Ok(())
    }

    fn put_word(&mut self, at: usize, word: u64, _watch: &Watch) -> Result<(), Failure> {
        assert!(at + 8 <= self.len && at.is_multiple_of(8));
        // SAFETY: the assertion keeps the word in the memory, aligned; both processes access it as a whole.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast()) }.store(word, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn arrive(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }

    #[inline]
    fn flush(&mut self, _watch: &Watch) -> Result<(), Failure> {
        fence(Ordering::Release);
        Ok(())
    }

    fn fetched(&mut self) -> &mut [u8] {
        &mut self.fetched
    }
}
