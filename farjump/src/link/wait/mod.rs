//! Waits on a link: by threads that share it, by tasks, and in event loops.

pub(super) mod awaiting;
pub(super) mod epoll;
pub(super) mod shared;
pub(super) mod tasks;
#[cfg(feature = "tokio")]
pub(super) mod tokio;
