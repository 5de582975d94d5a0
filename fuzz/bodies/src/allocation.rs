//! Counts the memory that a thread allocates, for assertions about bounded memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

thread_local! {
    // Neither needs a destructor, so allocations may use them at any time of a thread's life.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with counting. Programs that assert bounded memory name it as their
/// `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

fn count(bytes: isize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: the system allocator does everything; the counters touch none of its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the same conditions for this call.
        let at = unsafe { System.alloc(layout) };
        // An allocation of a length that a peer made up may fail.
        if !at.is_null() {
            count(layout.size() as isize);
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller guarantees the same conditions for this call: `at` came from the methods here, and so
        // from the system.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees the same conditions for this call: `at` came from the methods here, and so
        // from the system.
        let at = unsafe { System.realloc(at, layout, size) };
        if !at.is_null() {
            // Both may have existed while bytes moved from one to the other.
            count(size as isize);
            count(-(layout.size() as isize));
        }
        at
    }
}

/// Runs `act`, and returns the most bytes that this thread held at once beyond those before. They are 0 in a program
/// without [`Counting`], see [`is_counting`].
pub fn most_at_once<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = act();
    (result, (PEAK.get() - before).max(0) as usize)
}

/// Bytes that this thread has allocated and not freed; negative if it has freed memory of other threads.
pub fn live() -> isize {
    LIVE.get()
}

/// Returns whether [`Counting`] is this program's allocator.
pub fn is_counting() -> bool {
    most_at_once(|| drop(black_box(Vec::<u8>::with_capacity(4096)))).1 >= 4096
}
