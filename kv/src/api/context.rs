//! Contexts, which the server lends to callbacks.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::functions::functions;
use super::keys::Key;
use super::replies::Reply;
use super::strings::{Str, c_text};
use super::types::{READ, RawContext, RawString, context_flags};
use super::users::User;

/// The context of a callback. Valid for `'a`, which ends with the callback.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    raw: NonNull<RawContext>,
    lent: PhantomData<&'a RawContext>,
}

impl<'a> Context<'a> {
    /// # Safety
    /// `raw` must be a context that the server has passed to a callback that does not return during `'a`.
    pub(super) unsafe fn new(raw: *mut RawContext) -> Option<Context<'a>> {
        NonNull::new(raw).map(|raw| Context { raw, lent: PhantomData })
    }

    pub(super) fn raw(&self) -> *mut RawContext {
        self.raw.as_ptr()
    }

    /// The state of the server: [`context_flags`](super::context_flags).
    pub(crate) fn flags(&self) -> c_int {
        // SAFETY: the context is valid.
        unsafe { functions().get_context_flags()(self.raw()) }
    }

    /// Returns whether the server is a node of a cluster. This does not change while it runs.
    pub(crate) fn in_cluster(&self) -> bool {
        static IN_CLUSTER: OnceLock<bool> = OnceLock::new();
        *IN_CLUSTER.get_or_init(|| self.flags() & context_flags::CLUSTER != 0)
    }

    /// Replies an error. The text begins with its code in capitals, or gets `ERR`.
    pub(crate) fn reply_error(&self, text: &str) {
        let code = text.split(' ').next().unwrap_or_default();
        let has_code = code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase());
        let text = c_text(&if has_code { text.to_owned() } else { format!("ERR {text}") });
        // SAFETY: the context is valid and the text zero-terminated; the server copies it.
        unsafe { functions().reply_with_error()(self.raw(), text.as_ptr()) };
    }

    /// Replies a bulk string.
    pub(crate) fn reply_bytes(&self, bytes: &[u8]) {
        // SAFETY: the context is valid; the server copies the bytes.
        unsafe { functions().reply_with_string_buffer()(self.raw(), bytes.as_ptr().cast(), bytes.len()) };
    }

    pub(crate) fn reply_integer(&self, number: i64) {
        // SAFETY: the context is valid.
        unsafe { functions().reply_with_long_long()(self.raw(), number) };
    }

    pub(crate) fn reply_double(&self, number: f64) {
        // SAFETY: the context is valid.
        unsafe { functions().reply_with_double()(self.raw(), number) };
    }

    /// Replies an array, whose elements are the next `len` replies.
    pub(crate) fn reply_array(&self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { functions().reply_with_array()(self.raw(), len as std::ffi::c_long) };
    }

    pub(crate) fn reply_null(&self) {
        // SAFETY: the context is valid.
        unsafe { functions().reply_with_null()(self.raw()) };
    }

    /// Opens a key for reading; `None` if there is none of this name.
    pub(crate) fn open(&self, name: &Str) -> Option<Key<'_>> {
        // SAFETY: context and name are alive. A key that is opened to read is null if it is absent.
        unsafe { Key::new(functions().open_key()(self.raw(), name.raw(), READ)) }
    }

    /// Runs a command with the flags of `format` (a format of `RM_Call` without arguments). `None` if the server runs
    /// nothing and reports nothing, because it does not know the format.
    pub(crate) fn call(&self, name: &CStr, flags: &CallFlags, args: &[Str]) -> Option<Reply> {
        let raw: Vec<*mut RawString> = args.iter().map(Str::raw).collect();
        // SAFETY: the context is valid. The format ends with `v`, for which the server takes a pointer to strings and their
        // number. It takes its own references.
        unsafe {
            Reply::owned(functions().call()(
                self.raw(),
                name.as_ptr(),
                flags.0.as_ptr(),
                raw.as_ptr(),
                raw.len(),
            ))
        }
    }

    /// As [`Context::call`], as `user`: that user's rules apply to everything that the command runs and reaches, and
    /// not only to its arguments. Only for servers that can do this ([`runs_as_users`](super::runs_as_users)).
    pub(crate) fn call_as(&self, user: &User, name: &CStr, flags: &CallFlags, args: &[Str]) -> Option<Reply> {
        // SAFETY: context and user are alive; the user is removed below, before either ends. Nothing unwinds from the
        // call.
        unsafe { functions().set_context_user()(self.raw(), user.raw()) };
        let reply = self.call(name, flags, args);
        // SAFETY: the context is valid. With null, its own client's user applies again.
        unsafe { functions().set_context_user()(self.raw(), std::ptr::null()) };
        reply
    }

    /// Runs a command with one empty argument, which it may extend ([`Args::append`](super::Args::append)). Its writes reach
    /// replicas and the append-only file.
    pub(crate) fn call_to_extend(&self, name: &CStr) -> Option<Reply> {
        let (text, len) = (c"", 0_usize);
        // SAFETY: the context is valid. For `b` the server takes a pointer and a length, and copies these bytes into a
        // new string.
        unsafe {
            let flags = c"!Eb".as_ptr();
            Reply::owned(functions().call()(self.raw(), name.as_ptr(), flags, text.as_ptr(), len))
        }
    }

    /// Returns whether the server requests the places of the command's keys, and does not run the command.
    pub(crate) fn is_keys_request(&self) -> bool {
        // SAFETY: the context is valid.
        unsafe { functions().is_keys_position_request()(self.raw()) != 0 }
    }

    /// Reports that argument `position` is a key, used as `flags` state ([`key_flags`](super::key_flags)).
    pub(crate) fn key_at(&self, position: usize, flags: u64) {
        // SAFETY: the context is valid, and the server checks positions against the arguments.
        unsafe { functions().key_at_pos_with_flags()(self.raw(), position as c_int, flags as c_int) };
    }
}

/// The way in which [`Context::call`] runs a command.
pub(crate) struct CallFlags(&'static CStr);

impl CallFlags {
    /// Writes reach replicas and the append-only file. The limits of a script apply. Errors are replies.
    pub(crate) const WRITE: CallFlags = CallFlags(c"!SEv");
    /// As [`CallFlags::WRITE`], but commands that write are refused.
    pub(crate) const READ: CallFlags = CallFlags(c"WSEv");
    /// [`CallFlags::WRITE`], for [`Context::call_as`].
    pub(crate) const WRITE_AS_USER: CallFlags = CallFlags(c"!SECv");
    /// [`CallFlags::READ`], for [`Context::call_as`].
    pub(crate) const READ_AS_USER: CallFlags = CallFlags(c"WSECv");
    /// For queries about the server's state, also by commands that no script may run. Commands that write are refused.
    pub(crate) const QUERY: CallFlags = CallFlags(c"WEv");
}
