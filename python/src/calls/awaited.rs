//! The things that tasks await on a link: the outcome of a call, the outcomes of several, credit for a call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farjump::{Error, Link};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::calls::call::Results;
use crate::calls::pending::{Pending, Seen};
use crate::calls::pendings::{Pendings, SentSome};
use crate::calls::sending::Unsent;
use crate::calls::shared::Shared;
use crate::errors::closed;

/// Number of calls in a row without an outcome after which a look leaves the others for the next time. Outcomes come
/// mostly in the order of the calls.
pub(crate) const MISSES: usize = 64;

/// One future, with the calls or the credit that complete it.
pub(crate) enum Entry {
    Call { future: Py<PyAny>, pending: Py<Pending>, seen: Option<Seen> },
    Part(Part),
    Credit(Credit),
}

/// State shared by the parts of a future of several calls. The parts may belong to several links. It refers to no
/// Python object: the garbage collector would visit that object once for each part.
pub(crate) struct Group {
    /// Number of links with calls that have no outcome.
    pub(crate) parts: AtomicUsize,
    /// True if a failure has ended the wait. The other calls stay pending.
    pub(crate) has_failed: AtomicBool,
}

/// The calls of a [`Group`] on one link.
pub(crate) struct Part {
    pub(crate) group: Arc<Group>,
    /// The future of all parts.
    pub(crate) future: Py<PyAny>,
    /// All calls. Only the findings of a look share them, for as long as that look takes.
    pub(crate) pendings: Arc<Py<Pendings>>,
    /// Calls without an outcome, in order.
    pub(crate) open: VecDeque<Py<Pending>>,
    /// The time at which one of them was last sent.
    pub(crate) since: Instant,
    /// The first failed call and its outcome, if a failure ends the wait.
    pub(crate) failed: Option<(Py<Pending>, Seen)>,
}

/// A call that is to be sent when there is credit.
pub(crate) struct Credit {
    pub(crate) future: Py<PyAny>,
    pub(crate) unsent: Unsent,
    pub(crate) results: Results,
    pub(crate) since: Instant,
    pub(crate) sent: Option<Result<u32, Error>>,
}

/// The findings of a look with the link's lock held.
#[derive(Default)]
pub(crate) struct Looked {
    /// Outcomes of calls of groups, which are not yet Python objects.
    pub(crate) found: Vec<(Py<Pending>, Seen)>,
    /// For each group, its calls that cannot be sent, and values that it has finished with.
    pub(crate) sent: Vec<(Arc<Py<Pendings>>, SentSome)>,
    /// True if a call found no credit. Other calls then do not overtake it.
    pub(crate) is_full: bool,
}

impl Looked {
    /// Keeps the outcomes, without the link's lock.
    pub(crate) fn settle(self, py: Python<'_>) {
        for (pendings, some) in self.sent {
            for (place, error) in some.failed {
                pendings.get().settle(py, place, error);
            }
        }
        for (pending, seen) in self.found {
            // `settled` keeps the outcome, also if it is an exception.
            drop(pending.get().settled(py, seen));
        }
    }
}

/// The result of a look at an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    None,
    Some,
    /// The future can be completed.
    All,
}

