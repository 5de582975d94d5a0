//! A link that threads and event loops use together.
//!
//! A lock guards the link ([`Lock`]). Threads hold it for single looks and sends, never for a wait. No thread waits for
//! the GIL while it holds the lock, nor for the lock while it holds the GIL. One thread at a time sleeps on the link's
//! descriptor for all that wait; each event loop sleeps on it as well. A caller whose look may have taken the event of
//! a sleeper wakes that sleeper.

use std::hint::spin_loop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Awaited, Error, Link, Reply, WaitError};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::calls::event_loop::Known;
use crate::errors::{closed, exception};
use crate::lock::{Lead, Lock};
use crate::process::Process;

/// Time of looks with the GIL held before a wait releases it: taking it back can take 5 ms beside a thread that
/// computes. Waking a sleeping target takes less than this time.
const HELD: Duration = Duration::from_micros(100);
/// Number of looks between two checks whether the target waits for this processor, and between two releases of the
/// lock.
const LOOKS_TO_YIELD: u32 = 64;
/// Time of looks without the GIL before a wait sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Longest time without a check for signals.
const TURN: Duration = Duration::from_millis(10);

/// Longest part of a flush.
const FLUSH_TURN: Duration = Duration::from_millis(40);

/// The result of a look for the outcome of a call.
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
            // The owner keeps the number.
            let _ = pending.into_raw();
            Look::Pending
        }
    }
}

/// The result of several looks.
enum Looks<R> {
    Found(R),
    Nothing,
    /// The target waits for this processor.
    Yields,
    Closed,
}

/// The reason why a wait ended early.
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

/// The descriptor that wakes one sleeper.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) descriptor: OwnedFd,
    /// True while the sleeper may sleep. Changes under the link's lock, and when the sleeper ends.
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
        // The write fails only when the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Empties the descriptor. Returns whether it was readable.
    fn quiet(&self) -> bool {
        rustix::io::read(&self.descriptor, &mut [0; 8]).is_ok()
    }
}

/// The link and its sleepers, under the lock.
#[derive(Debug)]
pub(crate) struct Held {
    /// `None` once closed.
    pub(crate) link: Option<Link>,
    /// A duplicate of the link's descriptor, which outlives the link while a sleeper uses it.
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

    /// Prepares to sleep on [`Held::descriptor`]. Returns `None` if an event may have come already. Also returns `None`
    /// on an error of the link, which the next look reports.
    pub(crate) fn begin_sleep(&self, own: &Arc<Wake>) -> Option<Duration> {
        let longest = self.link.as_ref()?.arm();
        let longest = longest.ok().flatten();
        own.asleep.store(longest.is_some(), Ordering::Relaxed);
        if longest.is_none() {
            self.disarm();
        }
        longest
    }

    /// Ends the sleep, if there is one. Returns whether another thread woke the sleeper.
    pub(crate) fn end_sleep(&self, own: &Arc<Wake>) -> bool {
        own.asleep.store(false, Ordering::Relaxed);
        self.disarm();
        own.quiet()
    }

    /// Stops the target from waking this process, unless another sleeper sleeps.
    fn disarm(&self) {
        if let Some(link) = &self.link
            && !self.sleepers.iter().any(|wake| wake.is_asleep())
        {
            link.disarm();
        }
    }

    /// Returns the descriptor to sleep on.
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
        // Only this list refers to sleepers that ended while the lock was taken.
        self.sleepers.retain(|other| Arc::strong_count(other) > 1);
        self.sleepers.push(Arc::clone(wake));
    }

    fn remove_sleeper(&mut self, wake: &Arc<Wake>) {
        self.sleepers.retain(|other| !Arc::ptr_eq(other, wake));
        self.disarm();
    }
}

