//! Plain stores into mapped memory: the fastest way there is.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::{Layout, Writer, touch};
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

const PAGE: usize = 4096;

/// Writes the peer's region.
pub(crate) struct Stores {
    region: *mut u8,
    region_len: usize,
    /// The bytes written, again and again.
    payload: Vec<u8>,
}

impl Stores {
    /// Makes a writer into `region`.
    ///
    /// # Safety
    /// `region` has as many bytes as the layout says, is writable and aligned to 8 as long as the value
    /// lives, and there are no references to it.
    pub(crate) unsafe fn new(region: *mut u8, layout: &Layout) -> Stores {
        let region_len = layout.region;
        let stores = Stores { region, region_len, payload: vec![7; layout.longest] };
        touch((0..region_len).step_by(PAGE).map(|at| stores.word(at)));
        stores
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.region_len && at.is_multiple_of(8));
        // SAFETY: the assertion keeps the word in the region and aligned; all accesses to it are atomic.
        unsafe { AtomicU64::from_ptr(self.region.add(at).cast()) }
    }
}

impl Writer for Stores {
    #[inline]
    fn write(
        &mut self,
        at: usize,
        len: usize,
        signal_at: usize,
        signal: u64,
        _watch: &Watch,
    ) -> Result<(), Failure> {
        assert!(at + len <= signal_at);
        let (payload, last) = (&self.payload[..len], self.word(signal_at));
        // SAFETY: the bytes end before the signal's word in the region; the payload is private to this
        // endpoint.
        unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), self.region.add(at), len) };
        // Pairs with the receiver's load of the signal.
        last.store(signal, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn return_credit(&mut self, at: usize, word: u64) -> Result<bool, Failure> {
        self.word(at).store(word, Ordering::Release);
        Ok(true)
    }

    #[inline]
    fn fetch(&mut self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults and changes no register.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) self.region.wrapping_add(at), options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[inline]
    fn work(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn settle(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }
}
