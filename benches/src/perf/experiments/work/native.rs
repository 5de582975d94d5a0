//! The injected code itself, called without injection: placed in this process as a target places it, with the
//! same imports by the same names. Its reply is kept here.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::slice;
use std::sync::Arc;

use farjump::{Library, Machine, Platform};
use farjump_loader::{Arena, Exports, LinkedImage, Resolver, Store as CodeStore};

use super::data::{Store, store_append, store_get, store_slot};
use crate::program::failure::Failure;
use crate::program::output;

/// Bytes of memory for one function's code, the least possible.
const CAPACITY: usize = 64 << 10;

thread_local! {
    /// The reply of the last call.
    static REPLY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A function of this process.
pub(super) struct Native {
    linked: Arc<LinkedImage>,
    store: &'static Store,
}

impl Native {
    /// Places the function of a library that works on `store`.
    pub(super) fn place(library: &Library, store: &'static Store) -> Result<Native, Failure> {
        let mut exports = Exports::new();
        // SAFETY: all are functions of this program, of the types that the samples declare.
        unsafe {
            exports.insert("farjump_reply", reply as *const c_void);
            exports.insert("farjump_panic", panic as *const c_void);
            exports.insert("store_get", store_get as *const c_void);
            exports.insert("store_slot", store_slot as *const c_void);
            exports.insert("store_append", store_append as *const c_void);
        }
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("`{}` cannot be placed here: {error}", library.name()))
        };
        let machine = Machine::native().ok_or_else(|| failed(&"there is no code for this machine"))?;
        let image = library.image_for(Platform::baseline(machine)).map_err(|error| failed(&error))?;
        let mut codes = CodeStore::new(Arena::new(CAPACITY).map_err(|error| failed(&error))?);
        let linked = codes
            .insert(image.bytes(), image.id(), library.name(), &Resolver::new(exports))
            .map_err(|error| failed(&error))?;
        Ok(Native { linked, store })
    }

    /// Calls the function.
    ///
    /// # Safety
    /// `payload` must be a payload of this function, with `len` bytes readable and writable during the call.
    #[inline]
    pub(super) unsafe fn call(&self, payload: *mut c_void, len: usize) {
        REPLY.with_borrow_mut(Vec::clear);
        // SAFETY: it is one of this program's own functions, placed as long as `self` lives. The caller
        // vouches for the payload, and `self.store` is a store. On x86-64 a payload less aligned than a
        // target's works, too: UCX gives messages to their handlers at any address.
        unsafe { (self.linked.main())(payload, len, self.store.as_args()) };
    }
}

/// Passes on the reply of the last call in this process.
#[inline]
pub(super) fn with_reply<T>(look: impl FnOnce(&[u8]) -> T) -> T {
    REPLY.with_borrow(|reply| look(reply))
}

/// `farjump_reply`, except that the reply stays here.
unsafe extern "C" fn reply(bytes: *const c_void, len: usize) -> c_int {
    if len != 0 {
        // SAFETY: the function passes `len` valid bytes.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len) };
        REPLY.with_borrow_mut(|reply| reply.extend_from_slice(bytes));
    }
    0
}

/// `farjump_panic`. Nothing can continue after it here.
unsafe extern "C" fn panic(message: *const c_char, len: usize) -> ! {
    // SAFETY: as in `reply`.
    let message = unsafe { slice::from_raw_parts(message.cast::<u8>(), len) };
    output::note(format_args!(
        "a function that was called here panicked: {}",
        String::from_utf8_lossy(message)
    ));
    std::process::abort()
}
