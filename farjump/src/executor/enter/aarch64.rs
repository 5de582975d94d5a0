//! aarch64: Procedure Call Standard for the Arm 64-bit Architecture, 6.1 (registers) and 6.4.6 (frame records).
//!
//! The addresses to which this code branches indirectly have landing pads, which are hints without an effect on
//! processors without BTI.

use std::arch::{asm, naked_asm};
use std::ffi::c_void;

use super::Main;
pub(crate) use super::words::redirect;
pub(super) use super::words::return_address;
use super::words::{END, LEN, RETURN};

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
    // SAFETY: `LEN` keeps the stack aligned to 16, as it is on entry, and is taken off again. Of the registers that a
    // callee preserves, x29 and x19 are stored, because the compiler does not let them be named as overwritten, and all
    // others are so named: x20 to x28 one by one, the vector registers and x30 by `clobber_abi`. A `main` that returns has
    // preserved these two, as its ABI requires; `leave` restores them. The caller guarantees `main`.
    unsafe {
        asm!(
            "stp x29, x19, [sp, #-{LEN}]!",
            "adr x12, 3f",
            "stp x12, xzr, [sp, #{RETURN}]",
            "mov x11, sp",
            "str x11, [x10]",
            "blr x9",
            "3:",
            "ldr x11, [sp, #{END}]",
            "cbz x11, 5f",
            "b 4f",
            "5:",
            "add sp, sp, #{LEN}",
            ".pushsection .text.unlikely.farjump_leave, \"ax\", @progbits",
            "4:",
            // A call, for a function that need not be a target of jumps. It does not return.
            "blr x11",
            "brk #1",
            ".popsection",
            LEN = const LEN,
            RETURN = const RETURN,
            END = const END,
            inlateout("x9") main => _,
            inlateout("x10") exit_point => _,
            inlateout("x0") payload => _,
            inlateout("x1") size => _,
            inlateout("x2") target_args => _,
            lateout("x20") _,
            lateout("x21") _,
            lateout("x22") _,
            lateout("x23") _,
            lateout("x24") _,
            lateout("x25") _,
            lateout("x26") _,
            lateout("x27") _,
            lateout("x28") _,
            clobber_abi("C"),
        );
    }
}

/// Ends the call whose [`enter`] wrote `exit_point`: that `enter` returns. The caller restores [`ControlWords`].
///
/// # Safety
/// That `enter` must not have returned yet, on this thread, and every frame on the stack above it must own
/// nothing that would have to be dropped.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(exit_point: usize) -> ! {
    // `hint #34` is `bti c`. A return needs no landing pad.
    naked_asm!(
        "hint #34",
        "ldr x16, [x0, #{RETURN}]",
        "mov sp, x0",
        "ldp x29, x19, [x0]",
        "ret x16",
        RETURN = const RETURN,
    )
}

/// The modes of arithmetic that a function preserves: FPCR, whose upper half is reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlWords {
    pub(super) fpcr: u32,
}

impl ControlWords {
    /// The words of a thread that has changed none.
    pub(crate) const DEFAULT: ControlWords = ControlWords { fpcr: 0 };

    /// Reads this thread's words into those that lie `AT` bytes behind `base`.
    ///
    /// # Safety
    /// `AT` must lead to words that may be written.
    #[inline(always)]
    pub(crate) unsafe fn note_at<const AT: usize>(base: *mut u8) {
        let fpcr: u64;
        // SAFETY: it reads a register. This function's caller lets the words be written.
        unsafe {
            asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags));
            base.add(AT).cast::<ControlWords>().write(ControlWords { fpcr: fpcr as u32 });
        }
    }

    /// Sets this thread's words to those that lie `AT` bytes behind `base`.
    ///
    /// # Safety
    /// `AT` must lead to words that [`ControlWords::note_at`] has written, or the default.
    #[inline(always)]
    pub(crate) unsafe fn set_at<const AT: usize>(base: *const u8) {
        // SAFETY: the words were read from this register, so no bit of them is reserved.
        unsafe {
            let words = base.add(AT).cast::<ControlWords>().read();
            asm!("msr fpcr, {}", in(reg) words.fpcr as u64, options(nomem, nostack, preserves_flags));
        }
    }

    /// Returns whether the modes of `other` are these.
    pub(crate) fn is(self, other: ControlWords) -> bool {
        self.fpcr == other.fpcr
    }
}

/// The bytes between the frame record of a function and its frame pointer.
pub(super) const RECORD: usize = 0;

/// A return address without the signature that a function may have given it (pointer authentication).
pub(super) fn stripped(mut address: usize) -> usize {
    // SAFETY: `hint #7` is `xpaclri`, which changes x30 alone, and does nothing on processors without pointer
    // authentication.
    unsafe {
        asm!("hint #7", inlateout("x30") address, options(nomem, nostack, preserves_flags));
    }
    address
}

/// Returns whether the instruction before `address`, in code of a program or library, is a call.
pub(super) fn is_return_address(address: usize) -> bool {
    if !address.is_multiple_of(4) {
        return false;
    }
    // SAFETY: loaded code can be read, consists of words, and does not begin at the first byte of its object, which
    // is the header's.
    let before = u32::from_le(unsafe { (address as *const u32).sub(1).read() });
    // `bl`; `blr`, and its forms that check a signature (`blraa`, `blraaz`, `blrab`, `blrabz`).
    before >> 26 == 0b10_0101 || before & 0xffff_fc1f == 0xd63f_0000 || before & 0xfeff_f800 == 0xd63f_0800
}
