//! Pending calls, and their outcomes.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farjump::{Error, Link, Reply, WaitError};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::calls::call::Results;
use crate::calls::shared::Shared;
use crate::errors::{closed, exception, raise};
use crate::lock::Lock;

/// A call that was sent. Its outcome can be waited for, polled or awaited, any number of times. Dropping the last
/// reference cancels the call: the function still runs, and its outcome is dropped.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Pending {
    pub(crate) shared: Arc<Shared>,
    pub(super) results: Results,
    state: Lock<State>,
    /// The result or the exception, once [`State::Ended`]. It lies outside the lock, because counting references to it
    /// needs the GIL.
    pub(super) kept: OnceLock<Kept>,
}

/// An outcome as objects that the garbage collector visits. An exception refers to frames, and those to calls.
type Kept = Result<Py<PyAny>, Py<PyBaseException>>;

#[derive(Clone, Copy)]
pub(super) enum State {
    /// It waits for credit.
    Unsent,
    /// The call's number on its link.
    Waiting(u32),
    Ended,
    Cancelled,
}

/// The outcome of a call that has one.
pub(crate) enum Seen {
    /// The call has kept its outcome already: a reply, or the reason why there is none.
    Known,
    Failed,
    Found(Result<Reply, Error>),
    /// The link was closed before the outcome came.
    Closed,
}

/// Returns the result as a Python object, or the exception.
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

/// Returns a further reference to an outcome.
fn counted(py: Python<'_>, kept: &Kept) -> PyResult<Py<PyAny>> {
    match kept {
        Ok(reply) => Ok(reply.clone_ref(py)),
        Err(error) => Err(PyErr::from_value(error.bind(py).clone().into_any())),
    }
}

/// Returns whether another thread has taken the outcome, and is about to settle it; or is about to send the call.
fn is_taken(found: &Result<Reply, Error>) -> bool {
    matches!(found, Err(Error::Wait(WaitError::Taken { .. })))
}

impl Pending {
    pub(crate) fn new(shared: &Arc<Shared>, number: u32, results: Results) -> Pending {
        Pending::of(shared, results, State::Waiting(number))
    }

    /// A call that waits for credit.
    pub(crate) fn unsent(shared: &Arc<Shared>, results: Results) -> Pending {
        Pending::of(shared, results, State::Unsent)
    }

    fn of(shared: &Arc<Shared>, results: Results, state: State) -> Pending {
        Pending { shared: Arc::clone(shared), results, state: Lock::new(state), kept: OnceLock::new() }
    }

    pub(super) fn state(&self) -> State {
        self.state.with(|state| *state)
    }

    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self.state(), State::Unsent)
    }

    /// Returns whether the outcome is unknown.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state(), State::Unsent | State::Waiting(_))
    }

    /// Returns whether the call has ended without a reply.
    pub(crate) fn has_failed(&self) -> bool {
        match self.state() {
            State::Ended => self.kept.get().is_some_and(Result::is_err),
            State::Cancelled => true,
            State::Unsent | State::Waiting(_) => false,
        }
    }

    /// Replaces [`State::Unsent`] by `now`. Returns `false` if the state was another one.
    fn no_longer_unsent(&self, now: State) -> bool {
        self.state.with(|state| {
            let was_unsent = matches!(state, State::Unsent);
            if was_unsent {
                *state = now;
            }
            was_unsent
        })
    }

    /// Records the call's number. Cancels a call that was cancelled before it had a number.
    pub(crate) fn was_sent(&self, number: u32) {
        if !self.no_longer_unsent(State::Waiting(number)) {
            self.shared.abandon(number);
        }
    }

    /// Records the error that keeps the call from being sent.
    pub(crate) fn failed(&self, py: Python<'_>, error: &PyErr) {
        if self.no_longer_unsent(State::Ended) {
            // The call has no other outcome, because it was not sent.
            let _ = self.kept.set(Err(error.clone_ref(py).into_value(py)));
        }
    }

    /// Returns the known outcome, or the call's number.
    fn known(&self, py: Python<'_>) -> Result<PyResult<Py<PyAny>>, u32> {
        match self.state() {
            State::Waiting(number) => Err(number),
            State::Cancelled => {
                Ok(Err(raise(py, "Cancelled", "this call was cancelled, and has no outcome")))
            }
            // No call has the number 0.
            State::Unsent | State::Ended => self.kept.get().map(|kept| counted(py, kept)).ok_or(0),
        }
    }

    /// Keeps the outcome for all later queries.
    fn settle(&self, py: Python<'_>, found: Result<Reply, Error>) -> PyResult<Py<PyAny>> {
        let kept = outcome(py, found, &self.results).map_err(|error| error.into_value(py));
        let outcome = counted(py, &kept);
        // An outcome kept earlier stays, and this one is dropped.
        let _ = self.kept.set(kept);
        self.state.with(|state| *state = State::Ended);
        outcome
    }

    /// Looks once, with the link's lock held, under which no Python code may run: [`Pending::settled`] makes the
    /// outcome afterwards. `None` if it has not come.
    pub(crate) fn look(&self, link: Option<&Link>) -> Option<Seen> {
        let number = match self.state() {
            State::Unsent => return link.is_none().then_some(Seen::Closed),
            State::Waiting(number) => number,
            State::Ended | State::Cancelled if self.has_failed() => return Some(Seen::Failed),
            State::Ended | State::Cancelled => return Some(Seen::Known),
        };
        let Some(link) = link else { return Some(Seen::Closed) };
        link.poll_raw(number).transpose().filter(|found| !is_taken(found)).map(Seen::Found)
    }

    /// Returns the outcome that a look has found.
    pub(crate) fn settled(&self, py: Python<'_>, seen: Seen) -> PyResult<Py<PyAny>> {
        match seen {
            Seen::Found(found) => self.settle(py, found),
            Seen::Closed => Err(closed(py, "link")),
            Seen::Known | Seen::Failed => self.known(py).unwrap_or_else(|_| Err(closed(py, "link"))),
        }
    }

    /// Cancels the call, unless it has its outcome.
    pub(crate) fn abandon(&self) -> bool {
        let was = self.state.with(|state| {
            let was = *state;
            if matches!(was, State::Unsent | State::Waiting(_)) {
                *state = State::Cancelled;
            }
            was
        });
        if let State::Waiting(number) = was {
            self.shared.abandon(number);
        }
        matches!(was, State::Unsent | State::Waiting(_))
    }

    /// Waits for the outcome. Returns `None` at the limit.
    ///
    /// # Errors
    /// A closed link, or an exception that a signal handler raised. The inner result has the call's error.
    pub(crate) fn outcome_within(
        &self,
        py: Python<'_>,
        limit: Option<Duration>,
    ) -> PyResult<Option<PyResult<Py<PyAny>>>> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let number = match self.known(py) {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(number) => number,
            };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.shared.wait(py, left.or(limit), |link| link.poll_raw(number).transpose())? {
                Some(found) if is_taken(&found) => {
                    py.detach(|| std::thread::sleep(Duration::from_micros(100)));
                }
                Some(found) => return Ok(Some(self.settle(py, found))),
                None => return Ok(None),
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.abandon();
    }
}
