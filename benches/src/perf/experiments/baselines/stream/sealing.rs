//! The AEAD of an encrypted stream, by farjump's own library. The data is no secret: both endpoints have the
//! same two keys in every run.

use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::program::failure::Failure;

/// A key for each direction, and the numbers of the next records.
pub(crate) struct Sealing {
    own: DirectionKey,
    theirs: DirectionKey,
}

struct DirectionKey {
    key: LessSafeKey,
    next: u64,
}

impl Sealing {
    /// Returns the keys of the source's endpoint, or of the target's.
    pub(crate) fn new(source: bool) -> Result<Sealing, Failure> {
        let (own, theirs) = if source { (1, 2) } else { (2, 1) };
        Ok(Sealing { own: DirectionKey::new(own)?, theirs: DirectionKey::new(theirs)? })
    }

    /// Encrypts the next record's body in place.
    #[inline]
    pub(crate) fn seal(&mut self, head: &[u8], body: &mut [u8], tag: &mut [u8]) -> Result<(), Failure> {
        let nonce = self.own.nonce();
        let made = self.own.key.seal_in_place_separate_tag(nonce, Aad::from(head), body);
        tag.copy_from_slice(made.map_err(|_| Failure::new("a record could not be sealed"))?.as_ref());
        Ok(())
    }

    /// Decrypts the next record's body in place.
    #[inline]
    pub(crate) fn open(&mut self, head: &[u8], body: &mut [u8], tag: &[u8]) -> Result<(), Failure> {
        let nonce = self.theirs.nonce();
        let refused = || Failure::new("a record was changed on its way");
        let tag = tag.try_into().map_err(|_| refused())?;
        let opened = self.theirs.key.open_in_place_separate_tag(nonce, Aad::from(head), tag, body, 0..);
        opened.map(drop).map_err(|_| refused())
    }

    /// Skips the number of the peer's next record.
    #[cfg(test)]
    pub(crate) fn skip(&mut self) {
        self.theirs.next += 1;
    }
}

impl DirectionKey {
    fn new(key: u8) -> Result<DirectionKey, Failure> {
        let algorithm = algorithm();
        let key = UnboundKey::new(algorithm, &[key; 32]);
        let key = key.map_err(|_| Failure::new("a key could not be made"))?;
        Ok(DirectionKey { key: LessSafeKey::new(key), next: 0 })
    }

    #[inline]
    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Returns the algorithm that farjump would choose on this machine.
fn algorithm() -> &'static Algorithm {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    if has_aes { &AES_256_GCM } else { &CHACHA20_POLY1305 }
}
