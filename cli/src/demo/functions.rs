//! The three functions of the demo: their sources, and their answers.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crc32fast::Hasher;
use memchr::memmem;
use serde_json::{Value, json};

use farjump_cli::program::failure::Failure;
use farjump_cli::program::units::{counted, show_count};

pub(super) struct Function {
    /// NAME of its routines.
    pub(super) name: &'static str,
    /// Its source, in C.
    pub(super) source: &'static str,
    /// The arguments of its payload routines.
    pub(super) args: Vec<u8>,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Histogram,
    Grep,
    Crc32,
}

/// The result of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FunctionResult {
    /// Count of each byte value.
    Histogram(Box<[u64; 256]>),
    /// Count of a literal's occurrences, overlapping ones included.
    Occurrences { literal: Vec<u8>, count: u64 },
    /// The CRC-32 of IEEE 802.3.
    Crc32(u32),
}

/// Returns the functions, in the order of the table.
pub(super) fn all(literal: Vec<u8>) -> [Function; 3] {
    [
        Function {
            name: "histogram",
            source: include_str!("../../embedded/samples/histogram.c"),
            args: Vec::new(),
            kind: Kind::Histogram,
        },
        Function {
            name: "grep",
            source: include_str!("../../embedded/samples/grep.c"),
            args: literal,
            kind: Kind::Grep,
        },
        Function {
            name: "crc32",
            source: include_str!("../../embedded/samples/crc32.c"),
            args: Vec::new(),
            kind: Kind::Crc32,
        },
    ]
}

/// Returns the literal for grep: the user's, or the first of some words that occurs at the file's start.
pub(super) fn literal(wish: Option<&OsStr>, start: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 5] = [b"panic", b"error", b"the", b"e", b"\0"];
    match wish {
        Some(literal) => literal.as_bytes().to_vec(),
        None => {
            WORDS.into_iter().find(|word| memmem::find(start, word).is_some()).unwrap_or(WORDS[0]).to_vec()
        }
    }
}

impl Function {
    /// Reads the reply of the injected function.
    ///
    /// # Errors
    /// A malformed reply.
    pub(super) fn result(&self, reply: &[u8]) -> Result<FunctionResult, Failure> {
        let result = match self.kind {
            Kind::Histogram => read_histogram(reply),
            Kind::Grep => reply.try_into().ok().map(|count| FunctionResult::Occurrences {
                literal: self.args.clone(),
                count: u64::from_le_bytes(count),
            }),
            Kind::Crc32 => reply.try_into().ok().map(|crc| FunctionResult::Crc32(u32::from_le_bytes(crc))),
        };
        result.ok_or_else(|| {
            let bytes = counted(reply.len() as u64, "byte");
            Failure::new(format!("`{}` replied {bytes}, which make no sense", self.name))
        })
    }

    /// Returns the number of bytes at the end of a part that belong to the next one, too: an occurrence may lie across
    /// them.
    pub(super) fn overlap(&self) -> usize {
        match self.kind {
            Kind::Grep => self.args.len().saturating_sub(1),
            Kind::Histogram | Kind::Crc32 => 0,
        }
    }
}

/// Reads a length, which is the sum of the 256 counts that follow; all are words of 64 bits.
fn read_histogram(reply: &[u8]) -> Option<FunctionResult> {
    let (words, []) = reply.as_chunks::<8>() else { return None };
    let (len, counts) = words.split_first()?;
    let counts: Box<[[u8; 8]; 256]> = Box::new(counts.try_into().ok()?);
    let counts = Box::new(counts.map(u64::from_le_bytes));
    (counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count)) == Some(u64::from_le_bytes(*len)))
        .then_some(FunctionResult::Histogram(counts))
}

/// Returns Shannon's entropy, in bits per byte, of bytes with these counts.
fn bits_per_byte(counts: &[u64; 256]) -> f64 {
    let len = counts.iter().sum::<u64>() as f64;
    let share = |count: &u64| *count as f64 / len;
    // Starts with a plain 0, as the sum of nothing is -0.
    counts.iter().filter(|count| **count != 0).map(share).fold(0.0, |bits, share| bits - share * share.log2())
}

