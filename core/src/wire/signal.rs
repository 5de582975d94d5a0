//! Signals: the words that say "here, whole, and of this lap".
//!
//! A signal is a function of the link's random key and the frame's position, never a constant. So neither a
//! byte of an earlier lap nor payload that imitates a frame can pass for one. The position counts bytes since
//! the link was made and never wraps (2^64 bytes). For one key the function is a permutation of the 64-bit
//! words, so no two frames of a link share a signal.
//!
//! Signals do not authenticate the source: a process that may write into a mailbox can write any signal. They
//! keep *data* apart from frames, against chance and against suppliers of payload without the key.

/// The random key of one direction of a link, drawn by its receiver and sent to its sender in the handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LinkKey {
    header: u64,
    trailer: u64,
}

impl core::fmt::Debug for LinkKey {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("LinkKey(..)")
    }
}

impl LinkKey {
    /// Length of a key in bytes.
    pub const LEN: usize = 16;

    /// Makes a key from 16 random bytes. They must come from the operating system's generator: guessed bytes
    /// allow payload that looks like frames.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        LinkKey {
            header: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            trailer: u64::from_le_bytes([i, j, k, l, m, n, o, p]),
        }
    }

    /// The key as bytes, for the peer.
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]) =
            (self.header.to_le_bytes(), self.trailer.to_le_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    /// The signal in the header of the frame at `position`.
    #[inline(always)]
    pub const fn header(self, position: u64) -> u64 {
        mix(position ^ self.header, self.trailer)
    }

    /// The signal in the trailer of the frame at `position`.
    #[inline]
    pub const fn trailer(self, position: u64) -> u64 {
        mix(position ^ self.trailer, self.header)
    }

    /// The stamp of the delivered frame that `number` others preceded, modulo 2^32. If a message was lost,
    /// repeated or overtaken, the stamps differ. A message whose sender lacks the key has this stamp once in
    /// 2^32.
    #[inline(always)]
    pub const fn stamp(self, number: u64) -> u32 {
        (self.header as u32).wrapping_add(number as u32)
    }

    /// A keyed checksum of a frame, for the arrival rule `Checked`. Order matters, every bit counts, and it
    /// differs from position to position. `words` are the frame's 64-bit words from the word after the header
    /// signal up to the trailer.
    pub fn checksum(self, position: u64, words: impl Iterator<Item = u64>) -> u64 {
        let mut sum = self.summing(position);
        sum.add(words);
        sum.value()
    }

    /// Starts a checksum that is computed in steps; the result is that of [`LinkKey::checksum`].
    pub(crate) const fn summing(self, position: u64) -> Checksum {
        Checksum { sum: self.trailer(position), key: self.header }
    }
}

/// A checksum of the words so far.
#[derive(Clone, Copy)]
pub(crate) struct Checksum {
    sum: u64,
    key: u64,
}

impl Checksum {
    /// Adds the words that follow.
    pub(crate) fn add(&mut self, words: impl Iterator<Item = u64>) {
        for word in words {
            self.sum = mix(self.sum ^ word, self.key);
        }
    }

    pub(crate) const fn value(self) -> u64 {
        self.sum
    }
}

/// A permutation of 64-bit words for each `key`: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA
/// 2014) between two exclusive-ors.
#[inline(always)]
const fn mix(word: u64, key: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) ^ key
}
