#![doc = include_str!("../README.md")]
//!
//! # Bindings
//! [`Verbs::open`] loads `libibverbs.so.1` of rdma-core. Its functions have the names, types and rules of
//! `infiniband/verbs.h` of rdma-core 44. Building needs no rdma-core; without it, an error names the missing library
//! and its package. `docs/design/verbs.md` has the reasons against the published crates.
//!
//! The header's inline functions and macros are here too, under the same names. [`ibv_post_send`],
//! [`ibv_poll_cq`] and others go through the operations table of the device's context and call no library.
//! The header also wraps [`Verbs::query_port`] and [`Verbs::query_gid_ex`].

// Made by bindgen from the header, which documents every name; `tests/bindings.rs` compares.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    dead_code,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]
#[rustfmt::skip]
mod bindings;
mod forked;
mod inline;
mod open;

pub use bindings::*;
pub use forked::end_in_child;
pub use inline::{ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_req_notify_cq};
pub use open::{DataInOrder, OpenError, Optional, Verbs};
