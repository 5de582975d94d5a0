//! Keys of the records of one direction, and encryption and decryption.
//!
//! ```text
//! root  = HKDF-Extract(salt: token, secret)
//! chain = HKDF-Expand(root, the direction's label)         32 bytes
//! key   = HKDF-Expand(chain, "farjump tcp key")            32 bytes, for 2^20 records
//! chain = HKDF-Expand(chain, "farjump tcp chain")          the next one
//! ```
//! The hash is SHA-256. A key is erased after its records, and the remaining values do not reveal it.

use std::mem::MaybeUninit;

use farjump_core::transport::{Secret, Stream, StreamRole};
use farjump_os::scrubbed;
use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use zeroize::{Zeroize, Zeroizing};

use super::head::{HEAD, TAG};

/// Records for one key.
const RECORDS: u64 = 1 << 20;
/// Length of keys in bytes.
const LEN: usize = 32;

/// Labels of derived keys.
const TO_TARGET: &[u8] = b"farjump tcp source to target";
const TO_SOURCE: &[u8] = b"farjump tcp target to source";
const KEY: &[u8] = b"farjump tcp key";
const CHAIN: &[u8] = b"farjump tcp chain";

/// The ciphers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cipher {
    Aes,
    ChaCha,
}

impl Cipher {
    /// The cipher for two peers, by whether each has a processor with AES instructions.
    pub(super) fn agree(ours: bool, theirs: bool) -> Cipher {
        if ours && theirs { Cipher::Aes } else { Cipher::ChaCha }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Cipher::Aes => "AES-256-GCM",
            Cipher::ChaCha => "ChaCha20-Poly1305",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes => &AES_256_GCM,
            Cipher::ChaCha => &CHACHA20_POLY1305,
        }
    }
}

/// Returns whether this processor has instructions for AES and for GCM's sums.
pub(super) fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// A record that cannot be decrypted or encrypted.
#[derive(Debug)]
pub(super) struct Unsealed;

/// The keys of one direction.
pub(super) struct Keys {
    cipher: Cipher,
    held: Box<Held>,
    /// Number of the next record.
    number: u64,
    /// Records for one key.
    records: u64,
}

impl Keys {
    /// The keys for sending and for receiving of the endpoint `role`.
    pub(super) fn pair(
        cipher: Cipher,
        role: StreamRole,
        token: &[u8; Stream::TOKEN],
        secret: &Secret,
    ) -> [Keys; 2] {
        let labels = match role {
            StreamRole::Source => [TO_TARGET, TO_SOURCE],
            StreamRole::Target => [TO_SOURCE, TO_TARGET],
        };
        scrubbed(|| {
            let root = Salt::new(HKDF_SHA256, token).extract(secret.as_bytes());
            labels.map(|label| {
                let mut held = Box::new(Held { chain: [0; LEN], key: MaybeUninit::uninit() });
                held.chain.copy_from_slice(derive(&root, label).as_ref());
                held.turn(cipher);
                Keys { cipher, held, number: 0, records: RECORDS }
            })
        })
    }

    pub(super) fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The number of the next record as a nonce. Derives its key if needed.
    #[inline]
    fn nonce(&mut self) -> Nonce {
        if self.number.is_multiple_of(self.records) && self.number != 0 {
            self.turn();
        }
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.number.to_le_bytes());
        // No link sends 2^64 records.
        self.number = self.number.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }

    #[cold]
    fn turn(&mut self) {
        scrubbed(|| self.held.turn(self.cipher));
    }

    /// Encrypts the next record's body, and returns its tag.
    #[inline]
    pub(super) fn seal(&mut self, head: &[u8; HEAD], body: &mut [u8]) -> Result<[u8; TAG], Unsealed> {
        let nonce = self.nonce();
        let tag = self.held.key().seal_in_place_separate_tag(nonce, Aad::from(head), body);
        tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or(Unsealed)
    }

    /// Decrypts the next record's body, which begins at `from` in `bytes`, and moves it to 0. After an error, `bytes`
    /// contains nothing of the body.
    #[inline]
    pub(super) fn open(
        &mut self,
        head: &[u8; HEAD],
        tag: [u8; TAG],
        bytes: &mut [u8],
        from: usize,
    ) -> Result<(), Unsealed> {
        let nonce = self.nonce();
        let tag = Tag::from(tag);
        match self.held.key().open_in_place_separate_tag(nonce, Aad::from(head), tag, bytes, from..) {
            Ok(_) => Ok(()),
            Err(_) => {
                bytes.fill(0);
                Err(Unsealed)
            }
        }
    }

    /// Sets another number of records for a key.
    #[cfg(test)]
    pub(super) fn set_records(&mut self, records: u64) {
        self.records = records;
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Keys").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

/// The length of a key.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        LEN
    }
}

