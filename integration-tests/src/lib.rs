//! What proves farjump from outside: transports that are only there for tests, and what runs over them.
//!
//! | module | about |
//! |---|---|
//! | [`fakes`] | a transport of each family, inside one process, that does its worst within the contract |
//! | [`pair`] | two connected ends in one process |

pub mod fakes;
pub mod pair;
