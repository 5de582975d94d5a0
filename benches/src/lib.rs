//! `farjump perf` as a library, and the parts of the program `farjump` that it needs.
//!
//! [`perf`] runs only inside the program `farjump`: it starts that program again, as the second process of a
//! measurement and to build functions. [`program`] works alone:
//!
//! ```
//! use farjump_benches::program::units::{parse_bytes, show_limit};
//!
//! assert_eq!(parse_bytes("64M"), Ok(64 << 20));
//! assert_eq!(show_limit(64 << 20), "64 MiB");
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `shm` (default) | the transport for processes of one machine |
//! | `tcp` (default) | the transport over a stream between any two machines |
//! | `ucx` (default) | the transports over UCX, and references over it |
//! | `verbs` (default) | the transports over RDMA devices through verbs |
//! | `build` (default) | `perf`, which builds the functions that it calls |
//! | `bitcode` | targets of `perf tsi` and `perf chase` that take bitcode |
//! | `iceoryx2` | iceoryx2 as a reference of `perf`, with `build`; it has many dependencies |
//! | `in-process` (default) | the programs `farjump-benches` and `farjump_guard`, with all transports |

#[cfg(feature = "build")]
pub mod perf;
pub mod program;
