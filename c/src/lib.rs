//! farjump for C and C++: the functions of `include/farjump.h`, over the Rust library.
//!
//! [`api`] is the header: cbindgen makes `include/farjump.h` of it, docs included. `boundary` stops panics,
//! and `failure` turns errors into a status and a text. `docs/design/hosts.md` has the reasons.
//!
//! `ucp_ifunc` is the papers' own interface, `include/ucp_ifunc.h`, which is written by hand
//! (`docs/guide/ucp-ifunc.md`).

pub mod api;
#[cfg(feature = "ucx")]
mod ucp_ifunc;
