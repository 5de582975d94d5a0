//! Memory that two simulated endpoints share; both can read and write it at once.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes on the heap, zeroed at first.
///
/// Every access here is atomic, so a reader at the other endpoint that also uses atomics sees old or new bytes and
/// never anything else.
pub struct SharedBlock {
    allocation: NonNull<u8>,
    layout: Layout,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a block owns its bytes and is not tied to the thread that allocated them.
unsafe impl Send for SharedBlock {}
// SAFETY: only atomic operations touch the bytes through a shared reference.
unsafe impl Sync for SharedBlock {}

impl SharedBlock {
    /// Allocates `len` bytes aligned to `align`, a power of two from 8 on. Returns `None` without memory.
    pub fn zeroed(len: usize, align: usize) -> Option<SharedBlock> {
        Self::new(len, align, 0)
    }

    /// Allocates `len` bytes aligned to exactly `align`, not better.
    pub fn zeroed_no_better(len: usize, align: usize) -> Option<SharedBlock> {
        Self::new(len, align, align)
    }

    fn new(len: usize, align: usize, skew: usize) -> Option<SharedBlock> {
        // Whole words, at least one, so that no allocation is empty.
        let size = len.checked_next_multiple_of(8)?.max(8).checked_add(skew)?;
        let layout = Layout::from_size_align(size, (align + skew).max(8)).ok()?;
        // SAFETY: the size is not 0.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: `skew` is part of the size.
        let start = unsafe { allocation.add(skew) };
        Some(SharedBlock { allocation, layout, start, len })
    }

    /// The first byte. It does not move.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no use has an empty block")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies `bytes` to `at`, each whole aligned word in one piece. Panics outside the block.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let head = bytes.len().min(at.next_multiple_of(8) - at);
        let (head, rest) = bytes.split_at(head);
        let (words, tail) = rest.as_chunks::<8>();
        for (index, byte) in head.iter().enumerate() {
            self.byte(at + index).store(*byte, Ordering::Release);
        }
        let mut at = at + head.len();
        for word in words {
            // Pairs with an acquire load of the other endpoint: a reader of this word sees everything written
            // before it.
            self.word(at).store(u64::from_ne_bytes(*word), Ordering::Release);
            at += 8;
        }
        for (index, byte) in tail.iter().enumerate() {
            self.byte(at + index).store(*byte, Ordering::Release);
        }
    }

    /// Copies `len` bytes from `at` on. Panics outside the block.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        (at..at + len).map(|at| self.byte(at).load(Ordering::Relaxed)).collect()
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len, "byte {at} of a block of {}", self.len);
        // SAFETY: inside the allocation, which lives as long as the reference, and touched only atomically.
        unsafe { AtomicU8::from_ptr(self.start.add(at).as_ptr()) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "word {at} of a block of {}", self.len);
        // SAFETY: inside the allocation, which lives as long as the reference, and aligned as the start and
        // `at` are.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast().as_ptr()) }
    }
}

impl Drop for SharedBlock {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and owned.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}
