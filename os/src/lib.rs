//! Services of one process that control connections and backends share.
//!
//! | item | about |
//! |---|---|
//! | [`deferred_close`] | closes descriptors whose close(2) may block, in threads of its own |
//! | [`PerProcess`] | a value that a forked child makes anew |
//! | [`scrubbed`] | clears the stack behind work with keys |
//!
//! A part of the `farjump` crate, with no stable interface of its own.

#![deny(missing_docs)]

pub mod deferred_close;
mod per_process;
mod scrub;

pub use per_process::PerProcess;
pub use scrub::scrubbed;
