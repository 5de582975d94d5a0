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
