//! Tests of the endpoints that the transports make: against the contract, against each other and against foreign
//! processes.

mod memory;
#[cfg(feature = "ucx")]
mod strangers;
#[cfg(feature = "ucx")]
mod ucx;
#[cfg(feature = "ucx")]
mod ucx_addresses;
