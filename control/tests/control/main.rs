//! Two processes connect, lie, stall and die, in one process and in several.

mod admin;
mod closing;
mod connection;
mod handshake;
mod hostile_peers;
mod listening;
mod namespaces;
mod noise;
mod processes;
mod streams;
mod tcp;
mod wiped;

/// The likely cause of a target's silence, and the remedy: the end of an error.
const LONG_FUNCTION: &str =
    ", perhaps because it runs a long function, and answers when that has returned: wait longer";