impl Entry {
    pub(crate) fn future(&self) -> &Py<PyAny> {
        match self {
            Entry::Call { future, .. } => future,
            Entry::Part(part) => &part.future,
            Entry::Credit(credit) => &credit.future,
        }
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.future())?;
        match self {
            Entry::Call { pending, .. } => visit.call(pending),
            Entry::Part(part) => {
                visit.call(&*part.pendings)?;
                let failed = part.failed.iter().map(|(pending, _)| pending);
                part.open.iter().chain(failed).try_for_each(|pending| visit.call(pending))
            }
            Entry::Credit(credit) => {
                credit.unsent.visit(visit)?;
                credit.results.visit(visit)
            }
        }
    }

    /// Returns whether the entry sends calls.
    pub(crate) fn sends(&self) -> bool {
        match self {
            Entry::Call { .. } => false,
            Entry::Part(part) => part.pendings.get().has_unsent(),
            Entry::Credit(_) => true,
        }
    }

    /// Looks once, with the link's lock held. Without a link, because it was closed, the future can be completed.
    pub(crate) fn look(&mut self, link: Option<&Link>, looked: &mut Looked) -> Progress {
        match self {
            Entry::Call { pending, seen, .. } => {
                *seen = pending.get().look(link);
                if seen.is_some() { Progress::All } else { Progress::None }
            }
            Entry::Part(part) => part.look(link, looked),
            Entry::Credit(credit) => {
                let Some(link) = link else { return Progress::All };
                if looked.is_full {
                    return Progress::None;
                }
                credit.sent = credit.unsent.try_to_send(link);
                looked.is_full = credit.sent.is_none();
                if looked.is_full { Progress::None } else { Progress::All }
            }
        }
    }

    /// Keeps the outcome that ended the wait for a group, without the link's lock.
    pub(crate) fn settle(&mut self, py: Python<'_>) {
        if let Entry::Part(Part { failed: Some((pending, seen)), .. }) = self {
            drop(pending.get().settled(py, std::mem::replace(seen, Seen::Failed)));
        }
    }

    /// Returns whether the entry has lacked credit for longer than `limit`.
    pub(crate) fn is_expired(&self, limit: Duration) -> bool {
        match self {
            Entry::Call { .. } => false,
            Entry::Part(part) => self.sends() && part.since.elapsed() >= limit,
            Entry::Credit(credit) => credit.since.elapsed() >= limit,
        }
    }

    /// Completes the future, unless its task was cancelled. Other links of its group may have to finish first.
    pub(crate) fn complete(self, py: Python<'_>, shared: Option<&Arc<Shared>>) -> PyResult<()> {
        match self {
            Entry::Call { future, pending, seen } => {
                let outcome = pending.get().settled(py, seen.unwrap_or(Seen::Known));
                complete(py, &future, outcome.map(Py::into_any))
            }
            Entry::Part(part) => part.complete(py),
            Entry::Credit(credit) => match (credit.sent, shared) {
                (Some(Ok(number)), Some(shared)) => {
                    let pending = Py::new(py, Pending::new(shared, number, credit.results));
                    complete(py, &credit.future, pending.map(Py::into_any))
                }
                (Some(Err(error)), _) => {
                    complete(py, &credit.future, Err(crate::errors::exception(py, &error)))
                }
                _ => complete(py, &credit.future, Err(closed(py, "link"))),
            },
        }
    }

    /// Fails the future, and all calls that it would send.
    pub(crate) fn fail(self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        if let Entry::Part(part) = self {
            part.pendings.get().fail_unsent(py, &error);
            return complete(py, &part.future, Err(error));
        }
        complete(py, self.future(), Err(error))
    }

    /// Cancels the calls of a future that is done. Returns false if one has its outcome and is about to be completed.
    pub(crate) fn abandon(&self) -> bool {
        match self {
            Entry::Call { pending, .. } => pending.get().abandon(),
            Entry::Part(part) if part.group.has_failed.load(Ordering::Acquire) => true,
            Entry::Part(part) => {
                part.pendings.get().drop_unsent();
                part.open.iter().for_each(|pending| {
                    pending.get().abandon();
                });
                true
            }
            Entry::Credit(_) => true,
        }
    }
}

impl Part {
    pub(crate) fn look(&mut self, link: Option<&Link>, looked: &mut Looked) -> Progress {
        let pendings = self.pendings.get();
        let (mut progress, mut misses) = (Progress::None, 0);
        if let Some(link) = link
            && pendings.has_unsent()
            && !looked.is_full
        {
            let some = pendings.send_some(link);
            looked.is_full = pendings.has_unsent();
            if some.sent || !some.failed.is_empty() {
                (self.since, progress) = (Instant::now(), Progress::Some);
            }
            looked.sent.push((Arc::clone(&self.pendings), some));
        }
        let mut missed = Vec::new();
        while misses < MISSES
            && let Some(pending) = self.open.pop_front()
        {
            let Some(seen) = pending.get().look(link) else {
                missed.push(pending);
                misses += 1;
                continue;
            };
            progress = Progress::Some;
            if pendings.ends_at(&seen) {
                self.failed = Some((pending, seen));
                break;
            }
            looked.found.push((pending, seen));
        }
        missed.into_iter().rev().for_each(|pending| self.open.push_front(pending));
        if self.open.is_empty() || self.failed.is_some() { Progress::All } else { progress }
    }

    fn complete(self, py: Python<'_>) -> PyResult<()> {
        let group = &self.group;
        if let Some((failed, seen)) = self.failed {
            group.has_failed.store(true, Ordering::Release);
            let Err(error) = failed.get().settled(py, seen) else { return Ok(()) };
            return complete(py, &self.future, Err(error));
        }
        if group.parts.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        complete(py, &self.future, self.pendings.get().outcomes(py).map(Py::into_any))
    }
}

pub(crate) fn is_done(py: Python<'_>, future: &Py<PyAny>) -> bool {
    future.call_method0(py, intern!(py, "done")).and_then(|done| done.is_truthy(py)).unwrap_or(false)
}

/// Completes a future, unless its task was cancelled.
fn complete(py: Python<'_>, future: &Py<PyAny>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
    let future = future.bind(py);
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match outcome {
        Ok(reply) => future.call_method1(intern!(py, "set_result"), (reply,)),
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),)),
    }
    .map(drop)
}
