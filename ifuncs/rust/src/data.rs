//! What `farjump serve --data FILE` passes as `target_args`: `struct farjump_data` of `farjump_ifunc.h`.

use core::ffi::{CStr, c_char};
use core::fmt;

use crate::TargetArgs;

/// A file of the target's, mapped read-only for as long as the target runs.
#[repr(C)]
pub struct Data {
    size: u32,
    reserved: u32,
    bytes: *const u8,
    len: usize,
    path: *const c_char,
}

// SAFETY: it is the structure that farjump_ifunc.h promises, and nothing is ever written to it once a target runs.
unsafe impl TargetArgs for Data {}

impl Data {
    /// For targets: what they pass to ifuncs that want data.
    ///
    /// # Safety
    /// `bytes` and `path` stay valid and unchanged for as long as the value is used, by anybody.
    pub const unsafe fn new(bytes: &[u8], path: &CStr) -> Data {
        Data {
            size: size_of::<Data>() as u32,
            reserved: 0,
            bytes: bytes.as_ptr(),
            len: bytes.len(),
            path: path.as_ptr(),
        }
    }

    /// The contents of the file.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the target maps `len` bytes there, read-only, for longer than any call lasts (`Data::new`).
        unsafe { core::slice::from_raw_parts(self.bytes, self.len) }
    }

    /// The path of the file, as the target was given it.
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
        assert_eq!(data.bytes(), b"contents");
        assert_eq!(data.path(), c"/some/file");
        assert_eq!((data.size, data.reserved), (32, 0));
    }
}
