//! What proves farjump from outside: transports that are only there for tests, and what runs over them.
//!
//! | module | about |
//! |---|---|
//! | [`conformance`] | what every transport has to stand: one suite, for any transport |
//! | [`fakes`] | a transport of each family, inside one process, that does its worst within the contract |
//! | [`middleware`] | transports that wrap a transport: to trace, to count, to go wrong on purpose |
//! | [`pair`] | two connected ends in one process |
//! | `strangers` | programs that safe code must not be able to be: documentation alone |

pub mod conformance;
pub mod fakes;
pub mod middleware;
pub mod pair;
#[cfg(any(doc, doctest))]
mod strangers;
