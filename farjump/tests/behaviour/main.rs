//! Guarantees of links and targets over shared memory: within one process, and between processes that are
//! stopped and killed.

mod actor;
mod asking;
mod calling;
mod code;
mod crashing;
mod double;
mod dying;
mod embedded;
mod evicting;
mod exporting;
mod forking;
mod forwarding;
mod fuzzed;
mod in_place;
mod isolated;
mod keyed;
mod large;
mod lower_floor;
mod lying;
mod misled;
mod modes;
mod opening;
mod panicking;
mod payloads;
mod policy;
mod raw;
mod rights;
mod serving;
mod sleeping;
mod spoilt;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod together;
