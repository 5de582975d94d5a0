//! The turns of a target: sessions, control connections, newcomers.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::own_calls;
use crate::Error;
use crate::executor::{Executor, LastCall, Unbound};
use crate::link::Wanted;
use crate::serve::Target;
use crate::serve::epoll::{Event, Events};
use crate::serve::session::{End, Session, Shared, Stop};
use crate::serve::target::Idle;

/// Polls between queries to the system for sessions with events. The first number applies where it reports all
/// sessions, so that polling one is a system call too. The second applies where polling one of the others may cost
/// little.
const POLLS_TO_QUERY: (u32, u32) = (4, 128);
/// Polls between readings of the clock: after so many the counter of polls is 0 again.
const POLLS_TO_CLOCK: u32 = 1 << u8::BITS;
/// Readings of the clock after which a source that has brought nothing counts as idle, and between the tasks for
/// idle ones.
const ROUNDS_TO_SETTLE: u8 = 16;
/// Calls that run again before sources have their next turn.
const AGAINS: usize = 64;

/// Counts outcomes that wait for a session in its source's memory. A session that has ended, or is none, may have any.
fn recount_in(sessions: &mut [Session]) -> impl FnMut(u64, usize, usize) -> bool {
    move |session, from, to| {
        let session = sessions.iter_mut().find(|one| one.id == session);
        session.is_none_or(|session| session.recount(from, to))
    }
}

