use std::arch::{asm, naked_asm};
use std::hint::black_box;

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
            *args.cast::<u64>() += 1000;
        } else {
            *args.cast::<u64>() += 1;
            leave(*payload.cast::<usize>())
        }
    }
}

#[test]
fn a_call_gets_its_arguments_and_returns() {
    let (mut payload, mut args, mut exit_point) = (40_u64, 0_u64, 0);
    // SAFETY: `returns` takes pointers to words.
    unsafe { enter(returns, (&raw mut payload).cast(), 2, (&raw mut args).cast(), &raw mut exit_point) };
    assert_eq!(args, 42);
}

#[test]
fn a_call_can_be_left_from_any_depth_repeatedly() {
    let mut args = 0_u64;
    let mut sum = 0_u64;
    for depth in 0..100 {
        let mut exit_point = 0_usize;
        // SAFETY: `leaves` reads the way out that `enter` writes, and owns nothing.
        unsafe {
            enter(leaves, (&raw mut exit_point).cast(), depth, (&raw mut args).cast(), &raw mut exit_point)
        };
        sum += depth as u64;
    }
    assert_eq!((args, sum), (100, (0..100).sum()), "each call was left at its deepest");
}

/// Leaves with changes in all registers that it would have to preserve. `payload` is the address of the way out.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn leaves_with_other_registers(payload: *mut c_void, size: usize, args: *mut c_void) {
    naked_asm!(
        "mov rdi, [rdi]",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "jmp {leave}",
        leave = sym leave,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn leaves_with_other_registers(payload: *mut c_void, size: usize, args: *mut c_void) {
    naked_asm!(
        "ldr x0, [x0]",
        "mov x19, #0", "mov x20, #0", "mov x21, #0", "mov x22, #0", "mov x23, #0",
        "mov x24, #0", "mov x25, #0", "mov x26, #0", "mov x27, #0", "mov x28, #0",
        "mov x29, #0", "mov x30, #0",
        "fmov d8, xzr", "fmov d9, xzr", "fmov d10, xzr", "fmov d11, xzr",
        "fmov d12, xzr", "fmov d13, xzr", "fmov d14, xzr", "fmov d15, xzr",
        "b {leave}",
        leave = sym leave,
    )
}

#[cfg(target_arch = "riscv64")]
#[unsafe(naked)]
unsafe extern "C" fn leaves_with_other_registers(payload: *mut c_void, size: usize, args: *mut c_void) {
    naked_asm!(
        // Assembled as code for processors without floating-point numbers otherwise.
        ".option arch, +d",
        "ld a0, 0(a0)",
        "li s0, 0", "li s1, 0", "li s2, 0", "li s3, 0", "li s4, 0", "li s5, 0",
        "li s6, 0", "li s7, 0", "li s8, 0", "li s9, 0", "li s10, 0", "li s11, 0",
        "fmv.d.x fs0, zero", "fmv.d.x fs1, zero", "fmv.d.x fs2, zero", "fmv.d.x fs3, zero",
        "fmv.d.x fs4, zero", "fmv.d.x fs5, zero", "fmv.d.x fs6, zero", "fmv.d.x fs7, zero",
        "fmv.d.x fs8, zero", "fmv.d.x fs9, zero", "fmv.d.x fs10, zero", "fmv.d.x fs11, zero",
        "tail {leave}",
        leave = sym leave,
    )
}

/// Calls that function.
extern "C" fn enters() {
    let mut exit_point = 0_usize;
    // SAFETY: the function reads the way out that `enter` writes, and owns nothing.
    unsafe {
        enter(
            leaves_with_other_registers,
            (&raw mut exit_point).cast(),
            0,
            std::ptr::null_mut(),
            &raw mut exit_point,
        );
    }
}

/// Calls `enters` with 1, 2, … in the registers that a function preserves, and returns their contents after it.
#[cfg(target_arch = "x86_64")]
fn registers_after() -> Vec<u64> {
    let mut registers = [1_u64, 2, 3, 4, 5, 6];
    // SAFETY: rbp and rbx are put back; the stack is aligned to 16 at the call, and has the same length after it.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "push rdi",
            "mov rax, rsp",
            "and rsp, -16",
            "push rax",
            "push rdi",
            "mov rbx, [rdi]",
            "mov rbp, [rdi + 8]",
            "mov r12, [rdi + 16]",
            "mov r13, [rdi + 24]",
            "mov r14, [rdi + 32]",
            "mov r15, [rdi + 40]",
            "call {enters}",
            "pop rdi",
            "mov [rdi], rbx",
            "mov [rdi + 8], rbp",
            "mov [rdi + 16], r12",
            "mov [rdi + 24], r13",
            "mov [rdi + 32], r14",
            "mov [rdi + 40], r15",
            "pop rsp",
            "pop rdi",
            "pop rbx",
            "pop rbp",
            enters = sym enters,
            inout("rdi") registers.as_mut_ptr() => _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
        );
    }
    registers.to_vec()
}

