//! riscv64: RISC-V ABIs Specification, "Integer Register Convention" and "Frame Pointer Convention".

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
    // callee preserves, s0 and s1 are stored, because the compiler does not let them be named as overwritten, and all
    // others are so named: s2 to s11 and fs0 to fs11 one by one, the rest by `clobber_abi`. A `main` that returns has
    // preserved these two, as its ABI requires; `leave` restores them. The caller guarantees `main`.
    unsafe {
        asm!(
            "addi sp, sp, -{LEN}",
            "sd s0, 0(sp)",
            "sd s1, 8(sp)",
            "lla t2, 3f",
            "sd t2, {RETURN}(sp)",
            "sd zero, {END}(sp)",
            "sd sp, 0(t3)",
            "jalr t0",
            "3:",
            "ld t1, {END}(sp)",
            "beqz t1, 5f",
            "jump 4f, t2",
            "5:",
            "addi sp, sp, {LEN}",
            ".pushsection .text.unlikely.farjump_leave, \"ax\", @progbits",
            "4:",
            // A call, which does not return.
            "jalr t1",
            "unimp",
            ".popsection",
            LEN = const LEN,
            RETURN = const RETURN,
            END = const END,
            inlateout("t0") main => _,
            inlateout("t3") exit_point => _,
            inlateout("a0") payload => _,
            inlateout("a1") size => _,
            inlateout("a2") target_args => _,
            lateout("s2") _,
            lateout("s3") _,
            lateout("s4") _,
            lateout("s5") _,
            lateout("s6") _,
            lateout("s7") _,
            lateout("s8") _,
            lateout("s9") _,
            lateout("s10") _,
            lateout("s11") _,
            lateout("fs0") _,
            lateout("fs1") _,
            lateout("fs2") _,
            lateout("fs3") _,
            lateout("fs4") _,
            lateout("fs5") _,
            lateout("fs6") _,
            lateout("fs7") _,
            lateout("fs8") _,
            lateout("fs9") _,
            lateout("fs10") _,
            lateout("fs11") _,
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
    naked_asm!(
        "ld t1, {RETURN}(a0)",
        "mv sp, a0",
        "ld s0, 0(sp)",
        "ld s1, 8(sp)",
        "jr t1",
        RETURN = const RETURN,
    )
}

/// The modes of arithmetic that a function preserves: the rounding mode, of fcsr.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlWords {
    pub(super) frm: u32,
}

impl ControlWords {
    /// The words of a thread that has changed none.
    pub(crate) const DEFAULT: ControlWords = ControlWords { frm: 0 };

    /// Reads this thread's words into those that lie `AT` bytes behind `base`.
    ///
    /// # Safety
    /// `AT` must lead to words that may be written.
    #[inline(always)]
    pub(crate) unsafe fn note_at<const AT: usize>(base: *mut u8) {
        let frm: usize;
        // SAFETY: it reads a register. This function's caller lets the words be written.
        unsafe {
            asm!("frrm {}", out(reg) frm, options(nomem, nostack, preserves_flags));
            base.add(AT).cast::<ControlWords>().write(ControlWords { frm: frm as u32 });
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
            asm!("fsrm {}", in(reg) words.frm as usize, options(nomem, nostack, preserves_flags));
        }
    }

    /// Returns whether the modes of `other` are these.
    pub(crate) fn is(self, other: ControlWords) -> bool {
        self.frm == other.frm
    }
}

/// The bytes between the frame record of a function and its frame pointer, which is the stack pointer of its caller.
pub(super) const RECORD: usize = 16;

/// A return address as it is.
pub(super) fn stripped(address: usize) -> usize {
    address
}

/// Returns whether the instruction before `address`, in code of a program or library, is a call.
pub(super) fn is_return_address(address: usize) -> bool {
    if !address.is_multiple_of(2) {
        return false;
    }
    // SAFETY: loaded code can be read, consists of pieces of 16 bits, and does not begin at the first bytes of its
    // object, which are the header's.
    let [low, high] = unsafe { (address as *const [u16; 2]).sub(1).read() }.map(u16::from_le);
    let word = u32::from(high) << 16 | u32::from(low);
    // `jal ra`; `jalr ra`; `c.jalr`, of a register that is not zero.
    word & 0xfff == 0x0ef || word & 0x7fff == 0x00e7 || (high & 0xf07f == 0x9002 && high & 0x0f80 != 0)
}
