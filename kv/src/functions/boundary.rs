//! The functions that injected code imports: `farjump_kv.h`. Like all functions that a target exports, they trust their
//! caller's pointers, but nothing else.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::time::{SystemTime, UNIX_EPOCH};

use farjump::{Export, export};

use super::fault::{Code, Fault, shown};
use super::reads::Element;
use super::values::Value;
use super::{Bytes, KV, Kv, numbers};
use crate::api::StreamId;

/// `KV_OK`.
const FOUND: c_int = 0;
/// `KV_ABSENT`, and `KV_END`.
const ABSENT: c_int = 1;

/// Returns all these functions.
pub(crate) fn exports() -> Vec<Export> {
    vec![
        export!(kv_type(_, _, _)),
        export!(kv_len(_, _, _, _)),
        export!(kv_get(_, _, _, _)),
        export!(kv_hget(_, _, _, _, _, _)),
        export!(kv_lindex(_, _, _, _, _)),
        export!(kv_zscore(_, _, _, _, _, _)),
        export!(kv_zrange(_, _, _, _, _, _, _)),
        export!(kv_zset_next(_, _, _, _)),
        export!(kv_xrange(_, _, _, _, _, _, _)),
        export!(kv_stream_next(_, _, _, _)),
        export!(kv_fields(_, _, _, _)),
        export!(kv_members(_, _, _, _)),
        export!(kv_scan(_, _, _, _, _, _)),
        export!(kv_pair_next(_, _, _, _)),
        export!(kv_name_next(_, _, _)),
        export!(kv_close(_, _)),
        export!(kv_set(_, _, _, _, _)),
        export!(kv_del(_, _, _)),
        export!(kv_expire(_, _, _, _)),
        export!(kv_hset(_, _, _, _, _, _, _)),
        export!(kv_zadd(_, _, _, _, _, _)),
        export!(kv_command(_, _, _, _)),
        export!(kv_reply(_, _, _, _, _)),
        export!(kv_keys(_)),
        export!(kv_key(_, _, _)),
        export!(kv_args(_)),
        export!(kv_arg(_, _, _)),
        export!(kv_words(_, _, _)),
        export!(kv_answer_integer(_, _)),
        export!(kv_answer_double(_, _)),
        export!(kv_answer_string(_, _, _)),
        export!(kv_answer_array(_, _)),
        export!(kv_parse_integer(_, _, _, _)),
        export!(kv_parse_double(_, _, _, _)),
        export!(kv_format_integer(_, _, _, _)),
        export!(kv_format_double(_, _, _, _)),
        export!(kv_time(_, _)),
        export!(kv_error(_, _)),
    ]
}

/// The type of `target_args`: functions only pass it on.
#[repr(C)]
pub(crate) struct Handle {
    _opaque: [u8; 0],
}

/// Runs a function's work. No panic unwinds into injected code.
#[inline]
fn run(work: impl FnOnce(&Kv) -> Result<c_int, Fault>) -> c_int {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        KV.with(|kv| {
            let done = kv.follow().and_then(|()| work(kv));
            done.unwrap_or_else(|fault| kv.state.borrow_mut().note(fault))
        })
    }));
    ran.unwrap_or(Code::Failed as c_int)
}

/// Returns the bytes that a function passes.
///
/// # Safety
/// If `len` is not 0, `data` must be valid for reads of `len` bytes for `'a`.
#[inline]
unsafe fn passed<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    match data.is_null() || len == 0 {
        true => &[],
        // SAFETY: this function's caller guarantees the bytes.
        false => unsafe { slice::from_raw_parts(data.cast(), len) },
    }
}

/// Writes the found value.
///
/// # Safety
/// `into` must be null or valid for a write.
#[inline]
unsafe fn give<T>(found: Option<T>, into: *mut T) -> c_int {
    let Some(found) = found else { return ABSENT };
    if !into.is_null() {
        // SAFETY: this function's caller guarantees `into`.
        unsafe { into.write(found) };
    }
    FOUND
}

