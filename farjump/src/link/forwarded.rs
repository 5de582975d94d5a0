//! Forwarded calls, and images for other machines.

use std::fmt;
use std::sync::Arc;

use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::LinkedImage;

/// A manifest or an image that a target requests from a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    Manifest(FamilyId),
    Code(CodeId),
}

impl fmt::Display for Wanted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Manifest(family) => write!(out, "the manifest of family {family}"),
            Wanted::Code(id) => write!(out, "code {id}"),
        }
    }
}

/// An image for another machine, on its way through this one.
#[derive(Debug)]
pub(crate) struct PassedImage {
    id: CodeId,
    bytes: Box<[u8]>,
}

impl PassedImage {
    /// `id` is the hash of `bytes`.
    pub(crate) fn new(id: CodeId, bytes: Vec<u8>) -> PassedImage {
        PassedImage { id, bytes: bytes.into() }
    }

    pub(crate) fn id(&self) -> CodeId {
        self.id
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The image by which stored code travels to a destination.
#[derive(Clone, Copy)]
pub(crate) enum Image<'a> {
    /// The one with this code index, which the destination has bound.
    Bound(u16),
    /// That of the code itself.
    Own,
    /// Another one of its family that is stored here.
    Stored(&'a Arc<LinkedImage>),
    /// Another one of its family.
    Passed(&'a Arc<PassedImage>),
}

/// A call to be forwarded.
pub(crate) struct Forwarded<'a> {
    pub(crate) linked: &'a Arc<LinkedImage>,
    pub(crate) family: Option<&'a FamilyId>,
    /// With its [`Passage`](farjump_core::frame::Passage) behind it.
    pub(crate) payload: &'a [u8],
    pub(crate) wants_reply: bool,
}
