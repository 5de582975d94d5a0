//! Replies of commands that the module has called.

use std::ffi::c_int;
use std::ptr::NonNull;

use super::functions::functions;
use super::types::{RawReply, reply_type};

/// A reply, with all of its elements.
#[derive(Debug)]
pub(crate) struct Reply(NonNull<RawReply>);

/// A reply, or an element of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyRef<'r> {
    raw: NonNull<RawReply>,
    whole: std::marker::PhantomData<&'r Reply>,
}

impl Reply {
    /// # Safety
    /// `raw` must be null or a reply that is the caller's to free.
    pub(super) unsafe fn owned(raw: *mut RawReply) -> Option<Reply> {
        NonNull::new(raw).map(Reply)
    }

    pub(crate) fn root(&self) -> ReplyRef<'_> {
        ReplyRef { raw: self.0, whole: std::marker::PhantomData }
    }

    /// Returns the text of the error, if the reply is one.
    pub(crate) fn error(&self) -> Option<String> {
        let root = self.root();
        (root.kind() == reply_type::ERROR).then(|| String::from_utf8_lossy(root.bytes()).into_owned())
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: the reply is this value's own, and references to its parts have ended.
        unsafe { functions().free_call_reply()(self.0.as_ptr()) };
    }
}

impl<'r> ReplyRef<'r> {
    /// The reply's type: [`reply_type`].
    pub(crate) fn kind(self) -> c_int {
        // SAFETY: the reply is alive.
        unsafe { functions().call_reply_type()(self.raw.as_ptr()) }
    }

    /// The number of an integer. Has no meaning for other types.
    pub(crate) fn integer(self) -> i64 {
        // SAFETY: the reply is alive.
        unsafe { functions().call_reply_integer()(self.raw.as_ptr()) }
    }

    /// Number of an array's elements.
    pub(crate) fn len(self) -> usize {
        if self.kind() != reply_type::ARRAY {
            return 0;
        }
        // SAFETY: the reply is alive.
        unsafe { functions().call_reply_length()(self.raw.as_ptr()) }
    }

    /// An element of an array.
    pub(crate) fn element(self, index: usize) -> Option<ReplyRef<'r>> {
        if index >= self.len() {
            return None;
        }
        // SAFETY: the reply is alive, an array, and has more than `index` elements. They live as long as the whole.
        let raw = unsafe { functions().call_reply_array_element()(self.raw.as_ptr(), index) };
        NonNull::new(raw).map(|raw| ReplyRef { raw, whole: std::marker::PhantomData })
    }

    /// The bytes of a string, status or error. Empty for other types.
    pub(crate) fn bytes(self) -> &'r [u8] {
        if !matches!(self.kind(), reply_type::STRING | reply_type::ERROR) {
            return &[];
        }
        let mut len = 0;
        // SAFETY: the reply is alive and has text.
        let at = unsafe { functions().call_reply_string_ptr()(self.raw.as_ptr(), &raw mut len) };
        if at.is_null() {
            return &[];
        }
        // SAFETY: the server states the place of the text, in the whole reply, and its length.
        unsafe { std::slice::from_raw_parts(at.cast(), len) }
    }
}
