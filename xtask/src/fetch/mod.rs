//! Packages of Debian, Python and servers that tests need.

pub(crate) mod debs;
pub(crate) mod packages;
pub(crate) mod servers;
pub(crate) mod wheels;
pub(crate) mod whole;
