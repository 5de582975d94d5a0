//! Admin requests: a process connects, sends one request, and makes no link.

pub(crate) mod connection;
pub(crate) mod messages;
pub(crate) mod objects;
