//! Hashing of the keys of the store's table.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes code ids by one multiplication, and their domains by another. An id is already a hash. The random key
/// protects against sources that search for images whose ids collide in the table: without the key, they cannot know
/// which ids do.
#[derive(Clone, Debug)]
pub(super) struct IdHashes {
    key: [u64; 2],
}

/// The hash of one key.
#[derive(Debug)]
pub(super) struct IdHash {
    key: [u64; 2],
    hash: u64,
}

impl IdHashes {
    pub(super) fn new() -> IdHashes {
        let random = RandomState::new();
        IdHashes { key: [random.hash_one(0), random.hash_one(1)] }
    }
}

impl BuildHasher for IdHashes {
    type Hasher = IdHash;

    #[inline]
    fn build_hasher(&self) -> IdHash {
        IdHash { key: self.key, hash: 0 }
    }
}

impl Hasher for IdHash {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        // Runs once for an id.
        while let Some((pair, behind)) = rest.split_first_chunk::<16>() {
            let pair = u128::from_le_bytes(*pair);
            let (low, high) = (pair as u64 ^ self.key[0], (pair >> 64) as u64 ^ self.key[1]);
            let product = u128::from(low) * u128::from(high);
            self.hash ^= product as u64 ^ (product >> 64) as u64;
            rest = behind;
        }
        debug_assert!(rest.is_empty(), "a code id has 16 bytes");
    }

    // A domain: with one, the default, this changes nothing.
    #[inline]
    fn write_u32(&mut self, domain: u32) {
        self.hash ^= u64::from(domain).wrapping_mul(self.key[0] | 1);
    }

    // Called with the length of the id, which is the same for all.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use farjump_core::image::CodeId;

    use super::*;

    #[test]
    fn every_byte_of_an_id_counts_and_so_does_the_key() {
        let hashes = IdHashes::new();
        let ids = (0..16).flat_map(|at| {
            (0..=255).map(move |byte| {
                let mut id = [7; 16];
                id[at] ^= byte;
                CodeId(id)
            })
        });
        let ids: HashSet<_> = ids.collect();
        let found: HashSet<_> = ids.iter().map(|id| hashes.hash_one(id)).collect();
        assert_eq!(found.len(), ids.len());
        let id = CodeId([7; 16]);
        assert_ne!(IdHashes::new().hash_one(id), hashes.hash_one(id));
    }
}
