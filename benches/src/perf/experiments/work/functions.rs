//! The functions that work on data, their arguments, and their results by independent computation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::resident::Query;

/// A function that works on `size` bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Function {
    /// Adds up the target's rows of these keys, 8 bytes each.
    Sum,
    /// Writes bytes to the target's place for a key.
    IndirectPut,
    /// Counts the byte values of the target's data.
    Histogram,
    /// Compresses bytes at the source, and decompresses them to the target's memory.
    Codec,
}

/// A function by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    Work(Function),
    Resident(Query),
}

/// Functions on data in the message and on resident data, each once, in the requested order. `all` is all of
/// both kinds, of which a run takes its own. There is at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Functions {
    named: Vec<Named>,
    has_all: bool,
}

impl Functions {
    /// Returns those on data in the message.
    pub(crate) fn of_work(&self) -> Vec<Function> {
        let own = |named: &Named| match named {
            Named::Work(function) => Some(*function),
            Named::Resident(_) => None,
        };
        self.named.iter().filter_map(own).collect()
    }

    /// Returns those on resident data.
    pub(crate) fn of_resident(&self) -> Vec<Query> {
        let own = |named: &Named| match named {
            Named::Resident(query) => Some(*query),
            Named::Work(_) => None,
        };
        self.named.iter().filter_map(own).collect()
    }

    /// Returns the name of a requested function that is of the other kind.
    pub(crate) fn stranger(&self, is_resident: bool) -> Option<&'static str> {
        let named = self.named.iter().filter(|_| !self.has_all);
        named
            .filter(|named| matches!(named, Named::Resident(_)) != is_resident)
            .map(|named| named.name())
            .next()
    }
}

impl Named {
    fn all() -> impl Iterator<Item = Named> {
        Function::ALL.map(Named::Work).into_iter().chain(Query::ALL.map(Named::Resident))
    }

    fn name(self) -> &'static str {
        match self {
            Named::Work(function) => function.name(),
            Named::Resident(query) => query.name(),
        }
    }
}

/// Offset of the data that the functions work on.
pub(super) const AREA: usize = 4096;
/// Number of rows in the data.
pub(super) const ROWS: usize = 1 << 17;
/// The key that is written to.
pub(super) const KEY: u64 = 5;
/// Distance of slots in bytes.
const APART: usize = 64;

/// Longest reply, in bytes: a histogram, which is its length and 256 counts.
const LONGEST_REPLY: usize = 8 * 257;

impl Function {
    pub(crate) const ALL: [Function; 4] =
        [Function::Sum, Function::IndirectPut, Function::Histogram, Function::Codec];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Function::Sum => "sum",
            Function::IndirectPut => "indirect-put",
            Function::Histogram => "histogram",
            Function::Codec => "codec",
        }
    }

    /// Returns NAME of its routines, and its source.
    pub(crate) fn source(self) -> (&'static str, String) {
        let text = |text: &str| text.to_owned();
        match self {
            Function::Sum => ("sum", text(include_str!("../../../../embedded/sum.c"))),
            Function::IndirectPut => {
                ("indirect_put", text(include_str!("../../../../embedded/samples/indirect_put.c")))
            }
            Function::Histogram => {
                ("histogram", text(include_str!("../../../../embedded/samples/histogram.c")))
            }
            // The sample's reply goes to the target's memory here.
            Function::Codec => (
                "codec",
                text(concat!(
                    "#include <farjump_ifunc.h>\n",
                    "int store_append(const void *bytes, size_t len);\n",
                    "#define farjump_reply store_append\n",
                    include_str!("../../../../embedded/samples/codec.c")
                )),
            ),
        }
    }

    pub(super) fn args(self, size: usize) -> Vec<u8> {
        match self {
            Function::Sum => keys(size).flat_map(u64::to_le_bytes).collect(),
            Function::IndirectPut => {
                let mut args = KEY.to_le_bytes().to_vec();
                args.extend(noise(size));
                args
            }
            Function::Histogram => Vec::new(),
            Function::Codec => words(size),
        }
    }

    pub(super) fn is_right(self, size: usize, reply: &[u8]) -> bool {
        match self {
            Function::Sum => {
                let total = keys(size).map(row).fold(0, u64::wrapping_add);
                reply == total.to_le_bytes()
            }
            Function::IndirectPut => {
                let place = [slot_at(KEY) as u64, size as u64].map(u64::to_le_bytes);
                reply == place.as_flattened()
            }
            Function::Histogram => {
                let mut counts = [0_u64; 257];
                counts[0] = size as u64;
                noise(size).iter().for_each(|byte| counts[1 + usize::from(*byte)] += 1);
                reply == counts.map(u64::to_le_bytes).as_flattened()
            }
            Function::Codec => reply.is_empty(),
        }
    }

    /// Returns the bytes required in the target's memory after a call, with their offset.
    pub(super) fn written(self, size: usize) -> Option<(usize, Vec<u8>)> {
        match self {
            Function::Sum | Function::Histogram => None,
            Function::IndirectPut => Some((slot_at(KEY), noise(size))),
            Function::Codec => Some((AREA, words(size))),
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Returns the row of a key.
pub(super) fn row(key: u64) -> u64 {
    key * key + 1
}

/// Returns the offset of a slot in the target's memory.
pub(super) fn slot_at(key: u64) -> usize {
    AREA + key as usize * APART
}

/// Returns the bytes of the longest message or reply for work on `longest` bytes. Incompressible data grows
/// under LZ4 by one byte in 255.
pub(super) fn longest_message(longest: usize) -> usize {
    (longest + longest / 255 + 64).max(LONGEST_REPLY)
}

/// Returns `size` bytes of keys: rows all over the store, all different as long as there are enough.
fn keys(size: usize) -> impl Iterator<Item = u64> {
    (0..size as u64 / 8).map(|number| number.wrapping_mul(0x9e37_79b9) % ROWS as u64)
}

/// Returns pseudo-random bytes.
pub(super) fn noise(size: usize) -> Vec<u8> {
    let mut state = size as u64 ^ 0x2545_f491_4f6c_dd1d;
    let mut bytes = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..size).map(|_| bytes()).collect()
}

/// Returns bytes like those of a text: LZ4 halves them roughly.
fn words(size: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "the ",
        "function ",
        "goes ",
        "to ",
        "where ",
        "its ",
        "data ",
        "are ",
        "and ",
        "comes ",
        "back ",
        "with ",
        "what ",
        "it ",
        "found\n",
        "there ",
    ];
    let order = noise(size);
    let text = order.iter().flat_map(|byte| WORDS[usize::from(byte % 16)].bytes().chain([byte | 0x40]));
    text.take(size).collect()
}

