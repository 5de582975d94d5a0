//! Strings of the server's.

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::functions::functions;
use super::types::RawString;

/// Makes text for functions that take zero-terminated text of one line.
pub(super) fn c_text(text: &str) -> CString {
    let plain: Vec<u8> = text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }).collect();
    CString::new(plain).unwrap_or_default()
}

/// A string of the server's with a reference of this module's.
#[derive(Debug)]
pub(crate) struct Str(NonNull<RawString>);

impl Str {
    pub(crate) fn new(bytes: &[u8]) -> Str {
        // SAFETY: the server copies the bytes. Without a context the string is the caller's to free.
        let raw = unsafe { functions().create_string()(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) };
        // The server ends the process when there is no memory.
        Str(NonNull::new(raw).expect("the server makes strings"))
    }

    /// Takes over a reference that the server has given this module; `None` if it is null.
    ///
    /// # Safety
    /// `raw` must be null or a string with a reference that is the caller's.
    pub(super) unsafe fn owned(raw: *mut RawString) -> Option<Str> {
        NonNull::new(raw).map(Str)
    }

    pub(super) fn raw(&self) -> *mut RawString {
        self.0.as_ptr()
    }

    /// Returns the string, whose reference is the caller's from now on.
    pub(super) fn into_raw(self) -> *mut RawString {
        ManuallyDrop::new(self).raw()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the string lives as long as this reference to it. Nothing writes a string that has several owners.
        unsafe { bytes_of(self.0.as_ptr()) }
    }

    /// Overwrites the string with as many bytes. Only for strings that no other module may have seen.
    pub(crate) fn overwrite(&mut self, bytes: &[u8]) {
        let mut len = 0;
        // SAFETY: the string is alive.
        let at = unsafe { functions().string_ptr_len()(self.0.as_ptr(), &raw mut len) };
        assert_eq!(len, bytes.len(), "a name is rewritten with one of its length");
        // SAFETY: the server has `len` bytes there, which it allocated with this string. The reference is exclusive, and the
        // server keeps no reference to a name that it has found (`Kv::look_up` drops the others).
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast_mut().cast(), len) };
    }
}

impl Drop for Str {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's own. Strings made without a context need none.
        unsafe { functions().free_string()(ptr::null_mut(), self.0.as_ptr()) };
    }
}

/// The bytes of a string.
///
/// # Safety
/// `raw` must be a string that lives for `'a`, and is not overwritten meanwhile.
pub(super) unsafe fn bytes_of<'a>(raw: *const RawString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: this function's caller guarantees the string.
    let at = unsafe { functions().string_ptr_len()(raw, &raw mut len) };
    if at.is_null() {
        return &[];
    }
    // SAFETY: the server states the place of the string's bytes, and their number.
    unsafe { std::slice::from_raw_parts(at.cast(), len) }
}
