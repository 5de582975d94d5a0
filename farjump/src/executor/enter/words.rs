//! The words that `enter` leaves on the stack where a call does not push its return address: aarch64 and riscv64.
//!
//! They lie from the stack pointer on, which is `exit_point`. The first two are the preserved registers that the compiler
//! does not let `enter` name as overwritten.

/// Offset of the address to which `main` returns, and at which a call that is left continues.
pub(super) const RETURN: usize = 16;
/// Offset of the function in which the call ends, in place of `enter`; 0 if there is none.
pub(super) const END: usize = 24;
/// Length of all of them, a multiple of 16.
pub(super) const LEN: usize = 32;

/// Makes the call whose `enter` wrote `exit_point` continue in `function` when it returns or is left, in place of that
/// `enter`.
///
/// # Safety
/// That `enter` must not have returned yet, on this thread.
pub(crate) unsafe fn redirect(exit_point: usize, function: extern "C" fn() -> !) {
    // SAFETY: `enter` wrote the word, and reads it at both of its exits. The thread is here, deeper in the same
    // stack, so it is in use, and nothing else reads it.
    unsafe { ((exit_point + END) as *mut usize).write(function as *const () as usize) }
}

/// The return address of the function that `enter` called.
///
/// # Safety
/// The `enter` that wrote `exit_point` must not have returned yet, on this thread.
pub(super) unsafe fn return_address(exit_point: usize) -> usize {
    // SAFETY: `enter` wrote the word, which is in use as long as it has not returned.
    unsafe { ((exit_point + RETURN) as *const usize).read() }
}
