//! By relaxed atomic accesses: of words where the shared memory is aligned to them, and of bytes.
#![cfg_attr(
    all(target_arch = "x86_64", not(miri), not(farjump_planted)),
    allow(dead_code, reason = "tested everywhere")
)]

// Not those of `crate::sync`: loom has no atomics at an address.
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// The offsets of `len` shared bytes at `shared` that lie in no whole, aligned word, and of the words.
fn pieces(shared: *const u8, len: usize) -> (impl Iterator<Item = usize>, impl Iterator<Item = usize>) {
    let head = shared.align_offset(WORD).min(len);
    let tail = head + (len - head) / WORD * WORD;
    ((0..head).chain(tail..len), (head..tail).step_by(WORD))
}

/// # Safety
/// As of [`super::copy_out`].
pub(super) unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    let (bytes, words) = pieces(from, len);
    for at in bytes {
        // SAFETY: inside both ranges. An atomic load writes nothing, so `from` need not be writable.
        unsafe { to.add(at).write(AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed)) };
    }
    for at in words {
        // SAFETY: as above, and `pieces` says only words that are aligned.
        let word = unsafe { AtomicU64::from_ptr(from.add(at).cast_mut().cast()) }.load(Ordering::Relaxed);
        // SAFETY: inside the caller's range; `to` may have any alignment.
        unsafe { ptr::write_unaligned(to.add(at).cast(), word) };
    }
}

/// # Safety
/// As of [`super::copy_in`].
pub(super) unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    let (bytes, words) = pieces(to, len);
    for at in bytes {
        // SAFETY: inside both ranges.
        unsafe { AtomicU8::from_ptr(to.add(at)).store(from.add(at).read(), Ordering::Relaxed) };
    }
    for at in words {
        // SAFETY: inside the caller's range; `from` may have any alignment.
        let word = unsafe { ptr::read_unaligned(from.add(at).cast()) };
        // SAFETY: inside the caller's range, and `pieces` says only words that are aligned.
        unsafe { AtomicU64::from_ptr(to.add(at).cast()) }.store(word, Ordering::Relaxed);
    }
}

/// # Safety
/// As of [`super::equals`].
pub(super) unsafe fn equals(shared: *const u8, own: &[u8]) -> bool {
    let (mut bytes, mut words) = pieces(shared, own.len());
    bytes.all(|at| {
        // SAFETY: inside the range. An atomic load writes nothing, so it need not be writable.
        let byte = unsafe { AtomicU8::from_ptr(shared.add(at).cast_mut()) }.load(Ordering::Relaxed);
        byte == own[at]
    }) && words.all(|at| {
        // SAFETY: as above, and `pieces` says only words that are aligned.
        let word = unsafe { AtomicU64::from_ptr(shared.add(at).cast_mut().cast()) }.load(Ordering::Relaxed);
        word.to_ne_bytes() == own[at..at + WORD]
    })
}