/// Derives bytes from `root` for `label`.
fn derive(root: &Prk, label: &[u8]) -> Zeroizing<[u8; LEN]> {
    let mut bytes = Zeroizing::new([0; LEN]);
    let filled = root.expand(&[label], Length).and_then(|okm| okm.fill(bytes.as_mut()));
    filled.expect("HKDF gives up to 255 times the length of its hash");
    bytes
}

/// The secret part of the keys. It does not move, so no copy stays behind, and dropping overwrites it.
struct Held {
    /// The source of the next key.
    chain: [u8; LEN],
    key: MaybeUninit<LessSafeKey>,
}

impl Held {
    /// Takes the next key of the chain, and advances the chain.
    fn turn(&mut self, cipher: Cipher) {
        let root = Prk::new_less_safe(HKDF_SHA256, &self.chain);
        let key = derive(&root, KEY);
        let unbound = UnboundKey::new(cipher.algorithm(), key.as_ref()).expect("both take keys of 32 bytes");
        self.key.write(LessSafeKey::new(unbound));
        self.chain.copy_from_slice(derive(&root, CHAIN).as_ref());
    }

    #[inline]
    fn key(&self) -> &LessSafeKey {
        // SAFETY: `turn` wrote it before `Keys` had this value, and only `drop` overwrites it.
        unsafe { self.key.assume_init_ref() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.chain.zeroize();
        let bytes = self.key.as_mut_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: these are the bytes of the key, which nothing reads from here on: `LessSafeKey` has nothing to drop.
        unsafe { std::slice::from_raw_parts_mut(bytes, size_of::<LessSafeKey>()) }.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; 32] = [3; 32];

    fn pairs(cipher: Cipher) -> [[Keys; 2]; 2] {
        let secret = Secret::from_bytes(std::array::from_fn(|at| at as u8));
        [StreamRole::Source, StreamRole::Target].map(|role| Keys::pair(cipher, role, &TOKEN, &secret))
    }

    #[test]
    fn each_direction_has_own_keys_that_change_after_a_record_count() {
        for cipher in [Cipher::Aes, Cipher::ChaCha] {
            let [[mut out, _], [mut wrong, mut into]] = pairs(cipher);
            out.set_records(4);
            into.set_records(4);
            let mut chains = vec![out.held.chain.to_vec()];
            for number in 0..20 {
                let mut body = *b"0123456789abcdef";
                let tag = out.seal(&[number; HEAD], &mut body).unwrap();
                let copy = body;
                into.open(&[number; HEAD], tag, &mut body, 0).unwrap();
                assert_eq!(&body, b"0123456789abcdef");
                body = copy;
                assert!(wrong.open(&[number; HEAD], tag, &mut body, 0).is_err());
                assert_eq!(body, [0; 16], "something was left");
                chains.push(out.held.chain.to_vec());
            }
            chains.dedup();
            assert_eq!(chains.len(), 5);
        }
    }

    #[test]
    fn another_secret_token_or_cipher_gives_other_keys() {
        let seal = |secret: u8, token: u8, cipher| {
            let secret = Secret::from_bytes([secret; 64]);
            let [mut out, _] = Keys::pair(cipher, StreamRole::Source, &[token; 32], &secret);
            out.seal(&[0; HEAD], &mut []).unwrap()
        };
        let first = seal(1, 1, Cipher::Aes);
        assert_eq!(first, seal(1, 1, Cipher::Aes));
        for other in [seal(2, 1, Cipher::Aes), seal(1, 2, Cipher::Aes), seal(1, 1, Cipher::ChaCha)] {
            assert_ne!(first, other);
        }
        assert_eq!(
            [(true, true), (true, false), (false, true)].map(|(a, b)| Cipher::agree(a, b)),
            [Cipher::Aes, Cipher::ChaCha, Cipher::ChaCha]
        );
    }

    #[test]
    fn nothing_is_left_of_a_chain_and_a_key_that_were_dropped() {
        let [[keys, _], _] = pairs(Cipher::Aes);
        let held = Box::into_raw(keys.held);
        let bytes = |held: *mut Held| {
            let bytes = held.cast::<MaybeUninit<u8>>();
            (0..size_of::<Held>())
                .filter(|at| {
                    // SAFETY: inside the box, which is not freed yet. Every secret byte was written;
                    // unwritten bytes of a key are the allocator's, which a volatile read returns.
                    unsafe { bytes.add(*at).read_volatile().assume_init() != 0 }
                })
                .count()
        };
        assert!(bytes(held) > 2 * LEN);
        // SAFETY: it is dropped once, here, and freed as plain memory below.
        unsafe { std::ptr::drop_in_place(held) };
        assert_eq!(bytes(held), 0);
        // SAFETY: the box is freed without dropping its contents again.
        drop(unsafe { Box::from_raw(held.cast::<MaybeUninit<Held>>()) });
    }
}
