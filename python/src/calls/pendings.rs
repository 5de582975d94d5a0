//! Several calls as one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farjump::{Awaited, Error, InjectError, Link};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::calls::pending::{Pending, Seen};
use crate::calls::sending::{Unsent, grouped};
use crate::calls::shared::Shared;
use crate::errors::{exception, is_ours};
use crate::lock::Lock;

/// Several calls, in order. Waiting for them, or awaiting them, gives a list of their replies; iterating gives one reply
/// after the other.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Pendings {
    pub(super) calls: Vec<Py<Pending>>,
    /// Calls that wait for credit, and their places among the calls.
    pub(super) unsent: Lock<VecDeque<(usize, Unsent)>>,
    pub(super) return_exceptions: bool,
}

impl Pendings {
    pub(crate) fn new(
        calls: Vec<Py<Pending>>,
        unsent: VecDeque<(usize, Unsent)>,
        return_exceptions: bool,
    ) -> Pendings {
        Pendings { calls, unsent: Lock::new(unsent), return_exceptions }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.with(|unsent| !unsent.is_empty())
    }

    /// Returns whether this outcome ends the wait for all.
    pub(crate) fn ends_at(&self, seen: &Seen) -> bool {
        !self.return_exceptions
            && match seen {
                Seen::Found(found) => found.is_err(),
                Seen::Failed | Seen::Closed => true,
                Seen::Known => false,
            }
    }

    /// Sends calls while there is credit, with the link's lock held.
    pub(crate) fn send_some(&self, link: &Link) -> SentSome {
        let mut some = SentSome::default();
        while let Some((place, call)) = self.unsent.with(VecDeque::pop_front) {
            let pending = self.calls[place].get();
            if pending.is_unsent() {
                match call.try_to_send(link) {
                    None => {
                        self.unsent.with(|unsent| unsent.push_front((place, call)));
                        break;
                    }
                    Some(Ok(number)) => {
                        some.sent = true;
                        pending.was_sent(number);
                    }
                    Some(Err(error)) => some.failed.push((place, error)),
                }
            }
            some.done.push(call);
        }
        some
    }

    /// Keeps the outcome of a call that cannot be sent.
    pub(crate) fn settle(&self, py: Python<'_>, place: usize, error: Error) {
        drop(self.calls[place].get().settled(py, Seen::Found(Err(error))));
    }

    /// Sends all calls, and waits for credit.
    fn send_all(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let Some((place, call)) = self.unsent.with(VecDeque::pop_front) else { return Ok(()) };
            let pending = &self.calls[place];
            if !pending.get().is_unsent() {
                continue;
            }
            let (library, bytes) = call.parts();
            match send(py, &pending.get().shared, library, bytes, &self.calls) {
                Ok(number) => pending.get().was_sent(number),
                Err(error) if is_ours(py, &error) => {
                    pending.get().failed(py, &error);
                    self.fail_unsent(py, &error);
                }
                // A signal handler raised it.
                Err(error) => {
                    self.unsent.with(|unsent| unsent.push_front((place, call)));
                    return Err(error);
                }
            }
        }
    }

    /// Fails all calls that were not sent.
    pub(crate) fn fail_unsent(&self, py: Python<'_>, error: &PyErr) {
        let unsent = self.unsent.with(std::mem::take);
        for (place, _) in &unsent {
            self.calls[*place].get().failed(py, error);
        }
    }

    /// Drops the calls that were not sent.
    pub(crate) fn drop_unsent(&self) {
        let unsent = self.unsent.with(std::mem::take);
        for (place, _) in &unsent {
            self.calls[*place].get().abandon();
        }
    }

    /// Returns the outcome of one call as a Python object, or as an error if exceptions are not to be returned.
    fn returned<T>(&self, py: Python<'_>, outcome: PyResult<Py<T>>) -> PyResult<Py<PyAny>> {
        match outcome {
            Ok(reply) => Ok(reply.into_any()),
            Err(error) if self.return_exceptions => Ok(error.into_value(py).into_any()),
            Err(error) => Err(error),
        }
    }

    /// Returns the outcomes of all calls. All have come.
    pub(crate) fn outcomes(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        let outcomes = self.calls.iter().map(|pending| {
            let outcome = pending.get().settled(py, Seen::Known);
            self.returned(py, outcome)
        });
        Ok(PyList::new(py, outcomes.collect::<PyResult<Vec<_>>>()?)?.unbind())
    }

    /// Waits for the outcome of the call at this place. Returns `None` at the limit.
    pub(super) fn wait_for(
        &self,
        py: Python<'_>,
        place: usize,
        limit: Option<Duration>,
    ) -> PyResult<Option<Py<PyAny>>> {
        if self.unsent.with(|unsent| unsent.front().is_some_and(|(first, _)| *first <= place)) {
            self.send_all(py)?;
        }
        let outcome = self.calls[place].get().outcome_within(py, limit)?;
        outcome.map(|outcome| self.returned(py, outcome)).transpose()
    }

    /// Returns the links of calls without an outcome, each with those calls.
    pub(super) fn parts(&self, py: Python<'_>) -> Vec<(Arc<Shared>, VecDeque<Py<Pending>>)> {
        let mut parts: Vec<(Arc<Shared>, VecDeque<Py<Pending>>)> = Vec::new();
        for pending in self.calls.iter().filter(|pending| pending.get().is_open()) {
            let shared = &pending.get().shared;
            let at = parts.iter().position(|(other, _)| Arc::ptr_eq(other, shared));
            let at = at.unwrap_or_else(|| {
                parts.push((Arc::clone(shared), VecDeque::new()));
                parts.len() - 1
            });
            parts[at].1.push_back(pending.clone_ref(py));
        }
        parts
    }

    /// Checks that this process made the calls.
    pub(super) fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.calls.iter().try_for_each(|pending| pending.get().shared.process.check(py, "call"))
    }
}

/// The result of sending those calls of a group that lacked credit.
#[derive(Default)]
pub(crate) struct SentSome {
    /// Whether a call was sent.
    pub(crate) sent: bool,
    /// Calls that can never be sent, by their places.
    pub(crate) failed: Vec<(usize, Error)>,
    /// Calls that were sent, cancelled or cannot be sent. The caller drops them without the lock.
    pub(crate) done: Vec<Unsent>,
}

/// Sends a call on `shared`, and waits for credit. If too many calls are pending, waits for the first of `earlier`
/// without an outcome.
pub(crate) fn send(
    py: Python<'_>,
    shared: &Arc<Shared>,
    library: &farjump::Library,
    bytes: &[u8],
    earlier: &[Py<Pending>],
) -> PyResult<u32> {
    loop {
        let sent = shared.wait(py, Some(shared.send_timeout), |link| {
            match grouped(link).try_inject(library, bytes) {
                Err(Error::Inject(InjectError::Full)) => None,
                sent => Some(sent.map(farjump::Pending::into_raw)),
            }
        })?;
        match sent {
            None => return Err(shared.timed_out(py, Awaited::Credit, shared.send_timeout)),
            Some(Ok(number)) => return Ok(number),
            Some(Err(error @ Error::Inject(InjectError::TooManyCalls { .. }))) => {
                let open = earlier.iter().find(|pending| pending.get().is_open());
                let Some(open) = open else { return Err(exception(py, &error)) };
                // A failure of that call does not fail this one.
                drop(open.get().outcome_within(py, Some(shared.send_timeout))?);
            }
            Some(Err(error)) => return Err(exception(py, &error)),
        }
    }
}
