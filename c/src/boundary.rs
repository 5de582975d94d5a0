//! The boundary to C: nothing that unwinds goes past it, and pointers are looked at before they are used.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use crate::api::status::farjump_status_t;
use crate::failure::{Failure, note};

/// Runs the body of a function that C calls, and gives C the status. What went wrong is noted for `farjump_last_error`.
///
/// A panic is a mistake of this library's: it becomes [`farjump_status_t::FARJUMP_ERROR_INTERNAL`]. What was being changed
/// when it came may be half done, so what the function was called on is only good for being closed.
#[inline(always)]
pub(crate) fn guarded(body: impl FnOnce() -> Result<farjump_status_t, Failure>) -> farjump_status_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => note(failure),
        Err(panic) => note(Failure::panic(&*panic)),
    }
}

/// As [`guarded`], for functions that give C a value. `otherwise` is for when there is none.
#[inline(always)]
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            note(failure);
            otherwise
        }
        Err(panic) => {
            note(Failure::panic(&*panic));
            otherwise
        }
    }
}

/// What C points to.
///
/// # Errors
/// If it is NULL. `name` is the argument's.
///
/// # Safety
/// Unless it is NULL, `pointer` must be what this library gave C for a `T`, not closed yet, and stay so for `'a`: the header asks
/// that of each call.
#[inline(always)]
pub(crate) unsafe fn object<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise. Nothing makes exclusive references to such a `T` where the header allows sharing.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// As [`object`], for one that nobody else uses during the call.
///
/// # Errors
/// As [`object`].
///
/// # Safety
/// As [`object`], and nothing else may use it for `'a`.
#[inline(always)]
pub(crate) unsafe fn object_mut<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::null(name))
}

/// Where C wants a result.
///
/// # Errors
/// If it is NULL.
///
/// # Safety
/// Unless it is NULL, `pointer` must be writable for a `T`, which need not be there yet, for `'a`.
#[inline(always)]
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: the caller's promise; what may be uninitialised has no invariant to keep.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }.ok_or_else(|| Failure::null(name))
}

/// The variable in which C wants a new object: NULL until there is one.
///
/// # Errors
/// As [`place`].
///
/// # Safety
/// As [`place`].
pub(crate) unsafe fn variable<'a, T>(pointer: *mut *mut T, name: &str) -> Result<&'a mut *mut T, Failure> {
    // SAFETY: the caller's promise.
    Ok(unsafe { place(pointer, name)? }.write(std::ptr::null_mut()))
}

/// A text of C's.
///
/// # Errors
/// If it is NULL or no UTF-8.
///
/// # Safety
/// Unless it is NULL, `text` must be readable up to a zero byte, and stay as it is for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::argument(format!("`{name}` is no UTF-8: {error}")))
}

/// A path of C's, in whatever bytes.
///
/// # Errors
/// If it is NULL or empty.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char, name: &str) -> Result<&'a Path, Failure> {
    if path.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.is_empty() {
        return Err(Failure::argument(format!("`{name}` is empty: give a path")));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Bytes of C's. None may be anywhere, at NULL too.
///
/// # Errors
/// If there are some at NULL, or more than any memory has.
///
/// # Safety
/// `bytes` must be readable for `len` bytes, which stay as they are for `'a`.
#[inline(always)]
pub(crate) unsafe fn bytes<'a>(bytes: *const c_void, len: usize, name: &str) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() || len > isize::MAX as usize {
        return Err(no_bytes(bytes.is_null(), len, name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
}

#[cold]
fn no_bytes(null: bool, len: usize, name: &str) -> Failure {
    let why = if null { "there is nothing at NULL" } else { "no memory has so many" };
    Failure::argument(format!("`{name}` has {len} bytes, and {why}"))
}

/// Gives C an object: from here on C answers for its end.
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes an object back from the variable in which C keeps it, which is NULL then. `None` if it was NULL already.
///
/// # Errors
/// If there is no variable, or `may` says no: then everything stays as it was.
///
/// # Safety
/// Unless it is NULL, `variable` must hold NULL or what [`give`] gave for a `T`, which nothing else uses.
pub(crate) unsafe fn take<T>(
    variable: *mut *mut T,
    name: &str,
    may: impl FnOnce(&T) -> Result<(), Failure>,
) -> Result<Option<Box<T>>, Failure> {
    // SAFETY: the caller's promise.
    let variable = unsafe { object_mut(variable, name)? };
    // SAFETY: as above: what is not NULL is an object that was not taken back.
    let Some(object) = (unsafe { variable.as_ref() }) else { return Ok(None) };
    may(object)?;
    let object = std::mem::replace(variable, std::ptr::null_mut());
    // SAFETY: `give` made it of a box, and NULL in the variable is what keeps C from giving it back again.
    Ok(Some(unsafe { Box::from_raw(object) }))
}

/// A time limit in nanoseconds, as C gives it.
#[inline(always)]
pub(crate) fn duration(nanoseconds: u64) -> Duration {
    if nanoseconds == u64::MAX { Duration::MAX } else { Duration::from_nanos(nanoseconds) }
}

/// A text for C. A zero byte, which none should have, is left out.
pub(crate) fn c_text(text: &str) -> CString {
    let mut bytes = text.as_bytes().to_vec();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}

/// Writes `value` to where C wants it, in a structure that has grown since or will: as many bytes of it as C's has, and zeros
/// where C's is longer.
///
/// # Errors
/// If `into` is NULL, or `size` is less than the first version of the structure had, which is `least`.
///
/// # Safety
/// Unless it is NULL, `into` must be writable for `size` bytes. `T` must have no padding.
pub(crate) unsafe fn fill<T: Copy>(
    into: *mut T,
    size: usize,
    least: usize,
    name: &str,
    value: T,
) -> Result<(), Failure> {
    if into.is_null() {
        return Err(Failure::null(name));
    }
    if size < least {
        let text = format!("`{name}` has {size} bytes, and its structure {least} at least: give its sizeof");
        return Err(Failure::argument(text));
    }
    let known = size.min(size_of::<T>());
    let into = into.cast::<u8>();
    // SAFETY: the caller promises `size` bytes, and of `value` no more than it has are read.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), into, known);
        std::ptr::write_bytes(into.add(known), 0, size - known);
    }
    Ok(())
}
