//! What this process gives RDMA devices for the messages that it sends: counted where it is posted, and the same whatever the
//! machine does meanwhile.

/// What was posted and completed for a message, on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Posted {
    /// Lists of work requests.
    pub(super) posts: f64,
    /// Work requests.
    pub(super) requests: f64,
    /// Completions of them that were taken.
    pub(super) completions: f64,
}

/// All that was counted so far.
#[cfg(feature = "verbs")]
pub(super) type Counts = farjump_transports::verbs::Counts;
/// All that was counted so far: nothing, for there are no devices.
#[cfg(not(feature = "verbs"))]
pub(super) struct Counts;

/// What was counted until now.
#[cfg(feature = "verbs")]
pub(super) fn counts() -> Counts {
    farjump_transports::verbs::counts()
}

/// What was counted until now.
#[cfg(not(feature = "verbs"))]
pub(super) fn counts() -> Counts {
    Counts
}

/// What was posted since `before` for each of so many messages; `None` if nothing was.
#[cfg(feature = "verbs")]
pub(super) fn since(before: Counts, messages: u64) -> Option<Posted> {
    let counted = counts().since(before);
    let each = |count: u64| count as f64 / messages.max(1) as f64;
    (counted.posts != 0).then(|| Posted {
        posts: each(counted.posts),
        requests: each(counted.requests),
        completions: each(counted.completions),
    })
}

/// What was posted since `before` for each of so many messages: nothing.
#[cfg(not(feature = "verbs"))]
pub(super) fn since(_before: Counts, _messages: u64) -> Option<Posted> {
    None
}
