//! A mapping that loom watches: the memory of a [`Region`](super::Region) when whole channels are
//! model-checked.
//!
//! Loom's words are larger than eight bytes, so they lie beside the memory and are found by address. Plain
//! accesses (payload) use the memory itself. Each of its lines has a cell that loom watches. A read that is
//! not ordered behind the write, or a write that is not ordered behind the last read, fails the model.
#![cfg_attr(not(test), allow(dead_code, reason = "only models use it"))]

use alloc::vec::Vec;
use core::cell::RefCell;
use core::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;

use crate::frame::LINE;
use crate::sync::AtomicU64;

/// Memory of both endpoints of a link, zero at first.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    words: Vec<[AtomicU64; 8]>,
    cells: Vec<UnsafeCell<()>>,
    _pages: Vec<Page>,
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

// SAFETY: the cells hold nothing, and the memory is reached by address alone. Loom checks each access, and
// runs the threads of a model one at a time.
unsafe impl Sync for Mapping {}
// SAFETY: the cells hold nothing, and loom runs the threads of a model one at a time.
unsafe impl Send for Mapping {}

std::thread_local! {
    /// The mappings of the running model: its threads share one thread of the system.
    static MAPPINGS: RefCell<Vec<(usize, usize, *const Mapping)>> = const { RefCell::new(Vec::new()) };
}

impl Mapping {
    /// Makes a mapping of `len` bytes, a multiple of a line.
    pub(crate) fn new(len: usize) -> Arc<Mapping> {
        let mut pages = alloc::vec![Page([0; 4096]); len.div_ceil(4096)];
        let base = NonNull::new(pages.as_mut_ptr().cast()).expect("a vector's pointer is not null");
        let mapping = Arc::new(Mapping {
            base,
            len,
            words: (0..len / LINE).map(|_| [(); 8].map(|()| AtomicU64::new(0))).collect(),
            cells: (0..len / LINE).map(|_| UnsafeCell::new(())).collect(),
            _pages: pages,
        });
        let place = (base.addr().get(), len, Arc::as_ptr(&mapping));
        MAPPINGS.with(|mappings| mappings.borrow_mut().push(place));
        mapping
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let base = self.base.addr().get();
        MAPPINGS.with(|mappings| mappings.borrow_mut().retain(|(start, ..)| *start != base));
    }
}

/// The mapping that contains an address, and the address's offset there.
fn find(at: NonNull<u8>) -> (&'static Mapping, usize) {
    let address = at.addr().get();
    let found = MAPPINGS.with(|mappings| {
        let mappings = mappings.borrow();
        mappings.iter().find(|(start, len, _)| (*start..start + len).contains(&address)).copied()
    });
    let (start, _, mapping) = found.expect("the model has no memory there");
    // SAFETY: the list holds a mapping only while it lives, and its only users, the endpoints of a link, own
    // a share of it.
    (unsafe { &*mapping }, address - start)
}

/// The words of the line at `at`.
pub(super) fn line(at: NonNull<u8>) -> &'static [AtomicU64; 8] {
    let (mapping, offset) = find(at);
    &mapping.words[offset / LINE]
}

/// The word at `at`.
pub(super) fn word(at: NonNull<u8>) -> &'static AtomicU64 {
    let (mapping, offset) = find(at);
    &mapping.words[offset / LINE][offset % LINE / 8]
}

/// Records plain reads of `len` bytes.
pub(crate) fn reads(at: NonNull<u8>, len: usize) {
    cells(at, len).iter().for_each(|cell| cell.with(|_| ()));
}

/// Records plain writes of `len` bytes.
pub(crate) fn writes(at: NonNull<u8>, len: usize) {
    cells(at, len).iter().for_each(|cell| cell.with_mut(|_| ()));
}

fn cells(at: NonNull<u8>, len: usize) -> &'static [UnsafeCell<()>] {
    let (mapping, offset) = find(at);
    &mapping.cells[offset / LINE..(offset + len).div_ceil(LINE)]
}
