//! The three functions of the demo: their sources, and the same results computed here by other code.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use memchr::memmem;
use serde_json::{Value, json};

use farjump_benches::program::failure::Failure;
use farjump_benches::program::units::show_count;

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
pub(super) enum Answer {
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
            source: include_str!("../../../ifuncs/samples/c/histogram.c"),
            args: Vec::new(),
            kind: Kind::Histogram,
        },
        Function {
            name: "grep",
            source: include_str!("../../../ifuncs/samples/c/grep.c"),
            args: literal,
            kind: Kind::Grep,
        },
        Function {
            name: "crc32",
            source: include_str!("../../../ifuncs/samples/c/crc32.c"),
            args: Vec::new(),
            kind: Kind::Crc32,
        },
    ]
}

/// Returns the literal for grep: the one asked for, or the first of some words that occurs in the file.
pub(super) fn literal(wish: Option<&OsStr>, contents: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 5] = [b"panic", b"error", b"the", b"e", b"\0"];
    match wish {
        Some(literal) => literal.as_bytes().to_vec(),
        None => {
            WORDS.into_iter().find(|word| memmem::find(contents, word).is_some()).unwrap_or(WORDS[0]).to_vec()
        }
    }
}

impl Function {
    /// Reads the reply of the injected function.
    ///
    /// # Errors
    /// A malformed reply.
    pub(super) fn answer(&self, reply: &[u8]) -> Result<Answer, Failure> {
        let answer = match self.kind {
            Kind::Histogram => read_histogram(reply),
            Kind::Grep => reply.try_into().ok().map(|count| Answer::Occurrences {
                literal: self.args.clone(),
                count: u64::from_le_bytes(count),
            }),
            Kind::Crc32 => reply.try_into().ok().map(|crc| Answer::Crc32(u32::from_le_bytes(crc))),
        };
        answer.ok_or_else(|| {
            Failure::new(format!("`{}` replied {} bytes that make no sense", self.name, reply.len()))
        })
    }

    pub(super) fn compute(&self, contents: &[u8]) -> Answer {
        match self.kind {
            Kind::Histogram => {
                let mut counts = Box::new([0; 256]);
                for byte in contents {
                    counts[usize::from(*byte)] += 1;
                }
                Answer::Histogram(counts)
            }
            Kind::Grep => {
                Answer::Occurrences { literal: self.args.clone(), count: occurrences(contents, &self.args) }
            }
            Kind::Crc32 => Answer::Crc32(crc32fast::hash(contents)),
        }
    }
}

/// Reads a length, which is the sum of the 256 counts that follow; all are words of 64 bits.
fn read_histogram(reply: &[u8]) -> Option<Answer> {
    let (words, []) = reply.as_chunks::<8>() else { return None };
    let (len, counts) = words.split_first()?;
    let counts: Box<[[u8; 8]; 256]> = Box::new(counts.try_into().ok()?);
    let counts = Box::new(counts.map(u64::from_le_bytes));
    (counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count)) == Some(u64::from_le_bytes(*len)))
        .then_some(Answer::Histogram(counts))
}

fn occurrences(contents: &[u8], literal: &[u8]) -> u64 {
    if literal.is_empty() {
        return 0;
    }
    let finder = memmem::Finder::new(literal);
    let (mut count, mut from) = (0, 0);
    while let Some(at) = finder.find(&contents[from..]) {
        count += 1;
        from += at + 1;
    }
    count
}

/// Returns Shannon's entropy, in bits per byte, of bytes with these counts.
fn bits_per_byte(counts: &[u64; 256]) -> f64 {
    let len = counts.iter().sum::<u64>() as f64;
    let share = |count: &u64| *count as f64 / len;
    // Starts with a plain 0, as the sum of nothing is -0.
    counts.iter().filter(|count| **count != 0).map(share).fold(0.0, |bits, share| bits - share * share.log2())
}

impl Answer {
    pub(super) fn to_json(&self) -> Value {
        match self {
            Answer::Histogram(counts) => {
                json!({ "bytes": counts.iter().sum::<u64>(), "bits_per_byte": bits_per_byte(counts) })
            }
            Answer::Occurrences { literal, count } => {
                json!({ "literal": String::from_utf8_lossy(literal), "occurrences": count })
            }
            Answer::Crc32(crc) => json!(format!("{crc:08x}")),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Histogram(counts) => {
                let bytes = show_count(counts.iter().sum());
                write!(out, "{:.2} bits/byte, {bytes} B", bits_per_byte(counts))
            }
            Answer::Occurrences { literal, count } => {
                write!(out, "{} x \"{}\"", show_count(*count), literal.escape_ascii())
            }
            Answer::Crc32(crc) => write!(out, "{crc:08x}"),
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
    fn what_is_computed_here_is_right_where_the_answer_is_known() {
        // The check value of the catalogue of CRCs.
        assert_eq!(function("crc32", b"").compute(b"123456789"), Answer::Crc32(0xcbf4_3926));
        let grep = |literal: &[u8], text: &[u8]| occurrences(text, literal);
        assert_eq!(grep(b"aa", b"aaaa"), 3);
        assert_eq!([grep(b"", b"x"), grep(b"x", b""), grep(b"xy", b"axybxy")], [0, 0, 2]);
        let Answer::Histogram(counts) = function("histogram", b"").compute(b"abab") else { panic!() };
        assert_eq!((counts[97], counts[98], counts[99]), (2, 2, 0));
        assert_eq!(bits_per_byte(&counts), 1.0);
        let all: Vec<u8> = (0..=255).collect();
        let Answer::Histogram(counts) = function("histogram", b"").compute(&all) else { panic!() };
        assert_eq!(bits_per_byte(&counts), 8.0);
        assert_eq!(bits_per_byte(&[0; 256]).to_string(), "0");
    }

    #[test]
    fn replies_of_another_shape_are_refused() {
        for name in ["histogram", "grep", "crc32"] {
            for len in [0, 3, 5, 12, 2048, 2057] {
                assert!(function(name, b"x").answer(&vec![0; len]).is_err(), "{name} {len}");
            }
        }
        let mut reply = vec![0; 257 * 8];
        assert!(function("histogram", b"").answer(&reply).is_ok());
        reply[0] = 1;
        assert!(function("histogram", b"").answer(&reply).is_err(), "the length is not the sum");
    }

    #[test]
    fn grep_looks_for_something_that_is_there() {
        assert_eq!(literal(None, b"no panic, no error"), b"panic");
        assert_eq!(literal(None, b"the end"), b"the");
        assert_eq!(literal(None, b""), b"panic");
        assert_eq!(literal(Some(OsStr::new("wish")), b"panic"), b"wish");
    }
}
