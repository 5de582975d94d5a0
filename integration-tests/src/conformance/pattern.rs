//! The bytes that streams of frames carry. `ifuncs/pattern.h` has the same for functions that run at targets.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const WORD: usize = 8;

/// Word `index` of frame `number` of stream `seed`. Neighbours, frames and streams have nothing in common, so bytes
/// of a wrong offset, frame or lap are recognized.
pub(super) fn word(seed: u64, number: u64, index: u64) -> u64 {
    let word = seed
        .wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(index.wrapping_mul(0xd134_2543_de82_ef95));
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The first `len` bytes of a frame's pattern.
pub(super) fn bytes(len: usize, seed: u64, number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len.next_multiple_of(WORD));
    for index in 0..len.div_ceil(WORD) as u64 {
        bytes.extend_from_slice(&word(seed, number, index).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The offset at which the bytes at `at` first differ from the frame's pattern.
///
/// # Safety
/// `at` must be aligned to 8 bytes and valid for reads of `len` bytes. Other processes may write them
/// meanwhile.
pub(super) unsafe fn first_difference(at: NonNull<u8>, len: usize, seed: u64, number: u64) -> Option<usize> {
    let whole = len - len % WORD;
    for offset in (0..whole).step_by(WORD) {
        // SAFETY: eight bytes inside, aligned; read atomically, because a faulty backend may write them now.
        let found =
            unsafe { AtomicU64::from_ptr(at.add(offset).as_ptr().cast()) }.load(Relaxed).to_le_bytes();
        let due = word(seed, number, (offset / WORD) as u64).to_le_bytes();
        if found != due {
            return found.iter().zip(due).position(|(found, due)| *found != due).map(|byte| offset + byte);
        }
    }
    let tail = word(seed, number, (whole / WORD) as u64).to_le_bytes();
    (whole..len).find(|offset| {
        // SAFETY: a byte inside; read atomically, because a faulty backend may write it now.
        let found = unsafe { AtomicU8::from_ptr(at.add(*offset).as_ptr()) }.load(Relaxed);
        found != tail[offset - whole]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found_where_it_is() {
        for len in [0, 1, 7, 8, 9, 63, 64, 65] {
            let right = bytes(len, 3, 5);
            assert_eq!(difference(&right), None);
            for at in 0..len {
                let mut wrong = right.clone();
                wrong[at] ^= 0x10;
                assert_eq!(difference(&wrong), Some(at));
            }
        }
    }

    fn difference(found: &[u8]) -> Option<usize> {
        let mut aligned = [0_u64; 9];
        let space = NonNull::from(&mut aligned).cast::<u8>();
        assert!(found.len() <= size_of_val(&aligned));
        // SAFETY: the array fits as many bytes, aligned to 8, and the compared bytes are initialised.
        unsafe {
            space.copy_from_nonoverlapping(NonNull::from(found).cast(), found.len());
            first_difference(space, found.len(), 3, 5)
        }
    }

    #[test]
    fn frames_and_streams_differ_in_nearly_every_byte() {
        let (one, next, other) = (bytes(800, 1, 1), bytes(800, 1, 2), bytes(800, 2, 1));
        for (a, b) in [(&one, &next), (&one, &other)] {
            let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
            assert!(same < 20, "{same} of 800 bytes are the same");
        }
    }
}
