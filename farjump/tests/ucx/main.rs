//! Guarantees of links over every path: UCX's, `tcp` and `shm`. Long payloads, peers that die, sleep, and
//! UCX's own settings.
//!
//! UCX reads its settings once in a process, so each test runs on every path in processes of its own (`paths.rs`).

mod event_loop;
mod fork;
#[path = "../links/helper.rs"]
mod helper;
mod idle;
mod large;
mod paths;
mod peer_death;
mod settings;
#[path = "../support/mod.rs"]
mod support;
