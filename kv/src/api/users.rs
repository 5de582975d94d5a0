//! Users of the server.

use std::ptr::NonNull;

use super::functions::functions;
use super::strings::Str;
use super::types::{OK, RawString, RawUser};

/// A user, valid as long as no rule changes. Do not keep it beyond the callback in which it was made.
#[derive(Debug)]
pub(crate) struct User(NonNull<RawUser>);

impl User {
    /// Returns the user of this name, if there is one.
    pub(crate) fn named(name: &[u8]) -> Option<User> {
        let name = Str::new(name);
        // SAFETY: the name is alive. The result is the caller's to free.
        let raw = unsafe { functions().get_module_user_from_user_name()(name.raw()) };
        NonNull::new(raw).map(User)
    }

    pub(super) fn raw(&self) -> *const RawUser {
        self.0.as_ptr()
    }

    /// Returns the user's rules, as `ACL LIST` shows them behind the name.
    pub(crate) fn rules(&self) -> String {
        // SAFETY: the user is alive. Redis returns a reference that is the caller's.
        let rules = unsafe { Str::owned(functions().get_module_user_acl_string()(self.0.as_ptr())) };
        rules.map_or_else(String::new, |rules| String::from_utf8_lossy(rules.bytes()).into_owned())
    }

    /// Returns whether the user may run a command: the name, and its arguments, among them keys.
    pub(crate) fn may(&self, command: &[Str]) -> bool {
        let mut raw: Vec<*mut RawString> = command.iter().map(Str::raw).collect();
        // SAFETY: the user and the strings are alive. The server only reads the array.
        let checked = unsafe {
            functions().acl_check_command_permissions()(
                self.0.as_ptr(),
                raw.as_mut_ptr(),
                raw.len() as std::ffi::c_int,
            )
        };
        checked == OK
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the user object is this value's own, and the server's user stays.
        unsafe { functions().free_module_user()(self.0.as_ptr()) };
    }
}
