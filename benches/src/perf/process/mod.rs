//! The processes of a measurement: their start, their orders and their places.

pub(super) mod child;
pub(super) mod child_main;
pub(super) mod child_protocol;
pub(super) mod counterpart;
pub(super) mod liveness;
pub(super) mod network_namespaces;
pub(super) mod orders;
pub(super) mod place;
pub(super) mod ports;
pub(super) mod shared_memory;
