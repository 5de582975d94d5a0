//! The Python package: its wheel, its tests on the interpreters that this machine has, and ProxyStore's own tests.

mod interpreters;
mod proxystore;
mod tests;
mod wheel;

pub(crate) use proxystore::all as proxystore;
pub(crate) use tests::{all, build};
pub(crate) use wheel::{Options, run};
