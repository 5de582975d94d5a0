//! Guarantees of links over UCX, and over `tcp`: long payloads, peers that die, sleep, and UCX's own
//! settings.
//!
//! UCX reads its settings once a process, so each test runs on every path in processes of its own
//! (`paths.rs`).

#[path = "../behaviour/actor.rs"]
mod actor;
#[path = "../behaviour/double.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod double;
mod dropping;
mod dying;
mod embedded;
mod idle;
mod large;
mod paths;
mod settings;
#[path = "../support/mod.rs"]
mod support;
