//! Descriptions of stored code, for people and programs.

use std::time::Duration;

use farjump_core::image::CodeId;
use farjump_loader::LinkedImage;

/// One image in a target's store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoredImage {
    /// Its code id.
    pub id: CodeId,
    /// The name under which it first came.
    pub name: String,
    /// Length of the image in bytes.
    pub bytes: usize,
    /// Time taken to place it.
    pub link_time: Duration,
    /// Calls of it.
    pub calls: u64,
    /// Total time of these calls. Of short ones only some are timed: an estimate.
    pub time: Duration,
    /// Time since its last call; since it came, if it was never called.
    pub last_use: Duration,
    /// The program that brought it first, and its process id; text for people.
    pub source: String,
}

impl StoredImage {
    /// `now` is the time in nanoseconds by the clock that stamps calls.
    pub(crate) fn of(linked: &LinkedImage, now: u64) -> Self {
        let usage = linked.usage();
        StoredImage {
            id: linked.id(),
            name: linked.name().to_owned(),
            bytes: linked.image().len(),
            link_time: linked.link_time(),
            calls: usage.calls(),
            time: usage.time(),
            last_use: Duration::from_nanos(now.saturating_sub(usage.last())),
            source: linked.origin().to_owned(),
        }
    }
}
