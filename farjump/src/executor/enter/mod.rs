//! Entering injected code, and leaving it from the middle.
//!
//! `farjump_panic` ends a call from anywhere inside it, and injected code has no unwind tables. So [`enter`]
//! prepares the exit before the call: it pushes the registers to restore, notes the stack pointer and calls.
//! [`leave`] restores the stack pointer and continues there. [`enter`] declares the callee-saved registers of
//! the System V ABI as overwritten, because abandoned code does not restore them. Nothing in between is run
//! again or cleaned up, so frames in between must own nothing: injected code is compiled to abort on panic,
//! and `farjump_panic` is farjump's only function that leaves this way. A function of the target or of a
//! library that lies in between may own anything, for example a lock. [`foreign`] finds it, and then the call
//! is not left (`docs/decisions/panic.md`).

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem::MaybeUninit;

/// `NAME_main`, as the papers define it: payload, its size in bytes, and the target's arguments for all
/// functions.
pub(crate) type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// Calls `main(payload, size, target_args)`. Returns `true` if `main` returned, and `false` if [`leave`] ended it
/// with the stack pointer that this function wrote to `way_out`.
///
/// # Safety
/// `main` must be injected code that may be called so. `way_out` must be valid for a write; the value written
/// there is usable only until this function returns.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn enter(
    main: Main,
    payload: *mut c_void,
    size: usize,
    target_args: *mut c_void,
    way_out: *mut usize,
) -> bool {
    // SAFETY: the four words pushed keep the stack aligned to 16, as it is on entry; both exits take them off
    // again. Of the registers, rbp and rbx are pushed, because the compiler does not let them be named as
    // overwritten, and all others are so named. A `main` that returns has preserved these two, as its ABI asks:
    // only the way out, which lies with code that seldom runs, restores them. The caller guarantees `main`.
    unsafe {
        core::arch::asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "push rax",
            "mov [r11], rsp",
            "call r10",
            "add rsp, 32",
            ".pushsection .text.unlikely.farjump_leave, \"ax\", @progbits",
            "2:",
            "add rsp, 16",
            "pop rbx",
            "pop rbp",
            "jmp {left}",
            ".popsection",
            left = label { return false },
            inlateout("r10") main => _,
            inlateout("r11") way_out => _,
            inlateout("rdi") payload => _,
            inlateout("rsi") size => _,
            inlateout("rdx") target_args => _,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    true
}

/// Ends the call whose [`enter`] wrote `way_out`: that `enter` returns `false`.
///
/// # Safety
/// That `enter` must not have returned yet, on this thread, and every frame on the stack above it must own
/// nothing that would have to be dropped.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(way_out: usize) -> ! {
    core::arch::naked_asm!("mov rsp, rdi", "cld", "jmp [rsp]",)
}

/// Has the call whose [`enter`] wrote `way_out` go on in `function` when it returns or is left, in place of that
/// `enter`.
///
/// # Safety
/// That `enter` must not have returned yet, on this thread.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn redirect(way_out: usize, function: extern "C" fn() -> !) {
    /// Where a call ends: the stack pointer is `way_out`, a multiple of 16, and the function is in the word
    /// above.
    #[unsafe(naked)]
    unsafe extern "C" fn end() {
        core::arch::naked_asm!("call [rsp + 8]")
    }
    let end = end as *const () as usize;
    let way_out = way_out as *mut usize;
    // SAFETY: `enter` pushed the word at the way out, where `leave` jumps to, and a copy of it above, which is
    // only there for the stack's alignment. The call pushed the word below, the return address of `NAME_main`.
    // The thread is here, deeper in the same stack, so all three are in use, and nothing else reads them.
    unsafe {
        way_out.sub(1).write(end);
        way_out.write(end);
        way_out.add(1).write(function as *const () as usize);
    }
}

/// No code is placed on other machines.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn redirect(_: usize, _: extern "C" fn() -> !) {}

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

