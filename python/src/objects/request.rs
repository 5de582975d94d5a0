//! Requests to the owner of objects: their time limits, and their errors as exceptions.

use std::time::Duration;

use farjump_handles::{Error, Patience, StreamFault};
use pyo3::prelude::*;
use pyo3::types::PyEllipsis;

use crate::errors::{exception, limit, raise};
use crate::patience::{patiently, patiently_detached};

/// Length in bytes from which copies are made without the GIL.
pub(crate) const LARGE: usize = 64 << 10;

/// The time limit of a request.
pub(crate) enum Timeout {
    /// The one of its store. Python writes it `...`.
    OfStore,
    /// One of its own, in seconds, or none.
    Own(Option<f64>),
}

impl Timeout {
    /// Returns the limit of a request, whose store has the limit `of_store`.
    ///
    /// # Errors
    /// As [`limit`].
    pub(crate) fn limit(self, of_store: Duration) -> PyResult<Option<Duration>> {
        match self {
            Timeout::OfStore => Ok(Some(of_store)),
            Timeout::Own(seconds) => limit(seconds, "timeout"),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Timeout {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Timeout> {
        if object.is_instance_of::<PyEllipsis>() {
            Ok(Timeout::OfStore)
        } else {
            object.extract().map(Timeout::Own)
        }
    }
}

/// Returns the exception for an error of handles.
pub(crate) fn handle_exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Link(error) => return exception(py, error),
        Error::Handle(_) | Error::WrongKey { .. } | Error::NotReserved { .. } | Error::TypeName { .. } => {
            "HandleError"
        }
        Error::Gone { .. } => "Gone",
        Error::Unset { .. } => "Unset",
        Error::Full { .. } | Error::SourceFull { .. } => "StoreFull",
        Error::TimedOut { .. } => "TimedOut",
        Error::Forked { .. } => "Forked",
        Error::Stream { fault, .. } => return stream_exception(py, error, fault),
        Error::Unreachable(_) => "ConnectError",
        _ => "Error",
    };
    raise(py, class, error.to_string())
}

/// Returns the exception for an error of a stream.
fn stream_exception(py: Python<'_>, error: &Error, fault: &StreamFault) -> PyErr {
    let class = match fault {
        StreamFault::Full => "StreamFull",
        StreamFault::NoEntry(_) => "TimedOut",
        StreamFault::PublisherGone { .. } => "PublisherGone",
        _ => "StreamError",
    };
    let raised = raise(py, class, error.to_string());
    if let StreamFault::PublisherGone { publisher, published } = fault {
        let value = raised.value(py);
        let set = value.setattr("publisher", publisher).and_then(|()| value.setattr("published", published));
        if let Err(error) = set {
            return error;
        }
    }
    raised
}

/// Runs a request: with the GIL while it begins to look for the reply, without it afterwards. A request that copies much
/// runs wholly without it.
pub(crate) fn request<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    is_long: bool,
    work: impl FnOnce(&mut Patience<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let done = match is_long {
        true => patiently_detached(py, timeout, work)?,
        false => patiently(py, timeout, work)?,
    };
    done.map_err(|error| handle_exception(py, &error))
}
