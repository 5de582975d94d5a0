//! Waits of Python's threads: they check for signals, and sleep without the GIL.

use std::time::Duration;

use farjump::Patience;
use pyo3::prelude::*;

/// The patience of a wait that may have a time limit.
fn of<'a>(timeout: Option<Duration>) -> Patience<'a> {
    Patience::of_wait(timeout.unwrap_or(Duration::MAX))
}

/// Runs a wait: with the GIL while it begins to look, without it afterwards.
///
/// # Errors
/// An exception that a signal handler raised, which ended the wait.
pub(crate) fn patiently<T>(
    py: Python<'_>,
    timeout: Option<Duration>,
    work: impl FnOnce(&mut Patience<'_>) -> T,
) -> PyResult<T> {
    let mut raised = None;
    let mut check = || py.check_signals().map_err(|error| raised = Some(error)).is_ok();
    let mut around = |sleep: &mut (dyn FnMut() + Send)| py.detach(sleep);
    let done = work(&mut of(timeout).checked_by(&mut check).sleeping_in(&mut around));
    // A wait that was interrupted ends as such, so `done` is no result that the exception would hide.
    raised.map_or(Ok(done), Err)
}

/// As [`patiently`], wholly without the GIL.
///
/// # Errors
/// As [`patiently`].
pub(crate) fn patiently_detached<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    work: impl FnOnce(&mut Patience<'_>) -> T + Send,
) -> PyResult<T> {
    let mut raised = None;
    let done = py.detach(|| {
        let mut check = || {
            let checked = Python::try_attach(|py| py.check_signals());
            checked.is_none_or(|checked| checked.map_err(|error| raised = Some(error)).is_ok())
        };
        work(&mut of(timeout).checked_by(&mut check))
    });
    raised.map_or(Ok(done), Err)
}
