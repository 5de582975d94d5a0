//! Views: the bytes of an object while a program reads them.

use std::ffi::c_void;

use farjump_handles::View;

use crate::api::catch::{give, guarded, object, take, value};
use crate::api::status::farjump_status_t::{self, *};

/// The bytes of an object. They lie where the owner keeps them if that memory is mapped here, otherwise in a
/// copy. In both cases they stay until farjump_view_release(), also if the object is evicted or its owner
/// ends meanwhile. Any number of threads may use it at once.
#[derive(Debug)]
pub struct farjump_view_t {
    view: View,
}

impl farjump_view_t {
    /// Gives C a view.
    pub(crate) fn give(view: View) -> *mut farjump_view_t {
        give(farjump_view_t { view })
    }
}

/// Returns the bytes, at a multiple of 64 if they are mapped. They may be read until the view is released,
/// and never written. NULL if `view` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_view_data(view: *const farjump_view_t) -> *const c_void {
    // SAFETY: the header requires a view.
    value(std::ptr::null(), || Ok(unsafe { object(view, "view")? }.view.as_ptr().cast()))
}

/// Returns the number of bytes. 0 if `view` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_view_size(view: *const farjump_view_t) -> usize {
    // SAFETY: the header requires a view.
    value(0, || Ok(unsafe { object(view, "view")? }.view.len()))
}

/// Returns whether these are the owner's bytes, and not a copy. False if `view` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_view_is_mapped(view: *const farjump_view_t) -> bool {
    // SAFETY: the header requires a view.
    value(false, || Ok(unsafe { object(view, "view")? }.view.is_mapped()))
}

/// Ends it, and sets the variable to NULL. Does nothing if it is NULL already. The store or client that the
/// view came from may be closed before. The owner learns of the release with the client's next request, and
/// in any case when this process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_view_release(view: *mut *mut farjump_view_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with a view, which nothing else uses.
        drop(unsafe { take(view, "view", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}