macro_rules! kv_functions {
    ($($(#[$docs:meta])* fn $name:ident($kv:ident $(, $argument:ident: $type:ty)*) $body:block)*) => {
        $(
            $(#[$docs])*
            ///
            /// # Safety
            /// For injected functions alone. Each pointer with a length must be valid for reads of so many bytes, and each
            /// pointer to a result null or valid for a write.
            unsafe extern "C" fn $name(_kv: *mut Handle $(, $argument: $type)*) -> c_int {
                #[allow(unused_unsafe, reason = "some take no pointers")]
                // SAFETY: this function's caller guarantees all pointers, as `passed` and `give` require.
                run(|$kv| unsafe { $body })
            }
        )*
    };
}

kv_functions! {
    /// The type of a key.
    fn kv_type(kv, key: *const c_void, key_len: usize) {
        Ok(kv.kind(passed(key, key_len))?.unwrap_or(0))
    }

    /// Number of elements of a key, or bytes of a string.
    fn kv_len(kv, key: *const c_void, key_len: usize, len: *mut usize) {
        Ok(give(kv.len(passed(key, key_len))?, len))
    }

    /// The bytes of a string.
    fn kv_get(kv, key: *const c_void, key_len: usize, value: *mut Bytes) {
        Ok(give(kv.get(passed(key, key_len))?, value))
    }

    /// The value of a hash's field.
    fn kv_hget(kv, key: *const c_void, key_len: usize, field: *const c_void, field_len: usize, value: *mut Bytes) {
        Ok(give(kv.hget(passed(key, key_len), passed(field, field_len))?, value))
    }

    /// An element of a list.
    fn kv_lindex(kv, key: *const c_void, key_len: usize, index: i64, value: *mut Bytes) {
        Ok(give(kv.lindex(passed(key, key_len), index)?, value))
    }

    /// The score of a sorted set's member.
    fn kv_zscore(kv, key: *const c_void, key_len: usize, member: *const c_void, member_len: usize, score: *mut f64) {
        Ok(give(kv.zscore(passed(key, key_len), passed(member, member_len))?, score))
    }

    /// A cursor over the members of a sorted set.
    fn kv_zrange(kv, key: *const c_void, key_len: usize, min: f64, max: f64, reverse: c_int, cursor: *mut u64) {
        Ok(give(kv.zrange(passed(key, key_len), min, max, reverse != 0)?, cursor))
    }

    /// The next member of a sorted set.
    fn kv_zset_next(kv, cursor: u64, member: *mut Bytes, score: *mut f64) {
        match kv.next(cursor)? {
            Some(Element::Scored(found, of)) => {
                give(Some(of), score);
                Ok(give(Some(found), member))
            }
            found => other_cursor(found),
        }
    }

    /// A cursor over the entries of a stream.
    fn kv_xrange(kv, key: *const c_void, key_len: usize, first: *const StreamId, last: *const StreamId, reverse: c_int, cursor: *mut u64) {
        let least = StreamId { ms: 0, seq: 0 };
        let most = StreamId { ms: u64::MAX, seq: u64::MAX };
        let first = if first.is_null() { least } else { first.read() };
        let last = if last.is_null() { most } else { last.read() };
        Ok(give(kv.xrange(passed(key, key_len), first, last, reverse != 0)?, cursor))
    }

    /// The next entry of a stream.
    fn kv_stream_next(kv, cursor: u64, id: *mut StreamId, fields: *mut usize) {
        match kv.next(cursor)? {
            Some(Element::Entry(found, count)) => {
                give(Some(count), fields);
                Ok(give(Some(found), id))
            }
            found => other_cursor(found),
        }
    }

    /// A cursor over the fields of a hash.
    fn kv_fields(kv, key: *const c_void, key_len: usize, cursor: *mut u64) {
        Ok(give(kv.fields(passed(key, key_len))?, cursor))
    }

    /// A cursor over the members of a set.
    fn kv_members(kv, key: *const c_void, key_len: usize, cursor: *mut u64) {
        Ok(give(kv.members(passed(key, key_len))?, cursor))
    }

    /// A cursor over the names of keys.
    fn kv_scan(kv, prefix: *const c_void, prefix_len: usize, most: usize, position: *mut u64, cursor: *mut u64) {
        let from = if position.is_null() { 0 } else { position.read() };
        let (found, next) = kv.scan(passed(prefix, prefix_len), most, from)?;
        give(Some(next), position);
        Ok(give(Some(found), cursor))
    }

    /// The next field of a hash, or of a stream's entry, and its value.
    fn kv_pair_next(kv, cursor: u64, field: *mut Bytes, value: *mut Bytes) {
        let found = match kv.next_field(cursor)? {
            None if !kv.is_stream(cursor) => kv.next(cursor)?,
            found => found,
        };
        match found {
            Some(Element::Pair(name, of)) => {
                give(Some(of), value);
                Ok(give(Some(name), field))
            }
            found => other_cursor(found),
        }
    }

    /// The next member of a set, or the next name.
    fn kv_name_next(kv, cursor: u64, name: *mut Bytes) {
        match kv.next(cursor)? {
            Some(Element::One(found)) => Ok(give(Some(found), name)),
            found => other_cursor(found),
        }
    }

    /// Closes a cursor.
    fn kv_close(kv, cursor: u64) {
        kv.close(cursor).map(|()| FOUND)
    }

    /// Sets a string.
    fn kv_set(kv, key: *const c_void, key_len: usize, value: *const c_void, value_len: usize) {
        kv.write(&[b"set", passed(key, key_len), passed(value, value_len)]).map(|_| FOUND)
    }

    /// Deletes a key.
    fn kv_del(kv, key: *const c_void, key_len: usize) {
        let deleted = kv.write(&[b"del", passed(key, key_len)])?.root().integer();
        Ok(if deleted == 0 { ABSENT } else { FOUND })
    }

    /// Has a key expire.
    fn kv_expire(kv, key: *const c_void, key_len: usize, milliseconds: i64) {
        let time = milliseconds.to_string();
        let set = kv.write(&[b"pexpire", passed(key, key_len), time.as_bytes()])?.root().integer();
        Ok(if set == 0 { ABSENT } else { FOUND })
    }

    /// Sets a hash's field.
    fn kv_hset(kv, key: *const c_void, key_len: usize, field: *const c_void, field_len: usize, value: *const c_void, value_len: usize) {
        let words = [b"hset", passed(key, key_len), passed(field, field_len), passed(value, value_len)];
        kv.write(&words).map(|_| FOUND)
    }

    /// Sets the score of a sorted set's member.
    fn kv_zadd(kv, key: *const c_void, key_len: usize, member: *const c_void, member_len: usize, score: f64) {
        if score.is_nan() {
            return Err(Fault::new(Code::BadArgument, "the score is no number"));
        }
        let score = score.to_string();
        let words = [b"zadd", passed(key, key_len), score.as_bytes(), passed(member, member_len)];
        kv.write(&words).map(|_| FOUND)
    }

    /// Runs a command.
    fn kv_command(kv, words: *const Bytes, count: usize, reply: *mut u64) {
        let words = if words.is_null() { &[] } else { slice::from_raw_parts(words, count) };
        let words: Vec<&[u8]> = words.iter().map(|word| passed(word.data.cast(), word.len)).collect();
        let number = kv.command(&words)?;
        Ok(give(Some(number), reply))
    }

    /// A part of a command's reply.
    fn kv_reply(kv, reply: u64, path: *const usize, depth: usize, part: *mut Part) {
        let path = if path.is_null() { &[] } else { slice::from_raw_parts(path, depth) };
        let found = kv.reply_element(reply, path)?;
        let found = found.map(|found| Part {
            kind: found.kind,
            reserved: 0,
            integer: found.integer,
            bytes: found.bytes,
            len: found.len,
        });
        Ok(give(found, part))
    }

    /// Number of the keys that came with the command.
    fn kv_keys(kv) {
        Ok(kv.with_input(|input| input.keys.len())?.min(c_int::MAX as usize) as c_int)
    }

    /// A key that came with the command.
    fn kv_key(kv, index: usize, key: *mut Bytes) {
        Ok(give(kv.with_input(|input| input.keys.get(index).copied())?, key))
    }

    /// Number of the arguments that came with the command.
    fn kv_args(kv) {
        Ok(kv.with_input(|input| input.args.len())?.min(c_int::MAX as usize) as c_int)
    }

    /// An argument that came with the command.
    fn kv_arg(kv, index: usize, argument: *mut Bytes) {
        Ok(give(kv.with_input(|input| input.args.get(index).copied())?, argument))
    }

    /// Takes the payload of a link's call for keys and arguments.
    fn kv_words(kv, payload: *const c_void, payload_size: usize) {
        kv.take_words(passed(payload, payload_size)).map(|()| FOUND)
    }

    /// Answers with a whole number.
    fn kv_answer_integer(kv, value: i64) {
        kv.reply_value(Value::Integer(value)).map(|()| FOUND)
    }

    /// Answers with a number.
    fn kv_answer_double(kv, value: f64) {
        kv.reply_value(Value::Double(value)).map(|()| FOUND)
    }

    /// Answers with bytes.
    fn kv_answer_string(kv, data: *const c_void, len: usize) {
        kv.reply_value(Value::String(passed(data, len))).map(|()| FOUND)
    }

    /// Answers with an array.
    fn kv_answer_array(kv, count: usize) {
        kv.reply_value(Value::Array(count)).map(|()| FOUND)
    }

    /// The whole number that a text is.
    fn kv_parse_integer(_kv, text: *const c_void, len: usize, value: *mut i64) {
        parsed(passed(text, len), numbers::integer, value)
    }

    /// The number that a text is.
    fn kv_parse_double(_kv, text: *const c_void, len: usize, value: *mut f64) {
        parsed(passed(text, len), numbers::double, value)
    }

    /// The text of a whole number.
    fn kv_format_integer(_kv, value: i64, text: *mut u8, len: *mut usize) {
        Ok(written(&numbers::of_integer(value), text, len))
    }

    /// The text of a number.
    fn kv_format_double(_kv, value: f64, text: *mut u8, len: *mut usize) {
        if value.is_nan() {
            return Err(Fault::new(Code::BadArgument, "the value is no number"));
        }
        Ok(written(&numbers::of_double(value), text, len))
    }

    /// Microseconds since 1970.
    fn kv_time(_kv, microseconds: *mut u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(give(Some(u64::try_from(now.as_micros()).unwrap_or(u64::MAX)), microseconds))
    }

    /// The sentence to the last error.
    fn kv_error(kv, text: *mut Bytes) {
        Ok(give(Some(Bytes::of(kv.state.borrow().error.as_bytes())), text))
    }
}

/// `struct kv_part`.
#[repr(C)]
struct Part {
    kind: i32,
    reserved: u32,
    integer: i64,
    bytes: Bytes,
    len: usize,
}

/// Writes the number that a text states.
///
/// # Safety
/// `value` must be null or valid for a write.
unsafe fn parsed<T>(text: &[u8], parse: fn(&[u8]) -> Option<T>, value: *mut T) -> Result<c_int, Fault> {
    let number = parse(text)
        .ok_or_else(|| Fault::new(Code::BadArgument, format!("{} is no such number", shown(text))))?;
    // SAFETY: this function's caller guarantees `value`.
    Ok(unsafe { give(Some(number), value) })
}

/// Writes a number's text, and its length.
///
/// # Safety
/// `text` must be null or valid for writes of [`numbers::LONGEST`] bytes, `len` null or valid for a write.
unsafe fn written(number: &numbers::Text, text: *mut u8, len: *mut usize) -> c_int {
    let bytes = number.bytes();
    if !text.is_null() {
        // SAFETY: this function's caller guarantees the space, and no text is longer.
        unsafe { text.copy_from(bytes.as_ptr(), bytes.len()) };
    }
    // SAFETY: this function's caller guarantees `len`.
    unsafe { give(Some(bytes.len()), len) }
}

/// Returns the end of a cursor, or the fault of a cursor over elements of another kind.
fn other_cursor(found: Option<Element>) -> Result<c_int, Fault> {
    match found {
        None => Ok(ABSENT),
        Some(_) => {
            let text =
                "the cursor has elements of another kind: use the function that belongs to what opened it";
            Err(Fault::new(Code::BadArgument, text))
        }
    }
}
