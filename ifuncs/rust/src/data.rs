//! The `target_args` of `farjump serve --data FILE`: `struct farjump_data` of `farjump_ifunc.h`.

use core::ffi::{CStr, c_char};
use core::fmt;

use crate::TargetArgs;
use crate::shared::Shared;

/// A file of the target's, mapped read-only for as long as the target runs.
///
/// The function cannot write it, but other processes may change the file meanwhile. So there is no slice of it.
/// [`Data::iter`] and [`Data::chunks`] read each byte once and return copies, [`Data::copy_to`] copies, and
/// [`Data::as_ptr`] is for unsafe code.
#[repr(C)]
pub struct Data {
    size: u32,
    reserved: u32,
    bytes: *const u8,
    len: usize,
    path: *const c_char,
}

// SAFETY: it is the structure that farjump_ifunc.h declares, and nothing is ever written to it once a target
// runs.
unsafe impl TargetArgs for Data {}

impl Data {
    /// Makes a value for a target to pass to ifuncs that want data.
    ///
    /// # Safety
    /// `bytes` stay valid for reads, and `path` unchanged, for as long as the value is used, by any code.
    pub const unsafe fn new(bytes: &[u8], path: &CStr) -> Data {
        Data {
            size: size_of::<Data>() as u32,
            reserved: 0,
            bytes: bytes.as_ptr(),
            len: bytes.len(),
            path: path.as_ptr(),
        }
    }

    /// Number of bytes of the file.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the file is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the contents: [`Data::len`] bytes, valid for reads until the call ends, which other
    /// processes may write meanwhile.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes
    }

    #[inline(always)]
    fn shared(&self) -> Shared {
        // SAFETY: the target maps `len` bytes there for longer than any call lasts (`Data::new`).
        unsafe { Shared::new(self.bytes, self.len) }
    }

    /// The bytes of the file, each read once.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u8> + '_ {
        self.shared().iter()
    }

    /// As many whole arrays of `N` bytes as the file has, each byte read once. [`Data::rest`] has the bytes
    /// left at the end. `N` is not 0.
    #[inline]
    pub fn chunks<const N: usize>(&self) -> impl ExactSizeIterator<Item = [u8; N]> + '_ {
        self.shared().chunks()
    }

    /// The bytes behind the last whole array of `N`: fewer than that. `N` is not 0.
    #[inline]
    pub fn rest<const N: usize>(&self) -> impl ExactSizeIterator<Item = u8> + '_ {
        self.shared().rest::<N>()
    }

    /// Copies from the bytes at `at` to the start of `into`, as many as fit and exist, and returns their
    /// number.
    #[inline]
    pub fn copy_to(&self, at: usize, into: &mut [u8]) -> usize {
        self.shared().copy_to(at, into)
    }

    /// The path of the file, as passed to the target.
    #[inline]
    pub fn path(&self) -> &CStr {
        // SAFETY: the target keeps a zero-terminated string there (`Data::new`).
        unsafe { CStr::from_ptr(self.path) }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Data").field("path", &self.path()).field("len", &self.len).finish_non_exhaustive()
    }
}

// The layout of the C structure on LP64, which later versions may only append to.
const _: () = {
    assert!(size_of::<Data>() == 32);
    assert!(core::mem::offset_of!(Data, size) == 0);
    assert!(core::mem::offset_of!(Data, bytes) == 8);
    assert!(core::mem::offset_of!(Data, len) == 16);
    assert!(core::mem::offset_of!(Data, path) == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_back_what_it_was_made_of() {
        // SAFETY: both are static.
        let data = unsafe { Data::new(b"contents", c"/some/file") };
        let all: std::vec::Vec<u8> = data.iter().collect();
        assert_eq!((&all[..], data.len(), data.is_empty()), (&b"contents"[..], 8, false));
        assert_eq!(data.chunks::<3>().collect::<std::vec::Vec<_>>(), [*b"con", *b"ten"]);
        assert_eq!(data.rest::<3>().collect::<std::vec::Vec<_>>(), b"ts");
        let mut four = [0; 4];
        assert_eq!((data.copy_to(2, &mut four), four), (4, *b"nten"));
        assert_eq!((data.copy_to(6, &mut four), four), (2, *b"tsen"));
        assert_eq!((data.copy_to(9, &mut four), data.copy_to(usize::MAX, &mut four)), (0, 0));
        assert_eq!(data.path(), c"/some/file");
        assert_eq!((data.size, data.reserved), (32, 0));
    }
}
