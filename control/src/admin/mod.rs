//! Admin requests: a process connects, asks one question, and makes no link.

pub(crate) mod connection;
pub(crate) mod messages;
