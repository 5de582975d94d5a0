//! Memory that starts at a line.

use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes in a line of memory.
const LINE: usize = 64;

/// The system's allocator, of which each allocation starts at a line. How many lines something lies in then does not depend on what
/// was allocated before it, which the lengths of paths decide among others.
pub(crate) struct Aligned;

/// The layout at a line; the one given where there is none so large.
fn at_line(layout: Layout) -> Layout {
    layout.align_to(LINE).unwrap_or(layout)
}

// SAFETY: the system's allocator keeps the contract, and is given the same layout for the same memory each time: a greater
// alignment is one that satisfies the caller too. `realloc`, as it is given by the trait, is made of these two.
unsafe impl GlobalAlloc for Aligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's length is not zero.
        unsafe { System.alloc(at_line(layout)) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `alloc` gave this memory for the same layout, as the caller promises.
        unsafe { System.dealloc(memory, at_line(layout)) }
    }
}
