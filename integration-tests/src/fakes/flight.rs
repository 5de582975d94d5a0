//! Simulated wire of the one-sided fake: puts that the other endpoint does not see yet, split, held and
//! reordered by a seed, as far as the rule allows.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::control::{InFlight, Shared};
use super::one_sided::{End, Rule};
use super::{Violation, lock};

/// Most cuts made in one put.
const CUTS: usize = 6;

/// Puts in flight in one direction.
pub(super) struct Flight {
    rule: Rule,
    generator: fastrand::Rng,
    to: Arc<End>,
    /// In put order, so epochs ascend.
    pieces: VecDeque<Piece>,
    /// Pieces left of each put in flight.
    puts: BTreeMap<u64, usize>,
    /// Puts with a completion that is not yet counted, oldest first.
    completions: VecDeque<u64>,
    next_put: u64,
    /// Number of fences that had something to order.
    epoch: u64,
    /// This process's memory, as a device would see it.
    memory: File,
    shared: Arc<Shared>,
}

struct Piece {
    put: u64,
    epoch: u64,
    at: usize,
    bytes: Vec<u8>,
    /// Address of the bytes, if they must stay unchanged there.
    source: Option<u64>,
    frame: u64,
}

/// The contents of a put: bytes that stay in place, or a word that is copied.
pub(super) enum Load<'a> {
    Bytes { bytes: &'a [u8], completion: bool },
    Word(u64),
}

impl Flight {
    pub(super) fn new(rule: Rule, seed: u64, to: Arc<End>, memory: File, shared: Arc<Shared>) -> Flight {
        Flight {
            rule,
            generator: fastrand::Rng::with_seed(seed),
            to,
            pieces: VecDeque::new(),
            puts: BTreeMap::new(),
            completions: VecDeque::new(),
            next_put: 0,
            epoch: 0,
            memory,
            shared,
        }
    }

    /// Puts that are not completely delivered.
    pub(super) fn puts(&self) -> usize {
        self.puts.len()
    }

    /// Starts a put. It lies inside the region.
    pub(super) fn put(&mut self, at: usize, load: Load<'_>, frame: u64) {
        let put = self.next_put;
        self.next_put += 1;
        let word_bytes;
        let (bytes, source) = match load {
            Load::Bytes { bytes, completion } => {
                if completion {
                    self.completions.push_back(put);
                }
                (bytes, Some(bytes.as_ptr().addr() as u64))
            }
            Load::Word(word) => {
                word_bytes = word.to_le_bytes();
                (&word_bytes[..], None)
            }
        };
        let cuts = self.cuts(at, bytes.len());
        for ends in cuts.windows(2) {
            let [from, to] = [ends[0], ends[1]];
            self.pieces.push_back(Piece {
                put,
                epoch: self.epoch,
                at: at + from,
                bytes: bytes[from..to].to_vec(),
                source: source.map(|source| source + from as u64),
                frame,
            });
        }
        match cuts.len() - 1 {
            0 => self.count_completions(),
            pieces => _ = self.puts.insert(put, pieces),
        }
    }

    /// Orders earlier puts before later ones.
    pub(super) fn fence(&mut self) {
        if self.pieces.back().is_some_and(|piece| piece.epoch == self.epoch) {
            self.epoch += 1;
        }
    }

    /// Delivers a few pieces, or none, like a call that makes some progress.
    pub(super) fn work(&mut self) {
        let pieces = self.generator.usize(0..=3);
        self.deliver(pieces);
    }

    fn deliver(&mut self, pieces: usize) -> usize {
        (0..pieces).take_while(|_| self.deliver_one()).count()
    }

    fn deliver_one(&mut self) -> bool {
        let Some(first) = self.pieces.front() else { return false };
        let movable = match self.rule {
            Rule::InOrder => 1,
            _ => self.pieces.iter().take_while(|piece| piece.epoch == first.epoch).count(),
        };
        let Some(piece) = self.pieces.remove(self.generator.usize(0..movable)) else { return false };
        self.check_source(&piece);
        self.to.region.write(piece.at, &piece.bytes);
        if let Some(left) = self.puts.get_mut(&piece.put) {
            *left -= 1;
            if *left == 0 {
                self.puts.remove(&piece.put);
                self.count_completions();
            }
        }
        true
    }

    /// Counts the completions of the oldest puts that are whole.
    fn count_completions(&mut self) {
        while self.completions.front().is_some_and(|put| !self.puts.contains_key(put)) {
            self.completions.pop_front();
            // Pairs with the acquire load in `completions`: a reader of the count sees the bytes.
            self.to.completions.fetch_add(1, Ordering::Release);
        }
    }

    /// Checks that the bytes are unchanged since the put. Reads them through the kernel, to detect freed
    /// memory without touching it.
    ///
    /// Under `Checked` a receiver may take a frame before all of it has arrived, if the old contents happen
    /// to be equal, and return credit: then nothing can be checked.
    fn check_source(&self, piece: &Piece) {
        let Some(source) = piece.source else { return };
        let mut now = vec![0; piece.bytes.len()];
        let unchanged = self.memory.read_exact_at(&mut now, source).is_ok() && now == piece.bytes;
        if !unchanged && self.rule != Rule::Checked {
            self.shared.record(Violation::BytesChanged { offset: piece.at, frame: piece.frame });
        }
    }

    /// Offsets at which a put of `len` bytes to `at` is cut: ascending, with 0 and `len`; in between only
    /// multiples of 8 in the region. For no bytes only the 0.
    fn cuts(&mut self, at: usize, len: usize) -> Vec<usize> {
        let first = at.next_multiple_of(8) - at;
        let inner = len.saturating_sub(first + 1) / 8 + 1;
        let mut cuts = vec![0, len];
        for _ in 0..self.generator.usize(0..=CUTS) {
            cuts.push((first + 8 * self.generator.usize(0..inner)).min(len));
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }
}

impl InFlight for Mutex<Flight> {
    fn deliver(&self, pieces: usize) -> usize {
        lock(self).deliver(pieces)
    }

    fn pending(&self) -> usize {
        lock(self).pieces.len()
    }
}
