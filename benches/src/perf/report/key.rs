//! Names of the parameters and further figures of rows.

use serde::Serialize;

/// A parameter or a further figure of a row; docs/reference/perf.md defines each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::perf) enum Key {
    Function,
    Form,
    Transport,
    Mode,
    Image,
    Arrival,
    Lane,
    Shards,
    ShardsIn,
    Table,
    Depth,
    Outstanding,
    Sources,
    Size,
    FrameBytes,
    Iterations,
    Batch,
    Warm,
    TargetSleeps,
    Ring,
    Slot,
    WireUs,
    WireGbS,
    ReferenceLane,
    ReferenceTrips,
    AheadFrom,
    Agrees,
    Messages,
    ReferenceMessages,
    ModelUs,
    ReferenceModelUs,
    CpuNsTarget,
    CpuNsSource,
    PeerBytes,
    MailboxBytes,
    Sleeps,
    Posts,
    Requests,
    PostedBytes,
    Completions,
}
