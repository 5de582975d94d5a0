//! Why a target refuses code, in the words that the source's user reads.

use farjump_core::image::{CodeId, ImageError, Machine};

use crate::error::Error;

/// Why code was not linked. The text is a whole sentence that names the ifunc, says that the target refused it, and what
/// to do: it travels to the source as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Something that cannot name an ifunc.
    #[error(
        "the target refused code named {name:?}: an ifunc's name is a C identifier of at most 255 characters"
    )]
    Name {
        /// The start of the name, as it came.
        name: String,
    },
    /// The bytes are no image, or a damaged one.
    #[error("the target refused `{ifunc}`: {source}")]
    BadImage {
        /// Name of the ifunc.
        ifunc: String,
        /// What is wrong with it.
        source: ImageError,
    },
    /// The bytes are not those that the identity was made of.
    #[error(
        "the target refused `{ifunc}`: its code is {found}, but came as {claimed}; it was damaged on the way or \
         changed while it was read"
    )]
    IdMismatch {
        /// Name of the ifunc.
        ifunc: String,
        /// Identity that the source claimed.
        claimed: CodeId,
        /// Identity of the bytes.
        found: CodeId,
    },
    /// Code for another machine.
    #[error(
        "the target refused `{ifunc}`: the code is for {image} and the target runs on {target}; send the image for \
         that machine, or build one"
    )]
    WrongMachine {
        /// Name of the ifunc.
        ifunc: String,
        /// Machine that the code was linked for.
        image: Machine,
        /// Machine of the target.
        target: Machine,
    },
    /// The target's own machine is one that farjump cannot run injected code on.
    #[error("the target refused `{ifunc}`: {reason}")]
    UnsupportedMachine {
        /// Name of the ifunc.
        ifunc: String,
        /// What is missing.
        reason: &'static str,
    },
    /// The code needs something that the target does not offer.
    #[error(
        "the target refused `{ifunc}`: it exports no `{symbol}` (it offers {offered}{}). Export it with \
         Target::export, or serve with --export LIB.so.",
        DidYouMean(suggestion)
    )]
    UnresolvedImport {
        /// Name of the ifunc.
        ifunc: String,
        /// Name of the symbol.
        symbol: String,
        /// The export whose name looks most like it, if any does.
        suggestion: Option<String>,
        /// What is on offer, cut where it is long.
        offered: String,
    },
    /// The code imports what the target does not offer, and wants libraries that the target does not open for it.
    #[error(
        "the target refused `{ifunc}`: it imports `{symbol}`, which the target does not offer, and wants {}, which the \
         target does not open: serve with {} (TargetBuilder::wanted_library), or export what it needs",
        missing.join(" and "),
        missing.iter().map(|soname| format!("--wanted-library {soname}")).collect::<Vec<_>>().join(" ")
    )]
    WantedLibraries {
        /// Name of the ifunc.
        ifunc: String,
        /// The first symbol that is not offered.
        symbol: String,
        /// Sonames of the libraries that it wants and the target does not open, ascending.
        missing: Vec<String>,
    },
    /// The code imports what the target does not offer, and wants a library that the target would open for it, and cannot.
    #[error("the target refused `{ifunc}`, which wants a library: {source}; install it at the target")]
    WantedUnopened {
        /// Name of the ifunc.
        ifunc: String,
        /// What failed.
        source: Error,
    },
    /// The arena has no gap that is long enough.
    #[error(
        "the target refused `{ifunc}`: it has no room for {needed} bytes of code or data, the longest gap is {largest}; \
         have it forget code, or give it a larger arena"
    )]
    ArenaFull {
        /// Name of the ifunc.
        ifunc: String,
        /// Length of the longer of the image's two spans, in bytes.
        needed: usize,
        /// Longest that would fit, in bytes.
        largest: usize,
    },
    /// The image alone is longer than all that the store may hold.
    #[error(
        "the target refused `{ifunc}`: its image of {len} bytes is larger than the {capacity} bytes that the target's \
         store holds; give it a larger one (serve --store-bytes, TargetBuilder::store_capacity)"
    )]
    LargerThanStore {
        /// Name of the ifunc.
        ifunc: String,
        /// Length of the image, in bytes.
        len: usize,
        /// What the store holds at most, in bytes.
        capacity: usize,
    },
    /// The store holds as much as it may, of code that nobody lets go.
    #[error(
        "the target refused `{ifunc}`: its store is full, with {images} images of {bytes} bytes; have it forget code, or \
         give it a larger one (serve --store-bytes and --store-images, TargetBuilder::store_capacity)"
    )]
    StoreFull {
        /// Name of the ifunc.
        ifunc: String,
        /// Images held.
        images: usize,
        /// Their length together, in bytes.
        bytes: usize,
    },
    /// Code that is to run in place, and has statics.
    #[error(
        "the target refused `{ifunc}`: it has {len} bytes of writable statics, which have no place in the mailbox; send \
         it in mode cached or always"
    )]
    Statics {
        /// Name of the ifunc.
        ifunc: String,
        /// Length of the image's span 2, in bytes.
        len: usize,
    },
    /// Code that is to run in place, and does not lie as it asks.
    #[error(
        "the target refused `{ifunc}`: its code came at an address that is not a multiple of {align}, which it needs \
         to run in place"
    )]
    Misplaced {
        /// Name of the ifunc.
        ifunc: String,
        /// Alignment that it needs, in bytes.
        align: u64,
    },
    /// The arena cannot be used.
    #[error("the target refused `{ifunc}`: {source}")]
    Arena {
        /// Name of the ifunc.
        ifunc: String,
        /// Why.
        source: Error,
    },
}

struct DidYouMean<'a>(&'a Option<String>);

impl std::fmt::Display for DidYouMean<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(name) => write!(out, "; did you mean {name}?"),
            None => Ok(()),
        }
    }
}
