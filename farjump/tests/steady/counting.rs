//! An allocator that counts for each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub(crate) struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Allocations and reallocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread has allocated and not freed, less those of others that it freed.
pub(crate) fn held() -> i64 {
    HELD.get()
}

fn hold(bytes: usize, sign: i64) {
    let _ = HELD.try_with(|held| held.set(held.get() + sign * bytes as i64));
}

fn count() {
    // An ending thread frees memory after its own variables are gone; this memory does not count.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: the system's allocator does the work, with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 1);
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 1);
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        hold(size, 1);
        hold(layout.size(), -1);
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(layout.size(), -1);
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { System.dealloc(memory, layout) }
    }
}
