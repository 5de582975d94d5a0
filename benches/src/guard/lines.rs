//! Memory of whole lines, which is found in the same way whatever was allocated before.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hint;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Bytes in a line of memory: the smallest block.
const LINE: usize = 64;
/// Bytes in a page of x86-64: the largest alignment.
const PAGE: usize = 4096;
/// Bytes to request from the system at a time, unless more are needed.
const PIECE: usize = 16 << 20;
/// A class for each power of two from [`LINE`] on.
const CLASSES: usize = (usize::BITS - LINE.trailing_zeros()) as usize;

/// An allocator whose lines do not depend on earlier allocations, which depend on the lengths of paths, names and messages.
/// Each block has a power of two of bytes, and comes from the list of free ones of its length, or from new memory. The
/// lock and the lists of short blocks lie in one line.
#[repr(C, align(64))]
pub(crate) struct Lines {
    is_locked: AtomicBool,
    heap: UnsafeCell<Heap>,
}

#[repr(C)]
struct Heap {
    /// New memory, and the number of bytes left in it.
    new: *mut u8,
    left: usize,
    /// The first free block of each class. A free block begins with the address of the next one, or null.
    free: [*mut u8; CLASSES],
}

// SAFETY: the heap is used under the lock alone, and the blocks that it refers to are free, so nothing else uses them.
unsafe impl Sync for Lines {}

/// Returns the class of `layout`, and the length of its blocks in bytes; `None` where there is none.
fn class_of(layout: Layout) -> Option<(usize, usize)> {
    let len = layout.size().max(layout.align()).max(LINE).checked_next_power_of_two()?;
    (layout.align() <= PAGE).then(|| ((len.trailing_zeros() - LINE.trailing_zeros()) as usize, len))
}

impl Lines {
    pub(crate) const fn new() -> Lines {
        let heap = Heap { new: ptr::null_mut(), left: 0, free: [ptr::null_mut(); CLASSES] };
        Lines { is_locked: AtomicBool::new(false), heap: UnsafeCell::new(heap) }
    }

    /// Calls `act`, which neither panics nor allocates, with the heap.
    fn with<R>(&self, act: impl FnOnce(&mut Heap) -> R) -> R {
        // A lock of the standard library checks whether a thread panics, which touches further lines.
        while self.is_locked.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
        // SAFETY: this thread has the lock, so nothing else refers to the heap.
        let done = act(unsafe { &mut *self.heap.get() });
        self.is_locked.store(false, Ordering::Release);
        done
    }
}

impl Heap {
    /// Takes `len` bytes, a power of two from [`LINE`] on, of new memory; null where there is none. They start where their
    /// length divides the address, or [`PAGE`] does.
    #[cold]
    fn take(&mut self, len: usize) -> *mut u8 {
        let padding = self.new.addr().wrapping_neg() % len.min(PAGE);
        if padding.checked_add(len).is_none_or(|needed| needed > self.left) {
            let piece = len.max(PIECE);
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: the mapping replaces none.
            let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), piece, protection, flags) };
            let Ok(mapped): Result<*mut c_void, _> = mapped else { return ptr::null_mut() };
            (self.new, self.left) = (mapped.cast(), piece);
            return self.take(len);
        }
        // SAFETY: the sum is not more than what is left.
        let (block, next) = unsafe { (self.new.add(padding), self.new.add(padding + len)) };
        (self.new, self.left) = (next, self.left - padding - len);
        block
    }
}

// SAFETY: a block has as many bytes as its layout, or more, starts where the layout's alignment divides the address, and is
// in no list while it is in use.
unsafe impl GlobalAlloc for Lines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((class, len)) = class_of(layout) else { return ptr::null_mut() };
        self.with(|heap| {
            let block = heap.free[class];
            if block.is_null() {
                return heap.take(len);
            }
            // SAFETY: a free block begins with the address of the next one (`dealloc`).
            heap.free[class] = unsafe { block.cast::<*mut u8>().read() };
            block
        })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some((class, _)) = class_of(layout) else { return };
        // SAFETY: the block is the caller's to give, has a line of bytes or more, and starts at a line.
        self.with(|heap| unsafe {
            memory.cast::<*mut u8>().write(heap.free[class]);
            heap.free[class] = memory;
        });
    }
}