/// The innermost function that is not injected between a service and the `enter` that wrote `way_out`. `slot`
/// is the address of the service's return address, and `frame` the value of the frame pointer when the
/// service was called.
///
/// `farjump build` has injected code keep frame pointers, so the way from one injected function to its caller
/// is known. The return address of the first function called from elsewhere lies in a program or library that
/// the system has loaded. Code without frame pointers (objects that something else compiled) ends the search:
/// frames beyond it are not seen.
///
/// # Safety
/// `slot` must be in use, on a stack of this thread, and that `enter` must not have returned yet.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn foreign(mut slot: usize, mut frame: usize, way_out: usize) -> Option<Foreign> {
    const WORD: usize = size_of::<usize>();
    // The return address of `NAME_main` lies below the words that `enter` pushed.
    let last = way_out - WORD;
    while slot < last {
        // SAFETY: the address lies between the service's own part of the stack and that of `enter`, both of
        // which are in use, or at the last function's frame pointer, which was checked to lie there too.
        let address = unsafe { (slot as *const usize).read() };
        if let Some(object) = object_of(address)
            && is_return_address(address)
        {
            return Some(Foreign { address, object });
        }
        if frame <= slot || frame >= last || !frame.is_multiple_of(WORD) {
            return None;
        }
        slot = frame + WORD;
        // SAFETY: `frame` was checked to lie in the same part of the stack.
        frame = unsafe { (frame as *const usize).read() };
    }
    None
}

/// Whether the instruction before `address`, in code of a program or library, is a call.
#[cfg(target_arch = "x86_64")]
fn is_return_address(address: usize) -> bool {
    // SAFETY: loaded code can be read, and does not begin at the first byte of its object, which is the
    // header's.
    let byte = |back: usize| unsafe { ((address - back) as *const u8).read() };
    // `call rel32`, or `call r/m64` with up to a SIB byte and a displacement.
    byte(5) == 0xe8 || (2..=7).any(|back| byte(back) == 0xff && byte(back - 1) >> 3 & 7 == 2)
}

/// The program or library that contains `address`; `None` for injected code, which the system did not load.
#[cfg(target_arch = "x86_64")]
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

#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn foreign(_: usize, _: usize, _: usize) -> Option<Foreign> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn enter(_: Main, _: *mut c_void, _: usize, _: *mut c_void, _: *mut usize) -> bool {
    unreachable!("the store places no code on an architecture that icache::supported refuses")
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe extern "C" fn leave(_: usize) -> ! {
    unreachable!("only called from inside `enter`")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    unsafe extern "C" fn returns(payload: *mut c_void, size: usize, args: *mut c_void) {
        // SAFETY: the tests below pass a u64 for each.
        unsafe { *args.cast::<u64>() += *payload.cast::<u64>() + size as u64 }
    }

    unsafe extern "C" fn leaves(payload: *mut c_void, size: usize, args: *mut c_void) {
        // SAFETY: the test below passes the address to which `enter` wrote the way out.
        unsafe {
            if size > 0 {
                leaves(payload, size - 1, args);
            } else {
                *args.cast::<u64>() += 1;
                leave(*payload.cast::<usize>())
            }
        }
    }

    #[test]
    fn a_call_gets_its_arguments_and_returns() {
        let (mut payload, mut args, mut way_out) = (40_u64, 0_u64, 0);
        // SAFETY: `returns` takes pointers to words.
        let returned =
            unsafe { enter(returns, (&raw mut payload).cast(), 2, (&raw mut args).cast(), &raw mut way_out) };
        assert_eq!((returned, args), (true, 42));
    }

    #[test]
    fn a_call_can_be_left_from_any_depth_again_and_again_and_preserves_the_callers_registers() {
        let mut args = 0_u64;
        let mut sum = 0_u64;
        for depth in 0..100 {
            let mut way_out = 0_usize;
            // SAFETY: `leaves` reads the way out that `enter` writes, and owns nothing.
            let returned = unsafe {
                enter(leaves, (&raw mut way_out).cast(), depth, (&raw mut args).cast(), &raw mut way_out)
            };
            sum += u64::from(!returned) * depth as u64;
        }
        assert_eq!((args, sum), (100, (0..100).sum()));
    }
}
