//! The stateful fuzzer: whole conversations with a target, and with a source, made from a seed.
//!
//! A conversation is a list of typed steps ([`step::Step`]), most of them like those of honest sources and targets,
//! some changed. A hostile peer executes them with messages, frames, descriptors and memory of its own making. Beside
//! it an honest link calls a function that no other link calls: it loses no call, and none runs twice.
//!
//! Two further kinds are about things that last longer than a call. [`errands`] is about calls that run later, and
//! their principals. [`stores`] is about memory that several processes map. `fuzz/README.md` lists the other
//! assertions.

#![deny(missing_docs)]

mod alongside;
pub mod burst;
pub mod conversation;
pub mod descriptors;
pub mod errands;
pub mod functions;
pub mod hostile;
pub mod messages;
pub mod misled;
pub mod step;
pub mod stores;
pub mod transports;
pub mod wire;
