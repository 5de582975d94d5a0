//! What links and targets promise, over shared memory: within one process, and between processes that are stopped and killed.

#![cfg(all(feature = "shm", feature = "build"))]

mod calling;
mod code;
mod payloads;
#[path = "../support/mod.rs"]
mod support;
