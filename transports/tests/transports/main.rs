//! Two sides meet, lie, stall and die, in one process and in several.

mod asking;
mod closing;
mod control;
mod liars;
mod listening;
mod meeting;
mod memory;
mod namespaces;
mod players;
mod processes;
mod seal;
mod stage;
#[cfg(feature = "ucx")]
mod strangers;
mod streams;
mod tcp;
#[cfg(feature = "ucx")]
mod ucx;
#[cfg(feature = "ucx")]
mod ucx_addresses;
mod wiped;
