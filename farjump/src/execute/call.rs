//! Entering injected code, and leaving it from the middle.
//!
//! `farjump_panic` ends a call from anywhere inside it, and injected code has no unwind tables. So the way out is laid
//! before the way in: [`enter`] pushes what it needs to go on, notes the stack pointer and calls; [`leave`] puts the stack
//! pointer back and goes on from there. The registers that the System V ABI has a callee preserve, which the code that is
//! left behind does not restore, are named as overwritten, so that the compiler keeps nothing in them meanwhile. Nothing in
//! between is run again or cleaned up, so what lies in between must own nothing: injected code is compiled to abort on
//! panic, and `farjump_panic` is the only function of ours that leaves this way.

use std::ffi::c_void;

/// `NAME_main`, as the papers have it: payload, its size in bytes, and what the target hands to all functions.
pub(crate) type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// Calls `main(payload, size, target_args)`. Returns 0 when it returned, 1 when it was ended by [`leave`] with the stack
/// pointer that this wrote to `way_out`.
///
/// # Safety
/// `main` must be injected code that may be called so; `way_out` must be valid for a write, and what is written there is
/// of use only until this returns.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn enter(
    main: Main,
    payload: *mut c_void,
    size: usize,
    target_args: *mut c_void,
    way_out: *mut usize,
) -> u32 {
    let left: u32;
    // SAFETY: the four words pushed keep the stack aligned to 16, as it is on entry; both ways out take them off again. Of
    // the registers, rbp and rbx are pushed, because the compiler does not let them be named as overwritten, and all others
    // are. What `main` does is the business of the caller.
    unsafe {
        core::arch::asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "push rax",
            "mov [r11], rsp",
            "call r10",
            "xor eax, eax",
            "2:",
            "add rsp, 16",
            "pop rbx",
            "pop rbp",
            inlateout("r10") main => _,
            inlateout("r11") way_out => _,
            inlateout("rdi") payload => _,
            inlateout("rsi") size => _,
            inlateout("rdx") target_args => _,
            lateout("eax") left,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    left
}

/// Ends the call whose [`enter`] wrote `way_out`: that `enter` returns 1.
///
/// # Safety
/// That `enter` must not have returned yet, on this thread, and every frame on the stack above it must own nothing that
/// would have to be dropped.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(way_out: usize) -> ! {
    core::arch::naked_asm!("mov rsp, rdi", "cld", "mov eax, 1", "jmp [rsp]",)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn enter(_: Main, _: *mut c_void, _: usize, _: *mut c_void, _: *mut usize) -> u32 {
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
        // SAFETY: as above; the test passes where `enter` wrote the way out.
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
        let ended =
            unsafe { enter(returns, (&raw mut payload).cast(), 2, (&raw mut args).cast(), &raw mut way_out) };
        assert_eq!((ended, args), (0, 42));
    }

    #[test]
    fn a_call_can_be_left_from_any_depth_again_and_again_and_preserves_the_callers_registers() {
        let mut args = 0_u64;
        let mut sum = 0_u64;
        for depth in 0..100 {
            let mut way_out = 0_usize;
            // SAFETY: `leaves` reads the way out that `enter` writes, and owns nothing.
            let ended = unsafe {
                enter(leaves, (&raw mut way_out).cast(), depth, (&raw mut args).cast(), &raw mut way_out)
            };
            sum += u64::from(ended) * depth as u64;
        }
        assert_eq!((args, sum), (100, (0..100).sum()));
    }
}