impl FunctionResult {
    /// Joins two answers: `self` for some bytes, and `next` for the `len` bytes behind them.
    pub(super) fn followed_by(self, next: FunctionResult, len: u64) -> FunctionResult {
        match (self, next) {
            (FunctionResult::Histogram(mut counts), FunctionResult::Histogram(more)) => {
                counts.iter_mut().zip(more.iter()).for_each(|(count, more)| *count += more);
                FunctionResult::Histogram(counts)
            }
            (
                FunctionResult::Occurrences { literal, count },
                FunctionResult::Occurrences { count: more, .. },
            ) => FunctionResult::Occurrences { literal, count: count + more },
            (FunctionResult::Crc32(crc), FunctionResult::Crc32(next)) => {
                let mut whole = Hasher::new_with_initial_len(crc, 0);
                whole.combine(&Hasher::new_with_initial_len(next, len));
                FunctionResult::Crc32(whole.finalize())
            }
            // One function gives answers of one kind.
            (_, next) => next,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            FunctionResult::Histogram(counts) => {
                json!({ "bytes": counts.iter().sum::<u64>(), "bits_per_byte": bits_per_byte(counts) })
            }
            FunctionResult::Occurrences { literal, count } => {
                json!({ "literal": String::from_utf8_lossy(literal), "occurrences": count })
            }
            FunctionResult::Crc32(crc) => json!(format!("{crc:08x}")),
        }
    }
}

impl fmt::Display for FunctionResult {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionResult::Histogram(counts) => {
                let bytes = show_count(counts.iter().sum());
                write!(out, "{:.2} bits/byte, {bytes} B", bits_per_byte(counts))
            }
            FunctionResult::Occurrences { literal, count } => {
                write!(out, "{} x \"{}\"", show_count(*count), literal.escape_ascii())
            }
            FunctionResult::Crc32(crc) => write!(out, "{crc:08x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, args: &[u8]) -> Function {
        all(args.to_vec()).into_iter().find(|function| function.name == name).unwrap()
    }

    #[test]
    fn results_of_parts_combine_into_the_result_of_the_whole() {
        let text = b"123456789";
        for at in 0..=text.len() {
            let [before, behind] =
                [&text[..at], &text[at..]].map(|part| FunctionResult::Crc32(crc32fast::hash(part)));
            // The check value of the catalogue of CRCs.
            assert_eq!(
                before.followed_by(behind, (text.len() - at) as u64),
                FunctionResult::Crc32(0xcbf4_3926)
            );
        }
        let found = |count| FunctionResult::Occurrences { literal: b"x".to_vec(), count };
        assert_eq!(found(2).followed_by(found(3), 100), found(5));
        let histogram = |value: usize, count| {
            let mut counts = Box::new([0; 256]);
            counts[value] = count;
            FunctionResult::Histogram(counts)
        };
        let FunctionResult::Histogram(counts) = histogram(7, 1).followed_by(histogram(9, 1), 1) else {
            panic!()
        };
        assert_eq!((counts[7], counts[8], counts[9]), (1, 0, 1));
        assert_eq!(bits_per_byte(&counts), 1.0);
        assert_eq!(bits_per_byte(&[1; 256]), 8.0);
        assert_eq!(bits_per_byte(&[0; 256]).to_string(), "0");
    }

    #[test]
    fn an_occurrence_across_parts_is_in_their_overlap() {
        assert_eq!([function("grep", b"panic").overlap(), function("grep", b"").overlap()], [4, 0]);
        assert_eq!([function("crc32", b"").overlap(), function("histogram", b"").overlap()], [0, 0]);
    }

    #[test]
    fn replies_of_another_shape_are_refused() {
        for name in ["histogram", "grep", "crc32"] {
            for len in [0, 3, 5, 12, 2048, 2057] {
                assert!(function(name, b"x").result(&vec![0; len]).is_err(), "{name} {len}");
            }
        }
        let mut reply = vec![0; 257 * 8];
        assert!(function("histogram", b"").result(&reply).is_ok());
        reply[0] = 1;
        assert!(function("histogram", b"").result(&reply).is_err(), "the length is not the sum");
    }

    #[test]
    fn grep_looks_for_something_that_is_there() {
        assert_eq!(literal(None, b"no panic, no error"), b"panic");
        assert_eq!(literal(None, b"the end"), b"the");
        assert_eq!(literal(None, b""), b"panic");
        assert_eq!(literal(Some(OsStr::new("wish")), b"panic"), b"wish");
    }
}
