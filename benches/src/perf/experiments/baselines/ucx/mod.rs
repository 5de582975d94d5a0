//! The baselines over UCX: its active messages, and memory that the peer writes. Each has a context of its
//! own, with the one feature that it needs, as in `ucx_perftest`.

mod context;
mod get_put;
mod hops;
mod memory;
mod messages;
mod put;
mod requests;
mod sleeping_worker;
mod words;

use std::ffi::CStr;
use std::path::Path;
use std::rc::Rc;

use farjump_ucx_sys::{UCP_FEATURE_AM, UCP_FEATURE_RMA, Ucx};

use crate::perf::process::child_protocol::Offer;
use crate::program::failure::Failure;
use context::Worker;
pub(crate) use get_put::{Reach, Reached};
pub(crate) use hops::{Hop, Hopper, Post};
use memory::Region;
pub(crate) use messages::{Counting, Handler, Messages};
pub(crate) use put::{ring_by_puts, ring_by_stores};
pub(crate) use sleeping_worker::{Sending, Waiting};
pub(crate) use words::{WordGets, Words};

/// TCP alone. The port that UCX opens is reachable from this machine only.
const LOOPBACK: [(&CStr, &CStr); 2] = [(c"TLS", c"tcp"), (c"NET_DEVICES", c"lo")];

/// An unconnected endpoint of a baseline over UCX.
pub(crate) struct Opening {
    // Dropped before its worker.
    region: Option<Region>,
    worker: Rc<Worker>,
}

impl Opening {
    pub(crate) fn for_messages() -> Result<Opening, Failure> {
        Ok(Opening { worker: Rc::new(Worker::create(UCP_FEATURE_AM)?), region: None })
    }

    pub(crate) fn for_messages_on_loopback() -> Result<Opening, Failure> {
        Ok(Opening { worker: Rc::new(Worker::create_with(UCP_FEATURE_AM, &LOOPBACK)?), region: None })
    }

    /// Opens an endpoint with so many bytes of memory, which the peer reads and writes.
    pub(crate) fn with_memory(len: usize) -> Result<Opening, Failure> {
        let worker = Rc::new(Worker::create(UCP_FEATURE_RMA)?);
        Ok(Opening { region: Some(Region::allocate(&worker, len)?), worker })
    }

    /// Returns the data that the peer needs.
    pub(crate) fn offer(&self) -> Result<Offer, Failure> {
        let worker = self.worker.address()?;
        match &self.region {
            Some(region) => {
                Ok(Offer { worker, key: region.key()?, start: region.start(), ..Offer::default() })
            }
            None => Ok(Offer { worker, ..Offer::default() }),
        }
    }
}

/// Returns the file of the library in use, if there is one.
pub(crate) fn library() -> Option<&'static Path> {
    Ucx::open().ok().map(Ucx::file)
}

/// Returns the version of UCX in use, or the reason for its absence.
pub(crate) fn version() -> Result<String, String> {
    Ucx::open().map(|ucx| ucx.version().to_string()).map_err(|error| error.to_string())
}
