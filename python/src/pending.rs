//! Pending calls: waiting for their outcome, and awaiting it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farjump::{Awaited, Error, Link, Reply};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::Results;
use crate::errors::{closed, exception, guarded, limit, raise};
use crate::event_loop::Bridge;
use crate::shared::{Look, Shared, look};

/// Looks for an outcome before an event loop is asked to: a loop takes longer than a short call.
const LOOKS_BEFORE_LOOP: u32 = 300;

/// A call that was sent. Its outcome can be waited for, polled or awaited, any number of times. A call that is no
/// longer referred to is cancelled: the function still runs, and its outcome is dropped.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Pending {
    shared: Arc<Shared>,
    results: Results,
    state: Mutex<State>,
}

enum State {
    /// The call's number on its link.
    Waiting(u32),
    Done(Py<PyAny>),
    Failed(PyErr),
    Cancelled,
}

/// The outcome of a call that has one.
pub(crate) enum Seen {
    /// It is kept already.
    Known,
    Found(Result<Reply, Error>),
    /// The link was closed before it came.
    Closed,
}

/// The result as a Python object, or the exception.
pub(crate) fn outcome(
    py: Python<'_>,
    outcome: Result<Reply, Error>,
    results: &Results,
) -> PyResult<Py<PyAny>> {
    let outcome = match outcome {
        Ok(reply) => Ok(PyBytes::new(py, &reply).unbind()),
        Err(error) => Err(exception(py, &error)),
    };
    results.of(py, outcome)
}

impl Pending {
    pub(crate) fn new(shared: &Arc<Shared>, number: u32, results: Results) -> Pending {
        Pending { shared: Arc::clone(shared), results, state: Mutex::new(State::Waiting(number)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome that is known, or the call's number.
    fn known(&self, py: Python<'_>) -> Result<PyResult<Py<PyAny>>, u32> {
        match &*self.state() {
            State::Waiting(number) => Err(*number),
            State::Done(reply) => Ok(Ok(reply.clone_ref(py))),
            State::Failed(error) => Ok(Err(error.clone_ref(py))),
            State::Cancelled => {
                Ok(Err(raise(py, "Cancelled", "this call was cancelled, and has no outcome")))
            }
        }
    }

    /// Keeps the outcome for all that ask for it.
    fn settle(&self, py: Python<'_>, found: Result<Reply, Error>) -> PyResult<Py<PyAny>> {
        let outcome = outcome(py, found, &self.results);
        *self.state() = match &outcome {
            Ok(reply) => State::Done(reply.clone_ref(py)),
            Err(error) => State::Failed(error.clone_ref(py)),
        };
        outcome
    }

    /// Looks once, with the link's lock held, under which no Python code may run: [`Pending::settled`] makes the
    /// outcome afterwards. `None` if it has not come.
    pub(crate) fn look(&self, link: Option<&Link>) -> Option<Seen> {
        let State::Waiting(number) = *self.state() else { return Some(Seen::Known) };
        let Some(link) = link else { return Some(Seen::Closed) };
        match look(link, number) {
            Look::Outcome(found) => Some(Seen::Found(found)),
            // Where another thread has taken the outcome, it is about to settle it.
            Look::Pending | Look::Taken => None,
        }
    }

    /// The outcome that a look has seen.
    pub(crate) fn settled(&self, py: Python<'_>, seen: Seen) -> PyResult<Py<PyAny>> {
        match seen {
            Seen::Found(found) => self.settle(py, found),
            Seen::Closed => Err(closed(py, "link")),
            Seen::Known => self.known(py).unwrap_or_else(|_| Err(closed(py, "link"))),
        }
    }

    /// Cancels the call, unless it has its outcome.
    pub(crate) fn abandon(&self) -> bool {
        let mut state = self.state();
        let State::Waiting(number) = *state else { return false };
        *state = State::Cancelled;
        drop(state);
        self.shared.abandon(number);
        true
    }
}

#[pymethods]
impl Pending {
    /// Waits for the reply. With a timeout, in seconds, TimedOut says that it has not come; the call stays pending.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        guarded(py, || {
            self.shared.process.check(py, "call")?;
            let limit = limit(timeout, "timeout")?;
            loop {
                let number = match self.known(py) {
                    Ok(outcome) => return outcome,
                    Err(number) => number,
                };
                let found = self.shared.wait(py, limit, |link| match look(link, number) {
                    Look::Pending => None,
                    found => Some(found),
                })?;
                match found {
                    Some(Look::Outcome(found)) => return self.settle(py, found),
                    None => {
                        return Err(self.shared.timed_out(py, Awaited::Outcome, limit.unwrap_or_default()));
                    }
                    // Another thread is about to settle it.
                    Some(_) => py.detach(|| std::thread::sleep(Duration::from_micros(100))),
                }
            }
        })
    }

    /// Returns the reply, or None if it has not come. Never waits.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        guarded(py, || {
            self.shared.process.check(py, "call")?;
            let held = self.shared.hold(py);
            let seen = self.look(held.link.as_ref());
            held.wake_others(None);
            drop(held);
            seen.map(|seen| self.settled(py, seen)).transpose()
        })
    }

    /// Cancels the call: the function still runs, and its outcome is dropped. Returns False if the outcome has been
    /// taken already.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        guarded(py, || {
            self.shared.process.check(py, "call")?;
            Ok(self.abandon())
        })
    }

    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        guarded(py, || {
            let this = slf.get();
            this.shared.process.check(py, "call")?;
            // Where other calls are awaited, a loop looks for all of them at once.
            let looks = if this.shared.are_awaited() { 1 } else { LOOKS_BEFORE_LOOP };
            let held = this.shared.hold(py);
            let seen = (0..looks).find_map(|_| this.look(held.link.as_ref()));
            held.wake_others(None);
            drop(held);
            if let Some(seen) = seen {
                return Ok(Bound::new(py, Ready(this.settled(py, seen)?))?.into_any());
            }
            Bridge::future(&this.shared, &slf)?.call_method0("__await__")
        })
    }

    fn __repr__(&self) -> &'static str {
        match *self.state() {
            State::Waiting(_) => "<farjump.Pending, not taken>",
            State::Done(_) => "<farjump.Pending, done>",
            State::Failed(_) => "<farjump.Pending, failed>",
            State::Cancelled => "<farjump.Pending, cancelled>",
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The awaiting of a reply that is there.
#[pyclass(frozen, module = "farjump")]
struct Ready(Py<PyAny>);

#[pymethods]
impl Ready {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        Err(PyStopIteration::new_err((self.0.clone_ref(py),)))
    }
}
