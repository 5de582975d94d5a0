//! Statistics of a target.

use std::time::Duration;

use farjump_control::RefusalCause;

/// Counters of a target since it was built.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Calls made.
    pub calls: u64,
    /// Of those, calls that were forwarded to a destination.
    pub forwarded: u64,
    /// Frames taken: calls, refused or not, each call of a batch counted; and flush requests.
    pub frames: u64,
    /// Bytes that they took in their mailboxes: headers, code, payload, and unused bytes between them.
    pub bytes: u64,
    /// Bytes of frames for which checksums were computed: none except under the arrival rule `checked`, where one look
    /// covers 16 KiB at most.
    pub summed: u64,
    /// Images placed.
    pub images_linked: u64,
    /// Time spent placing images.
    pub link_time: Duration,
    /// Links made.
    pub links: u64,
    /// Links that ended.
    pub links_ended: u64,
    /// Processes rejected because the target had its maximum of sources.
    pub sources_refused: u64,
    /// The code store, now.
    pub store: StoreStats,
    /// Polls that found a frame which then waited for code; later polls find it again.
    pub(crate) waited: u64,
    refusals: [u64; RefusalCause::count()],
}

/// A target's code store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Images stored.
    pub images: usize,
    /// Their length as they travelled, together, in bytes.
    pub bytes: usize,
    /// Images dropped to make space for others.
    pub evictions: u64,
    /// Most images that it can hold.
    pub capacity_images: usize,
    /// Most bytes of images that it can hold.
    pub capacity_bytes: usize,
    /// Capacity for placed code that is in use, in bytes.
    pub arena_used: usize,
    /// Capacity for placed code, in bytes.
    pub arena_capacity: usize,
}

impl Default for Stats {
    fn default() -> Self {
        Stats {
            calls: 0,
            forwarded: 0,
            frames: 0,
            bytes: 0,
            summed: 0,
            images_linked: 0,
            link_time: Duration::ZERO,
            links: 0,
            links_ended: 0,
            sources_refused: 0,
            store: StoreStats::default(),
            waited: 0,
            refusals: [0; RefusalCause::count()],
        }
    }
}

impl Stats {
    /// Frames refused for `cause`.
    pub fn refused(&self, cause: RefusalCause) -> u64 {
        self.refusals[cause.index()]
    }

    /// Frames refused, whatever the cause.
    pub fn refusals(&self) -> u64 {
        self.refusals.iter().sum()
    }

    pub(crate) fn refuse(&mut self, cause: RefusalCause) {
        self.refusals[cause.index()] += 1;
    }

    pub(crate) fn linked(&mut self, time: Duration) {
        self.images_linked += 1;
        self.link_time += time;
    }
}
