//! Posts of this process to RDMA devices for its messages, counted when posted: the machine's load does not
//! matter.

/// Posts and completions of a message, on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::perf) struct Posted {
    /// Lists of work requests.
    pub(in crate::perf) posts: f64,
    /// Work requests.
    pub(in crate::perf) requests: f64,
    /// Bytes in them.
    pub(in crate::perf) bytes: f64,
    /// Completions taken of them.
    pub(in crate::perf) completions: f64,
}

/// The counters.
#[cfg(feature = "verbs")]
pub(in crate::perf) type Counts = farjump_transports::verbs::Counts;
/// The counters: none, as there are no devices.
#[cfg(not(feature = "verbs"))]
pub(in crate::perf) struct Counts;

#[cfg(feature = "verbs")]
pub(in crate::perf) fn counts() -> Counts {
    farjump_transports::verbs::counts()
}

#[cfg(not(feature = "verbs"))]
pub(in crate::perf) fn counts() -> Counts {
    Counts
}

/// Returns the posts since `before` for each of so many messages; `None` if there were none.
#[cfg(feature = "verbs")]
pub(in crate::perf) fn since(before: Counts, messages: u64) -> Option<Posted> {
    let counted = counts().since(before);
    let each = |count: u64| count as f64 / messages.max(1) as f64;
    (counted.posts != 0).then(|| Posted {
        posts: each(counted.posts),
        requests: each(counted.requests),
        bytes: each(counted.bytes),
        completions: each(counted.completions),
    })
}

/// Returns the posts since `before` for each of so many messages: none.
#[cfg(not(feature = "verbs"))]
pub(in crate::perf) fn since(_before: Counts, _messages: u64) -> Option<Posted> {
    None
}
