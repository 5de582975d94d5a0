//! The injected function `chronicle`, computed here: it counts its calls, and hashes their payloads.

use farjump::Link;

use super::{PATIENCE, library, to_words, words};

/// Expected state of `chronicle` at a target.
pub(crate) struct Chronicle {
    pub(crate) calls: u64,
    hash: u64,
}

impl Chronicle {
    /// The state before the first call.
    pub(crate) fn new() -> Chronicle {
        Chronicle { calls: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }

    /// The function's present state at the target.
    pub(crate) fn of(link: &Link) -> Chronicle {
        let reply = link.inject(&library("chronicle"), b"").unwrap().wait(PATIENCE).unwrap();
        let [calls, hash] = to_words(&reply)[..] else { panic!("{reply:?}") };
        Chronicle { calls, hash }
    }

    /// Computes a call with this payload.
    pub(crate) fn add(&mut self, payload: &[u8]) {
        let bytes = payload.iter().map(|&byte| u64::from(byte));
        for word in bytes.chain([payload.len() as u64]) {
            self.hash = (self.hash ^ word).wrapping_mul(0x100_0000_01b3);
        }
        self.calls += 1;
    }

    /// The reply to the last call.
    pub(crate) fn reply(&self) -> Vec<u8> {
        words(&[self.calls, self.hash])
    }

    /// Calls the function over `link` with payloads of these lengths, and checks that they arrive as they were sent.
    pub(crate) fn arrives(&mut self, link: &Link, lengths: impl IntoIterator<Item = usize>) {
        let library = library("chronicle");
        for len in lengths {
            let payload = pattern(len, len as u64);
            self.add(&payload);
            let reply = link.inject(&library, &payload).unwrap().wait(PATIENCE).unwrap();
            assert!(*reply == self.reply(), "a payload of {len} bytes came out of order, or damaged");
        }
    }
}

/// Bytes without a period that matches any mailbox length.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}
