//! The target: what it polls, admits, answers and ends.

pub(super) mod admin;
pub(super) mod builder;
#[cfg(feature = "bitcode")]
pub(super) mod compiler;
pub(super) mod connections;
#[cfg(test)]
pub(super) mod domain_tests;
pub(super) mod end_links;
pub(super) mod key_changes;
pub(super) mod own_calls;
pub(super) mod poll;
pub(super) mod sleep;
pub(super) mod store_work;
pub(super) mod thread;
#[cfg(feature = "tokio")]
pub(super) mod tokio;
