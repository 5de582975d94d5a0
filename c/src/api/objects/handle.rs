//! Handles: small values that name objects.

use std::ffi::{CString, c_char, c_void};

use farjump_handles::Handle;

use crate::api::bytes::farjump_bytes_t;
use crate::api::c_text::c_text;
use crate::api::catch::{bytes, give, guarded, object, object_mut, take, value, variable};
use crate::api::last_error::Failure;
use crate::api::status::farjump_status_t::{self, *};

/// The name of an object: the addresses of its owner, its number, length and type, and the key to it. It is a
/// value: it keeps nothing alive, and freeing it does nothing to the object. A process that has the handle
/// can read and evict the object, if the owner lets that process connect: keep a handle as you keep a
/// password. Any number of threads may use it at once.
#[derive(Debug)]
pub struct farjump_handle_t {
    handle: Handle,
    type_name: CString,
    addresses: Vec<CString>,
}

impl farjump_handle_t {
    pub(crate) fn rust(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn new(handle: Handle) -> farjump_handle_t {
        let type_name = c_text(handle.type_name());
        let addresses = handle.addresses().iter().map(|address| c_text(address)).collect();
        farjump_handle_t { handle, type_name, addresses }
    }

    /// Gives C a handle.
    pub(crate) fn give(handle: Handle) -> *mut farjump_handle_t {
        give(farjump_handle_t::new(handle))
    }
}

/// Reads a handle from its encoding, as farjump_handle_to_bytes() makes it. farjump_handle_free() ends it.
///
/// FARJUMP_ERROR_ARGUMENT for bytes that are cut, damaged, or of a version that this library does not read.
/// farjump_last_error() says which. Only the owner knows whether the object exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_from_bytes(
    bytes: *const c_void,
    size: usize,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, and `size` bytes.
        let (made, bytes) = unsafe { (variable(handle, "handle")?, self::bytes(bytes, size, "bytes")?) };
        *made = farjump_handle_t::give(Handle::from_bytes(bytes).map_err(farjump_handles::Error::from)?);
        Ok(FARJUMP_OK)
    })
}

/// Writes the encoding of a handle to `bytes`, to be sent or stored: FARJUMP_MAX_HANDLE bytes at most. Later
/// versions of the library read it, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_to_bytes(
    handle: *const farjump_handle_t,
    bytes: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a handle, and bytes that nothing else uses.
        let (handle, bytes) = unsafe { (object(handle, "handle")?, object_mut(bytes, "bytes")?) };
        bytes.fill(|content| {
            content.extend_from_slice(&handle.handle.to_bytes());
            Ok::<_, Failure>(())
        })?;
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already. The object stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_free(handle: *mut *mut farjump_handle_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with a handle, which nothing else uses.
        drop(unsafe { take(handle, "handle", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Returns whether two handles are the same in all parts. False if one of them is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_equals(
    handle: *const farjump_handle_t,
    other: *const farjump_handle_t,
) -> bool {
    // SAFETY: the header requires handles.
    value(false, || Ok(unsafe { object(handle, "handle")?.handle == object(other, "other")?.handle }))
}

/// Returns the length of the object in bytes, as it was when the handle was made: 0 for an object that was
/// only reserved then. 0 if `handle` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_size(handle: *const farjump_handle_t) -> u64 {
    // SAFETY: the header requires a handle.
    value(0, || Ok(unsafe { object(handle, "handle")? }.handle.len()))
}

/// Returns the number of the object, which its store never uses again. 0 if `handle` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_number(handle: *const farjump_handle_t) -> u64 {
    // SAFETY: the header requires a handle.
    value(0, || Ok(unsafe { object(handle, "handle")? }.handle.number()))
}

/// Returns the epoch of the store that has the object: another number each time a store is made. 0 if
/// `handle` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_epoch(handle: *const farjump_handle_t) -> u64 {
    // SAFETY: the header requires a handle.
    value(0, || Ok(unsafe { object(handle, "handle")? }.handle.epoch()))
}

/// Returns the name of the object's type, as its maker gave it; "" without one. The text belongs to the
/// handle. NULL if `handle` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_type_name(handle: *const farjump_handle_t) -> *const c_char {
    // SAFETY: the header requires a handle.
    value(std::ptr::null(), || Ok(unsafe { object(handle, "handle")? }.type_name.as_ptr()))
}

/// Returns the owner's address with this index, for farjump_client_connect(). The text belongs to the handle.
/// NULL if there are fewer addresses: a handle of a store without a target has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_handle_address(
    handle: *const farjump_handle_t,
    index: usize,
) -> *const c_char {
    value(std::ptr::null(), || {
        // SAFETY: the header requires a handle.
        let handle = unsafe { object(handle, "handle")? };
        Ok(handle.addresses.get(index).map_or(std::ptr::null(), |address| address.as_ptr()))
    })
}
