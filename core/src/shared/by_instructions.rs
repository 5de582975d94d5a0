//! Copies by x86-64 instructions, as a compiler or `memcpy` would choose them. The compiler knows that they
//! may read (and write) any memory. If a range is no multiple of an instruction's size, the last access
//! overlaps the one before.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm256_loadu_si256,
    _mm256_or_si256, _mm256_setzero_si256, _mm256_testz_si256, _mm256_xor_si256, _mm256_zeroupper,
};
use core::sync::atomic::{AtomicBool, Ordering};

/// Length from which one instruction does the whole copy: slow to start, then moves whole lines.
const LONG: usize = 1024;
/// Bytes of a step with AVX2 registers: of a copy, and of a comparison.
const WIDE: usize = 64;
const WIDER: usize = 128;

/// # Safety
/// The conditions of [`super::copy_out`].
#[inline(always)]
pub(super) unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees both ranges (see Safety). The compiler makes no access of its own to
    // either.
    unsafe { copy(from, to, len) }
}

/// # Safety
/// The conditions of [`super::copy_in`].
#[inline(always)]
pub(super) unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees both ranges (see Safety). The compiler makes no access of its own to
    // either.
    unsafe { copy(from, to, len) }
}

/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes. The two must not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len > 16 {
        // SAFETY: the caller guarantees the ranges (see Safety).
        return unsafe { copy_many(from, to, len) };
    }
    if len >= 8 {
        // SAFETY: the first and the last 8 bytes of the caller's ranges.
        unsafe {
            asm!(
                "mov {a}, qword ptr [{from}]",
                "mov {b}, qword ptr [{from} + {len} - 8]",
                "mov qword ptr [{to}], {a}",
                "mov qword ptr [{to} + {len} - 8], {b}",
                a = out(reg) _, b = out(reg) _, from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags)
            );
        }
    } else if len >= 4 {
        // SAFETY: the first and the last 4 bytes of the caller's ranges.
        unsafe {
            asm!(
                "mov {a:e}, dword ptr [{from}]",
                "mov {b:e}, dword ptr [{from} + {len} - 4]",
                "mov dword ptr [{to}], {a:e}",
                "mov dword ptr [{to} + {len} - 4], {b:e}",
                a = out(reg) _, b = out(reg) _, from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags)
            );
        }
    } else {
        for at in 0..len {
            // SAFETY: one byte of the caller's ranges.
            unsafe {
                asm!(
                    "mov {a}, byte ptr [{from} + {at}]",
                    "mov byte ptr [{to} + {at}], {a}",
                    a = out(reg_byte) _, from = in(reg) from, to = in(reg) to, at = in(reg) at,
                    options(nostack, preserves_flags)
                );
            }
        }
    }
}

/// # Safety
/// The conditions of [`copy`], for at least 16 bytes.
#[inline(never)]
unsafe fn copy_many(from: *const u8, to: *mut u8, len: usize) {
    if len >= LONG {
        // SAFETY: the instruction reads and writes exactly the caller's bytes, upwards: the direction flag is
        // clear at every `asm!`.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    if len >= WIDE && AVX2.load(Ordering::Relaxed) {
        // SAFETY: `AVX2` says that the processor has it; the caller guarantees the ranges (see Safety).
        return unsafe { copy_wide(from, to, len) };
    }
    // SAFETY: the caller guarantees the ranges (see Safety).
    unsafe { copy_narrow(from, to, len) }
}

/// # Safety
/// The conditions of [`copy`], for at least 16 bytes.
#[inline(never)]
pub(super) unsafe fn copy_narrow(from: *const u8, to: *mut u8, len: usize) {
    if len >= WIDE {
        look_for_avx2();
    }
    let last = len - 16;
    let mut at = 0;
    loop {
        // SAFETY: 16 bytes of the caller's ranges.
        unsafe {
            asm!(
                "movdqu {a}, xmmword ptr [{from} + {at}]",
                "movdqu xmmword ptr [{to} + {at}], {a}",
                a = out(xmm_reg) _, from = in(reg) from, to = in(reg) to, at = in(reg) at,
                options(nostack, preserves_flags)
            );
        }
        if at == last {
            return;
        }
        at = (at + 16).min(last);
    }
}

/// # Safety
/// The conditions of [`copy`], for at least [`WIDE`] bytes, on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn copy_wide(from: *const u8, to: *mut u8, len: usize) {
    let last = len - WIDE;
    let mut at = 0;
    while at < last {
        // SAFETY: 64 bytes of the caller's ranges, from `at` on.
        unsafe { copy_step(from, to, at) };
        at += WIDE;
    }
    // SAFETY: the last 64 bytes of the caller's ranges.
    unsafe { copy_step(from, to, last) };
    // The compiler does not emit this for registers that `asm!` writes. Code without AVX is slow while their
    // upper halves are in use.
    _mm256_zeroupper();
}

