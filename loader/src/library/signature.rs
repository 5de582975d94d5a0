//! The signature of an ifunc: size and alignment of its arguments and its reply, as its library states them.
//!
//! In the author's objects it is the data symbol `NAME_signature`, in the section `.farjump.signature`; `farjump build`
//! checks it, and makes the library export it. It is for sources, and does not travel. All numbers are little-endian.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4, 4, 4 | arguments: kind (0 any bytes, 1 one value, 2 any number of values), size and alignment of one |
//! | 12 | 4, 4, 4 | the same of the reply |
//! | 24 | 4 | length of the text |
//! | 28 | | the function's declaration, UTF-8, for messages |

use std::fmt;

/// Suffix of NAME in the symbol at which a signature starts.
pub const SUFFIX: &str = "_signature";
/// Bytes before the text.
pub(crate) const HEAD_LEN: usize = 28;
/// Longest text that is kept, in bytes.
const MAX_TEXT: usize = 4096;

/// The bytes that a call passes or returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Shape {
    /// Any bytes: a function that reads or writes them itself.
    Any,
    /// One value of this size and alignment, in bytes.
    One {
        /// Its size.
        size: usize,
        /// Its alignment.
        align: usize,
    },
    /// Any number of values, each of this size and alignment, in bytes.
    Many {
        /// Size of one, not 0.
        size: usize,
        /// Its alignment.
        align: usize,
    },
}

impl Shape {
    /// The shape in these bytes; `None` if they are no shape.
    fn parse(bytes: [u8; 12]) -> Option<Shape> {
        let [kind, size, align] =
            [0, 4, 8].map(|at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        let (size, align) = (size as usize, align as usize);
        let sound = align.is_power_of_two() && size.is_multiple_of(align);
        match kind {
            0 => Some(Shape::Any),
            1 if sound => Some(Shape::One { size, align }),
            2 if sound && size != 0 => Some(Shape::Many { size, align }),
            _ => None,
        }
    }

    /// Returns whether all bytes of the shape `passed` have this shape.
    pub(crate) fn takes(self, passed: Shape) -> bool {
        match (self, passed) {
            (Shape::Any, _) => true,
            (Shape::Many { size, align }, Shape::One { size: all, align: other }) => {
                align == other && all.is_multiple_of(size)
            }
            _ => self == passed,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |size: &usize| if *size == 1 { "" } else { "s" };
        match self {
            Shape::Any => out.write_str("any bytes"),
            Shape::One { size: 0, .. } => out.write_str("no bytes"),
            Shape::One { size, align } => write!(out, "{size} byte{} aligned to {align}", plural(size)),
            Shape::Many { size, align } => {
                write!(out, "values of {size} byte{} aligned to {align}", plural(size))
            }
        }
    }
}

/// The signature of an ifunc.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Signature {
    /// The arguments of a call, at the source.
    pub arguments: Shape,
    /// The reply.
    pub reply: Shape,
    /// The function's declaration as its author wrote it. For messages, without control characters.
    pub text: String,
}

impl Signature {
    /// The number of bytes of the signature that starts with `head`; `None` if no signature starts so.
    pub(crate) fn total_len(head: &[u8]) -> Option<usize> {
        let len = u32::from_le_bytes(*head.get(24..HEAD_LEN)?.first_chunk()?) as usize;
        (len <= MAX_TEXT).then_some(HEAD_LEN + len)
    }

    /// Reads the signature at the start of `bytes`; `None` if there is none.
    pub fn parse(bytes: &[u8]) -> Option<Signature> {
        let text = bytes.get(HEAD_LEN..Signature::total_len(bytes)?)?;
        let text = str::from_utf8(text).ok()?;
        Some(Signature {
            arguments: Shape::parse(*bytes.first_chunk()?)?,
            reply: Shape::parse(*bytes[12..].first_chunk()?)?,
            text: text.chars().filter(|character| !character.is_control()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(words: [u32; 6], text: &str) -> Vec<u8> {
        let words = words.into_iter().chain([text.len() as u32]);
        words.flat_map(u32::to_le_bytes).chain(text.bytes()).collect()
    }

    #[test]
    fn a_signature_is_read_without_the_bytes_behind_it() {
        let mut bytes = encoded([2, 8, 8, 1, 4, 4], "fn f(x: &[u64])\n -> u32");
        bytes.extend(b"more");
        let signature = Signature::parse(&bytes).unwrap();
        assert_eq!(signature.arguments, Shape::Many { size: 8, align: 8 });
        assert_eq!(signature.reply, Shape::One { size: 4, align: 4 });
        assert_eq!(signature.text, "fn f(x: &[u64]) -> u32");
    }

    #[test]
    fn bytes_that_are_no_signature_are_none() {
        let whole = encoded([2, 8, 8, 0, 0, 0], "text");
        assert!(Signature::parse(&whole).is_some());
        for len in 0..whole.len() {
            assert_eq!(Signature::parse(&whole[..len]), None, "{len} bytes");
        }
        for words in [[3, 8, 8, 0, 0, 0], [2, 0, 1, 0, 0, 0], [1, 8, 3, 0, 0, 0], [1, 4, 8, 0, 0, 0]] {
            assert_eq!(Signature::parse(&encoded(words, "")), None, "{words:?}");
        }
        assert_eq!(Signature::parse(&encoded([0; 6], &"x".repeat(MAX_TEXT + 1))), None);
        assert_eq!(Signature::parse(&encoded([0, 0, 0, 0, 0, 0], "\u{7f}")).unwrap().text, "");
    }

    #[test]
    fn a_function_of_many_values_takes_only_arrays_of_their_alignment() {
        let many = Shape::Many { size: 8, align: 8 };
        assert!(many.takes(many) && many.takes(Shape::One { size: 24, align: 8 }));
        assert!(
            !many.takes(Shape::One { size: 20, align: 4 }) && !many.takes(Shape::Many { size: 8, align: 4 })
        );
        let one = Shape::One { size: 8, align: 8 };
        assert!(one.takes(one) && !one.takes(many) && !one.takes(Shape::Any));
        assert!(Shape::Any.takes(many) && Shape::Any.takes(one));
    }
}
