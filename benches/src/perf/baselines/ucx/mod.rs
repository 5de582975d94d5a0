//! The baselines over UCX: its active messages, and memory that the peer writes. Each has a context of its
//! own, with the one feature that it needs, as in `ucx_perftest`.

mod context;
mod get_put;
mod lanes;
mod messages;
mod put;
mod requests;
mod sleeping_worker;

use std::ffi::CStr;
use std::path::Path;
use std::rc::Rc;

use crate::perf::child_protocol::{Offer, Subject};
use crate::program::failure::Failure;
use context::Worker;
pub(crate) use get_put::{Reach, Reached};
pub(crate) use messages::{Counting, Handler, Messages};
use put::Region;
pub(crate) use put::{Puts, Written};
pub(crate) use sleeping_worker::{Sending, Waiting};

/// TCP alone. The port that UCX opens is reachable from this machine only.
const LOOPBACK: [(&CStr, &CStr); 2] = [(c"TLS", c"tcp"), (c"NET_DEVICES", c"lo")];

/// An unconnected endpoint of a baseline over UCX.
pub(crate) struct Opening {
    // Dropped before its worker.
    region: Option<Region>,
    worker: Rc<Worker>,
}

impl Opening {
    /// Opens the endpoint of `subject`, with a region of so many bytes where one is needed.
    pub(crate) fn of(subject: &Subject, region: usize) -> Result<Opening, Failure> {
        if *subject == Subject::UcxAmTcp {
            let worker = Rc::new(Worker::create_with(farjump_ucx_sys::UCP_FEATURE_AM, &LOOPBACK)?);
            return Ok(Opening { worker, region: None });
        }
        if subject.is_messages() {
            let worker = Rc::new(Worker::create(farjump_ucx_sys::UCP_FEATURE_AM)?);
            return Ok(Opening { worker, region: None });
        }
        let worker = Rc::new(Worker::create(farjump_ucx_sys::UCP_FEATURE_RMA)?);
        let region = Region::allocate(&worker, region)?;
        Ok(Opening { worker, region: Some(region) })
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
    farjump_ucx_sys::Ucx::open().ok().map(farjump_ucx_sys::Ucx::file)
}

/// Returns the version of UCX in use, or the reason for its absence.
pub(crate) fn version() -> Result<String, String> {
    farjump_ucx_sys::Ucx::open().map(|ucx| ucx.version().to_string()).map_err(|error| error.to_string())
}
