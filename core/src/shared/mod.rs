//! Copies out of, copies into, and comparisons with memory that another process may write at the same time.
//!
//! None of these is an access of the language's to that memory, for which a reference, or a copy as `memcpy` makes it, would have to
//! be the only one: the bytes are moved by instructions, or by relaxed atomic accesses where there are none for that
//! (`docs/decisions/shared-bytes.md`). Both are also sound where the memory is this process's alone.

mod by_atomics;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cfg_attr(farjump_planted, allow(dead_code, reason = "tested everywhere"))]
mod by_instructions;

// ThreadSanitizer, which `farjump_planted` is for, sees atomic accesses and no instructions.
#[cfg(not(all(target_arch = "x86_64", not(miri), not(farjump_planted))))]
use by_atomics as means;
#[cfg(all(target_arch = "x86_64", not(miri), not(farjump_planted)))]
use by_instructions as means;

/// Copies `len` bytes from memory that another process may write meanwhile, to memory that is the caller's alone. Each byte of the copy
/// was there at some time during the call; what belongs together need not come from one time. Check the copy, and use it.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, and the two do not overlap. In this process nobody writes to `from`
/// meanwhile but by atomic operations or by instructions as here.
#[inline(always)]
pub unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller vouches.
    unsafe { means::copy_out(from, to, len) }
}

/// Copies `len` bytes from memory that is the caller's alone, to memory that another process may read and write meanwhile. Nothing is
/// said of the order in which they get there: what they mean is handed over behind them, by a store with release order.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, and the two do not overlap. In this process nobody reads or writes
/// `to` meanwhile.
#[inline(always)]
pub unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller vouches.
    unsafe { means::copy_in(from, to, len) }
}

/// Whether memory that another process may write meanwhile holds the bytes of `own`. `true` says that each of them was there at some
/// time during the call, and nothing of what is there now: go on with `own`.
///
/// # Safety
/// `shared` is valid for reads of as many bytes as `own` has. In this process nobody writes there meanwhile but by atomic operations
/// or by instructions as here.
pub unsafe fn equals(shared: *const u8, own: &[u8]) -> bool {
    // SAFETY: as the caller vouches.
    unsafe { means::equals(shared, own) }
}

#[cfg(test)]
mod tests;
