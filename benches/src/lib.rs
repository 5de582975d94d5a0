//! `farjump perf` as a library, and the parts of the program `farjump` that it needs.
//!
//! [`perf`] runs only inside the program `farjump`: it starts that program again, as the second process of a
//! measurement and to build functions.

#[cfg(feature = "build")]
pub mod perf;
pub mod program;
