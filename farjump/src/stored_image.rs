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
    /// Calls of it.
    pub calls: u64,
    /// What these calls took together. Of short ones only some are timed: an estimate.
    pub time: Duration,
    /// How long ago it was called last; since it came, if it never was.
    pub last_use: Duration,
    /// The program that brought it first, and its process id; words for people.
    pub source: String,
}

impl HeldImage {
    /// `now` is the time by the clock that stamps calls, in nanoseconds.
    pub(crate) fn of(linked: &Linked, now: u64) -> Self {
        let usage = linked.usage();
        HeldImage {
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
