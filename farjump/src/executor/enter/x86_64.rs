//! x86-64: System V ABI, AMD64 supplement, 3.2.

use std::ffi::c_void;

use super::Main;

/// Calls `main(payload, size, target_args)`. Returns when `main` has returned, or when [`leave`] has ended it with the
/// stack pointer that this function wrote to `exit_point`: the caller knows which.
///
/// # Safety
/// `main` must be injected code that may be called so. `exit_point` must be valid for a write; the value written
/// there is usable only until this function returns.
#[inline(always)]
pub(crate) unsafe fn enter(
    main: Main,
    payload: *mut c_void,
    size: usize,
    target_args: *mut c_void,
    exit_point: *mut usize,
) {
    // SAFETY: the two words pushed keep the stack aligned to 16, as it is on entry, and are taken off again. Of the
    // registers, rbp and rbx are pushed, because the compiler does not let them be named as overwritten, and all others
    // are so named. A `main` that returns has preserved these two, as its ABI requires; `leave` restores them. The
    // caller guarantees `main`.
    unsafe {
        core::arch::asm!(
            "push rbp",
            "push rbx",
            "mov [r11], rsp",
            "call r10",
            "add rsp, 16",
            inlateout("r10") main => _,
            inlateout("r11") exit_point => _,
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
}

/// Ends the call whose [`enter`] wrote `exit_point`: that `enter` returns.
///
/// The call leaves nothing on the stack of x87, whose exceptions are cleared. The caller restores [`ControlWords`].
///
/// # Safety
/// That `enter` must not have returned yet, on this thread, and every frame on the stack above it must own
/// nothing that would have to be dropped.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(exit_point: usize) -> ! {
    // The word below is the return address of `NAME_main`.
    core::arch::naked_asm!("mov rsp, rdi", "fninit", "mov rbx, [rsp]", "mov rbp, [rsp + 8]", "jmp [rsp - 8]",)
}

/// Makes the call whose [`enter`] wrote `exit_point` continue in `function` when it returns or is left, in place of that
/// `enter`.
///
/// # Safety
/// That `enter` must not have returned yet, on this thread.
pub(crate) unsafe fn redirect(exit_point: usize, function: extern "C" fn() -> !) {
    /// The end of a redirected call: the stack pointer is `exit_point`, a multiple of 16, and the function is in the word
    /// there.
    #[unsafe(naked)]
    unsafe extern "C" fn end() {
        core::arch::naked_asm!("call [rsp]")
    }
    let exit_point = exit_point as *mut usize;
    // SAFETY: the call pushed the word below, the return address of `NAME_main`, where `leave` goes, too. The word at the
    // way out is a register that `enter` pushed, and that nothing restores any more. The thread is here, deeper in the same
    // stack, so both are in use, and nothing else reads them.
    unsafe {
        exit_point.sub(1).write(end as *const () as usize);
        exit_point.write(function as *const () as usize);
    }
}

/// The return address of the function that `enter` called: the word below those that it pushed.
///
/// # Safety
/// The `enter` that wrote `exit_point` must not have returned yet, on this thread.
pub(super) unsafe fn return_address(exit_point: usize) -> usize {
    // SAFETY: the call pushed it, and it is in use as long as `enter` has not returned.
    unsafe { (exit_point as *const usize).sub(1).read() }
}

/// The modes of arithmetic that a function preserves: the control bits of MXCSR, and the control word of x87.
// Packed to 6 bytes: the line of a context that each call uses has no more space.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(2))]
pub(crate) struct ControlWords {
    pub(super) x87: u16,
    pub(super) mxcsr: u32,
}

/// The exception flags of MXCSR. A function need not preserve them.
const FLAGS: u32 = 0x3f;

impl ControlWords {
    /// The words of a thread that has changed none.
    pub(crate) const DEFAULT: ControlWords = ControlWords { x87: 0x37f, mxcsr: 0x1f80 };

    /// Reads this thread's words into those that lie `AT` bytes behind `base`.
    ///
    /// # Safety
    /// `AT` must lead to words that may be written.
    // Not by a reference to the words, whose address would take an instruction more.
    #[inline(always)]
    pub(crate) unsafe fn note_at<const AT: usize>(base: *mut u8) {
        // SAFETY: the two instructions write the two fields, which this function's caller lets them.
        unsafe {
            core::arch::asm!("fnstcw [{base} + {AT}]", "stmxcsr [{base} + {AT} + 2]", base = in(reg) base, AT = const AT,
                options(nostack, preserves_flags));
        }
    }

    /// Sets this thread's words to those that lie `AT` bytes behind `base`. This restores the exception flags of that
    /// time, too.
    ///
    /// # Safety
    /// `AT` must lead to words that [`ControlWords::note_at`] has written, or the default.
    #[inline(always)]
    pub(crate) unsafe fn set_at<const AT: usize>(base: *const u8) {
        // SAFETY: the words were read from these registers, so no bit of them is reserved.
        unsafe {
            core::arch::asm!("fldcw [{base} + {AT}]", "ldmxcsr [{base} + {AT} + 2]", base = in(reg) base, AT = const AT,
                options(nostack, preserves_flags, readonly));
        }
    }

    /// Returns whether the modes of `other` are these.
    pub(crate) fn is(self, other: ControlWords) -> bool {
        (self.mxcsr ^ other.mxcsr) <= FLAGS && self.x87 == other.x87
    }
}

/// The bytes between the frame record of a function and its frame pointer.
pub(super) const RECORD: usize = 0;

/// The address itself: return addresses carry nothing else.
pub(super) fn stripped(address: usize) -> usize {
    address
}

/// Returns whether the instruction before `address`, in code of a program or library, is a call.
pub(super) fn is_return_address(address: usize) -> bool {
    // SAFETY: loaded code can be read, and does not begin at the first byte of its object, which is the
    // header's.
    let byte = |back: usize| unsafe { ((address - back) as *const u8).read() };
    // `call rel32`, or `call r/m64` with up to a SIB byte and a displacement.
    byte(5) == 0xe8 || (2..=7).any(|back| byte(back) == 0xff && byte(back - 1) >> 3 & 7 == 2)
}
