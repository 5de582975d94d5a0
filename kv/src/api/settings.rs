//! Settings that `CONFIG SET` changes while the server runs.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::context::Context;
use super::functions::functions;
use super::strings::{Str, bytes_of, c_text};
use super::types::{OK, RawString};

/// A setting that is text.
pub(crate) trait TextSetting {
    /// The setting's name behind the module's, as in `farjump.NAME`.
    const NAME: &'static CStr;

    fn get() -> String;

    /// # Errors
    /// The reason why the setting does not change, for the client.
    fn set(value: &str) -> Result<(), String>;
}

/// Adds a setting, whose present value is its default. Only while a module is loaded, and before [`set_from_file`].
pub(crate) fn add_text<S: TextSetting>(context: &Context<'_>) -> bool {
    let default = c_text(&S::get());
    // SAFETY: the context is valid, and name and default are zero-terminated; the server copies both. The callbacks
    // have the types that the server calls. There is no callback for a change of several settings at once.
    let added = unsafe {
        functions().register_string_config()(
            context.raw(),
            S::NAME.as_ptr(),
            default.as_ptr(),
            0,
            get::<S>,
            set::<S>,
            ptr::null(),
            ptr::null_mut(),
        )
    };
    added == OK
}

/// Makes the server set the added settings from its configuration.
pub(crate) fn set_from_file(context: &Context<'_>) -> bool {
    // SAFETY: the context is that of a module that is being loaded.
    unsafe { functions().load_configs()(context.raw()) == OK }
}

/// Returns the value as a string that stays the module's. The server copies it before it calls the module again.
unsafe extern "C" fn get<S: TextSetting>(_: *const c_char, _: *mut c_void) -> *mut RawString {
    /// The string of the last call. Never freed at the end of the process, when the server may have ended its parts.
    static LAST: AtomicPtr<RawString> = AtomicPtr::new(ptr::null_mut());
    let value = Str::new(catch_unwind(S::get).unwrap_or_default().as_bytes()).into_raw();
    // SAFETY: the pointer is null or that of `into_raw` of the last call, and only this call takes it from there.
    drop(unsafe { Str::owned(LAST.swap(value, Ordering::Relaxed)) });
    value
}

unsafe extern "C" fn set<S: TextSetting>(
    _: *const c_char,
    value: *mut RawString,
    _: *mut c_void,
    error: *mut *mut RawString,
) -> c_int {
    // SAFETY: the server passes a string that lives until this returns.
    let value = String::from_utf8_lossy(unsafe { bytes_of(value) });
    let problem = match catch_unwind(|| S::set(&value)) {
        Ok(Ok(())) => return OK,
        Ok(Err(problem)) => problem,
        Err(_) => "the module failed".to_owned(),
    };
    if !error.is_null() {
        // SAFETY: the server passes the place for a string, which it frees.
        unsafe { *error = Str::new(problem.as_bytes()).into_raw() };
    }
    1
}
