//! The state of an exchange, for users.

use farjump_control::plain;
use farjump_core::image::CodeId;
use farjump_loader::{Library, LibraryImage};

use super::State;
use crate::Refusal;

/// The image that a link compiles for its target's CPU in place of the one that a library carries, see
/// [`Link::compiled_image`](super::super::Link::compiled_image).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CompiledImage {
    /// Nothing is compiled: the link was not built for it, or the library was not called on it in mode cached.
    NotRequested,
    /// The compiler works, or has not begun.
    Compiling,
    /// The image with this id is compiled. Calls run it once the target has it.
    Compiled(CodeId),
    /// Calls run the image with this id.
    InUse(CodeId),
    /// Calls run the image that the library carries, and keep doing so.
    Kept(KeptCause),
}

impl From<&State> for CompiledImage {
    fn from(state: &State) -> CompiledImage {
        match state {
            State::Compiling(_) => CompiledImage::Compiling,
            State::Compiled(image) | State::Offered(image, ..) => CompiledImage::Compiled(image.id()),
            State::InUse(image, _) => CompiledImage::InUse(image.id()),
            State::Kept(cause) => CompiledImage::Kept(cause.clone()),
        }
    }
}

/// The reason why calls run the image that a library carries.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptCause {
    /// There is nothing to compile.
    #[error("the library carries no source: build it with its source (Options::carry_source)")]
    NoSource,
    /// A second image would begin with variables of its own.
    #[error("its code has writable variables, which would begin anew in another image")]
    Statics,
    /// The library was built for this CPU.
    #[error("the library carries an image for exactly this CPU")]
    CarriesOne,
    /// This source has no right to bring code to the target.
    #[error("this source may not bring code to the target")]
    MayNotBring,
    /// The compiler requires another alignment of the payload.
    #[error("the compiled image aligns the payload in another way than the one that the library carries")]
    PayloadAlignment,
    /// The image was not compiled.
    #[error("{text}")]
    NotCompiled {
        /// The reason: no compiler, its messages, the time limit.
        text: String,
    },
    /// The image is longer than the target or the link takes.
    #[error("the compiled image has {len} bytes, and the link takes {max}")]
    TooLong {
        /// Bytes of the image, or of the frame that would bring it.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The link has too many functions.
    #[error("the link has no code index left")]
    NoIndex,
    /// The target refused the image.
    #[error("the target refused the compiled image: {}", .0.text)]
    Refused(Refusal),
    /// The link ended meanwhile.
    #[error("the link ended before the target held the compiled image")]
    LinkEnded,
}

impl KeptCause {
    /// The reason not to compile in place of `carried`, if there is one.
    pub(super) fn of(library: &Library, carried: &LibraryImage, may_bring: bool) -> Option<KeptCause> {
        if carried.platform().is_none() {
            Some(KeptCause::CarriesOne)
        } else if carried.span2_len() != 0 {
            Some(KeptCause::Statics)
        } else if library.source().is_none() {
            Some(KeptCause::NoSource)
        } else {
            (!may_bring).then_some(KeptCause::MayNotBring)
        }
    }

    /// Returns the cause for an image that was not compiled for this reason. Compilers quote sources, so this makes its
    /// lines safe for terminals.
    pub(super) fn not_compiled(why: &str) -> KeptCause {
        const MAX_TEXT: usize = 4096;
        let lines: Vec<_> = why.lines().map(|line| plain(line, MAX_TEXT)).collect();
        KeptCause::NotCompiled { text: lines.join("\n") }
    }
}
