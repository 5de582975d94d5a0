//! A link that threads and event loops use together: a [`SharedLink`] under the rules of [`Lock`].
//!
//! Work under the link's lock is `Send`, so no Python code runs under it. No thread waits for the lock while it holds
//! the GIL, nor for the GIL while it holds the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farjump::{Awaited, Ended, Error, HeldLink, Link, SharedLink, WaitError};
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use crate::errors::exception;
use crate::lock::Lock;
use crate::patience::patiently;
use crate::process::Process;

/// Longest part of a flush.
const FLUSH_TURN: Duration = Duration::from_millis(40);

/// A link, and all that use it.
#[derive(Debug)]
pub(crate) struct Shared {
    link: SharedLink,
    pub(crate) address: String,
    pub(crate) send_timeout: Duration,
    pub(crate) process: Process,
    /// Number of futures that are not completed.
    awaited: AtomicUsize,
    /// The bridges, one for each event loop.
    pub(crate) bridges: Lock<Vec<Known>>,
}

/// A link's reference to a bridge.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The address of the event loop. Another event loop may have the same address later.
    pub(crate) event_loop: usize,
    pub(crate) bridge: Arc<Py<PyWeakrefReference>>,
}

impl Shared {
    pub(crate) fn new(link: Link, address: String, send_timeout: Duration, process: Process) -> Shared {
        let link = SharedLink::new(link);
        Shared {
            link,
            address,
            send_timeout,
            process,
            awaited: AtomicUsize::new(0),
            bridges: Lock::default(),
        }
    }

    /// Runs `work` under the lock. If another thread has it, `work` waits and runs without the GIL.
    pub(crate) fn with<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut HeldLink) -> R + Send) -> R {
        let done = match self.link.try_hold(work) {
            Ok(done) => return done,
            Err(work) => py.detach(|| self.link.hold(work)),
        };
        done.expect("no Python code runs under a lock, and methods check for a fork")
    }

    /// As [`Shared::with`], for a look at the link, which is `None` once closed. Wakes all that sleep: the look may have
    /// taken an event of theirs.
    pub(crate) fn look<R: Send>(&self, py: Python<'_>, look: impl FnOnce(Option<&Link>) -> R + Send) -> R {
        self.with(py, |held| {
            let looked = look(held.link());
            held.wake_others(None);
            looked
        })
    }

    /// Cancels a call: now, or when the lock is next taken.
    pub(crate) fn abandon(&self, number: u32) {
        self.link.abandon(number);
    }

    /// Returns whether event loops look for calls.
    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn awaited_once_more(&self) {
        self.awaited.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn no_longer_awaited(&self, futures: usize) {
        self.awaited.fetch_sub(futures, Ordering::Relaxed);
    }

    /// Closes the link, and wakes all that wait for it, and event loops that read it. A closed link stays as it is.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.link.close()).map_err(|error| exception(py, &error))
    }

    /// Tries `attempt` until it has a value or `limit` has passed. It holds the GIL for a while, then releases it.
    /// Returns `Ok(None)` at the limit.
    ///
    /// # Errors
    /// A closed link, or an exception that a signal handler raised.
    pub(crate) fn wait<R: Send>(
        &self,
        py: Python<'_>,
        limit: Option<Duration>,
        attempt: impl FnMut(&Link) -> Option<R> + Send,
    ) -> PyResult<Option<R>> {
        if limit == Some(Duration::ZERO) {
            let tried = self.with(py, |held| held.look(None, attempt));
            return tried.map_err(|error| exception(py, &error));
        }
        match patiently(py, limit, |patience| self.link.attempt(patience, attempt))? {
            Ok(found) => Ok(Some(found)),
            // An interruption raises an exception, which is returned before.
            Err(Ended::TimedOut | Ended::Interrupted) => Ok(None),
            Err(Ended::Failed(error)) => Err(exception(py, &error)),
        }
    }

    /// Flushes the link in turns. Between turns, other threads use the link, and this one checks for signals.
    ///
    /// # Errors
    /// An exception that a signal handler raised. The inner result has the link's error.
    pub(crate) fn flush(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<Result<(), Error>> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let turn = left.map_or(FLUSH_TURN, |left| left.min(FLUSH_TURN));
            match py.detach(|| self.link.with(|link| link.flush(turn))).and_then(|flushed| flushed) {
                Err(Error::Wait(WaitError::TimedOut { .. })) if left.is_none_or(|left| left > turn) => {}
                flushed => return Ok(flushed),
            }
            py.check_signals()?;
        }
    }

    /// Returns the error of a wait that took as long as its limit.
    pub(crate) fn timed_out(&self, py: Python<'_>, awaited: Awaited, timeout: Duration) -> PyErr {
        exception(py, &WaitError::TimedOut { awaited, peer: self.address.clone(), timeout }.into())
    }
}
