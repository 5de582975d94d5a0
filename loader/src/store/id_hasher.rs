//! Hashing of code ids, which are parts of a cryptographic hash already.

use std::hash::Hasher;

/// A hasher for [`CodeId`](farjump_core::image::CodeId) alone: the id's first eight bytes. A first call looks its
/// id up several times, and code and keys of the usual hasher are in no cache then.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    /// The length of the id, which all have.
    #[inline]
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault};

    use farjump_core::image::CodeId;

    use super::*;

    #[test]
    fn ids_that_differ_at_the_start_have_other_hashes() {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        let of = |first: u8| hasher.hash_one(CodeId([first, 0, 0, 0, 0, 0, 0, 9, 1, 1, 1, 1, 1, 1, 1, 1]));
        assert_eq!(of(7), 7 | 9 << 56);
        assert_ne!(of(7), of(8));
    }
}
