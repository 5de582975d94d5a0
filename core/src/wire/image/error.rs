//! Errors in images, and in placing them.

use super::{Machine, Place};
use crate::cpu::{MAX_FEATURE, MAX_FEATURES};

/// The reasons why bytes are no image. Each names the field and the value found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Fewer bytes than the fixed part, or than the lengths in it add up to.
    #[error("image is truncated: it needs {needed} bytes and has {found}")]
    Truncated {
        /// Bytes that the fixed part and its lengths require.
        needed: u64,
        /// Bytes present.
        found: u64,
    },
    /// Bytes behind the end.
    #[error("image is too long: its parts end at {end}, and it has {found} bytes")]
    Overlong {
        /// End of the parts.
        end: u64,
        /// Bytes present.
        found: u64,
    },
    /// The first three bytes are not `FJI`.
    #[error("these bytes are no image: they do not start with FJI")]
    Magic,
    /// Made by another version of farjump.
    #[error("image has format version {0}, this farjump reads version 2: build the library again")]
    Version(u8),
    /// An ABI this farjump does not know.
    #[error("image is for ABI {0}, this farjump knows ABI 1 (Linux, System V, LP64)")]
    Abi(u8),
    /// Landing pads of a machine that has none.
    #[error("image says that it has landing pads, and code for {machine} has none")]
    LandingPads {
        /// The image's machine.
        machine: Machine,
    },
    /// An entry that is no landing pad, in an image that claims landing pads.
    #[error(
        "image says that it has landing pads, and its entry at offset {entry:#x} is none: a call would end in a fault"
    )]
    NoLandingPad {
        /// Offset of `NAME_main` in span 1.
        entry: u32,
    },
    /// A CPU level that the image's machine does not have.
    #[error("image is for level {level} of {machine}, which this farjump does not know")]
    Level {
        /// The image's machine.
        machine: Machine,
        /// The level's number.
        level: u8,
    },
    /// An image that claims to name CPU features, but has no list of them, or one that is too long.
    #[error(
        "image names no CPU features, or more than {MAX_FEATURES}, though it is for one CPU: build it again"
    )]
    Features,
    /// A CPU feature with a name that no feature can have.
    #[error(
        "image needs CPU feature {index}, whose name is not 1 to {MAX_FEATURE} lowercase letters, digits, dots, dashes \
         and underscores"
    )]
    Feature {
        /// Number in the list, from 0.
        index: usize,
    },
    /// CPU features out of byte order, or twice: the same code would have two code ids.
    #[error("image needs CPU feature {index} twice or out of order")]
    FeatureOrder {
        /// Number in the list, from 0.
        index: usize,
    },
    /// An alignment above 4096.
    #[error("image asks for an alignment of 2^{0}, the largest is 2^12")]
    Alignment(u8),
    /// A payload alignment that no frame can give.
    #[error("image asks for payloads aligned to 2^{0} bytes: it must be 2^3 to 2^12, or 0 for the default")]
    PayloadAlignment(u8),
    /// Span 1 has no bytes.
    #[error("image is empty: span 1 has no bytes")]
    Empty,
    /// A span longer than [`MAX_SPAN`](super::MAX_SPAN).
    #[error("image span {span} is {len} bytes long, the longest is 2^30")]
    SpanTooLong {
        /// 1 or 2.
        span: u8,
        /// Its length in bytes.
        len: u64,
    },
    /// `NAME_main` lies outside span 1.
    #[error("image entry {entry:#x} lies outside span 1, which has {len} bytes")]
    Entry {
        /// Offset given.
        entry: u32,
        /// Length of span 1.
        len: u32,
    },
    /// Code that can be placed, or is entered, at an address at which its machine has no instruction.
    #[error(
        "image has misaligned instructions: its entry is {entry:#x} and its alignment 2^{align_log2}, on {machine} \
         both must be multiples of {}",
        1 << machine.instruction_align_log2()
    )]
    Misaligned {
        /// The image's machine.
        machine: Machine,
        /// Offset of the entry.
        entry: u32,
        /// log2 of the image's alignment.
        align_log2: u8,
    },
    /// Code for aarch64 that runs only at the start of a page, without an alignment that says so.
    #[error(
        "image assumes its offset in a page (the adrp at {offset:#x}), and its alignment is 2^{align_log2}: build \
         it with an alignment of 2^12"
    )]
    PageOffset {
        /// Offset of the instruction in span 1.
        offset: usize,
        /// log2 of the image's alignment.
        align_log2: u8,
    },
    /// A site, or the target of a relative site, outside its span.
    #[error("image site {index} ({place}) lies outside its span, which has {len} bytes")]
    Outside {
        /// Number among imports and then relative sites.
        index: usize,
        /// The location.
        place: Place,
        /// Length of that span in bytes.
        len: u64,
    },
    /// The site of an import that is not a multiple of 8.
    #[error("image site {index} ({place}) is an import's and is not aligned to 8 bytes")]
    Unaligned {
        /// Number among imports.
        index: usize,
        /// The location.
        place: Place,
    },
    /// Two sites share bytes, or the sites are not in ascending order, which excludes sharing.
    #[error("image site {index} ({place}) overlaps another or is out of order")]
    Overlap {
        /// Number among imports and then relative sites.
        index: usize,
        /// The location.
        place: Place,
    },
    /// An import's name that is outside the name table, out of the order of first use, without end, empty,
    /// longer than [`MAX_SYMBOL`](super::MAX_SYMBOL) bytes or not printable ASCII.
    #[error("image import {index} has no usable name")]
    Name {
        /// Number among imports.
        index: usize,
    },
    /// More wanted libraries than [`MAX_WANTED`](super::MAX_WANTED).
    #[error("image wants {count} libraries, the most are 16")]
    WantedCount {
        /// Number of wanted libraries.
        count: usize,
    },
    /// The name of a wanted library that has no end, is empty, longer than [`MAX_SONAME`](super::MAX_SONAME)
    /// bytes, not printable ASCII, or a path.
    #[error(
        "image wants library {index} by a name that is no soname: 1 to 255 printable characters without a slash"
    )]
    Wanted {
        /// Number among the wanted libraries.
        index: usize,
    },
    /// Wanted libraries out of byte order, or twice: the same code would have two code ids.
    #[error("image wants library {index} twice or out of order")]
    WantedOrder {
        /// Number among the wanted libraries.
        index: usize,
    },
    /// A name that no import uses, or a name twice: the same code would have two code ids.
    #[error("image has a name twice, or names that no import uses")]
    Names,
    /// Padding bytes that are not zero: the same code would have two code ids.
    #[error("image has bytes other than zero in its padding")]
    Padding,
}

/// The reasons why an image could not be placed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The target does not offer a symbol that the image needs. The number is the import's position in
    /// [`ImageView::imports`](super::ImageView::imports).
    #[error("import {0} is not offered by the target")]
    Unresolved(usize),
    /// The buffer for a span is not exactly as long as the span.
    #[error("space for span {span} is {found} bytes, the image needs {needed}")]
    Space {
        /// 1 or 2.
        span: u8,
        /// Bytes the span has.
        needed: usize,
        /// Bytes given.
        found: usize,
    },
}