#[cfg(target_arch = "aarch64")]
fn registers_after() -> Vec<u64> {
    let mut registers: [u64; 20] = std::array::from_fn(|index| index as u64 + 1);
    // x19 to x28, the frame pointer, and d8 to d15; the last word is not used.
    // SAFETY: x19 and x29 are put back; the stack is aligned to 16 at the call, and has the same length after it.
    unsafe {
        asm!(
            "stp x29, x19, [sp, #-32]!",
            "str x0, [sp, #16]",
            "ldp x19, x20, [x0]",
            "ldp x21, x22, [x0, #16]",
            "ldp x23, x24, [x0, #32]",
            "ldp x25, x26, [x0, #48]",
            "ldp x27, x28, [x0, #64]",
            "ldr x29, [x0, #80]",
            "ldp d8, d9, [x0, #88]",
            "ldp d10, d11, [x0, #104]",
            "ldp d12, d13, [x0, #120]",
            "ldp d14, d15, [x0, #136]",
            "bl {enters}",
            "ldr x0, [sp, #16]",
            "stp x19, x20, [x0]",
            "stp x21, x22, [x0, #16]",
            "stp x23, x24, [x0, #32]",
            "stp x25, x26, [x0, #48]",
            "stp x27, x28, [x0, #64]",
            "str x29, [x0, #80]",
            "stp d8, d9, [x0, #88]",
            "stp d10, d11, [x0, #104]",
            "stp d12, d13, [x0, #120]",
            "stp d14, d15, [x0, #136]",
            "ldp x29, x19, [sp], #32",
            enters = sym enters,
            inout("x0") registers.as_mut_ptr() => _,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        );
    }
    registers.to_vec()
}

#[cfg(target_arch = "riscv64")]
fn registers_after() -> Vec<u64> {
    let mut registers: [u64; 24] = std::array::from_fn(|index| index as u64 + 1);
    // SAFETY: s0 and s1 are put back; the stack is aligned to 16 at the call, and has the same length after it.
    unsafe {
        asm!(
            "addi sp, sp, -32",
            "sd s0, 0(sp)",
            "sd s1, 8(sp)",
            "sd a0, 16(sp)",
            "ld s0, 0(a0)",
            "ld s1, 8(a0)",
            "ld s2, 16(a0)",
            "ld s3, 24(a0)",
            "ld s4, 32(a0)",
            "ld s5, 40(a0)",
            "ld s6, 48(a0)",
            "ld s7, 56(a0)",
            "ld s8, 64(a0)",
            "ld s9, 72(a0)",
            "ld s10, 80(a0)",
            "ld s11, 88(a0)",
            "fld fs0, 96(a0)",
            "fld fs1, 104(a0)",
            "fld fs2, 112(a0)",
            "fld fs3, 120(a0)",
            "fld fs4, 128(a0)",
            "fld fs5, 136(a0)",
            "fld fs6, 144(a0)",
            "fld fs7, 152(a0)",
            "fld fs8, 160(a0)",
            "fld fs9, 168(a0)",
            "fld fs10, 176(a0)",
            "fld fs11, 184(a0)",
            "call {enters}",
            "ld a0, 16(sp)",
            "sd s0, 0(a0)",
            "sd s1, 8(a0)",
            "sd s2, 16(a0)",
            "sd s3, 24(a0)",
            "sd s4, 32(a0)",
            "sd s5, 40(a0)",
            "sd s6, 48(a0)",
            "sd s7, 56(a0)",
            "sd s8, 64(a0)",
            "sd s9, 72(a0)",
            "sd s10, 80(a0)",
            "sd s11, 88(a0)",
            "fsd fs0, 96(a0)",
            "fsd fs1, 104(a0)",
            "fsd fs2, 112(a0)",
            "fsd fs3, 120(a0)",
            "fsd fs4, 128(a0)",
            "fsd fs5, 136(a0)",
            "fsd fs6, 144(a0)",
            "fsd fs7, 152(a0)",
            "fsd fs8, 160(a0)",
            "fsd fs9, 168(a0)",
            "fsd fs10, 176(a0)",
            "fsd fs11, 184(a0)",
            "ld s0, 0(sp)",
            "ld s1, 8(sp)",
            "addi sp, sp, 32",
            enters = sym enters,
            inout("a0") registers.as_mut_ptr() => _,
            out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _,
            out("s7") _, out("s8") _, out("s9") _, out("s10") _, out("s11") _,
            out("fs0") _, out("fs1") _, out("fs2") _, out("fs3") _, out("fs4") _, out("fs5") _,
            out("fs6") _, out("fs7") _, out("fs8") _, out("fs9") _, out("fs10") _, out("fs11") _,
            clobber_abi("C"),
        );
    }
    registers.to_vec()
}

