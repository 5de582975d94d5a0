//! Locations inside an image, and the words that encode them.

use core::fmt;

/// The bit that distinguishes span 2 from span 1.
pub(super) const SPAN2: u32 = 1 << 31;

/// A location inside an image: a span, and the offset in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Offset in span 1: text, read-only data, GOT.
    Span1(u32),
    /// Offset in span 2: data, then bss.
    Span2(u32),
}

impl Place {
    pub(super) fn from_word(word: u32) -> Place {
        if word & SPAN2 == 0 { Place::Span1(word) } else { Place::Span2(word & !SPAN2) }
    }

    /// Returns whether a word here lies wholly behind one at `other`.
    pub(super) fn is_behind(self, other: Place) -> bool {
        match (other, self) {
            (Place::Span1(other), Place::Span1(own)) | (Place::Span2(other), Place::Span2(own)) => {
                u64::from(own) >= u64::from(other) + 8
            }
            _ => self > other,
        }
    }

    pub(super) fn to_word(self) -> u32 {
        match self {
            Place::Span1(offset) => offset,
            Place::Span2(offset) => offset | SPAN2,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Span1(offset) => write!(out, "span 1 + {offset:#x}"),
            Place::Span2(offset) => write!(out, "span 2 + {offset:#x}"),
        }
    }
}
