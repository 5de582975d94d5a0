//! Keys that are open for reading.

pub(super) mod cursors;
pub(super) mod eviction;
pub(super) mod lent;

use std::ffi::{c_double, c_int, c_long};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::functions::functions;
use super::strings::Str;
use super::types::{OK, READ, RawKey, RawString, key_type};

/// A key that exists and is open for reading. The server keeps no reference to its value: nothing may write to the key
/// while it is open.
#[derive(Debug)]
pub(crate) struct Key<'c> {
    raw: NonNull<RawKey>,
    context: PhantomData<&'c ()>,
}

impl Key<'_> {
    /// # Safety
    /// `raw` must be null or a key that was opened to read, which the caller owns, in a context that is valid as long as
    /// the result.
    pub(super) unsafe fn new<'c>(raw: *mut RawKey) -> Option<Key<'c>> {
        NonNull::new(raw).map(|raw| Key { raw, context: PhantomData })
    }

    pub(super) fn raw(&self) -> *mut RawKey {
        self.raw.as_ptr()
    }

    /// The key's type: [`key_type`](super::key_type).
    pub(crate) fn kind(&self) -> c_int {
        // SAFETY: the key is open.
        unsafe { functions().key_type()(self.raw()) }
    }

    pub(crate) fn is_hash(&self) -> bool {
        self.kind() == key_type::HASH
    }

    /// Number of the key's elements, or bytes of a string.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the key is open.
        unsafe { functions().value_length()(self.raw()) }
    }

    /// Returns the address of a string's bytes in the keyspace, and their number. They stay until the next write to the
    /// key. `None` for keys of other types.
    pub(crate) fn string(&self) -> Option<(*const u8, usize)> {
        let mut len = 0;
        // SAFETY: the key is open to read.
        let at = unsafe { functions().string_dma()(self.raw(), &raw mut len, READ) };
        (!at.is_null()).then_some((at.cast_const().cast(), len))
    }

    /// A copy of the value of a hash's field.
    pub(crate) fn field(&self, field: &Str) -> Option<Str> {
        let mut value: *mut RawString = ptr::null_mut();
        let end: *mut RawString = ptr::null_mut();
        // SAFETY: the key is open and, as the caller has checked, a hash. Without flags the server takes pairs of a
        // string and a place for a string, up to a null one.
        let found = unsafe { functions().hash_get()(self.raw(), 0, field.raw(), &raw mut value, end) };
        // SAFETY: the reference to the found value is the caller's.
        if found == OK { unsafe { Str::owned(value) } } else { None }
    }

    /// A copy of an element of a list, counted from its end if the index is negative.
    pub(crate) fn element(&self, index: i64) -> Option<Str> {
        // SAFETY: the key is open; the server checks its type and the index. The reference is the caller's.
        unsafe { Str::owned(functions().list_get()(self.raw(), index as c_long)) }
    }

    /// The score of a sorted set's member.
    pub(crate) fn score(&self, member: &Str) -> Option<f64> {
        let mut score: c_double = 0.0;
        // SAFETY: the key is open; the server checks its type.
        let found = unsafe { functions().zset_score()(self.raw(), member.raw(), &raw mut score) };
        (found == OK).then_some(score)
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: the key is open, and not used after this. The server ends a sorted set's iteration and a stream's with it.
        unsafe { functions().close_key()(self.raw()) };
    }
}
