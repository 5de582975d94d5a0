#![doc = include_str!("../README.md")]
//!
//! # Contents
//! | item | about |
//! |---|---|
//! | [`cpu::detected`] | the CPU that this process runs on |
//! | [`deferred_close`] | closes descriptors whose close(2) may block, in threads of its own |
//! | [`forked_children`] | checks for living children of this process |
//! | [`fork_count`] | the number of forks, by which a child recognises its parent's values |
//! | [`Owner`] | the process that made a value, which a forked child compares with itself |
//! | [`PerProcess`] | a value that a forked child makes anew |
//! | [`open_without_waiting`] | opens a file without waiting for a pipe's writer |
//! | [`installed`] | finds a program of farjump's, and checks the users that could have put it there |
//! | [`memfd`] | makes memory with a descriptor |
//! | [`has_ordinary_pages`] | checks that memory of another process is reliable |
//! | [`limits`] | names the limit of the process behind a failed call |
//! | [`overflow_uid`] | the id of users that are not known here |
//! | [`temporary`] | the folder for temporary files, and its faults |
//! | [`resources`] | the memory and processors that this process may use |
//! | [`scrubbed`] | clears the stack behind work with keys |

#![deny(missing_docs)]

pub mod cpu;
pub mod deferred_close;
pub mod fork_count;
pub mod forked_children;
pub mod installed;
pub mod limits;
mod memfd;
mod open;
mod owner;
mod per_process;
pub mod resources;
mod scrub;
pub mod temporary;
mod unknown_ids;

pub use memfd::{TMPFS, has_ordinary_pages, memfd};
pub use open::open_without_waiting;
pub use owner::Owner;
pub use per_process::PerProcess;
pub use scrub::scrubbed;
pub use unknown_ids::overflow_uid;
