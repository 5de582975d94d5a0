//! Functions of the module's: `farjump_kv.h` describes them.

use core::ffi::{c_int, c_void};

use crate::Kv;

/// `struct kv_bytes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bytes {
    data: *const c_void,
    len: usize,
}

impl Bytes {
    pub(crate) const EMPTY: Bytes = Bytes { data: core::ptr::null(), len: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr().cast(), len: bytes.len() }
    }

    /// # Safety
    /// The module must have lent the bytes for `'a`.
    #[inline]
    pub(crate) unsafe fn lent<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: this function's caller guarantees the bytes.
        unsafe { core::slice::from_raw_parts(self.data.cast(), self.len) }
    }
}

/// The id of a stream's entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(C)]
pub struct StreamId {
    /// Milliseconds since the epoch.
    pub ms: u64,
    /// The number in that millisecond.
    pub seq: u64,
}

/// `struct kv_part`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawPart {
    pub(crate) kind: i32,
    pub(crate) reserved: u32,
    pub(crate) integer: i64,
    pub(crate) bytes: Bytes,
    pub(crate) len: usize,
}

unsafe extern "C" {
    pub(crate) fn kv_type(kv: *const Kv, key: *const c_void, key_len: usize) -> c_int;
    pub(crate) fn kv_len(kv: *const Kv, key: *const c_void, key_len: usize, len: *mut usize) -> c_int;
    pub(crate) fn kv_get(kv: *const Kv, key: *const c_void, key_len: usize, value: *mut Bytes) -> c_int;
    pub(crate) fn kv_hget(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        field: *const c_void,
        field_len: usize,
        value: *mut Bytes,
    ) -> c_int;
    pub(crate) fn kv_lindex(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        index: i64,
        value: *mut Bytes,
    ) -> c_int;
    pub(crate) fn kv_zscore(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        member: *const c_void,
        member_len: usize,
        score: *mut f64,
    ) -> c_int;
    pub(crate) fn kv_zrange(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        min: f64,
        max: f64,
        reverse: c_int,
        cursor: *mut u64,
    ) -> c_int;
    pub(crate) fn kv_zset_next(kv: *const Kv, cursor: u64, member: *mut Bytes, score: *mut f64) -> c_int;
    pub(crate) fn kv_xrange(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        first: *const StreamId,
        last: *const StreamId,
        reverse: c_int,
        cursor: *mut u64,
    ) -> c_int;
    pub(crate) fn kv_stream_next(kv: *const Kv, cursor: u64, id: *mut StreamId, fields: *mut usize) -> c_int;
    pub(crate) fn kv_fields(kv: *const Kv, key: *const c_void, key_len: usize, cursor: *mut u64) -> c_int;
    pub(crate) fn kv_members(kv: *const Kv, key: *const c_void, key_len: usize, cursor: *mut u64) -> c_int;
    pub(crate) fn kv_scan(
        kv: *const Kv,
        prefix: *const c_void,
        prefix_len: usize,
        most: usize,
        position: *mut u64,
        cursor: *mut u64,
    ) -> c_int;
    pub(crate) fn kv_pair_next(kv: *const Kv, cursor: u64, field: *mut Bytes, value: *mut Bytes) -> c_int;
    pub(crate) fn kv_name_next(kv: *const Kv, cursor: u64, name: *mut Bytes) -> c_int;
    pub(crate) fn kv_close(kv: *const Kv, cursor: u64) -> c_int;
    pub(crate) fn kv_set(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        value: *const c_void,
        value_len: usize,
    ) -> c_int;
    pub(crate) fn kv_del(kv: *const Kv, key: *const c_void, key_len: usize) -> c_int;
    pub(crate) fn kv_expire(kv: *const Kv, key: *const c_void, key_len: usize, milliseconds: i64) -> c_int;
    pub(crate) fn kv_hset(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        field: *const c_void,
        field_len: usize,
        value: *const c_void,
        value_len: usize,
    ) -> c_int;
    pub(crate) fn kv_zadd(
        kv: *const Kv,
        key: *const c_void,
        key_len: usize,
        member: *const c_void,
        member_len: usize,
        score: f64,
    ) -> c_int;
    pub(crate) fn kv_command(kv: *const Kv, words: *const Bytes, count: usize, reply: *mut u64) -> c_int;
    pub(crate) fn kv_reply(
        kv: *const Kv,
        reply: u64,
        path: *const usize,
        depth: usize,
        part: *mut RawPart,
    ) -> c_int;
    pub(crate) fn kv_key(kv: *const Kv, index: usize, key: *mut Bytes) -> c_int;
    pub(crate) fn kv_arg(kv: *const Kv, index: usize, arg: *mut Bytes) -> c_int;
    pub(crate) fn kv_words(kv: *const Kv, payload: *const c_void, payload_size: usize) -> c_int;
    pub(crate) fn kv_keys(kv: *const Kv) -> c_int;
    pub(crate) fn kv_args(kv: *const Kv) -> c_int;
    pub(crate) fn kv_answer_integer(kv: *const Kv, value: i64) -> c_int;
    pub(crate) fn kv_answer_double(kv: *const Kv, value: f64) -> c_int;
    pub(crate) fn kv_answer_string(kv: *const Kv, data: *const c_void, len: usize) -> c_int;
    pub(crate) fn kv_answer_array(kv: *const Kv, count: usize) -> c_int;
    pub(crate) fn kv_parse_integer(kv: *const Kv, text: *const c_void, len: usize, value: *mut i64) -> c_int;
    pub(crate) fn kv_parse_double(kv: *const Kv, text: *const c_void, len: usize, value: *mut f64) -> c_int;
    pub(crate) fn kv_format_integer(kv: *const Kv, value: i64, text: *mut u8, len: *mut usize) -> c_int;
    pub(crate) fn kv_format_double(kv: *const Kv, value: f64, text: *mut u8, len: *mut usize) -> c_int;
    pub(crate) fn kv_time(kv: *const Kv, microseconds: *mut u64) -> c_int;
    pub(crate) fn kv_error(kv: *const Kv, text: *mut Bytes) -> c_int;
}
