#![doc = include_str!("../README.md")]
//!
//! # The library
//!
//! The parts of `farjump` that the program behind `farjump perf` has, too. It is for these two programs, and promises
//! nothing to others.
//!
//! ```
//! use farjump_cli::program::units::{parse_bytes, show_limit};
//!
//! assert_eq!(parse_bytes("64M"), Ok(64 << 20));
//! assert_eq!(show_limit(64 << 20), "64 MiB");
//! ```

#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "build")]
pub mod inspect;
pub mod program;
pub mod query_link;