#[test]
fn leaving_a_call_restores_every_callee_saved_register() {
    let registers = registers_after();
    assert_eq!(registers, (1..=registers.len() as u64).collect::<Vec<_>>());
}

/// Redirects the end of its call to `end`, and returns or is left.
unsafe extern "C" fn is_redirected(payload: *mut c_void, size: usize, _: *mut c_void) {
    extern "C" fn end() -> ! {
        // SAFETY: it has no conditions.
        unsafe { libc::_exit(7) }
    }
    // SAFETY: the test below passes the address to which `enter` wrote the way out, and nothing here owns anything.
    unsafe {
        let exit_point = *payload.cast::<usize>();
        redirect(exit_point, end);
        if size > 0 {
            leave(exit_point)
        }
    }
}

#[test]
fn a_redirected_call_ends_at_the_new_function_on_return_or_leave() {
    for size in [0, 1] {
        let mut exit_point = 0_usize;
        // SAFETY: the child calls functions that allocate nothing, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: `is_redirected` takes the address to which `enter` writes the way out.
            unsafe {
                enter(
                    is_redirected,
                    (&raw mut exit_point).cast(),
                    size,
                    std::ptr::null_mut(),
                    &raw mut exit_point,
                );
                libc::_exit(1)
            }
        }
        let mut status = 0;
        // SAFETY: the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }
}

/// Returns a third in this thread's rounding mode. The compiler may move a division past a change of the mode, but no
/// black box.
pub(in crate::executor) fn third() -> u64 {
    black_box(black_box(1.0_f64) / black_box(3.0)).to_bits()
}

/// This thread's modes of arithmetic.
fn noted() -> ControlWords {
    let mut words = ControlWords::DEFAULT;
    // SAFETY: the words are those above.
    unsafe { ControlWords::note_at::<0>((&raw mut words).cast()) };
    words
}

/// Gives this thread other modes of arithmetic.
pub(in crate::executor) fn set(words: ControlWords) {
    // SAFETY: tests pass words that processors have.
    unsafe { ControlWords::set_at::<0>((&raw const words).cast()) };
}

/// Makes this thread round upward.
pub(in crate::executor) extern "C" fn round_up() {
    #[cfg(target_arch = "x86_64")]
    set(ControlWords { x87: 0xb7f, mxcsr: 0x5f80 });
    #[cfg(target_arch = "aarch64")]
    set(ControlWords { fpcr: 1 << 22 });
    #[cfg(target_arch = "riscv64")]
    set(ControlWords { frm: 3 });
}

#[test]
fn control_words_are_those_of_the_thread_and_can_be_restored() {
    let (before, words) = (third(), noted());
    assert!(words.is(ControlWords::DEFAULT), "a thread begins with the default");
    round_up();
    let up = noted();
    assert_eq!((third(), up.is(words)), (before + 1, false));
    set(words);
    assert_eq!((third(), noted().is(words), noted().is(up)), (before, true, false));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn both_words_count_and_exceptions_are_no_mode() {
    let default = ControlWords::DEFAULT;
    for other in [ControlWords { x87: 0x27f, ..default }, ControlWords { mxcsr: 0x9fc0, ..default }] {
        set(other);
        assert!(noted().is(other) && !noted().is(default));
        set(default);
        assert!(noted().is(default));
    }
    // Inexact.
    black_box(third());
    let now = noted();
    assert!(now.mxcsr & 0x20 != 0 && now.is(default));
}
