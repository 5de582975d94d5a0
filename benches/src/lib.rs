//! The program `farjump-perf` as a library.
//!
//! [`perf`] runs only inside that program: it starts its own file again, as the second process of a measurement and to
//! build functions. [`rounds`] works alone.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `shm` (default) | the transport for processes of one machine |
//! | `tcp` (default) | the transport over a stream between any two machines |
//! | `ucx` (default) | the transports over UCX, and references over it |
//! | `verbs` (default) | the transports over RDMA devices through verbs |
//! | `build` (default) | the program `farjump-perf`, which builds the functions that it calls |
//! | `bitcode` | targets of `perf tsi` and `perf chase` that take bitcode |
//! | `iceoryx2` | iceoryx2 as a reference of `perf`, with `build`; it has many dependencies |
//! | `in-process` (default) | the programs `farjump-benches` and `farjump_guard`, with all transports |

#[cfg(feature = "build")]
pub mod perf;
pub mod rounds;

#[cfg(feature = "build")]
use farjump_cli::program;
