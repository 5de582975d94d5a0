//! The reasons why a target refuses code, in words for the source's user.

use std::sync::Arc;

use farjump_core::counted;
use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, ImageError, ImageView, Platform};

use crate::error::Error;
use crate::resolve::import_causes::MissingImports;

/// The reason why code was not linked. The text is a whole sentence that names the ifunc, the refusal, its cause and a
/// remedy. It travels to the source unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A name that no ifunc can have.
    #[error(
        "the target refused code named {name:?}: an ifunc's name is a C identifier of at most 255 characters"
    )]
    Name {
        /// The start of the received name.
        name: String,
    },
    /// The bytes are no image, or a damaged one.
    #[error("the target refused `{ifunc}`: {source}")]
    BadImage {
        /// Name of the ifunc.
        ifunc: String,
        /// The damage.
        source: ImageError,
    },
    /// The bytes do not have the claimed code id.
    #[error(
        "the target refused `{ifunc}`: its code is {found}, but came as {claimed}; it was damaged on the way or \
         changed while it was read"
    )]
    IdMismatch {
        /// Name of the ifunc.
        ifunc: String,
        /// Claimed code id.
        claimed: CodeId,
        /// Code id of the bytes.
        found: CodeId,
    },
    /// Code for another machine, or for a CPU level that the target's CPU does not have.
    #[error(
        "the target refused `{ifunc}`: the code is for {image} and the target runs on {target}; send the image for \
         that machine, or build one"
    )]
    WrongMachine {
        /// Name of the ifunc.
        ifunc: String,
        /// The platform that the code was linked for.
        image: Platform,
        /// The target's machine and CPU level.
        target: Platform,
    },
    /// Code compiled for one CPU, with instructions that the target's CPU does not have.
    #[error(
        "the target refused `{ifunc}`: the code needs {missing}, which the target's CPU ({target}) does not have; send \
         the image for its level, or build one for this target (farjump build --for-peer)"
    )]
    MissingFeatures {
        /// Name of the ifunc.
        ifunc: String,
        /// The first of the missing features, with the number of all if there are more.
        missing: String,
        /// The target's machine and CPU level.
        target: Platform,
    },
    /// The target's machine is one on which farjump cannot run injected code.
    #[error("the target refused `{ifunc}`: {reason}")]
    UnsupportedMachine {
        /// Name of the ifunc.
        ifunc: String,
        /// The missing support.
        reason: &'static str,
    },
    /// Imports that the target does not offer.
    #[error(
        "the target refused `{ifunc}`: it {} (it offers {offered}{}).{}", missing.not_exported(),
        DidYouMean(suggestion, missing), missing.cures()
    )]
    UnresolvedImport {
        /// Name of the ifunc.
        ifunc: String,
        /// The imports.
        missing: Box<MissingImports>,
        /// One of them, and the export with the most similar name, if one is similar.
        suggestion: Option<Box<(String, String)>>,
        /// The target's offers, shortened if the list is long.
        offered: String,
    },
    /// Imports that the target does not offer, from wanted libraries that the target does not open.
    #[error(
        "the target refused `{ifunc}`: it imports {}, which the target does not offer, and wants {}, which the target \
         does not open: have the target open {} (TargetBuilder::wanted_library), or export what it needs{}",
        missing.names,
        libraries.join(" and "),
        if libraries.len() == 1 { "it" } else { "them" },
        missing.known_cures()
    )]
    WantedLibraries {
        /// Name of the ifunc.
        ifunc: String,
        /// The symbols that are not offered.
        missing: Box<MissingImports>,
        /// Sonames of the wanted libraries that the target does not open, ascending.
        libraries: Vec<String>,
    },
    /// Imports that the target does not offer, from a wanted library that the target may open but cannot.
    #[error("the target refused `{ifunc}`, which wants a library: {source}; install it at the target")]
    WantedUnopened {
        /// Name of the ifunc.
        ifunc: String,
        /// The error.
        source: Error,
    },
    /// No gap of the arena is long enough.
    #[error(
        "the target refused `{ifunc}`: its arena has no gap for {needed} bytes of code or data, the longest is {largest}; \
         have it drop code, or give it a larger arena"
    )]
    ArenaFull {
        /// Name of the ifunc.
        ifunc: String,
        /// Length of the longer of the image's two spans, in bytes.
        needed: usize,
        /// Length of the longest span that would fit, in bytes.
        largest: usize,
    },
    /// The image alone is longer than the store's capacity.
    #[error(
        "the target refused `{ifunc}`: its image of {len} bytes is larger than the {capacity} bytes that the target's \
         store holds; give it a larger one (TargetBuilder::store_bytes)"
    )]
    LargerThanStore {
        /// Name of the ifunc.
        ifunc: String,
        /// Length of the image, in bytes.
        len: usize,
        /// Capacity of the store, in bytes.
        capacity: usize,
    },
    /// The store is full of code that is in use.
    #[error(
        "the target refused `{ifunc}`: its store is full, with {} of {bytes} bytes; have it drop code, or give it a \
         larger one (TargetBuilder::store_bytes)",
        counted(*images, "image")
    )]
    StoreFull {
        /// Name of the ifunc.
        ifunc: String,
        /// Number of images in the store.
        images: usize,
        /// Their total length, in bytes.
        bytes: usize,
    },
    /// Code to run in place that has statics.
    #[error(
        "the target refused `{ifunc}`: it has {} of writable statics, for which a mailbox has no space; send it in \
         mode cached or always",
        counted(*len, "byte")
    )]
    Statics {
        /// Name of the ifunc.
        ifunc: String,
        /// Length of the image's span 2, in bytes.
        len: usize,
    },
    /// Code to run in place that is not aligned as it requests.
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
        /// The error.
        source: Error,
    },
}

struct DidYouMean<'a>(&'a Option<Box<(String, String)>>, &'a MissingImports);

impl std::fmt::Display for DidYouMean<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pair) if self.1.names.len() == 1 => write!(out, "; did you mean {}?", pair.1),
            Some(pair) => write!(out, "; did you mean {} by `{}`?", pair.1, pair.0),
            None => Ok(()),
        }
    }
}

/// Checks that a target whose CPU is `cpu`, of platform `target`, runs the code of an image.
///
/// # Errors
/// [`Refused::WrongMachine`] and [`Refused::MissingFeatures`].
pub(crate) fn check_cpu(
    view: &ImageView<'_>,
    name: &str,
    target: Platform,
    cpu: &Arc<Cpu>,
) -> Result<(), Refused> {
    match view.platform() {
        Some(image) if image.runs_on(target.machine, target.level) => Ok(()),
        Some(image) => Err(wrong_machine(name, image, target)),
        None => check_features(view, name, cpu),
    }
}

/// Checks the features of an image that names them.
#[cold]
fn check_features(view: &ImageView<'_>, name: &str, cpu: &Cpu) -> Result<(), Refused> {
    let target = cpu.platform();
    if view.machine() != target.machine {
        return Err(wrong_machine(name, Platform::baseline(view.machine()), target));
    }
    let mut lacked = cpu.lacks(view.features());
    let Some(first) = lacked.next() else { return Ok(()) };
    let missing = match lacked.count() {
        0 => format!("the CPU feature {first}"),
        more => format!("the CPU feature {first} and {more} more"),
    };
    Err(Refused::MissingFeatures { ifunc: name.to_owned(), missing, target })
}

#[cold]
fn wrong_machine(name: &str, image: Platform, target: Platform) -> Refused {
    Refused::WrongMachine { ifunc: name.to_owned(), image, target }
}
