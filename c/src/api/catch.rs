//! The boundary to C: no panic unwinds past it, and pointers are checked before they are used.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use farjump::core::counted;

use crate::api::last_error::{Failure, note};
use crate::api::status::farjump_status_t;

/// Runs the body of a function that C calls, and returns its status. Keeps an error for `farjump_last_error`.
///
/// A panic is a bug in this library: it becomes [`farjump_status_t::FARJUMP_ERROR_INTERNAL`]. The change
/// under way may be half done, so the object of the call can only be closed.
#[inline(always)]
pub(crate) fn guarded(body: impl FnOnce() -> Result<farjump_status_t, Failure>) -> farjump_status_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => note(failure),
        Err(panic) => note(Failure::panic(&*panic)),
    }
}

/// As [`guarded`], for functions that return a value. `otherwise` is the value after an error.
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

/// Returns the object that C points to.
///
/// # Errors
/// If it is NULL. `name` names the argument.
///
/// # Safety
/// Unless it is NULL, `pointer` must be one that this library gave C for a `T`, not closed yet, and stay so
/// for `'a`: the header requires that of each call.
#[inline(always)]
pub(crate) unsafe fn object<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: this function's caller guarantees it. Nothing makes exclusive references to such a `T` where
    // the header allows sharing.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// As [`object`], for one that nothing else uses during the call.
///
/// # Errors
/// As [`object`].
///
/// # Safety
/// As [`object`], and nothing else may use it for `'a`.
#[inline(always)]
pub(crate) unsafe fn object_mut<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: this function's caller guarantees it.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::null(name))
}

/// Returns the place for a result.
///
/// # Errors
/// If it is NULL.
///
/// # Safety
/// Unless it is NULL, `pointer` must be writable for a `T`, which need not exist yet, for `'a`.
#[inline(always)]
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: this function's caller guarantees it; a `MaybeUninit` has no invariant to keep.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }.ok_or_else(|| Failure::null(name))
}

/// Returns the variable for a new object, set to NULL until there is one.
///
/// # Errors
/// As [`place`].
///
/// # Safety
/// As [`place`].
pub(crate) unsafe fn variable<'a, T>(pointer: *mut *mut T, name: &str) -> Result<&'a mut *mut T, Failure> {
    // SAFETY: this function's caller guarantees it.
    Ok(unsafe { place(pointer, name)? }.write(std::ptr::null_mut()))
}

/// Returns a text from C.
///
/// # Errors
/// If it is NULL or not UTF-8.
///
/// # Safety
/// Unless it is NULL, `text` must be readable up to a zero byte, and stay unchanged for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: this function's caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::argument(format!("`{name}` is no UTF-8: {error}")))
}

/// Returns a text from C, or `None` for NULL.
///
/// # Errors
/// If it is not UTF-8.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn text_or_null<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    // SAFETY: this function's caller guarantees it.
    (!text.is_null()).then(|| unsafe { self::text(text, name) }).transpose()
}

/// Returns a path from C, in any bytes.
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
    // SAFETY: this function's caller guarantees it.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.is_empty() {
        return Err(Failure::argument(format!("`{name}` is empty: give a path")));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns bytes from C. An empty range may be anywhere, also at NULL.
///
/// # Errors
/// If the range is not empty and at NULL, or longer than any memory.
///
/// # Safety
/// `bytes` must be readable for `len` bytes, which stay unchanged for `'a`.
#[inline(always)]
pub(crate) unsafe fn bytes<'a>(bytes: *const c_void, len: usize, name: &str) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() || len > isize::MAX as usize {
        return Err(no_bytes(bytes.is_null(), len, name));
    }
    // SAFETY: this function's caller guarantees it.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
}

#[cold]
fn no_bytes(null: bool, len: usize, name: &str) -> Failure {
    let why = if null { "there is nothing at NULL" } else { "no memory has so many" };
    Failure::argument(format!("`{name}` has {}, and {why}", counted(len, "byte")))
}

/// Gives C an object: from here on C is responsible for its end.
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes an object back from C's variable, which becomes NULL. `None` if it was NULL already.
///
/// # Errors
/// If there is no variable, or `may` fails: then nothing changes.
///
/// # Safety
/// Unless it is NULL, `variable` must hold NULL or the result of [`give`] for a `T`, which nothing else uses.
pub(crate) unsafe fn take<T>(
    variable: *mut *mut T,
    name: &str,
    may: impl FnOnce(&T) -> Result<(), Failure>,
) -> Result<Option<Box<T>>, Failure> {
    // SAFETY: this function's caller guarantees it.
    let variable = unsafe { object_mut(variable, name)? };
    // SAFETY: this function's caller guarantees it: a pointer that is not NULL is an object that was not
    // taken back.
    let Some(object) = (unsafe { variable.as_ref() }) else { return Ok(None) };
    may(object)?;
    let object = std::mem::replace(variable, std::ptr::null_mut());
    // SAFETY: `give` made it of a box, and NULL in the variable keeps C from giving it back again.
    Ok(Some(unsafe { Box::from_raw(object) }))
}

/// Converts a time limit in nanoseconds, as C passes it.
#[inline(always)]
pub(crate) fn duration(nanoseconds: u64) -> Duration {
    if nanoseconds == u64::MAX { Duration::MAX } else { Duration::from_nanos(nanoseconds) }
}

/// Writes `value` to a structure of C's that may be older or newer: as many bytes as C's has, and zeros where
/// C's is longer.
///
/// # Errors
/// If `into` is NULL, or `size` is less than `least`, the length of the structure's first version.
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
    // SAFETY: this function's caller guarantees `size` bytes, and no more than the length of `value` is read.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), into, known);
        std::ptr::write_bytes(into.add(known), 0, size - known);
    }
    Ok(())
}