/// Reads `sum,codec` and `all`.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_functions(text: &str) -> Result<Functions, String> {
    let mut functions = Functions { named: Vec::new(), has_all: false };
    for name in text.split(',') {
        let is_named = |function: &Named| name == "all" || name == function.name();
        if !Named::all().any(|function| is_named(&function)) {
            let known = Named::all().map(Named::name).collect::<Vec<_>>().join(", ");
            return Err(format!("`{name}`: there are {known}, and all"));
        }
        functions.has_all |= name == "all";
        for function in Named::all().filter(is_named) {
            if !functions.named.contains(&function) {
                functions.named.push(function);
            }
        }
    }
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_each_once_and_all_are_four() {
        let read = |text| parse_functions(text).map(|functions| functions.of_work());
        assert_eq!(read("codec,sum,codec"), Ok(vec![Function::Codec, Function::Sum]));
        assert_eq!(read("histogram,all").map(|all| (all.len(), all[0])), Ok((4, Function::Histogram)));
        let resident = parse_functions("list,sum").expect("both are functions");
        assert_eq!((resident.of_work(), resident.of_resident()), (vec![Function::Sum], vec![Query::List]));
        assert_eq!((resident.stranger(true), resident.stranger(false)), (Some("sum"), Some("list")));
        let all = parse_functions("all").expect("it is known");
        assert_eq!((all.stranger(true), all.of_resident().len()), (None, 5));
        for wrong in ["", "pigeon", "sum,", "indirect_put"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_reply_is_not_taken_for_a_right_one() {
        // Rows 0 and 0x9e3779b9 mod 131072 = 96697.
        let right = (1_u64 + (96697 * 96697 + 1)).to_le_bytes();
        assert!(Function::Sum.is_right(16, &right));
        assert!(!Function::Sum.is_right(24, &right) && !Function::Sum.is_right(16, &right[..7]));
        let place = [4096 + 5 * 64, 24_u64].map(u64::to_le_bytes);
        assert!(Function::IndirectPut.is_right(24, place.as_flattened()));
        assert!(!Function::IndirectPut.is_right(16, place.as_flattened()));
        let mut counts = vec![64_u64];
        counts.resize(257, 0);
        for byte in noise(64) {
            counts[1 + usize::from(byte)] += 1;
        }
        let bytes = |counts: &[u64]| counts.iter().flat_map(|count| count.to_le_bytes()).collect::<Vec<_>>();
        assert!(Function::Histogram.is_right(64, &bytes(&counts)));
        counts.swap(1 + usize::from(noise(64)[0]), 1);
        counts[2] += 1;
        assert!(!Function::Histogram.is_right(64, &bytes(&counts)));
        assert!(Function::Codec.is_right(64, &[]) && !Function::Codec.is_right(64, &[0]));
    }

    #[test]
    fn the_codecs_text_compresses_to_about_half() {
        let block = lz4_flex::block::compress(&words(1 << 16));
        assert!((20_000..50_000).contains(&block.len()), "{}", block.len());
    }
}
