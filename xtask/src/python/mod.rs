//! The Python package: its wheel, and its tests on the interpreters that this machine has.

mod tests;
mod wheel;

pub(crate) use tests::{all, build};
pub(crate) use wheel::{Options, run};
