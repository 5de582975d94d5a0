//! Several calls as one: waited for, iterated or awaited together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farjump::{Awaited, Error, InjectError, Link};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::calls::awaited::{Entry, Group, Looked, Part};
use crate::calls::event_loop::Bridge;
use crate::calls::pending::{LOOKS_BEFORE_LOOP, Pending, Seen};
use crate::calls::ready::ready;
use crate::calls::sending::{Unsent, grouped};
use crate::calls::shared::Shared;
use crate::errors::{exception, guarded, is_ours, limit};
use crate::lock::Lock;

/// Several calls, in order. Waiting for them, or awaiting them, gives a list of their replies; iterating gives one reply
/// after the other.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Pendings {
    calls: Vec<Py<Pending>>,
    /// Calls that wait for credit, and their places among the calls.
    unsent: Lock<VecDeque<(usize, Unsent)>>,
    return_exceptions: bool,
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
    fn wait_for(&self, py: Python<'_>, place: usize, limit: Option<Duration>) -> PyResult<Option<Py<PyAny>>> {
        if self.unsent.with(|unsent| unsent.front().is_some_and(|(first, _)| *first <= place)) {
            self.send_all(py)?;
        }
        let outcome = self.calls[place].get().outcome_within(py, limit)?;
        outcome.map(|outcome| self.returned(py, outcome)).transpose()
    }

    /// Returns the links of calls without an outcome, each with those calls.
    fn parts(&self, py: Python<'_>) -> Vec<(Arc<Shared>, VecDeque<Py<Pending>>)> {
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

/// Returns the calls as one, which can be waited for, iterated or awaited. Its outcome is the list of their replies, in
/// the order of the calls. It raises the first exception, and the other calls stay pending. With return_exceptions, the
/// list contains the exceptions instead.
#[pyfunction]
#[pyo3(signature = (pendings, *, return_exceptions=false))]
pub(crate) fn gather(
    py: Python<'_>,
    pendings: &Bound<'_, PyAny>,
    return_exceptions: bool,
) -> PyResult<Pendings> {
    guarded(py, || {
        let mut calls = Vec::new();
        for (place, one) in pendings.try_iter()?.enumerate() {
            let one = one?;
            let pending = one.cast::<Pending>().map_err(|_| {
                let name = one.get_type().name().map(|name| name.to_string()).unwrap_or_default();
                PyTypeError::new_err(format!(
                    "pendings[{place}] is of type {name}: give calls of Link.inject, which are farjump.Pending"
                ))
            })?;
            pending.get().shared.process.check(py, "call")?;
            calls.push(pending.clone().unbind());
        }
        Ok(Pendings::new(calls, VecDeque::new(), return_exceptions))
    })
}

#[pymethods]
impl Pendings {
    /// Waits for all replies, and returns the list of them. Raises TimedOut if some have not come after `timeout`
    /// seconds; the calls stay pending.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyList>> {
        guarded(py, || {
            self.check(py)?;
            let limit = limit(timeout, "timeout")?;
            let until = limit.and_then(|limit| Instant::now().checked_add(limit));
            let outcomes = (0..self.calls.len()).map(|place| {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                self.wait_for(py, place, left.or(limit))?.ok_or_else(|| {
                    let shared = &self.calls[place].get().shared;
                    shared.timed_out(py, Awaited::Outcome, limit.unwrap_or_default())
                })
            });
            Ok(PyList::new(py, outcomes.collect::<PyResult<Vec<_>>>()?)?.unbind())
        })
    }

    /// Cancels all calls without an outcome. Returns False if there were none.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        guarded(py, || {
            self.check(py)?;
            let unsent = self.unsent.with(std::mem::take);
            let cancelled = self.calls.iter().filter(|pending| pending.get().abandon()).count();
            // Finalisers of arguments find all calls cancelled.
            drop(unsent);
            Ok(cancelled > 0)
        })
    }

    fn __len__(&self) -> usize {
        self.calls.len()
    }

    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Replies> {
        slf.get().check(slf.py())?;
        Ok(Replies { pendings: slf.unbind(), next: AtomicUsize::new(0) })
    }

    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        guarded(py, || {
            let this = slf.get();
            this.check(py)?;
            let future = Bridge::new_future(py)?;
            let group = Arc::new(Group { parts: 0.into(), has_failed: false.into() });
            let mut parts = Vec::new();
            for (shared, open) in this.parts(py) {
                let mut part = Part {
                    group: Arc::clone(&group),
                    future: future.clone_ref(py),
                    pendings: Arc::new(slf.clone().unbind()),
                    open,
                    since: Instant::now(),
                    failed: None,
                };
                part.look_at_once(py, &shared);
                parts.push((shared, part));
            }
            if !this.return_exceptions
                && let Some(failed) = this.calls.iter().find(|pending| pending.get().has_failed())
            {
                failed.get().settled(py, Seen::Failed)?;
            }
            parts.retain(|(_, part)| !part.open.is_empty());
            if parts.is_empty() {
                return ready(py, this.outcomes(py)?.into_bound(py).into_any());
            }
            group.parts.store(parts.len(), Ordering::Release);
            for (shared, part) in parts {
                Bridge::add(py, &shared, Entry::Part(part))?;
            }
            future.bind(py).call_method0("__await__")
        })
    }

    /// `Pendings[bytes]`, for annotations.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.getattr("GenericAlias")?.call1((class, item))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.calls.iter().try_for_each(|call| visit.call(call))?;
        self.unsent.visit(|unsent| unsent.iter().try_for_each(|(_, call)| call.visit(&visit)))
    }

    fn __clear__(&self) {
        let unsent = self.unsent.with(std::mem::take);
        drop(unsent);
    }

    fn __repr__(&self) -> String {
        format!("<farjump.Pendings of {} calls>", self.calls.len())
    }
}

impl Pendings {
    /// Checks that this process made the calls.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.calls.iter().try_for_each(|pending| pending.get().shared.process.check(py, "call"))
    }
}

impl Part {
    /// Looks for outcomes while more come, and keeps them.
    fn look_at_once(&mut self, py: Python<'_>, shared: &Arc<Shared>) {
        let mut looked = Looked::default();
        shared.with(py, |held| {
            let mut idle = 0;
            while idle < LOOKS_BEFORE_LOOP && !self.open.is_empty() && self.failed.is_none() {
                let before = self.open.len();
                let _ = self.look(held.link.as_ref(), &mut looked);
                idle = if self.open.len() < before { 0 } else { idle + 1 };
            }
            held.wake_others(None);
        });
        looked.found.extend(self.failed.take());
        looked.settle(py);
    }
}

/// The replies of several calls, one after the other.
#[pyclass(frozen, module = "farjump")]
pub(crate) struct Replies {
    pendings: Py<Pendings>,
    next: AtomicUsize,
}

#[pymethods]
impl Replies {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        guarded(py, || {
            let pendings = self.pendings.get();
            let place = self.next.load(Ordering::Relaxed);
            if place >= pendings.calls.len() {
                return Ok(None);
            }
            pendings.check(py)?;
            // An interrupted wait leaves the reply for the next time.
            let outcome = pendings.wait_for(py, place, None);
            if !pendings.calls[place].get().is_open() {
                self.next.store(place + 1, Ordering::Relaxed);
            }
            outcome
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pendings)
    }

    fn __length_hint__(&self) -> usize {
        self.pendings.get().calls.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }
}
