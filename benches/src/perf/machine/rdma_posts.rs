//! Posts of this process to RDMA devices for its messages, counted when posted: the machine's load does not
//! matter.

use crate::perf::report::key::Key;

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

/// Returns posts, work requests, their bytes, and completions since `before` for each of so many messages; nothing if
/// there were no posts.
#[cfg(feature = "verbs")]
pub(in crate::perf) fn since(before: Counts, messages: u64) -> Vec<(Key, f64)> {
    let counted = counts().since(before);
    let each = |count: u64| count as f64 / messages.max(1) as f64;
    let all = [
        (Key::Posts, counted.posts),
        (Key::Requests, counted.requests),
        (Key::PostedBytes, counted.bytes),
        (Key::Completions, counted.completions),
    ];
    all.into_iter().filter(|_| counted.posts != 0).map(|(key, count)| (key, each(count))).collect()
}

/// Returns the posts since `before` for each of so many messages: none.
#[cfg(not(feature = "verbs"))]
pub(in crate::perf) fn since(_before: Counts, _messages: u64) -> Vec<(Key, f64)> {
    Vec::new()
}
