//! Settings that `CONFIG SET` changes while the server runs.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ops::RangeInclusive;
use std::panic::catch_unwind;
use std::ptr;

use super::context::Context;
use super::functions::functions;
use super::types::{OK, RawString};

/// A setting that is a number.
pub(crate) trait NumberSetting {
    /// The setting's name behind the module's, as in `farjump.NAME`.
    const NAME: &'static CStr;
    /// The range that the server lets through to [`NumberSetting::set`].
    const RANGE: RangeInclusive<i64>;

    fn get() -> i64;

    /// # Errors
    /// The reason why the setting does not change, for the client.
    fn set(value: i64) -> Result<(), String>;
}

/// Adds a setting, whose present value is its default. Only while a module is loaded, and before [`set_from_file`].
pub(crate) fn add_number<S: NumberSetting>(context: &Context<'_>) -> bool {
    let (least, most) = S::RANGE.into_inner();
    // SAFETY: the context is valid, and the name zero-terminated; the server copies it. The callbacks have the types that
    // the server calls. There is no callback for a change of several settings at once.
    let added = unsafe {
        functions().register_numeric_config()(
            context.raw(),
            S::NAME.as_ptr(),
            S::get(),
            0,
            least,
            most,
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

unsafe extern "C" fn get<S: NumberSetting>(_: *const c_char, _: *mut c_void) -> c_longlong {
    catch_unwind(S::get).unwrap_or_default()
}

unsafe extern "C" fn set<S: NumberSetting>(
    _: *const c_char,
    value: c_longlong,
    _: *mut c_void,
    error: *mut *mut RawString,
) -> c_int {
    let problem = match catch_unwind(|| S::set(value)) {
        Ok(Ok(())) => return OK,
        Ok(Err(problem)) => problem,
        Err(_) => "the module failed".to_owned(),
    };
    if !error.is_null() {
        // SAFETY: the bytes are valid for their length, and copied. The server frees the string that this writes.
        unsafe {
            *error = functions().create_string()(ptr::null_mut(), problem.as_ptr().cast(), problem.len());
        }
    }
    1
}
