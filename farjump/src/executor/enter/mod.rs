//! Entering injected code, and leaving it from the middle.
//!
//! `farjump_panic` ends a call from anywhere inside it, and injected code has no unwind tables. So [`enter`]
//! prepares the exit before the call: it pushes the registers to restore, notes the stack pointer and calls.
//! [`leave`] restores the stack pointer and continues there. [`enter`] declares the callee-saved registers of
//! the platform's ABI as overwritten, because abandoned code does not restore them. Nothing in between is run
//! again or cleaned up, so frames in between must own nothing: injected code is compiled to abort on panic,
//! and `farjump_panic` is farjump's only function that leaves this way. A function of the target or of a
//! library that lies in between may own anything, for example a lock. [`foreign`] finds it, and then the call
//! is not left (`docs/design/store.md`).
//!
//! A program with shadow stacks in user mode (x86-64: CET; aarch64: GCS) cannot leave this way.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")),
    path = "unsupported.rs"
)]
mod machine;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
mod words;

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem::MaybeUninit;

pub(crate) use machine::{ControlWords, enter, leave, redirect};

/// `NAME_main`, as the papers define it: payload, its size in bytes, and the target's arguments for all
/// functions.
pub(crate) type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// The state at the entry of a service that injected code calls.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// The service's return address.
    pub(crate) address: usize,
    /// The lowest address of the caller's part of the stack.
    pub(crate) stack: usize,
    /// The frame pointer.
    pub(crate) frame: usize,
}

/// A function that is not injected code.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// An address inside it.
    address: usize,
    object: Object,
}

impl fmt::Display for Foreign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Object { path, base } = &self.object;
        write!(out, "{path}+{:#x}", self.address.wrapping_sub(*base))
    }
}

/// The program, or a library.
#[derive(Debug)]
struct Object {
    path: String,
    base: usize,
}

/// The innermost function that is not injected between a service that `caller` called and the `enter` that wrote
/// `exit_point`.
///
/// `farjump build` has injected code keep frame pointers, so the way from one injected function to its caller
/// is known: the frame pointer leads to two words, the caller's frame pointer and the return address. The
/// return address of the first function called from elsewhere lies in a program or library that
/// the system has loaded. Code without frame pointers (objects that something else compiled) ends the search:
/// frames beyond it are not seen.
///
/// # Safety
/// `caller` must be that of a function in use on this thread, and that `enter` must not have returned yet.
pub(crate) unsafe fn foreign(caller: Caller, exit_point: usize) -> Option<Foreign> {
    const WORD: usize = size_of::<usize>();
    let Caller { address, stack: mut start, mut frame } = caller;
    let mut address = machine::stripped(address);
    // SAFETY: `enter` has not returned, as the caller guarantees.
    let last = unsafe { machine::return_address(exit_point) };
    while address != last {
        if let Some(object) = object_of(address)
            && machine::is_return_address(address)
        {
            return Some(Foreign { address, object });
        }
        let record = frame.wrapping_sub(machine::RECORD);
        if record < start || record > exit_point - 2 * WORD || !record.is_multiple_of(WORD) {
            return None;
        }
        start = record + 2 * WORD;
        // SAFETY: the two words were checked to lie between the service's own part of the stack and that of
        // `enter`, both of which are in use.
        let record = unsafe { (record as *const [usize; 2]).read() };
        (frame, address) = (record[0], machine::stripped(record[1]));
    }
    None
}

/// The program or library that contains `address`; `None` for injected code, which the system did not load.
fn object_of(address: usize) -> Option<Object> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the call only looks the address up, and has written all of `found` when it does not return 0.
    let found = unsafe {
        if libc::dladdr(address as *const c_void, found.as_mut_ptr()) == 0 {
            return None;
        }
        found.assume_init()
    };
    let base = found.dli_fbase.addr();
    // An object has no code before its header.
    if found.dli_fname.is_null() || address < base + 64 {
        return None;
    }
    // SAFETY: it is the system's name of a loaded object, and injected code unloads nothing meanwhile.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned();
    Some(Object { path, base })
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) mod tests;
