//! Memory for a message that middleware holds back, aligned to 4096 bytes, the strictest alignment of any
//! transport.

use std::ptr::NonNull;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// Zeroed bytes that start on a page and do not move.
pub(super) struct Pages {
    pages: Vec<Page>,
    len: usize,
}

impl Pages {
    pub(super) fn zeroed(len: usize) -> Pages {
        Pages { pages: std::vec![Page([0; 4096]); len.div_ceil(4096)], len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Shortens it; does not lengthen it.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The first byte, for a caller that writes the bytes itself: valid for `len` bytes as long as this
    /// value, and while no slice of it is taken.
    pub(super) fn start(&mut self) -> NonNull<u8> {
        NonNull::from(self.pages.as_mut_slice()).cast()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the vector owns at least `len` bytes (`zeroed`, and `truncate` only shortens), all
        // initialised, and `Page` is only bytes; borrowed from `self`, so nothing writes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the vector owns at least `len` initialised bytes, as in `bytes`; borrowed from `self` for
        // writing.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }

    /// Copies all bytes to `space`.
    ///
    /// # Safety
    /// `space` must be valid for writes of `len` bytes, and must not overlap this value.
    pub(super) unsafe fn copy_to(&self, space: NonNull<u8>) {
        // SAFETY: the source is this value's `len` bytes, and the caller keeps the destination valid (see
        // Safety).
        unsafe { std::ptr::copy_nonoverlapping(self.bytes().as_ptr(), space.as_ptr(), self.len) }
    }
}
