#![doc = include_str!("../README.md")]
//!
//! # Bindings
//! [`Ucx::open`] loads `libucp.so.0`, or the file that `FARJUMP_UCX` names. Its functions have the names,
//! types and rules of UCX's own header `ucp/api/ucp.h` of 1.13. Building needs no UCX; without it, an error names the
//! missing library and its package. `docs/design/ucx.md` has the reasons against the published crates.
//!
//! The header's macros and inline functions are here too, under the same names: [`UCS_PTR_IS_ERR`],
//! [`UCS_PTR_IS_PTR`], [`UCS_PTR_STATUS`], [`ucp_dt_make_contig`], [`Ucx::ucp_init`].

// Made by bindgen from UCX's header, which documents every name; `tests/bindings.rs` compares.
#[allow(
    missing_docs,
    non_camel_case_types,
    clippy::all,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]
#[rustfmt::skip]
mod bindings;
mod forked;
mod inline;
mod log;
mod memory_events;
mod named;
mod open;
mod open_error;

pub use bindings::*;
pub use inline::{UCS_PTR_IS_ERR, UCS_PTR_IS_PTR, UCS_PTR_STATUS, ucp_dt_make_contig};
pub use open::Ucx;
pub use open_error::{OpenError, Version};

/// The API version of the bindings, and of the oldest library that works with them.
pub const API: (u32, u32) = (1, 13);

/// The newest version that was tested with farjump.
pub const NEWEST: (u32, u32) = (1, 22);

/// The library's file. Its number is the version of UCX's binary interface, the same since 1.0.
const FILE: &str = "libucp.so.0";
