//! The module's part of INFO.

use std::ffi::{CStr, c_int};
use std::panic::catch_unwind;

use super::context::Context;
use super::functions::functions;
use super::strings::c_text;
use super::types::{InfoFn, OK, RawInfo};

/// The fields of a module in INFO.
pub(crate) trait InfoSource {
    /// Adds the fields.
    fn add_to(info: &Info);
    /// Adds the fields in a crash report: allocates nothing, waits for nothing.
    fn add_to_crash_report(info: &Info);
}

/// A reply to INFO under way.
pub(crate) struct Info(*mut RawInfo);

impl Info {
    /// Adds a field. The server puts the module's name before it.
    pub(crate) fn text(&self, field: &CStr, value: &str) {
        let value = c_text(value);
        // SAFETY: the reply is under way, and both texts are zero-terminated. The server copies them.
        unsafe { functions().info_add_field_cstring()(self.0, field.as_ptr(), value.as_ptr()) };
    }

    /// Adds an option as a field, by its name with underscores.
    pub(crate) fn option(&self, name: &str, value: &str) {
        self.text(&c_text(&name.replace('-', "_")), value);
    }

    pub(crate) fn number(&self, field: &CStr, value: u64) {
        // SAFETY: as in `text`.
        unsafe { functions().info_add_field_ulonglong()(self.0, field.as_ptr(), value) };
    }
}

/// Makes the server request fields from `S`. Returns whether it will.
pub(crate) fn provide<S: InfoSource>(context: &Context<'_>) -> bool {
    let callback: InfoFn = add::<S>;
    // SAFETY: the context is valid, and the callback has the type that the server calls.
    unsafe { functions().register_info_func()(context.raw(), callback) == OK }
}

unsafe extern "C" fn add<S: InfoSource>(info: *mut RawInfo, in_crash_report: c_int) {
    // SAFETY: the server passes a reply that it is making. The section has the module's name.
    if unsafe { functions().info_add_section()(info, c"".as_ptr()) } != OK {
        return;
    }
    let info = Info(info);
    let _ = catch_unwind(std::panic::AssertUnwindSafe(|| match in_crash_report {
        0 => S::add_to(&info),
        _ => S::add_to_crash_report(&info),
    }));
}
