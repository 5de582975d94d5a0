//! Exports added to a running target.

use std::ffi::{c_char, c_void};

use crate::api::catch::{guarded, object, path, text};
use crate::api::last_error::Failure;
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::admin::farjump_admin_t;
use crate::api::target::config::{farjump_function_t, symbol};
use crate::api::target::{farjump_target_t, usable};

/// Offers a function as `name` from now on. It takes precedence over all earlier exports of that name
/// (interposing). Code linked before keeps its addresses, also for sources that connect later;
/// farjump_target_drop_code() has it linked again. The function must be valid until the target is closed.
/// Names that begin with `farjump_` are reserved for services.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_export_function(
    target: *mut farjump_target_t,
    name: *const c_char,
    function: farjump_function_t,
) -> farjump_status_t {
    let function = function.map_or(std::ptr::null(), |function| function as *const c_void);
    // SAFETY: the header requires a target that only this thread uses, for a text, and for pointers that stay
    // valid.
    unsafe { export(target, name, function, "function") }
}

/// Does the same as farjump_target_export_function(), for the address of data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_export_data(
    target: *mut farjump_target_t,
    name: *const c_char,
    data: *const c_void,
) -> farjump_status_t {
    // SAFETY: the header requires a target that only this thread uses, for a text, and for pointers that stay
    // valid.
    unsafe { export(target, name, data, "data") }
}

/// Does the same as farjump_target_export_function(), for every symbol that a shared library itself defines,
/// by path or soname. The library is loaded now, which runs its constructors, and stays until the process
/// ends.
///
/// FARJUMP_ERROR_LIBRARY when it cannot be loaded; nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_export_library(
    target: *mut farjump_target_t,
    path: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for a text.
        let (mut target, path) = unsafe { (usable(target)?, self::path(path, "path")?) };
        // SAFETY: the header says that it is loaded now; its caller is responsible for its constructors.
        unsafe { target.export_library(path) }?;
        Ok(FARJUMP_OK)
    })
}

/// Has the target load the shared library at `path`, whose bytes travel. The target offers its symbols before
/// all earlier exports, as farjump_target_export_library() does. The libraries that it depends on must exist
/// at the target.
///
/// FARJUMP_ERROR_CONNECT also when the target does not allow it (the option `allow-export`), or cannot load
/// it; FARJUMP_ERROR_LIBRARY when the file cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_export_library(
    admin: *const farjump_admin_t,
    path: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires one of `farjump_admin_new`, and for a text.
        let (admin, path) = unsafe { (object(admin, "admin")?, self::path(path, "path")?) };
        let library = std::fs::read(path).map_err(|error| {
            Failure::new(FARJUMP_ERROR_LIBRARY, format!("cannot read `{}`: {error}", path.display()))
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        admin.rust().export(&name, &library)?;
        Ok(FARJUMP_OK)
    })
}

/// Puts an address before all exports of that name.
///
/// # Safety
/// Unless they are NULL, `target` must be one that only this thread uses, `name` a text, and `address` valid
/// for whatever injected functions do with it until the target is closed.
unsafe fn export(
    target: *mut farjump_target_t,
    name: *const c_char,
    address: *const c_void,
    what: &'static str,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: this function's caller guarantees it.
        let (mut target, name) = unsafe { (usable(target)?, symbol(text(name, "name")?)?) };
        if address.is_null() {
            return Err(Failure::null(what));
        }
        // SAFETY: this function's caller guarantees it.
        unsafe { target.export_raw(&name, address) };
        Ok(FARJUMP_OK)
    })
}
