//! Bytes that other processes may write: each is read once, and callers get copies.

/// A number of bytes at an address.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    at: *const u8,
    len: usize,
}

/// A number at any address.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub(crate) struct Unaligned<T>(pub(crate) T);

impl Shared {
    /// # Safety
    /// `len` bytes from `at` on are valid for reads as long as the value, its copies and its iterators are
    /// used. With a length of 0 `at` may be anything.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *const u8, len: usize) -> Shared {
        Shared { at, len }
    }

    #[inline(always)]
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = u8> {
        // SAFETY: the range ends where the bytes do.
        (0..self.len).map(move |at| unsafe { self.read(at) })
    }

    #[inline(always)]
    pub(crate) fn chunks<const N: usize>(self) -> impl ExactSizeIterator<Item = [u8; N]> {
        const { assert!(N != 0, "arrays of no bytes do not end") };
        // SAFETY: the range has the arrays that lie inside the bytes.
        (0..self.len / N).map(move |chunk| unsafe { self.array(chunk * N) })
    }

    #[inline(always)]
    pub(crate) fn rest<const N: usize>(self) -> impl ExactSizeIterator<Item = u8> {
        const { assert!(N != 0, "arrays of no bytes do not end") };
        // SAFETY: the range ends where the bytes do.
        (self.len - self.len % N..self.len).map(move |at| unsafe { self.read(at) })
    }

    #[inline(always)]
    pub(crate) fn array_at<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        if self.len.checked_sub(at)? < N {
            return None;
        }
        // SAFETY: that many bytes follow `at`, which is not past the end.
        Some(unsafe { self.array(at) })
    }

    pub(crate) fn copy_to(self, at: usize, into: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(at).min(into.len());
        if len != 0 {
            // SAFETY: that many bytes follow `at`, and `into` has as many.
            unsafe { self.copy(at, len, into.as_mut_ptr()) };
        }
        len
    }

    /// Copies `len` bytes. Not inlined: an image has it once.
    ///
    /// # Safety
    /// `at` and `len` are no more than the length together. `into` is valid for writes of `len` bytes, which
    /// nothing else uses meanwhile.
    #[inline(never)]
    pub(crate) unsafe fn copy(self, mut at: usize, len: usize, mut into: *mut u8) {
        let end = at + len;
        while end - at >= size_of::<u64>() {
            // SAFETY: this function's caller guarantees both ranges, and by the loop's condition eight bytes of each
            // are left.
            unsafe {
                into.cast::<Unaligned<u64>>().write(Unaligned(self.read(at)));
                into = into.add(size_of::<u64>());
            }
            at += size_of::<u64>();
        }
        while at < end {
            // SAFETY: as above, for one byte.
            unsafe {
                into.write(self.read(at));
                into = into.add(1);
            }
            at += 1;
        }
    }

    /// # Safety
    /// `at` and `N` are no more than the length together.
    #[inline(always)]
    unsafe fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        // SAFETY: this function's caller guarantees the range.
        unsafe { self.fill(at, &mut array) };
        array
    }

    /// Fills `into`, by words as far as possible. The loops disappear if the length is a constant.
    ///
    /// # Safety
    /// `at` and the length of `into` are no more than the length together, unless `into` is empty.
    #[inline(always)]
    unsafe fn fill(self, mut at: usize, into: &mut [u8]) {
        let (longs, rest) = into.as_chunks_mut();
        for long in longs {
            // SAFETY: this function's caller guarantees the range.
            *long = u64::to_ne_bytes(unsafe { self.read(at) });
            at += size_of::<u64>();
        }
        let (words, rest) = rest.as_chunks_mut();
        for word in words {
            // SAFETY: this function's caller guarantees the range.
            *word = u32::to_ne_bytes(unsafe { self.read(at) });
            at += size_of::<u32>();
        }
        for byte in rest {
            // SAFETY: this function's caller guarantees the range.
            *byte = unsafe { self.read(at) };
            at += 1;
        }
    }

    /// # Safety
    /// `at` and the size of `T`, a number, are no more than the length together.
    #[inline(always)]
    unsafe fn read<T: Copy>(self, at: usize) -> T {
        // SAFETY: the caller of `new` guarantees the bytes, and this function's caller that these are some of
        // them; any bytes are a number. Volatile, because other processes may write them: they are read once.
        unsafe { self.at.add(at).cast::<Unaligned<T>>().read_volatile().0 }
    }
}
