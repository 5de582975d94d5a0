//! A seeded mutator for tests without a fuzzer: failures can be reproduced.

use fastrand::Rng;

/// Numbers at which lengths, counts and offsets change their meaning.
const EDGES: [u64; 16] =
    [0, 1, 7, 8, 24, 63, 64, 65, 0xff, 0x100, 4096, 0xffff, 1 << 30, 1 << 31, u32::MAX as u64 - 63, u64::MAX];

/// Spoils bytes as faulty peers do: bits, numbers, lengths, swapped fields.
#[derive(Clone, Debug)]
pub struct Mutator(Rng);

impl Mutator {
    /// Makes a mutator that repeats itself for the same seed.
    pub fn new(seed: u64) -> Mutator {
        Mutator(Rng::with_seed(seed))
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// Changes `bytes` at one to four offsets, half of them among the first `head`. The number of bytes may change,
    /// too, but stays at most `most`.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, head: usize, most: usize) {
        for _ in 0..self.0.usize(1..=4) {
            let within = if self.0.bool() { head.min(bytes.len()) } else { bytes.len() };
            self.change(bytes, within);
            bytes.truncate(most);
        }
    }

    /// As [`Mutator::mutate`], but keeps the number of bytes.
    pub fn mutate_in_place(&mut self, bytes: &mut [u8], head: usize) {
        for _ in 0..self.0.usize(1..=4) {
            let within = if self.0.bool() { head.min(bytes.len()) } else { bytes.len() };
            self.overwrite(bytes, within);
        }
    }

    fn change(&mut self, bytes: &mut Vec<u8>, within: usize) {
        match self.0.usize(..10) {
            0 => bytes.truncate(self.0.usize(..=bytes.len())),
            1 => {
                // Additional bytes, all of one value.
                let (more, value) = (self.0.usize(1..=64), self.0.u8(..));
                bytes.resize(bytes.len() + more, value);
            }
            2 if within > 0 => {
                // A part repeated, or removed.
                let at = self.0.usize(..within);
                let len = self.0.usize(1..=(bytes.len() - at).min(64));
                if self.0.bool() {
                    let part = bytes[at..at + len].to_vec();
                    bytes.splice(at..at, part);
                } else {
                    bytes.drain(at..at + len);
                }
            }
            _ => self.overwrite(bytes, within),
        }
    }

    /// Changes some of the first `within` bytes.
    fn overwrite(&mut self, bytes: &mut [u8], within: usize) {
        if within == 0 {
            return;
        }
        let at = self.0.usize(..within);
        match self.0.usize(..4) {
            0 => bytes[at] ^= 1 << self.0.u8(..8),
            1 => bytes[at] = self.0.u8(..),
            2 => {
                // A number at a usual location: at a multiple of its width.
                let width = 1 << self.0.usize(..4);
                let at = at / width * width;
                let Some(place) = bytes.get_mut(at..at + width) else { return };
                let mut word = [0; 8];
                word[..width].copy_from_slice(place);
                let near = u64::from_le_bytes(word).wrapping_add_signed(self.0.i64(-64..=64));
                let number = if self.0.bool() { near } else { EDGES[self.0.usize(..EDGES.len())] };
                place.copy_from_slice(&number.to_le_bytes()[..width]);
            }
            _ => {
                // Two fields swapped.
                let width = 1 << self.0.usize(1..4);
                let (one, other) = (at / width, self.0.usize(..within) / width);
                for byte in 0..width {
                    let (one, other) = (one * width + byte, other * width + byte);
                    if one.max(other) < bytes.len() {
                        bytes.swap(one, other);
                    }
                }
            }
        }
    }
}
