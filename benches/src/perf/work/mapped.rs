//! The target's memory where both processes have mapped it.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::one_sided::Remote;
use crate::perf::liveness::Watch;
use crate::program::failure::Failure;

/// The memory, and what was fetched from it.
pub(crate) struct Mapped {
    start: *mut u8,
    len: usize,
    fetched: Vec<u8>,
}

impl Mapped {
    /// Over `len` bytes at `start`.
    ///
    /// # Safety
    /// They are writable as long as the value is there, and nobody has references to them. The other process leaves them alone
    /// while something is measured.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Mapped {
        Mapped { start, len, fetched: vec![0; len] }
    }
}

impl Remote for Mapped {
    /// Loads fetch nothing but lines.
    fn rows_one_by_one(&self) -> usize {
        usize::MAX
    }

    #[inline]
    fn get(&mut self, at: usize, len: usize, to: usize, _watch: &Watch) -> Result<(), Failure> {
        assert!(at + len <= self.len);
        let into = &mut self.fetched[to..to + len];
        // SAFETY: in the memory by the assertion, and another place than what is this side's own.
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
        // SAFETY: in the memory and aligned by the assertion; both processes use this word as a whole.
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
