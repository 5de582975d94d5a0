//! The code id.

use farjump_core::image::CodeId;

/// Computes the code id of `image`: the first 16 bytes of the BLAKE3 hash of all its bytes. Does not check
/// that they are an image.
pub fn code_id(image: &[u8]) -> CodeId {
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(image).as_bytes()[..16]);
    CodeId(id)
}

/// Computes a code id from bytes that come in pieces.
#[derive(Clone, Debug, Default)]
pub struct CodeHasher(blake3::Hasher);

impl CodeHasher {
    /// Makes a hasher without bytes.
    pub fn new() -> CodeHasher {
        CodeHasher::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The code id of all bytes so far: the same as that of [`code_id`].
    pub fn finish(&self) -> CodeId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        CodeId(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_the_published_hash() {
        // The first input of BLAKE3's official test vectors: no bytes.
        assert_eq!(code_id(b"").to_string(), "af1349b9f5f9a1a6a0404dea36dcc949");
    }

    #[test]
    fn every_byte_counts() {
        let image: Vec<u8> = (0..300).map(|byte| byte as u8).collect();
        for at in 0..image.len() {
            let mut other = image.clone();
            other[at] ^= 1;
            assert_ne!(code_id(&other), code_id(&image), "{at}");
        }
    }

    #[test]
    fn an_identity_computed_piece_by_piece_is_the_same() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| at as u8).collect();
        for piece in [1, 7, 1024, 4096, 10_000] {
            let mut hasher = CodeHasher::new();
            bytes.chunks(piece).for_each(|bytes| hasher.update(bytes));
            assert_eq!(hasher.finish(), code_id(&bytes), "{piece}");
        }
    }
}
