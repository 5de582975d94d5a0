//! Bytes that the library fills in and C keeps.

use std::ffi::{c_char, c_void};

use crate::api::catch::{give, guarded, take, value, variable};
use crate::api::status::farjump_status_t::{self, *};

/// Bytes that the library fills in: replies, and texts without a fixed length. Make one once and use it again
/// and again: once it has grown to the longest content, nothing is allocated. The caller owns it. One thread
/// uses it at a time.
#[derive(Debug, Default)]
pub struct farjump_bytes_t {
    /// The content, and a zero byte after it; empty before the first use.
    content: Vec<u8>,
}

impl farjump_bytes_t {
    /// Makes the content by `write`. The old content is lost, also if `write` fails: then there is none.
    #[inline(always)]
    pub(crate) fn fill<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        self.content.clear();
        let written = write(&mut self.content);
        self.content.push(0);
        written
    }

    /// Sets the content to a text.
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
        // SAFETY: the header requires a variable for a pointer.
        let made = unsafe { variable(bytes, "bytes")? };
        *made = give(farjump_bytes_t::default());
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_free(bytes: *mut *mut farjump_bytes_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_bytes_new`, which nothing else uses.
        drop(unsafe { take(bytes, "bytes", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Returns the content, without alignment, valid until the object is filled again or freed. A zero byte that
/// does not count follows the content, so that it can be used as a text. An empty text for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_data(bytes: *const farjump_bytes_t) -> *const c_void {
    value(c"".as_ptr().cast(), || {
        // SAFETY: the header requires NULL or one of `farjump_bytes_new`.
        let bytes = unsafe { bytes.as_ref() };
        let content = bytes.filter(|bytes| !bytes.content.is_empty()).map(|bytes| bytes.content.as_ptr());
        Ok(content.map_or(c"".as_ptr().cast::<c_void>(), <*const u8>::cast))
    })
}

/// Returns the number of bytes of the content. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_size(bytes: *const farjump_bytes_t) -> usize {
    // SAFETY: the header requires NULL or one of `farjump_bytes_new`.
    value(0, || Ok(unsafe { bytes.as_ref() }.map_or(0, farjump_bytes_t::len)))
}

/// Returns the content as a text, as farjump_bytes_data() returns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_bytes_text(bytes: *const farjump_bytes_t) -> *const c_char {
    // SAFETY: the header requires the same of this.
    unsafe { farjump_bytes_data(bytes) }.cast()
}
