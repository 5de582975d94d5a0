//! Methods of calls in Python: waiting for outcomes, one or several, and awaiting them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use farjump::Awaited;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::calls::awaited::{Entry, Group, Looked, Part};
use crate::calls::event_loop::Bridge;
use crate::calls::pending::{Pending, Seen, State};
use crate::calls::pendings::Pendings;
use crate::calls::ready::ready;
use crate::calls::shared::Shared;
use crate::errors::{guarded, limit};

/// Number of looks for an outcome before the event loop takes over: a loop takes longer than a short call.
const LOOKS_BEFORE_LOOP: u32 = 300;

#[pymethods]
impl Pending {
    /// Waits for the reply. Raises TimedOut if it has not come after `timeout` seconds; the call stays pending.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        guarded(py, || {
            self.shared.process.check(py, "call")?;
            let limit = limit(timeout, "timeout")?;
            match self.outcome_within(py, limit)? {
                Some(outcome) => outcome,
                None => Err(self.shared.timed_out(py, Awaited::Outcome, limit.unwrap_or_default())),
            }
        })
    }

    /// Returns the reply, or None if it has not come. Never waits.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        guarded(py, || {
            self.shared.process.check(py, "call")?;
            let seen = self.shared.look(py, |link| self.look(link));
            seen.map(|seen| self.settled(py, seen)).transpose()
        })
    }

    /// Cancels the call: the function still runs, and its outcome is dropped. Returns False if the program has taken
    /// the outcome already.
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
            if !this.is_open() {
                return ready(py, this.settled(py, Seen::Known)?.into_bound(py).into_any());
            }
            // Where other calls are awaited, a loop looks for all of them at once.
            let looks = if this.shared.are_awaited() { 1 } else { LOOKS_BEFORE_LOOP };
            let seen = this.shared.look(py, |link| (0..looks).find_map(|_| this.look(link)));
            if let Some(seen) = seen {
                return ready(py, this.settled(py, seen)?.into_bound(py).into_any());
            }
            let future = Bridge::new_future(py)?;
            let awaited =
                Entry::Call { future: future.clone_ref(py), pending: slf.clone().unbind(), seen: None };
            Bridge::add(py, &this.shared, awaited)?;
            future.bind(py).call_method0(intern!(py, "__await__"))
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.results.visit(&visit)?;
        match self.kept.get() {
            Some(Ok(reply)) => visit.call(reply),
            Some(Err(error)) => visit.call(error),
            None => Ok(()),
        }
    }

    fn __repr__(&self) -> &'static str {
        match self.state() {
            State::Unsent | State::Waiting(_) => "<farjump.Pending, not taken>",
            State::Ended if self.has_failed() => "<farjump.Pending, failed>",
            State::Ended => "<farjump.Pending, done>",
            State::Cancelled => "<farjump.Pending, cancelled>",
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

impl Part {
    /// Looks for outcomes while more come, and keeps them.
    fn look_at_once(&mut self, py: Python<'_>, shared: &Arc<Shared>) {
        let mut looked = Looked::default();
        shared.look(py, |link| {
            let mut idle = 0;
            while idle < LOOKS_BEFORE_LOOP && !self.open.is_empty() && self.failed.is_none() {
                let before = self.open.len();
                let _ = self.look(link, &mut looked);
                idle = if self.open.len() < before { 0 } else { idle + 1 };
            }
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
