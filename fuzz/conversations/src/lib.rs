//! The stateful fuzzer: whole conversations with a target, and with a source, made from a seed.
//!
//! A conversation is a list of typed steps ([`step::Step`]), most of them such as honest sources and targets take, some changed. A hostile
//! end carries them out with messages, frames, descriptors and memory of its own making. Beside it an honest link calls a function that
//! nobody else calls: it loses no call, and none runs twice. What is asserted besides is said in `fuzz/README.md`.

#![deny(missing_docs)]

pub mod burst;
pub mod descriptors;
pub mod functions;
pub mod hostile;
pub mod misled;
pub mod spoken;
pub mod stage;
pub mod step;
pub mod streams;
pub mod ways;
pub mod wire;
