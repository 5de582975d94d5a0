//! Running and sleeping.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farjump_control::KeyFile;
use farjump_core::wait::{AwaitedWord, Turn, Waiter};

#[cfg(doc)]
use super::thread::Stopper;
use crate::Error;
use crate::serve::Target;
use crate::serve::session::Session;
use crate::wait::{LONGEST_SLEEP, Rest, TURNS_TO_YIELD, may_share, processor};

/// Turns that waited for an event after which a target does its periodic work: each may take a tenth of a millisecond.
const EVENTS_TO_LOOK: u8 = 8;

impl Target<'_> {
    /// Serves until a [`Stopper`] stops it: polls, spins for a while when idle, then sleeps.
    ///
    /// # Errors
    /// As [`Target::poll`].
    pub fn run(&mut self) -> Result<(), Error> {
        self.check_process()?;
        let mut waiter = Waiter::new(self.settings.wait);
        // A policy that never yields owns its processor.
        let yields = self.settings.wait.yields != 0;
        while !self.stopper.is_stopped() {
            if self.poll()? != 0 {
                waiter.reset();
                continue;
            }
            match waiter.turn_awaiting(|| self.awaited()) {
                Turn::Event => self.polls = self.polls.max(u8::MAX - EVENTS_TO_LOOK),
                Turn::Again => {
                    if yields && waiter.turns().is_multiple_of(TURNS_TO_YIELD) && self.may_share_processor() {
                        std::thread::yield_now();
                    }
                }
                Turn::Yield => std::thread::yield_now(),
                // The wake may mean work: spin for it again.
                Turn::Sleep if self.wait(LONGEST_SLEEP)? => waiter.reset(),
                Turn::Sleep => {}
            }
        }
        self.end_links("the target stops");
        Ok(())
    }

    /// Returns the word whose write is the next event, if there is only one: the signal of the only source.
    fn awaited(&self) -> Option<AwaitedWord<'_>> {
        match &self.sessions[..] {
            [session] if !self.shared.forwards.is_active() => session.channel.awaited(),
            _ => None,
        }
    }

    /// Returns whether a source that brought frames lately may be waiting for the processor that this thread runs on.
    /// Polling would keep it from running: yield (`std::thread::yield_now`). Call this in your own loop around
    /// [`Target::poll`] if it spins, every 64 polls without result or so. [`Target::run`] does it itself.
    ///
    /// Where memory is mapped (`shm`, and `ucx-put` on one machine) source and target exchange the numbers of their
    /// processors by this. Over other transports the result is `true` for every source on this machine.
    pub fn may_share_processor(&mut self) -> bool {
        let (own, busy) = (processor(), self.sessions.busy());
        // All of them: each source is sent the number too.
        self.sessions[..busy].iter_mut().fold(false, |shares, session| {
            may_share(&mut session.channel, session.control.peer(), own) | shares
        })
    }

    /// Sleeps until a frame, a connection or a stop comes, at most `timeout`. Returns `false` if nothing
    /// came. The next [`Target::poll`] handles the event.
    ///
    /// # Errors
    /// As [`Target::poll`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        let longest = self.arm()?;
        let woken = match longest {
            Some(longest) => self.watch.wait(timeout.min(longest)),
            None => self.watch.wait(Duration::ZERO),
        };
        self.disarm();
        let events = woken?;
        self.serve(&events)?;
        Ok(longest.is_none() || !events.is_empty())
    }

    /// Prepares to sleep on [`Target::as_fd`] in the caller's event loop. Returns the longest time to sleep, or `None`
    /// if there is work already. [`Target::disarm`] follows in any case.
    ///
    /// # Errors
    /// As [`Target::poll`].
    pub fn arm(&mut self) -> Result<Option<Duration>, Error> {
        self.check_process()?;
        if self.shared.executor.objects().is_some_and(|objects| objects.continue_work()) {
            return Ok(None);
        }
        let mut longest = LONGEST_SLEEP;
        let nap = self.idle.nap();
        // Sources that wake this thread yield the processor if it fell asleep on theirs.
        self.may_share_processor();
        let mut index = 0;
        while index < self.sessions.polled() {
            match self.with_session(index, Session::arm) {
                Ok(Rest::None) => return Ok(None),
                Ok(Rest::Sleep) if index >= self.sessions.busy() && self.sessions[index].stay_armed() => {
                    // Its doorbell reports when it needs a poll. Another session takes its index.
                    self.sessions.report(index);
                    continue;
                }
                Ok(Rest::Sleep) => {}
                Ok(Rest::Nap) => longest = longest.min(nap),
                Err(end) => {
                    self.end(index, end);
                    continue;
                }
            }
            index += 1;
        }
        self.rewatch()?;
        #[cfg(feature = "bitcode")]
        self.watch_compiler()?;
        if self.store_has_work() {
            return Ok(None);
        }
        match self.shared.forwards.arm() {
            Rest::None => return Ok(None),
            Rest::Sleep => {}
            Rest::Nap => longest = longest.min(nap),
        }
        let deadlines = self.arrivals.iter().map(|(_, arrival)| arrival.deadline());
        let due = self.key_file.as_ref().map(KeyFile::due);
        let asked = self.shared.forwards.deadline();
        let deadlines = deadlines.chain(self.deaf_until).chain(self.admin_deadline()).chain(due).chain(asked);
        if let Some(deadline) = deadlines.min() {
            longest = longest.min(deadline.saturating_duration_since(Instant::now()));
        }
        self.idle.naps = self.idle.naps.saturating_add(1);
        Ok(Some(longest))
    }

    /// Ends the sleep: sources that call need not wake the target any more, and the next [`Target::poll`] queries the
    /// system for the event that woke it. Of more than four sources over `shm`, those that have brought nothing stay
    /// armed, so that a turn costs the same with few and with many. Their first frame may make [`Target::as_fd`]
    /// readable.
    pub fn disarm(&mut self) {
        let now = self.shared.executor.clock.set();
        if now.saturating_duration_since(self.last_sweep) >= LONGEST_SLEEP {
            self.last_sweep = now;
            self.disarm_idle();
        }
        self.sessions.sweep();
        // The next poll first queries which of the idle ones have signalled.
        self.polls_to_query = 0;
        // The next poll does all periodic work.
        (self.polls, self.rounds, self.last_control) = (u8::MAX, u8::MAX, None);
        self.shared.forwards.disarm();
        let mut index = 0;
        while index < self.sessions.polled() {
            match self.sessions[index].channel.disarm() {
                Ok(()) => index += 1,
                Err(error) => self.end(index, error.into()),
            }
        }
    }

    /// Disarms the idle sessions that stayed armed, and makes them busy: now and then, so that a lost wake-up costs
    /// time and no frame.
    pub(in crate::serve) fn disarm_idle(&mut self) {
        let mut index = self.sessions.polled();
        while index < self.sessions.len() {
            if !self.sessions[index].is_left_armed() {
                index += 1;
                continue;
            }
            match self.with_session(index, Session::silence) {
                Ok(()) => {
                    self.sessions.make_busy(index);
                    index += 1;
                }
                // Another one took its index.
                Err(end) => self.end(index, end),
            }
        }
    }

    /// A descriptor that becomes readable when there is work while armed, and sometimes without work.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
