//! Errors of farjump as Python's exceptions, and the boundary that no panic crosses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use farjump::config::{ConfigError, ConfigFault};
use farjump::{CallError, Error, ServeError, WaitError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The module that defines the exceptions.
const MODULE: &str = "farjump._errors";

/// Returns an exception of this class with this text.
pub(crate) fn raise(py: Python<'_>, class: &str, text: impl Into<String>) -> PyErr {
    made(py, class, text.into()).map_or_else(|error| error, PyErr::from_value)
}

fn made<'py>(py: Python<'py>, class: &str, text: String) -> PyResult<Bound<'py, PyAny>> {
    py.import(MODULE)?.getattr(class)?.call1((text,))
}

/// Returns the exception for an error, with its sentence.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Config(error) => return config_exception(error),
        Error::Connect(_) => "ConnectError",
        Error::Inject(_) => "InjectError",
        Error::Wait(WaitError::TimedOut { .. }) => "TimedOut",
        Error::Wait(WaitError::Closed { .. }) => return closed(py, "link"),
        Error::Wait(WaitError::PeerGone { .. }) => "PeerGone",
        Error::Call(CallError::Refused { .. }) => "Refused",
        Error::Call(CallError::Panicked { .. }) => "Panicked",
        Error::Call(CallError::Incomplete(_)) => "Incomplete",
        Error::Call(_) => "CallError",
        Error::Serve(ServeError::Forked { .. }) | Error::Wait(WaitError::Forked { .. }) => "Forked",
        Error::Serve(_) => "ServeError",
        Error::Library(_) => "LibraryError",
        _ => "Error",
    };
    let raised = made(py, class, error.to_string()).and_then(|raised| {
        match error {
            Error::Call(CallError::Refused { ifunc, cause, .. }) => {
                raised.setattr("ifunc", ifunc)?;
                raised.setattr("cause", cause.to_string())?;
            }
            Error::Call(CallError::Panicked { ifunc, message }) => {
                raised.setattr("ifunc", ifunc)?;
                raised.setattr("message", message)?;
            }
            Error::Call(CallError::Incomplete(incomplete)) => {
                raised.setattr("ifunc", &incomplete.ifunc)?;
                raised.setattr("lost", incomplete.lost)?;
                raised.setattr("replies", PyBytes::new(py, &incomplete.replies))?;
            }
            _ => {}
        }
        Ok(raised)
    });
    raised.map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for an error of an option: `TypeError` for an unknown name, as for any keyword argument.
pub(crate) fn config_exception(error: &ConfigError) -> PyErr {
    match error.fault {
        ConfigFault::Unknown { .. } | ConfigFault::Renamed { .. } => PyTypeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Returns the name of an object's class, for an error.
pub(crate) fn class_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map(|name| name.to_string()).unwrap_or_default()
}

/// Returns whether an exception is one of farjump's.
pub(crate) fn is_ours(py: Python<'_>, error: &PyErr) -> bool {
    let class = py.import(MODULE).and_then(|module| module.getattr("Error"));
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// Returns the exception for an object that was closed.
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "Closed", format!("this {what} was closed: make another one"))
}

/// Runs the body of a method. A panic is a bug in farjump, and becomes an `Error`: PyO3's own exception for panics
/// escapes `except Exception`.
pub(crate) fn guarded<T>(py: Python<'_>, body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(raise(py, "Error", format!("farjump failed, which is a bug in it: {text}")))
    })
}

/// Converts a time limit in seconds. `None` means no limit.
///
/// # Errors
/// `ValueError` for a negative number, or none at all (NaN).
pub(crate) fn limit(seconds: Option<f64>, name: &str) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds >= 0.0 => Ok(Duration::try_from_secs_f64(seconds).ok()),
        Some(seconds) => {
            Err(PyValueError::new_err(format!("{name}={seconds} is no time: give seconds from 0, or None")))
        }
    }
}
