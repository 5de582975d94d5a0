#![doc = include_str!("../README.md")]
//!
//! # Modules
//! [`client`] is the target's part, [`protocol`] the messages between the two, and `program` (feature
//! `program`) the program.

#![deny(missing_docs)]

pub mod client;
mod find;
#[cfg(feature = "program")]
pub mod program;
pub mod protocol;

pub use client::{Compiled, Compiler, Done, Failed, Options};
pub use find::{NotFound, Program};
