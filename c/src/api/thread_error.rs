//! The last error of a thread, as C reads it.

use std::ffi::{c_char, c_int};

use crate::api::last_error;
use crate::api::shared::{cause_number, cause_words};

/// Returns the last error of this thread: a sentence with the failure, its place and its remedy. "" if there
/// was none. The text belongs to the library, and is valid until the next failing call of this thread. Calls
/// that succeed leave it unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn farjump_last_error() -> *const c_char {
    last_error::last()
}

/// Returns the cause of the target's refusal, if the last failing call of this thread returned
/// FARJUMP_ERROR_REFUSED: one of FARJUMP_CAUSE_BAD_FRAME and its kin. -1 otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn farjump_last_cause() -> c_int {
    last_error::last_cause().map_or(-1, cause_number)
}

/// Returns a few words for one of FARJUMP_CAUSE_BAD_FRAME and its kin; "unknown cause" for any other number.
/// The text is constant. Any thread may call this.
#[unsafe(no_mangle)]
pub extern "C" fn farjump_cause_string(cause: c_int) -> *const c_char {
    cause_words(cause).as_ptr()
}
