//! The identity of code.

use farjump_core::image::CodeId;

/// The identity of `image`: the first 16 bytes of the BLAKE3 hash of all its bytes. Whether they are an image is not
/// looked at.
pub fn code_id(image: &[u8]) -> CodeId {
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(image).as_bytes()[..16]);
    CodeId(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_the_published_hash() {
        // The first input of BLAKE3's official test vectors: no bytes at all.
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
}
