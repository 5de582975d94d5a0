//! Bytes that the library fills in and C keeps.

use std::ffi::{c_char, c_void};

use crate::api::status::farjump_status_t::{self, *};
use crate::boundary::{give, guarded, take, value, variable};

/// Bytes that the library fills in: replies, and texts that have no fixed length. It is made once and used again and again:
/// once it has grown to what comes, nothing is allocated. The caller owns it. One thread uses it at a time.
#[derive(Debug, Default)]
pub struct farjump_bytes_t {
    /// The content, and a zero byte after it; nothing at all before the first time.
    content: Vec<u8>,
}

impl farjump_bytes_t {
    /// Has `write` write the content. What was there is gone, also if it fails: then there is none.
    #[inline(always)]
    pub(crate) fn fill<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        self.content.clear();
        let written = write(&mut self.content);
        self.content.push(0);
        written
    }

    /// Makes a text the content.
    pub(crate) fn set_text(&mut self, text: &str) {
        let Ok(()) = self.fill(|content| {
            content.extend_from_slice(text.as_bytes());
            Ok::<_, std::convert::Infallible>(())
        });
    }

    fn len(&self) -> usize {
        self.content.len().saturating_sub(1)
    }
}

/// Makes one without content. farjump_bytes_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_new(bytes: *mut *mut farjump_bytes_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a place for a pointer.
        let made = unsafe { variable(bytes, "bytes")? };
        *made = give(farjump_bytes_t::default());
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. One that is NULL already is none to be freed, and no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_free(bytes: *mut *mut farjump_bytes_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a variable with one of `farjump_bytes_new`, used by nobody else.
        drop(unsafe { take(bytes, "bytes", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// The content, aligned as bytes are, valid until it is filled again or freed. A zero byte that does not count follows it, so
/// that what is a text can be used as one. For NULL an empty text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_data(bytes: *const farjump_bytes_t) -> *const c_void {
    value(c"".as_ptr().cast(), || {
        // SAFETY: the header asks for NULL or one of `farjump_bytes_new`.
        let bytes = unsafe { bytes.as_ref() };
        let content = bytes.filter(|bytes| !bytes.content.is_empty()).map(|bytes| bytes.content.as_ptr());
        Ok(content.map_or(c"".as_ptr().cast::<c_void>(), <*const u8>::cast))
    })
}

/// How many bytes the content has. For NULL 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_size(bytes: *const farjump_bytes_t) -> usize {
    // SAFETY: the header asks for NULL or one of `farjump_bytes_new`.
    value(0, || Ok(unsafe { bytes.as_ref() }.map_or(0, farjump_bytes_t::len)))
}

/// The content as a text, as farjump_bytes_data() gives it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_text(bytes: *const farjump_bytes_t) -> *const c_char {
    // SAFETY: the header asks the same of this.
    unsafe { farjump_bytes_data(bytes) }.cast()
}
