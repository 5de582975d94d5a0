//! Copies out of memory that another process may write at the same time.

use core::ptr;

/// Copies `len` bytes from memory that another process may write meanwhile, to memory that is the caller's alone. Each byte of the copy
/// was there at some time during the call; what belongs together need not come from one time. Check the copy, and use it.
///
/// This is no access of the language's to `from`, for which a reference, and a copy as `memcpy` makes it, would have to be the
/// only one: the bytes are moved by an instruction, or by atomic loads where there is none for that
/// (`docs/decisions/shared-bytes.md`).
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, and the two do not overlap. In this process nobody writes to `from`
/// meanwhile but by atomic operations or by instructions as here.
pub unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads and writes just these bytes, upwards, as the direction flag is clear at every `asm!`. The caller
    // vouches for both ranges.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as the caller vouches.
    unsafe {
        copy_by_words(from, to, len);
    }
}

/// The same by relaxed atomic loads: of words where `from` is aligned, and of bytes.
///
/// # Safety
/// As of [`copy_out`].
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(dead_code, reason = "tested everywhere"))]
unsafe fn copy_by_words(from: *const u8, to: *mut u8, len: usize) {
    use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    const WORD: usize = size_of::<u64>();
    let head = from.align_offset(WORD).min(len);
    let tail = head + (len - head) / WORD * WORD;
    for at in (0..head).chain(tail..len) {
        // SAFETY: inside both ranges. An atomic load writes nothing, so `from` need not be writable.
        unsafe { to.add(at).write(AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed)) };
    }
    for at in (head..tail).step_by(WORD) {
        // SAFETY: as above, and `from.add(head)` is aligned.
        let word = unsafe { AtomicU64::from_ptr(from.add(at).cast_mut().cast()) }.load(Ordering::Relaxed);
        // SAFETY: inside the caller's range; `to` may have any alignment.
        unsafe { ptr::write_unaligned(to.add(at).cast(), word) };
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn what_is_copied_is_what_was_there_wherever_it_lies_and_nothing_beside_it_is_written() {
        let there: Vec<u8> = (0..200_u8).collect();
        for copy in [copy_out, copy_by_words] {
            for from in 0..17 {
                for len in (0..70).chain([150]) {
                    let mut here = [0xff; 200];
                    // SAFETY: both ranges lie inside their vectors, which are different ones.
                    unsafe { copy(there[from..].as_ptr(), here[3..].as_mut_ptr(), len) };
                    assert_eq!(here[3..3 + len], there[from..from + len], "{from} {len}");
                    assert!(
                        here[..3].iter().chain(&here[3 + len..]).all(|byte| *byte == 0xff),
                        "{from} {len}"
                    );
                }
            }
        }
    }
}
