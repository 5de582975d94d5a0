use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::vec::Vec;

use super::*;

type Copy = unsafe fn(*const u8, *mut u8, usize);
type Equals = unsafe fn(*const u8, &[u8]) -> bool;

fn copies() -> Vec<Copy> {
    let all: &[Copy] = &[
        copy_out,
        copy_in,
        by_atomics::copy_out,
        by_atomics::copy_in,
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        by_instructions::copy_out,
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        by_instructions::copy_in,
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        narrow,
    ];
    all.to_vec()
}

/// The copy of a processor without AVX2.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
unsafe fn narrow(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the ranges.
    unsafe {
        match len {
            16.. => by_instructions::copy_narrow(from, to, len),
            _ => by_instructions::copy_out(from, to, len),
        }
    }
}

fn comparisons() -> Vec<Equals> {
    let all: &[Equals] = &[
        equals,
        by_atomics::equals,
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        by_instructions::equals,
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        by_instructions::equals_narrow,
    ];
    all.to_vec()
}

/// Ends the other thread when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All short lengths, and lengths that count as long for one implementation.
fn lengths() -> impl Iterator<Item = usize> {
    let most = if cfg!(miri) { 40 } else { 300 };
    (0..=most).chain([1023, 1024, 1025, 1500])
}

#[test]
fn copies_equal_their_source_at_any_offset_and_write_nothing_beside() {
    let there: Vec<u8> = (0..2000_u32).map(|at| (at * 7 + at / 256) as u8 | 1).collect();
    for copy in copies() {
        for len in lengths() {
            for (from, to) in (0..9).map(|from| (from, 3)).chain((0..9).map(|to| (5, to))) {
                let mut here = [0; 1600];
                // SAFETY: both ranges lie inside their arrays, which are different.
                unsafe { copy(there[from..].as_ptr(), here[to..].as_mut_ptr(), len) };
                assert_eq!(here[to..to + len], there[from..from + len], "{from} {to} {len}");
                let beside = here[..to].iter().chain(&here[to + len..]);
                assert!(beside.copied().all(|byte| byte == 0), "{from} {to} {len}");
            }
        }
    }
}

#[test]
fn comparisons_accept_equal_bytes_and_see_each_differing_byte() {
    let own: Vec<u8> = (0..1600_u32).map(|at| (at * 5 + at / 256) as u8).collect();
    for equals in comparisons() {
        for len in lengths() {
            for from in 0..9 {
                // The bytes around the range differ.
                let mut shared: Vec<u8> = own.iter().map(|byte| !byte).collect();
                shared[from..from + len].copy_from_slice(&own[..len]);
                // SAFETY: the range lies inside the vector.
                let is = |shared: &Vec<u8>| unsafe { equals(shared[from..].as_ptr(), &own[..len]) };
                assert!(is(&shared), "{from} {len}");
                let step = if len <= 70 || from == 1 { 1 } else { 61 };
                for at in (0..len).step_by(step) {
                    shared[from + at] ^= 0x10;
                    assert!(!is(&shared), "{from} {len} {at}");
                    shared[from + at] ^= 0x10;
                }
            }
        }
    }
}

/// Both threads write and read words whose bytes are all alike, so each byte of a copy must be one of those
/// written.
#[test]
fn copies_and_comparisons_of_changing_memory_see_only_written_bytes() {
    const WORDS: usize = 300 / 8 + 1;
    let shared: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
    let over = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 3 } else { 20 };
    let alike = |byte: u8| u64::from_ne_bytes([byte; 8]);
    // Miri does not support atomic accesses of two sizes to the same bytes.
    let is_few = |len: &usize| *len <= 300 && (!cfg!(miri) || len.is_multiple_of(8));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in (0..=1_u8).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                for word in &shared {
                    word.store(alike(byte), Ordering::Relaxed);
                }
            }
        });
        let _over = Over(&over);
        let start = shared.as_ptr().cast::<u8>();
        for len in lengths().filter(is_few).flat_map(|len| [len].repeat(rounds)) {
            let mut own = [7; WORDS * 8];
            // SAFETY: `start` is valid for `len` bytes, which the other thread writes by atomic operations;
            // `own` is as long.
            unsafe { super::copy_out(start, own.as_mut_ptr(), len) };
            assert!(own[..len].iter().all(|byte| *byte <= 1) && own[len..].iter().all(|byte| *byte == 7));
            // SAFETY: `start` is valid for `len` bytes, which the other thread writes by atomic operations.
            assert!(len == 0 || !unsafe { super::equals(start, &[7; 300][..len]) });
        }
    });
    // The reverse: bytes that are copied in are read meanwhile.
    let over = AtomicBool::new(false);
    let space = ptr::from_ref(&shared).cast_mut();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for word in &shared {
                    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                    assert!(bytes.iter().all(|byte| *byte <= 9));
                }
            }
        });
        let _over = Over(&over);
        for round in 0..rounds * 300 {
            let own = [(round % 9) as u8; WORDS * 8];
            // SAFETY: the bytes are atomics and may be written so; the other thread only reads them, by
            // atomic operations.
            unsafe { super::copy_in(own.as_ptr(), space.cast(), own.len()) };
        }
    });
    // SAFETY: nothing writes any more.
    assert!(unsafe { super::equals(shared.as_ptr().cast(), &[((rounds * 300 - 1) % 9) as u8; WORDS * 8]) });
}
