//! A link that threads and event loops use together.
//!
//! The link lies under a lock that is held for single looks and sends, never for a wait. The GIL is never awaited
//! while the lock is held, nor the lock while the GIL is. One thread at a time sleeps on the link's descriptor for
//! all that wait; each event loop sleeps on it as well. A caller whose look may have taken the event of a sleeper
//! wakes that sleeper.

use std::hint::spin_loop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Awaited, Error, Link, Reply, WaitError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::errors::{closed, exception};
use crate::event_loop::Bridge;
use crate::process::Process;

/// Time of looks with the GIL held before a wait releases it: to have it back can take 5 ms beside a thread that
/// computes. A target that sleeps is woken in less.
const HELD: Duration = Duration::from_micros(100);
/// Looks between two checks whether the target waits for this processor, and between two releases of the lock.
const LOOKS_TO_YIELD: u32 = 64;
/// Time of looks without the GIL before a wait sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Longest time without a check for signals.
const TURN: Duration = Duration::from_millis(10);

/// Longest part of a flush.
const FLUSH_TURN: Duration = Duration::from_millis(40);

/// What a look for the outcome of a call found.
#[derive(Debug)]
pub(crate) enum Look {
    Outcome(Result<Reply, Error>),
    Pending,
    /// Another thread has taken the outcome.
    Taken,
}

/// Looks once for the outcome of the call with this number.
pub(crate) fn look(link: &Link, number: u32) -> Look {
    let Some(mut pending) = link.pending_from_raw(number) else { return Look::Taken };
    match pending.poll() {
        Ok(Some(reply)) => Look::Outcome(Ok(reply)),
        Err(error) => Look::Outcome(Err(error)),
        Ok(None) => {
            // The number stays the owner's.
            let _ = pending.into_raw();
            Look::Pending
        }
    }
}

/// A wait that ended without what it was for.
#[derive(Debug)]
pub(crate) enum Ended {
    Closed,
    Failed(Error),
}

impl Ended {
    pub(crate) fn exception(&self, py: Python<'_>) -> PyErr {
        match self {
            Ended::Closed => closed(py, "link"),
            Ended::Failed(error) => exception(py, error),
        }
    }
}

/// The descriptor by which one sleeper is woken.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) descriptor: OwnedFd,
    /// Changes under the link's lock only.
    asleep: AtomicBool,
}

impl Wake {
    pub(crate) fn new() -> std::io::Result<Arc<Wake>> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Wake { descriptor, asleep: AtomicBool::new(false) }))
    }

    fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    fn ring(&self) {
        // It fails only when the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Empties the descriptor. Returns whether it was rung.
    fn quiet(&self) -> bool {
        rustix::io::read(&self.descriptor, &mut [0; 8]).is_ok()
    }
}

/// The link and its sleepers, under the lock.
#[derive(Debug)]
pub(crate) struct Held {
    /// `None` once closed.
    pub(crate) link: Option<Link>,
    /// A duplicate of the link's descriptor, which outlives the link while somebody sleeps on it.
    descriptor: Option<Arc<OwnedFd>>,
    sleepers: Vec<Arc<Wake>>,
}

impl Held {
    /// Wakes all that sleep but `own`.
    pub(crate) fn wake_others(&self, own: Option<&Arc<Wake>>) {
        for wake in &self.sleepers {
            if wake.is_asleep() && own.is_none_or(|own| !Arc::ptr_eq(own, wake)) {
                wake.asleep.store(false, Ordering::Relaxed);
                wake.ring();
            }
        }
    }

    /// Prepares to sleep on [`Held::descriptor`]; `None` if there may be something already. The link's error shows in the
    /// next look, so that is nothing to sleep for either.
    pub(crate) fn begin_sleep(&self, own: &Arc<Wake>) -> Option<Duration> {
        let longest = self.link.as_ref()?.arm();
        let longest = longest.ok().flatten();
        own.asleep.store(longest.is_some(), Ordering::Relaxed);
        if longest.is_none() {
            self.disarm();
        }
        longest
    }

    /// Ends the sleep, if it is one. Returns whether another thread ended it.
    pub(crate) fn end_sleep(&self, own: &Arc<Wake>) -> bool {
        own.asleep.store(false, Ordering::Relaxed);
        self.disarm();
        own.quiet()
    }

    /// Has the target no longer wake this process, unless somebody sleeps.
    fn disarm(&self) {
        if let Some(link) = &self.link
            && !self.sleepers.iter().any(|wake| wake.is_asleep())
        {
            link.disarm();
        }
    }

