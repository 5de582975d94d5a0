//! A transport over MPI's one-sided windows, and an MPI program that functions are injected into over it.
//!
//! It is an outsider's: farjump does not know MPI, and nothing here uses more than the contract in
//! `farjump_core::transport`.
//!
//! | file | about |
//! |---|---|
//! | `pool/` | the window that the ranks of a job make once, and the regions that links take of it |
//! | `windows.rs` | the transport |
//! | `worker.rs` | a thread in which MPI makes progress, for MPIs that write into a window only while its rank calls them; time limits |
//! | `bin/mpi_heat.rs` | a simulation whose ranks query rank 0 about its part while it runs |
//! | `bin/mpi_mesh.rs` | connects each rank with each other one, over this transport or one of farjump's, and prints the time |
//! | `bin/mpi_conformance.rs` | the conformance suite over the transport, in one rank and between two |
#![cfg(feature = "mpi")]

mod pool;
mod windows;
mod worker;

pub use pool::{Pool, PoolError};
pub use windows::Windows;
pub use worker::{Worker, finalize};
