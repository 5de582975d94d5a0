//! Copies out of, copies into, and comparisons with memory that another process may write at the same time.
//!
//! None of them is a Rust access to that memory: a reference, or a copy by `memcpy`, would have to be the
//! only access. Instructions move the bytes, or relaxed atomic accesses where there are no such instructions
//! (`docs/design/frames.md`). Both are also sound on memory that only this process uses.

mod by_atomics;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
#[cfg_attr(farjump_planted, allow(dead_code, reason = "tested everywhere"))]
mod by_instructions;

// ThreadSanitizer, for which `farjump_planted` exists, sees atomic accesses but not instructions.
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri), not(farjump_planted))))]
use by_atomics as means;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri), not(farjump_planted)))]
use by_instructions as means;

/// Copies `len` bytes from memory that another process may write meanwhile to memory that is the caller's
/// alone. Each byte of the copy was there at some time during the call, not necessarily all at one time.
/// Check the copy, and use only the copy.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes. The two must not overlap. In this
/// process nothing may write to `from` meanwhile except by atomic operations or by the instructions used
/// here.
#[inline(always)]
pub unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the ranges (see Safety).
    unsafe { means::copy_out(from, to, len) }
}

/// Copies `len` bytes from memory that is the caller's alone to memory that another process may read and
/// write meanwhile. The bytes arrive in no particular order: hand them over by a later store with release
/// order.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes. The two must not overlap. In this
/// process nothing may read or write `to` meanwhile.
#[inline(always)]
pub unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the ranges (see Safety).
    unsafe { means::copy_in(from, to, len) }
}

/// Returns whether memory that another process may write meanwhile holds the bytes of `own`. `true` means
/// that each byte was there at some time during the call, and says nothing about later: use `own` from then
/// on.
///
/// # Safety
/// `shared` must be valid for reads of `own.len()` bytes. In this process nothing may write there meanwhile
/// except by atomic operations or by the instructions used here.
pub unsafe fn equals(shared: *const u8, own: &[u8]) -> bool {
    // SAFETY: the caller guarantees the ranges (see Safety).
    unsafe { means::equals(shared, own) }
}

#[cfg(test)]
mod tests;
