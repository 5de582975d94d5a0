//! `farjump perf` as a library, and the parts of the program `farjump` that it takes.
//!
//! [`perf`] runs inside the program `farjump` alone: it starts that program again, as the second process of a measurement
//! and to build functions.

#[cfg(feature = "build")]
pub mod perf;
pub mod program;
