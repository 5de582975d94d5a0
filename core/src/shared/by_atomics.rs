//! Copies by relaxed atomic accesses: of words where the shared memory is aligned, of bytes elsewhere.
#![cfg_attr(
    all(target_arch = "x86_64", target_feature = "sse2", not(miri), not(farjump_planted)),
    allow(dead_code, reason = "tested everywhere")
)]

// Not the atomics of `crate::sync`: loom has none at an address.
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Splits `len` shared bytes at `shared` into offsets of single bytes and offsets of whole, aligned words.
fn pieces(shared: *const u8, len: usize) -> (impl Iterator<Item = usize>, impl Iterator<Item = usize>) {
    let head = shared.align_offset(WORD).min(len);
    let tail = head + (len - head) / WORD * WORD;
    ((0..head).chain(tail..len), (head..tail).step_by(WORD))
}

/// # Safety
/// The conditions of [`super::copy_out`].
pub(super) unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    let (bytes, words) = pieces(from, len);
    for at in bytes {
        // SAFETY: inside both ranges, which the caller guarantees. An atomic load writes nothing, so `from`
        // need not be writable.
        unsafe { to.add(at).write(AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed)) };
    }
    for at in words {
        // SAFETY: inside the range and aligned: `pieces` returns aligned words only. An atomic load writes
        // nothing.
        let word = unsafe { AtomicU64::from_ptr(from.add(at).cast_mut().cast()) }.load(Ordering::Relaxed);
        // SAFETY: inside the caller's range; `to` may have any alignment.
        unsafe { ptr::write_unaligned(to.add(at).cast(), word) };
    }
}

/// # Safety
/// The conditions of [`super::copy_in`].
pub(super) unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    let (bytes, words) = pieces(to, len);
    for at in bytes {
        // SAFETY: inside both ranges, which the caller guarantees.
        unsafe { AtomicU8::from_ptr(to.add(at)).store(from.add(at).read(), Ordering::Relaxed) };
    }
    for at in words {
        // SAFETY: inside the caller's range; `from` may have any alignment.
        let word = unsafe { ptr::read_unaligned(from.add(at).cast()) };
        // SAFETY: inside the caller's range and aligned: `pieces` returns aligned words only.
        unsafe { AtomicU64::from_ptr(to.add(at).cast()) }.store(word, Ordering::Relaxed);
    }
}

/// # Safety
/// The conditions of [`super::equals`].
pub(super) unsafe fn equals(shared: *const u8, own: &[u8]) -> bool {
    let (mut bytes, mut words) = pieces(shared, own.len());
    bytes.all(|at| {
        // SAFETY: inside the caller's range. An atomic load writes nothing, so the range need not be
        // writable.
        let byte = unsafe { AtomicU8::from_ptr(shared.add(at).cast_mut()) }.load(Ordering::Relaxed);
        byte == own[at]
    }) && words.all(|at| {
        // SAFETY: inside the range and aligned: `pieces` returns aligned words only. An atomic load writes
        // nothing.
        let word = unsafe { AtomicU64::from_ptr(shared.add(at).cast_mut().cast()) }.load(Ordering::Relaxed);
        word.to_ne_bytes() == own[at..at + WORD]
    })
}
