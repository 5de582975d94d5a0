//! x86-64: System V ABI, AMD64 supplement, 3.2.

use std::ffi::c_void;

use super::Main;

/// Calls `main(payload, size, target_args)`. Returns `true` if `main` returned, and `false` if [`leave`] ended it
/// with the stack pointer that this function wrote to `way_out`.
///
/// # Safety
/// `main` must be injected code that may be called so. `way_out` must be valid for a write; the value written
/// there is usable only until this function returns.
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
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(way_out: usize) -> ! {
    core::arch::naked_asm!("mov rsp, rdi", "cld", "jmp [rsp]",)
}

/// Has the call whose [`enter`] wrote `way_out` go on in `function` when it returns or is left, in place of that
/// `enter`.
///
/// # Safety
/// That `enter` must not have returned yet, on this thread.
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

/// The return address of the function that `enter` called: the word below those that it pushed.
///
/// # Safety
/// The `enter` that wrote `way_out` must not have returned yet, on this thread.
pub(super) unsafe fn return_address(way_out: usize) -> usize {
    // SAFETY: the call pushed it, and it is in use as long as `enter` has not returned.
    unsafe { (way_out as *const usize).sub(1).read() }
}

/// The bytes between the frame record of a function and its frame pointer.
pub(super) const RECORD: usize = 0;

/// The address itself: return addresses carry nothing else.
pub(super) fn stripped(address: usize) -> usize {
    address
}

/// Whether the instruction before `address`, in code of a program or library, is a call.
pub(super) fn is_return_address(address: usize) -> bool {
    // SAFETY: loaded code can be read, and does not begin at the first byte of its object, which is the
    // header's.
    let byte = |back: usize| unsafe { ((address - back) as *const u8).read() };
    // `call rel32`, or `call r/m64` with up to a SIB byte and a displacement.
    byte(5) == 0xe8 || (2..=7).any(|back| byte(back) == 0xff && byte(back - 1) >> 3 & 7 == 2)
}
