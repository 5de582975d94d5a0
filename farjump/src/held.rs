//! Code that a target holds, as told to people.

use std::time::Duration;

use farjump_core::image::CodeId;
use farjump_loader::Linked;

/// One image in a target's store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HeldImage {
    /// Its identity.
    pub id: CodeId,
    /// The name under which it first came.
    pub name: String,
    /// Length of the image in bytes.
    pub bytes: usize,
    /// How long placing it took.
    pub link_time: Duration,
}

impl HeldImage {
    pub(crate) fn of(linked: &Linked) -> Self {
        HeldImage {
            id: linked.id(),
            name: linked.name().to_owned(),
            bytes: linked.image().len(),
            link_time: linked.link_time(),
        }
    }
}
