//! Waits on a link: by threads that share it, by tasks, and in event loops.

pub(super) mod abandoned;
pub(super) mod awaiting;
pub(super) mod driver;
pub(super) mod epoll;
pub(super) mod patience;
pub(super) mod shared;
pub(super) mod shared_calls;
pub(super) mod sleepers;
pub(super) mod tasks;
pub(super) mod threads;
#[cfg(feature = "tokio")]
pub(super) mod tokio;
pub(super) mod users;
pub(super) mod wake;