/// A link, and all that use it.
#[derive(Debug)]
pub(crate) struct Shared {
    held: Lock<Held>,
    pub(crate) address: String,
    pub(crate) send_timeout: Duration,
    pub(crate) process: Process,
    /// The lead of the thread that sleeps on the link for all threads.
    lead: Lead,
    wake: Arc<Wake>,
    /// Numbers of calls that were dropped while the link was in use.
    dropped: Lock<Vec<u32>>,
    drops: AtomicUsize,
    /// Number of futures that are not completed.
    awaited: AtomicUsize,
    /// The bridges, one for each event loop.
    pub(crate) bridges: Lock<Vec<Known>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Stops the event loops that still read the link.
        if self.process.is_this() {
            self.held.with(|held| held.sleepers.iter().for_each(|wake| wake.ring()));
        }
    }
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
            held: Lock::new(held),
            address,
            send_timeout,
            process,
            lead: Lead::default(),
            wake,
            dropped: Lock::default(),
            drops: AtomicUsize::new(0),
            awaited: AtomicUsize::new(0),
            bridges: Lock::default(),
        })
    }

    /// Runs `work` under the lock in a thread that has the GIL, and releases the GIL if it has to wait.
    pub(crate) fn with<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Held) -> R + Send) -> R {
        self.held.with_attached(py, |held| {
            self.cancel_dropped(held);
            work(held)
        })
    }

    /// Runs `work` under the lock in a thread that has released the GIL.
    fn with_detached<R: Send>(&self, work: impl FnOnce(&mut Held) -> R + Send) -> R {
        self.held.with(|held| {
            self.cancel_dropped(held);
            work(held)
        })
    }

    fn cancel_dropped(&self, held: &Held) {
        if self.drops.load(Ordering::Acquire) == 0 {
            return;
        }
        let dropped = self.dropped.with(std::mem::take);
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
        self.dropped.with(|dropped| dropped.push(number));
        self.drops.fetch_add(1, Ordering::AcqRel);
        let _ = self.held.try_with(|held| self.cancel_dropped(held));
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

    /// Ends the sleeps of an event loop that has ended.
    pub(crate) fn drop_sleeper(&self, wake: &Arc<Wake>) {
        wake.asleep.store(false, Ordering::Relaxed);
        // A forked child leaves the parent's link as it is.
        if self.process.is_this() {
            let _ = self.held.try_with(|held| held.remove_sleeper(wake));
        }
    }

    /// Closes the link, and wakes all that wait for it, and event loops that read it. A closed link stays as it is.
    pub(crate) fn close(&self, py: Python<'_>) {
        let link = self.with(py, |held| {
            held.descriptor = None;
            held.wake_others(None);
            held.sleepers.iter().for_each(|wake| wake.ring());
            held.link.take()
        });
        py.detach(|| drop(link));
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
        mut attempt: impl FnMut(&Link) -> Option<R> + Send,
    ) -> PyResult<Option<R>> {
        // Most calls are sent at once: then the clock is not read.
        let mut begun = None;
        let mut turn = 0_u32;
        loop {
            let first = self.with(py, |held| {
                let Some(link) = &held.link else { return Looks::Closed };
                let first = loop {
                    if let Some(found) = attempt(link) {
                        break Looks::Found(found);
                    }
                    let begun = *begun.get_or_insert_with(Instant::now);
                    turn += 1;
                    if turn.is_multiple_of(LOOKS_TO_YIELD) {
                        if begun.elapsed() >= HELD {
                            break Looks::Nothing;
                        }
                        if link.may_share_processor() {
                            break Looks::Yields;
                        }
                    }
                    if limit == Some(Duration::ZERO) {
                        break Looks::Nothing;
                    }
                    spin_loop();
                };
                held.wake_others(None);
                first
            });
            match first {
                Looks::Found(found) => return Ok(Some(found)),
                Looks::Closed => return Err(Ended::Closed.exception(py)),
                Looks::Nothing => break,
                Looks::Yields => thread::yield_now(),
            }
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

    /// Flushes the link in turns. Between turns, other threads use the link, and this one checks for signals.
    ///
    /// # Errors
    /// As [`Shared::wait`]. The inner result has the link's error.
    pub(crate) fn flush(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<Result<(), Error>> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let turn = left.map_or(FLUSH_TURN, |left| left.min(FLUSH_TURN));
            let flushed = py.detach(|| {
                self.with_detached(|held| {
                    let flushed = held.link.as_ref().map(|link| link.flush(turn));
                    held.wake_others(None);
                    flushed
                })
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

    /// Waits as [`Shared::wait`] does, without the GIL, and until `until` at most.
    fn attempt_until<R: Send>(
        &self,
        until: Instant,
        attempt: &mut (impl FnMut(&Link) -> Option<R> + Send),
    ) -> Result<Option<R>, Ended> {
        let begun = Instant::now();
        loop {
            let looked = self.with_detached(|held| {
                let Some(link) = &held.link else { return Looks::Closed };
                for _ in 0..LOOKS_TO_YIELD {
                    if let Some(found) = attempt(link) {
                        held.wake_others(None);
                        return Looks::Found(found);
                    }
                    spin_loop();
                }
                if link.may_share_processor() { Looks::Yields } else { Looks::Nothing }
            });
            match looked {
                Looks::Found(found) => return Ok(Some(found)),
                Looks::Closed => return Err(Ended::Closed),
                Looks::Nothing => {}
                Looks::Yields => thread::yield_now(),
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

    /// Sleeps until an event comes, or another thread's sleep ends. Tries once more before it sleeps: another caller's
    /// look may have taken an event that came since the last try.
    fn sleep<R: Send>(
        &self,
        longest: Duration,
        attempt: &mut (impl FnMut(&Link) -> Option<R> + Send),
    ) -> Result<Option<R>, Ended> {
        let Some(_leads) = self.lead.take(longest) else { return Ok(None) };
        let (descriptor, found, may) = self.with_detached(|held| {
            let descriptor = held.descriptor()?;
            let found = held.link.as_ref().and_then(attempt);
            let may = if found.is_none() { held.begin_sleep(&self.wake) } else { None };
            Ok((descriptor, found, may))
        })?;
        let Some(may) = may else { return Ok(found) };
        let mut watched = [
            PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.descriptor.as_fd(), PollFlags::IN),
        ];
        // A signal ends the sleep early; the caller checks for it.
        let _ = poll(&mut watched, Timespec::try_from(may.min(longest)).ok().as_ref());
        let came = !watched[0].revents().is_empty();
        self.with_detached(|held| {
            if !held.end_sleep(&self.wake) && came {
                held.wake_others(Some(&self.wake));
            }
        });
        Ok(None)
    }

    /// Returns the error of a wait that took as long as its limit.
    pub(crate) fn timed_out(&self, py: Python<'_>, awaited: Awaited, timeout: Duration) -> PyErr {
        exception(py, &WaitError::TimedOut { awaited, peer: self.address.clone(), timeout }.into())
    }
}
