//! The references over UCX: its active messages, and memory of one side that the other writes. Each has a context of its own,
//! with the one feature that it needs, as `ucx_perftest` does.

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

/// TCP alone, of which the port that UCX opens is reached from this machine alone.
const LOOPBACK: [(&CStr, &CStr); 2] = [(c"TLS", c"tcp"), (c"NET_DEVICES", c"lo")];

/// One side of a reference, that does not know the other yet.
pub(crate) struct Opening {
    // Before the worker, which it belongs to.
    region: Option<Region>,
    worker: Rc<Worker>,
}

impl Opening {
    /// For `subject`, with a region of so many bytes where one is needed.
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

    /// What the other side has to know.
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

/// The file of the library that is used, if there is one.
pub(crate) fn library() -> Option<&'static Path> {
    farjump_ucx_sys::Ucx::open().ok().map(farjump_ucx_sys::Ucx::file)
}

/// The version of UCX that is used, or why there is none.
pub(crate) fn version() -> Result<String, String> {
    farjump_ucx_sys::Ucx::open().map(|ucx| ucx.version().to_string()).map_err(|error| error.to_string())
}
