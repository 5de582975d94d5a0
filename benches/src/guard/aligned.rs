//! Memory that starts at a line.

use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes in a line of memory.
const LINE: usize = 64;

/// The system's allocator, with each allocation of whole lines. The number of lines of an object then
/// does not depend on earlier allocations, which depend among others on the lengths of paths. Nor do the lines in which the
/// allocator looks for free memory depend on some bytes of a name or a message.
pub(crate) struct Aligned;

/// Returns `layout` as whole lines; `layout` itself where that overflows.
fn at_line(layout: Layout) -> Layout {
    layout.align_to(LINE).map_or(layout, |layout| layout.pad_to_align())
}

// SAFETY: `System` keeps the contract, and gets the same layout for the same memory each time. The caller's
// alignment is a divisor of the larger one. The trait's default `realloc` uses these two methods.
unsafe impl GlobalAlloc for Aligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the contract of `alloc` excludes a length of zero.
        unsafe { System.alloc(at_line(layout)) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the contract of `dealloc`, `alloc` returned this memory for the same layout.
        unsafe { System.dealloc(memory, at_line(layout)) }
    }
}
