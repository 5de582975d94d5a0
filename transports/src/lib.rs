//! Transports: the backends that move frames.
//!
//! Each backend is a folder with its own feature and implements the contract in [`farjump_core::transport`].
//! [`available`] lists all backends, whether or not this build contains them.
//!
//! | feature | backends |
//! |---|---|
//! | `shm` (default) | `shm`: memory shared between processes of one machine |
//! | `ucx` (default) | `ucx-put`: UCX memory that the peer writes; `ucx-am`: UCX active messages. The library is opened at run time |
//! | `tcp` (default) | `tcp`: an encrypted stream between any two machines. It has no requirements |
//! | `verbs` (default) | `verbs-write`: registered memory that the peer's RDMA device writes; `verbs-send`: messages. The library is opened at run time |

mod choice;
mod error;
#[cfg(any(feature = "shm", feature = "ucx", feature = "verbs"))]
mod executable_alias;
#[cfg(any(feature = "shm", feature = "ucx"))]
mod membarrier;
pub mod memlock;
mod registry;
#[cfg(feature = "shm")]
pub mod shm;
#[cfg(feature = "tcp")]
pub mod tcp;
#[cfg(feature = "ucx")]
pub mod ucx;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use choice::{Destination, transports_for};
pub use error::Error;
pub use registry::{
    BackendOptions, Chosen, TransportInfo, available, available_with, is_preferred, locks_memory, make,
    make_all, make_usable, make_with, meant, preferred,
};
