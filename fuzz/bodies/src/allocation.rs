//! Memory that a thread has allocated, counted: so that a promise about memory can be asserted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

thread_local! {
    // Neither needs a destructor, so an allocation at any time of a thread's life may use them.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting. A program in which memory is to be bounded names it as its `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

fn count(bytes: isize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: everything is the system allocator's doing; the counters touch no memory of its.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on: `at` came from the methods here, and so from the system.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there while bytes move from one to the other.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on: `at` came from the methods here, and so from the system.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `act`, and returns the most bytes that this thread held at once beyond what it held before. 0 in a program without
/// [`Counting`], see [`is_counting`].
pub fn most_at_once<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = act();
    (result, (PEAK.get() - before).max(0) as usize)
}

/// Bytes that this thread has allocated and not freed; less than 0 where it has freed what others allocated.
pub fn live() -> isize {
    LIVE.get()
}

/// Whether [`Counting`] is this program's allocator.
pub fn is_counting() -> bool {
    most_at_once(|| drop(black_box(Vec::<u8>::with_capacity(4096)))).1 >= 4096
}