impl Target<'_> {
    /// Runs arrived frames, at most a batch from each source, and returns their number. Never waits. Of
    /// sources that have brought nothing for a while it checks one per poll, so that the cost of a poll does
    /// not depend on their number. Now and then it also looks for new sources and for those that are gone.
    ///
    /// # Errors
    /// When the system fails the target itself, and [`ServeError::Forked`](crate::ServeError::Forked) in a forked
    /// child, where nothing runs. An error of a source ends its own link only.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, Error> {
        self.poll_boxed().map_err(|error| *error)
    }

    /// Limits a poll to `frames` frames of each source; the others run in later polls. This is for programs with other
    /// work, which measure the time that functions take. 0 counts as 1. Default: 64. A batch of messages counts as one
    /// frame.
    pub fn set_batch(&mut self, frames: usize) {
        self.shared.host.get_or_insert_default().batch = frames.max(1);
        self.sessions.poll_in_turn();
    }

    /// Returns whether a poll may find frames. `false`: no mailbox in memory shows one. Over transports that move
    /// frames only in polls the result is `true`. Sources whose frames make [`Target::as_fd`] readable are left out.
    ///
    /// This is for programs that prepare for a poll at some cost. A poll also tends links, so call [`Target::poll`] now
    /// and then in any case, after [`Target::tend`] if that is seldom.
    pub fn may_have_frames(&self) -> bool {
        self.shared.forwards.is_active()
            || self.sessions[..self.sessions.polled()].iter().any(Session::may_have_frames)
    }

    /// Makes the next poll check for new sources, for control messages of the others, and for sources that are gone,
    /// which polls otherwise do only now and then. This is for programs that poll seldom.
    pub fn tend(&mut self) {
        (self.polls, self.last_control) = (u8::MAX, None);
    }

    /// Returns the last call, of a source or of the program. This is for programs that report long calls. `None` before
    /// the first call, for code that has been dropped since, and in targets without
    /// [`TargetBuilder::crash_report`](crate::TargetBuilder::crash_report), which do not list code by its address. Its
    /// caller is known with [`TargetBuilder::expose_callers`](crate::TargetBuilder::expose_callers).
    pub fn last_call(&self) -> Option<LastCall> {
        self.shared.executor.last_call()
    }

    /// Returns whether a call with a held reply ([`hold_reply`](crate::hold_reply)) has run since the last release.
    pub fn holds_replies(&self) -> bool {
        self.shared.forwards.holds().are_awaited()
    }

    /// Sends the held replies ([`hold_reply`](crate::hold_reply)): the effects of their calls are durable now. Replies
    /// without credit are sent as soon as there is some.
    pub fn release_replies(&mut self) {
        if !self.shared.forwards.holds_mut().release() {
            return;
        }
        let mut index = 0;
        while index < self.sessions.len() {
            let id = self.sessions[index].id;
            match self.sessions[index].release_replies() {
                Ok(false) => {}
                Ok(true) => self.sessions.make_busy(index),
                Err(stop) => self.end(index, stop),
            }
            // Otherwise another one has come here.
            if index < self.sessions.len() && self.sessions[index].id == id {
                index += 1;
            }
        }
        if self.shared.forwards.release_outcomes() {
            self.hand_over_outcomes();
        }
    }

    /// [`Target::poll`], with a result that travels in registers.
    #[inline(never)]
    fn poll_boxed(&mut self) -> Result<usize, Box<Error>> {
        // Before anything is read: a child shares its parent's sockets, and would take frames from it.
        if !self.is_own_process() {
            return Err(self.forked());
        }
        self.shared.executor.note_modes();
        let ran = if self.sessions.are_all_busy() { self.poll_all() } else { self.poll_due()? };
        if self.shared.forwards.is_active() {
            self.relay();
        }
        if ran == 0 {
            self.idle.polls = self.idle.polls.saturating_add(1);
        } else {
            self.idle = Idle::default();
            self.shared.executor.stats.frames += ran as u64;
            self.shared.executor.restore_modes();
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls == 0 {
            self.now_and_then()?;
        }
        Ok(ran)
    }

    /// Polls every session. Returns the number of frames that ran.
    #[inline(always)]
    fn poll_all(&mut self) -> usize {
        let mut ran = 0;
        let mut stopped = None;
        let Target { sessions, shared, .. } = self;
        let mut left = sessions.iter_mut();
        while let Some(session) = left.next() {
            match session.poll(shared) {
                Ok(frames) => ran += frames,
                Err(stop) => {
                    stopped = Some((left.len(), stop));
                    break;
                }
            }
        }
        match stopped {
            None => ran,
            Some((left, stop)) => ran + self.poll_on(self.sessions.len() - left - 1, stop),
        }
    }

    /// Continues [`Target::poll_all`] at a session that has stopped. Returns the number of frames that ran.
    #[cold]
    #[inline(never)]
    fn poll_on(&mut self, index: usize, stop: Stop) -> usize {
        match self.after_stop(index, stop) {
            Some(frames) => frames + self.poll_sessions(index, self.sessions.len()),
            // Another session took its place.
            None => self.poll_sessions(index, self.sessions.len()),
        }
    }

    /// Polls the sessions whose turn it is, where some are idle. Returns the number of frames that ran.
    #[inline(never)]
    fn poll_due(&mut self) -> Result<usize, Box<Error>> {
        if self.sessions.polled() != self.sessions.len() {
            match self.polls_to_query.checked_sub(1) {
                Some(polls) => self.polls_to_query = polls,
                None => self.query_reported()?,
            }
        }
        let due = self.sessions.due();
        let mut ran = self.poll_sessions(0, due);
        if let Some(index) = self.sessions.turn() {
            ran += self.poll_idle(index);
        }
        Ok(ran)
    }

    /// Polls the sessions from `index` on, up to `due`. Returns the number of frames that ran.
    #[inline(always)]
    fn poll_sessions(&mut self, mut index: usize, mut due: usize) -> usize {
        let mut ran = 0;
        while index < due {
            match self.poll_session(index) {
                Some(frames) => ran += frames,
                // Another session took its place.
                None => {
                    due = due.min(self.sessions.len());
                    continue;
                }
            }
            index += 1;
        }
        ran
    }

    /// Queries the system for reported sessions that have brought frames, and makes those busy.
    #[inline(never)]
    pub(in crate::serve) fn query_reported(&mut self) -> Result<(), Error> {
        // Often enough that busy sessions do not hold up those that are reported.
        let polls = match self.sessions.are_all_reported() {
            true => POLLS_TO_QUERY.0,
            false => (POLLS_TO_QUERY.1 / self.sessions.busy().max(1) as u32).max(POLLS_TO_QUERY.0),
        };
        self.polls_to_query = polls - 1;
        let events = self.watch.wait(Duration::ZERO)?;
        if events.iter().all(|event| matches!(event, Event::Doorbell(_))) {
            events.iter().for_each(|event| self.handle_event(event));
            return Ok(());
        }
        self.serve(&events)
    }

    /// Handles an event of a session that the system reports.
    pub(in crate::serve) fn handle_event(&mut self, event: Event) {
        let Event::Doorbell(id) = event else { return };
        self.idle.naps = 0;
        // The next poll that covers all sessions finds the events of the others.
        if let Some(index) = self.sessions.iter().position(|session| session.id == id)
            && self.sessions[index].events.are_reported()
        {
            match self.with_session(index, Session::silence) {
                Ok(()) => self.sessions.make_busy(index),
                Err(end) => self.end(index, end),
            }
        }
    }

    /// Polls a session whose turn it is, and returns the number of its frames that ran. Not part of the poll's own
    /// code, in which calls of busy sessions run.
    #[inline(never)]
    fn poll_idle(&mut self, index: usize) -> usize {
        self.poll_session(index).unwrap_or(0)
    }

    /// Polls one session, and returns the number of its frames that ran; `None` if it has ended.
    #[inline(always)]
    pub(in crate::serve) fn poll_session(&mut self, index: usize) -> Option<usize> {
        let mut ran = 0;
        loop {
            match self.with_session(index, |session, shared| session.poll_in_turn(shared)) {
                Ok(frames) => {
                    ran += frames;
                    if ran != 0 {
                        self.sessions.make_busy(index);
                    }
                    return Some(ran);
                }
                Err(stop) => ran += self.after_stop(index, stop)?,
            }
        }
    }

    /// Handles the stop of a session that was polled. Returns `None` if it ended, or the number of frames that ran if
    /// it can continue.
    #[cold]
    #[inline(never)]
    fn after_stop(&mut self, index: usize, stop: Stop) -> Option<usize> {
        // Frames that ran before a stop are not all among those that the poll counts.
        self.shared.executor.restore_modes();
        match self.make_space(stop) {
            Ok(frames) => Some(frames),
            Err(end) => {
                self.end(index, end);
                None
            }
        }
    }

    /// Periodic tasks: returning credit to sources that may be short of it, reading control connections for
    /// which a notice is set, and, as often as the interval allows, everything that only the system can
    /// report.
    // Errors are boxed here, as in `forked`: in the poll they would take space on its stack.
    #[cold]
    #[inline(never)]
    pub(in crate::serve) fn now_and_then(&mut self) -> Result<(), Box<Error>> {
        self.shared.executor.prepare_thread();
        self.shared.forwards.progress();
        self.shared.executor.clock.set();
        self.store_has_work();
        #[cfg(feature = "bitcode")]
        if self.shared.executor.is_compiling() {
            self.take_compiled()?;
        }
        self.rounds = self.rounds.wrapping_add(1);
        let idle = self.idle.polls >= POLLS_TO_CLOCK;
        // Idle sources need less of it: with hundreds of them it would take longer than many polls.
        let all = self.rounds.is_multiple_of(ROUNDS_TO_SETTLE);
        let mut index = 0;
        while index < if all { self.sessions.polled() } else { self.sessions.busy() } {
            match self.with_session(index, |session, shared| session.progress(idle, shared)) {
                Ok(()) => index += 1,
                Err(end) => self.end(index, end),
            }
        }
        if all && self.rounds != 0 {
            // It has not slept for some thousand polls: now polling in turn costs less than querying the system.
            self.disarm_idle();
        }
        let few = self.sessions.are_few();
        self.sessions.settle(|session| session.class(all, few));
        if all {
            self.rewatch()?;
        }
        if self.last_control.is_none_or(|last| last.elapsed() >= self.settings.control_interval) {
            let events = self.watch.wait(Duration::ZERO)?;
            self.serve(&events)?;
        }
        Ok(())
    }

    /// Handles events of the system.
    pub(in crate::serve) fn serve(&mut self, events: &Events) -> Result<(), Error> {
        // A signal handler may have forked during the sleep.
        self.check_process()?;
        let now = Instant::now();
        self.last_control = Some(now);
        self.look_at_keys(now);
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            self.watch.listen(self.listener.as_fd(), true)?;
        }
        for event in events.iter() {
            match event {
                Event::Listener => self.accept()?,
                Event::Arrival(id) => self.advance(id),
                Event::Control(id) => {
                    self.idle.naps = 0;
                    if let Some(index) = self.sessions.iter().position(|session| session.id == id) {
                        match self.with_session(index, Session::read_control) {
                            // The rest of its messages has its turn soon.
                            Ok(()) if self.sessions[index].control.has_unread() => {
                                self.sessions.make_busy(index)
                            }
                            Ok(()) if self.sessions[index].is_left_armed() => {
                                match self.with_session(index, Session::silence) {
                                    Ok(()) => self.sessions.make_busy(index),
                                    Err(end) => self.end(index, end),
                                }
                            }
                            Ok(()) => {}
                            Err(end) => self.end(index, end),
                        }
                    }
                }
                // `run` checks for the stop itself.
                Event::Doorbell(_) => self.handle_event(event),
                Event::Handshake => self.shared.forwards.connected(),
                Event::Peer(number) => {
                    self.idle.naps = 0;
                    self.shared.forwards.attend(number);
                }
                Event::Compiler => {
                    #[cfg(feature = "bitcode")]
                    self.take_compiled()?;
                }
                Event::Store => self.handle_bell(),
                Event::Stop => {}
            }
        }
        let late: Vec<_> = self
            .arrivals
            .iter()
            .filter(|(_, arrival)| arrival.deadline() <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.advance(id);
        }
        self.drop_late_requesters(now);
        self.end_late(now);
        self.rewatch()
    }

    /// Watches connections with unsent bytes for writability.
    pub(in crate::serve) fn rewatch(&mut self) -> Result<(), Error> {
        for session in self.sessions.iter_mut() {
            session.rewatch(&self.watch)?;
        }
        self.shared.forwards.rewatch(&self.watch)
    }

    /// Sends forwarded calls, and passes outcomes to the sessions that wait for them; a source that left meanwhile gets
    /// none. Does a part of the work that the store has left.
    #[cold]
    pub(in crate::serve) fn relay(&mut self) {
        // Calls that these request run in the next turn.
        for _ in 0..self.shared.forwards.agains().min(AGAINS) {
            self.run_next_again();
        }
        for _ in 0..self.shared.forwards.made() {
            self.place_next_made();
        }
        let shared = &mut self.shared;
        shared.forwards.turn(&self.watch, &mut shared.executor);
        shared.forwards.count_gathered(&mut recount_in(&mut self.sessions));
        if self.store_work.is_left() {
            self.tend_store();
        }
        let unsent = self.shared.forwards.take_unsent();
        for (session, wanted) in unsent {
            self.request_from_source(session, wanted);
        }
        self.hand_over_outcomes();
    }

    /// Passes outcomes to the sessions that wait for them.
    #[cold]
    pub(in crate::serve) fn hand_over_outcomes(&mut self) {
        let outcomes = self.shared.forwards.take_outcomes(&mut recount_in(&mut self.sessions));
        for outcome in outcomes {
            let session = outcome.caller.session;
            let Some(index) = self.sessions.iter().position(|one| one.id == session) else {
                own_calls::note_lost(&outcome);
                continue;
            };
            match self.with_session(index, |session, shared| session.relay(outcome, shared)) {
                // The sent frames may need progress.
                Ok(None) => self.sessions.make_busy(index),
                Ok(Some(outcome)) => self.shared.forwards.put_back(outcome),
                Err(end) => self.end(index, end),
            }
        }
    }

    /// Runs the next call that is to run again, unless it was to reply to a source that has left.
    fn run_next_again(&mut self) {
        let Some(again) = self.shared.forwards.next_again() else { return };
        let limit = match self.sessions.iter().find(|one| one.id == again.caller.session) {
            Some(session) => session.reply_limit(),
            None if again.caller.wants_reply => return,
            None => self.shared.executor.reply_limit(),
        };
        let Shared { forwards, executor, scratch, .. } = &mut self.shared;
        forwards.run_again(again, limit, executor, scratch);
    }

    /// Places code that a function has made, for the next message to such code.
    #[cold]
    fn place_next_made(&mut self) {
        let Some(call) = self.shared.forwards.next_made() else { return };
        if call.caller.wants_reply && self.sessions.iter().all(|one| one.id != call.caller.session) {
            return;
        }
        let place = |executor: &mut Executor, space_was_made| {
            let code = call.code.as_deref();
            executor.find_made(call.key(), code, &call.maker, call.has_waited, space_was_made)
        };
        let mut placed = place(&mut self.shared.executor, false);
        if let Err(Unbound::NoSpace(need)) = &placed {
            let sessions = &mut self.sessions;
            self.shared.executor.make_space(need, |linked| Session::release(sessions, linked));
            placed = place(&mut self.shared.executor, true);
        }
        self.shared.forwards.placed(call, placed, self.shared.executor.forwarding());
    }

    /// Requests an image for another machine, or the manifest, from a source.
    #[cold]
    fn request_from_source(&mut self, session: u64, wanted: Wanted) {
        match self.sessions.iter().position(|one| one.id == session) {
            Some(index) => {
                match self.with_session(index, |session, shared| session.request_wanted(wanted, shared)) {
                    Ok(()) => self.sessions.make_busy(index),
                    Err(end) => self.end(index, end),
                }
            }
            None => self.shared.forwards.note_unserved(session, wanted, "its source is gone"),
        }
    }

    /// Drops code for a session that cannot continue otherwise. Returns the number of its frames that ran before;
    /// another cause of the stop is returned as error.
    #[cold]
    pub(in crate::serve) fn make_space(&mut self, Stop(end): Stop) -> Result<usize, Stop> {
        let End::Crowded(need, ran) = *end else { return Err(Stop(end)) };
        let sessions = &mut self.sessions;
        self.shared.executor.make_space(&need, |linked| Session::release(sessions, linked));
        Ok(ran)
    }

    #[inline(always)]
    pub(in crate::serve) fn with_session<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Session, &mut Shared) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        act(&mut self.sessions[index], &mut self.shared)
    }
}
