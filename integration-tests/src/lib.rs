#![doc = include_str!("../README.md")]
//!
//! # Modules
//! | module | about |
//! |---|---|
//! | [`conformance`] | the requirements for every transport: one suite |
//! | [`fakes`] | a transport of each family, in one process, as bad as the contract allows |
//! | [`middleware`] | transports around a transport: to trace, to count, to inject faults |
//! | [`connect`] | two connected endpoints in one process |
//! | [`simulated_wire`] | the mover of bytes under the one-sided fake and the tests of channels |
//! | `strangers` | programs that safe code must not be able to be: documentation only |

pub mod conformance;
pub mod connect;
pub mod fakes;
pub mod middleware;
pub mod simulated_wire;
#[cfg(any(doc, doctest))]
mod strangers;
