#![doc = include_str!("../README.md")]
//!
//! # Backends
//! Each backend is a folder with its own feature and implements the contract in [`farjump_core::transport`].
//! [`available`] lists all backends, whether or not this build contains them.

mod choice;
mod error;
#[cfg(any(feature = "shm", feature = "ucx", feature = "verbs"))]
mod executable_alias;
#[cfg(any(feature = "shm", feature = "tcp", feature = "ucx", feature = "verbs"))]
mod fork;
#[cfg(any(feature = "shm", feature = "ucx"))]
mod membarrier;
#[cfg(any(feature = "ucx", feature = "verbs"))]
mod read_memory;
#[cfg(any(feature = "shm", feature = "ucx", feature = "verbs"))]
mod region_len;
mod registry;
#[cfg(feature = "shm")]
pub mod shm;
#[cfg(feature = "tcp")]
pub mod tcp;
#[cfg(feature = "ucx")]
pub mod ucx;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use choice::{Destination, transports_for};
pub use error::Error;
pub use registry::{
    BackendOptions, Chosen, TransportInfo, available, available_with, check_name, is_preferred, locks_memory,
    make, make_all, make_usable, make_with, meant, preferred,
};