/// # Safety
/// The conditions of [`copy`], for [`WIDE`] bytes at `at`, on a processor with AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn copy_step(from: *const u8, to: *mut u8, at: usize) {
    // SAFETY: the caller guarantees the ranges (see Safety).
    unsafe {
        asm!(
            "vmovdqu {a}, ymmword ptr [{from} + {at}]",
            "vmovdqu {b}, ymmword ptr [{from} + {at} + 32]",
            "vmovdqu ymmword ptr [{to} + {at}], {a}",
            "vmovdqu ymmword ptr [{to} + {at} + 32], {b}",
            a = out(ymm_reg) _, b = out(ymm_reg) _,
            from = in(reg) from, to = in(reg) to, at = in(reg) at,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// The conditions of [`super::equals`].
pub(super) unsafe fn equals(shared: *const u8, own: &[u8]) -> bool {
    if own.len() >= WIDER && AVX2.load(Ordering::Relaxed) {
        // SAFETY: `AVX2` says that the processor has it; the caller guarantees the ranges (see Safety).
        return unsafe { equals_wide(shared, own) };
    }
    // SAFETY: the caller guarantees the ranges (see Safety).
    unsafe { equals_narrow(shared, own) }
}

/// # Safety
/// The conditions of [`super::equals`].
#[inline(never)]
pub(super) unsafe fn equals_narrow(shared: *const u8, own: &[u8]) -> bool {
    let len = own.len();
    if len < 16 {
        let mut copy = [0; 16];
        // SAFETY: the caller guarantees `shared` (see Safety), and `copy` holds 16 bytes, more than `len`.
        unsafe { copy_out(shared, copy.as_mut_ptr(), len) };
        return copy[..len] == *own;
    }
    if len >= WIDER {
        look_for_avx2();
    }
    let last = len - 16;
    let mut at = 0;
    loop {
        // SAFETY: 16 bytes of each range.
        let same = unsafe {
            let there: __m128i;
            asm!(
                "movdqu {there}, xmmword ptr [{at}]",
                there = out(xmm_reg) there, at = in(reg) shared.add(at),
                options(nostack, preserves_flags, readonly)
            );
            let own = _mm_loadu_si128(own.as_ptr().add(at).cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(there, own)) == 0xffff
        };
        if !same || at == last {
            return same;
        }
        at = (at + 16).min(last);
    }
}

/// # Safety
/// The conditions of [`super::equals`], for at least [`WIDER`] bytes, on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn equals_wide(shared: *const u8, own: &[u8]) -> bool {
    let (last, own) = (own.len() - WIDER, own.as_ptr());
    // Usually all bytes are equal, so the result is checked only at the end.
    let mut differ = _mm256_setzero_si256();
    let mut at = 0;
    while at < last {
        // SAFETY: 128 bytes of each range, from `at` on.
        differ = _mm256_or_si256(differ, unsafe { differences(shared.add(at), own.add(at)) });
        at += WIDER;
    }
    // SAFETY: the last 128 bytes of each range.
    differ = _mm256_or_si256(differ, unsafe { differences(shared.add(last), own.add(last)) });
    _mm256_testz_si256(differ, differ) == 1
}

/// Zero if [`WIDER`] bytes are equal.
///
/// # Safety
/// Both must be valid for reads of [`WIDER`] bytes, `own` by ordinary Rust accesses, on a processor with
/// AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn differences(shared: *const u8, own: *const u8) -> __m256i {
    let (a, b, c, d): (__m256i, __m256i, __m256i, __m256i);
    let own = own.cast::<__m256i>();
    // SAFETY: the caller guarantees the ranges (see Safety).
    unsafe {
        asm!(
            "vmovdqu {a}, ymmword ptr [{shared}]",
            "vmovdqu {b}, ymmword ptr [{shared} + 32]",
            "vmovdqu {c}, ymmword ptr [{shared} + 64]",
            "vmovdqu {d}, ymmword ptr [{shared} + 96]",
            a = out(ymm_reg) a, b = out(ymm_reg) b, c = out(ymm_reg) c, d = out(ymm_reg) d,
            shared = in(reg) shared,
            options(nostack, preserves_flags, readonly)
        );
        let a = _mm256_xor_si256(a, _mm256_loadu_si256(own));
        let b = _mm256_xor_si256(b, _mm256_loadu_si256(own.add(1)));
        let c = _mm256_xor_si256(c, _mm256_loadu_si256(own.add(2)));
        let d = _mm256_xor_si256(d, _mm256_loadu_si256(own.add(3)));
        _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d))
    }
}

/// True if the processor and the system are known to have registers of 32 bytes.
static AVX2: AtomicBool = AtomicBool::new(false);

/// Detects AVX2. Does nothing without the standard library.
#[cold]
fn look_for_avx2() {
    #[cfg(any(test, loom, feature = "std"))]
    if std::arch::is_x86_feature_detected!("avx2") {
        AVX2.store(true, Ordering::Relaxed);
    }
}