    /// The descriptor to sleep on.
    pub(crate) fn descriptor(&mut self) -> Result<Arc<OwnedFd>, Ended> {
        if let Some(descriptor) = &self.descriptor {
            return Ok(Arc::clone(descriptor));
        }
        let link = self.link.as_ref().ok_or(Ended::Closed)?;
        let owned = link.as_fd().map_err(Ended::Failed)?.try_clone_to_owned().map_err(|source| {
            let operation = farjump::SystemOperation::MakeDescriptor;
            Ended::Failed(farjump::SystemError { operation, source }.into())
        })?;
        Ok(Arc::clone(self.descriptor.insert(Arc::new(owned))))
    }

    pub(crate) fn add_sleeper(&mut self, wake: &Arc<Wake>) {
        self.sleepers.push(Arc::clone(wake));
    }

    pub(crate) fn remove_sleeper(&mut self, wake: &Arc<Wake>) {
        self.sleepers.retain(|other| !Arc::ptr_eq(other, wake));
    }
}

/// A link, and all that use it.
#[derive(Debug)]
pub(crate) struct Shared {
    held: Mutex<Held>,
    pub(crate) address: String,
    pub(crate) send_timeout: Duration,
    pub(crate) process: Process,
    /// Whether a thread sleeps on the link for all threads.
    led: Mutex<bool>,
    /// Tells the other threads that it no longer does.
    turned: Condvar,
    wake: Arc<Wake>,
    /// Numbers of calls that were dropped while the link was in use.
    dropped: Mutex<Vec<u32>>,
    drops: AtomicUsize,
    /// Number of futures that are not completed.
    awaited: AtomicUsize,
    /// One for each event loop.
    pub(crate) bridges: Mutex<Vec<Py<Bridge>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        link: Link,
        address: String,
        send_timeout: Duration,
        process: Process,
    ) -> std::io::Result<Shared> {
        let wake = Wake::new()?;
        let held = Held { link: Some(link), descriptor: None, sleepers: vec![Arc::clone(&wake)] };
        Ok(Shared {
            held: Mutex::new(held),
            address,
            send_timeout,
            process,
            led: Mutex::new(false),
            turned: Condvar::new(),
            wake,
            dropped: Mutex::default(),
            drops: AtomicUsize::new(0),
            awaited: AtomicUsize::new(0),
            bridges: Mutex::default(),
        })
    }

    /// Takes the lock in a thread that has the GIL, and releases the GIL if it has to wait.
    pub(crate) fn hold(&self, py: Python<'_>) -> MutexGuard<'_, Held> {
        let held = self.held.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        self.forget_dropped(&held);
        held
    }

    /// Takes the lock in a thread that has released the GIL.
    fn hold_detached(&self) -> MutexGuard<'_, Held> {
        let held = locked(&self.held);
        self.forget_dropped(&held);
        held
    }

    fn forget_dropped(&self, held: &Held) {
        if self.drops.load(Ordering::Acquire) == 0 {
            return;
        }
        let dropped = std::mem::take(&mut *locked(&self.dropped));
        self.drops.fetch_sub(dropped.len(), Ordering::AcqRel);
        if let Some(link) = &held.link {
            dropped.into_iter().for_each(|number| drop(link.pending_from_raw(number)));
        }
    }

    /// Cancels a call: now, or when the lock is next taken.
    pub(crate) fn abandon(&self, number: u32) {
        // The locks of a forked child may be held by threads that it does not have.
        if !self.process.is_this() {
            return;
        }
        locked(&self.dropped).push(number);
        self.drops.fetch_add(1, Ordering::AcqRel);
        if let Ok(held) = self.held.try_lock() {
            self.forget_dropped(&held);
        }
    }

    /// Whether event loops look for calls.
    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn awaited_once_more(&self) {
        self.awaited.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn no_longer_awaited(&self, futures: usize) {
        self.awaited.fetch_sub(futures, Ordering::Relaxed);
    }

    /// Closes the link, and wakes all that wait for it. Without effect on a closed one.
    pub(crate) fn close(&self, py: Python<'_>) {
        let mut held = self.hold(py);
        let link = held.link.take();
        held.descriptor = None;
        held.wake_others(None);
        drop(held);
        py.detach(|| drop(link));
    }

    /// Tries `attempt` until it has a value or `limit` has passed: for a while with the GIL held, then without it.
    /// `Ok(None)` at the limit.
    ///
    /// # Errors
    /// A closed link, or an exception that a signal handler raised.
    pub(crate) fn wait<R: Send>(
        &self,
        py: Python<'_>,
        limit: Option<Duration>,
        mut attempt: impl FnMut(&Link) -> Option<R> + Send,
    ) -> PyResult<Option<R>> {
        // Most calls are sent at once: then the clock is not read.
        let mut begun = None;
        let mut turn = 0_u32;
        let mut held = self.hold(py);
        while let Some(link) = &held.link {
            if let Some(found) = attempt(link) {
                held.wake_others(None);
                return Ok(Some(found));
            }
            let begun = *begun.get_or_insert_with(Instant::now);
            turn += 1;
            if turn.is_multiple_of(LOOKS_TO_YIELD) {
                if begun.elapsed() >= HELD {
                    break;
                }
                if link.may_share_processor() {
                    held.wake_others(None);
                    drop(held);
                    thread::yield_now();
                    held = self.hold(py);
                }
            }
            if limit == Some(Duration::ZERO) {
                break;
            }
            spin_loop();
        }
        held.wake_others(None);
        let is_closed = held.link.is_none();
        drop(held);
        if is_closed {
            return Err(Ended::Closed.exception(py));
        }
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if limit == Some(Duration::ZERO) {
                return Ok(None);
            }
            let turn = Instant::now() + TURN;
            let until = deadline.map_or(turn, |deadline| deadline.min(turn));
            match py.detach(|| self.attempt_until(until, &mut attempt)) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(ended) => return Err(ended.exception(py)),
            }
            py.check_signals()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    /// Flushes the link in turns: other threads use it between them, and signals are checked for.
    ///
    /// # Errors
    /// As [`Shared::wait`]; inside, the link's.
    pub(crate) fn flush(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<Result<(), Error>> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let turn = left.map_or(FLUSH_TURN, |left| left.min(FLUSH_TURN));
            let flushed = py.detach(|| {
                let held = self.hold_detached();
                let flushed = held.link.as_ref().map(|link| link.flush(turn));
                held.wake_others(None);
                flushed
            });
            match flushed {
                None => return Err(Ended::Closed.exception(py)),
                Some(Err(Error::Wait(WaitError::TimedOut { .. }))) if left.is_none_or(|left| left > turn) => {
                }
                Some(flushed) => return Ok(flushed),
            }
            py.check_signals()?;
        }
    }

    /// [`Shared::wait`] without the GIL, and until `until` at most.
    fn attempt_until<R>(
        &self,
        until: Instant,
        attempt: &mut impl FnMut(&Link) -> Option<R>,
    ) -> Result<Option<R>, Ended> {
        let begun = Instant::now();
        loop {
            let held = self.hold_detached();
            let link = held.link.as_ref().ok_or(Ended::Closed)?;
            for _ in 0..LOOKS_TO_YIELD {
                if let Some(found) = attempt(link) {
                    held.wake_others(None);
                    return Ok(Some(found));
                }
                spin_loop();
            }
            let yields = link.may_share_processor();
            drop(held);
            if yields {
                thread::yield_now();
            }
            let now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            if now >= begun + SPIN
                && let Some(found) = self.sleep(until - now, attempt)?
            {
                return Ok(Some(found));
            }
        }
    }

    /// Sleeps until something comes, or another thread's sleep ends. Tries once more before it: what came since the last
    /// time may have been taken by another caller's look.
    fn sleep<R>(
        &self,
        longest: Duration,
        attempt: &mut impl FnMut(&Link) -> Option<R>,
    ) -> Result<Option<R>, Ended> {
        let mut led = locked(&self.led);
        if *led {
            drop(self.turned.wait_timeout(led, longest));
            return Ok(None);
        }
        *led = true;
        drop(led);
        let _leads = Leads(self);
        let mut held = self.hold_detached();
        let descriptor = held.descriptor()?;
        if let Some(found) = held.link.as_ref().and_then(attempt) {
            return Ok(Some(found));
        }
        let Some(may) = held.begin_sleep(&self.wake) else { return Ok(None) };
        drop(held);
        let mut watched = [
            PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.descriptor.as_fd(), PollFlags::IN),
        ];
        // A signal ends it early, which the caller checks for.
        let _ = poll(&mut watched, Timespec::try_from(may.min(longest)).ok().as_ref());
        let came = !watched[0].revents().is_empty();
        let held = self.hold_detached();
        if !held.end_sleep(&self.wake) && came {
            held.wake_others(Some(&self.wake));
        }
        Ok(None)
    }

    /// The error of a wait that took as long as it may.
    pub(crate) fn timed_out(&self, py: Python<'_>, awaited: Awaited, timeout: Duration) -> PyErr {
        exception(py, &WaitError::TimedOut { awaited, peer: self.address.clone(), timeout }.into())
    }
}

/// The thread that sleeps for all.
struct Leads<'s>(&'s Shared);

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        *locked(&self.0.led) = false;
        self.0.turned.notify_all();
    }
}
