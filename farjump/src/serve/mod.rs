//! Targets: processes, or threads, that injected functions run in.

mod admin;
mod builder;
mod connections;
mod epoll;
mod forward;
mod keys;
mod session;
mod sessions;
mod thread;

use std::any::TypeId;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use farjump_control::{Arrival, Asker, KeyFile, Listener, Message};
use farjump_core::frame::LINE;
use farjump_core::image::CodeId;
use farjump_core::transport::Transport;
use farjump_core::wait::{Turn, Waiter};

pub use builder::TargetBuilder;
use builder::{Handlers, Settings};
use epoll::{Event, Events, Watch};
use forward::{Choices, Forwards};
use session::{End, Rest, Session, Shared, Staging, Stop};
use sessions::{Found, Sessions};
pub use thread::{Stopper, TargetThread};

use crate::executor::{Executor, ExportFn};
use crate::{Error, HeldImage, Library, Stats};

/// Longest sleep at a stretch, so that a lost wake delays and never hangs.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Naps where there is no doorbell, from the first to the longest: they double.
const NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));
/// Polls between queries to the system for sessions with events. The first number applies where it reports
/// all sessions, so that each look at one is a system call too; the second where a look at one of the others
/// may cost little.
const POLLS_TO_ASK: (u32, u32) = (4, 64);
/// Polls between readings of the clock.
const POLLS_TO_CLOCK: u32 = 256;
/// Polls after which a source that has brought nothing counts as idle, and between the tasks for idle ones; a
/// multiple of the above.
const POLLS_TO_SETTLE: u32 = 16 * POLLS_TO_CLOCK;

/// A process, or a thread of one, that injected functions run in.
///
/// It does nothing by itself: call [`Target::poll`] in a loop of your own, or [`Target::run`], or hand it to
/// a thread with [`Target::spawn`].
///
/// ```no_run
/// # struct Store;
/// # extern "C" fn store_get(_: *mut Store, _: u64) -> u64 { 0 }
/// # fn turn() -> Result<(), farjump::Error> { Ok(()) }
/// # fn main() -> Result<(), farjump::Error> {
/// use farjump::Target;
///
/// let mut store = Store;
/// let mut target = Target::listen("unix:store.sock")
///     .args(&mut store)
///     .export("store_get", store_get as extern "C" fn(_, _) -> _)
///     .build()?;
/// loop {
///     target.poll()?;
///     turn()?;
/// }
/// # }
/// ```
pub struct Target<'a> {
    sessions: Sessions<Session>,
    shared: Shared,
    settings: Settings,
    polls: u32,
    /// Polls in a row that found nothing.
    idle: u32,
    /// Time of the last query to the system for events; `None` if one is due now.
    last_control: Option<Instant>,
    nap: Duration,
    /// Time until which connections wait, because the system could not give one more.
    deaf_until: Option<Instant>,
    /// The process that it was built in.
    process: u32,
    listener: Listener,
    /// The key file of sources, if it may change.
    key_file: Option<KeyFile>,
    arrivals: Vec<(u64, Arrival)>,
    askers: Vec<(u64, Asker)>,
    watch: Watch,
    stopper: Stopper,
    next_id: u64,
    target_args: (*mut c_void, Option<TypeId>),
    args: PhantomData<&'a mut ()>,
}

// SAFETY: `target_args` points to a `T: Send` that is borrowed for `'a` (`TargetBuilder::args`), or the
// caller of `args_raw` guaranteed it for whichever thread polls.
unsafe impl Send for Target<'_> {}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Target")
            .field("address", &self.listener.address())
            .field("sources", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Target<'a> {
    /// A target that listens at `address`: `unix:PATH`, or `tcp:HOST:PORT` ([`TargetBuilder::key`]).
    pub fn listen(address: &str) -> TargetBuilder<'a> {
        TargetBuilder::new(address)
    }

    fn new(
        listener: Listener,
        transports: Vec<Box<dyn Transport>>,
        executor: Executor,
        settings: Settings,
        handlers: Handlers,
        target_args: (*mut c_void, Option<TypeId>),
        choices: Choices,
    ) -> Result<Self, Error> {
        let stopper = Stopper::new()?;
        let watch = Watch::new()?;
        watch.add(listener.as_fd(), Event::Listener, false)?;
        watch.add(stopper.as_fd(), Event::Stop, false)?;
        Ok(Target {
            sessions: Sessions::new(),
            shared: Shared {
                executor,
                handlers,
                stall_limit: settings.stall_limit,
                staging: Staging::default(),
                forwards: Forwards::new(choices),
                transports,
                mailbox: settings.mailbox,
                limits: settings.limits,
            },
            settings,
            polls: 0,
            idle: 0,
            last_control: None,
            nap: NAPS.0,
            deaf_until: None,
            process: std::process::id(),
            listener,
            key_file: None,
            arrivals: Vec::new(),
            askers: Vec::new(),
            watch,
            stopper,
            next_id: 0,
            target_args,
            args: PhantomData,
        })
    }

    /// Runs arrived frames, at most a batch from each source, and returns their number. Never waits. Of
    /// sources that have brought nothing for a while it looks at one per poll, so that a poll costs the same
    /// however many are idle. Now and then it also looks for new sources and for those that are gone.
    ///
    /// # Errors
    /// When the system fails the target itself. An error of a source ends its own link only.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, Error> {
        let mut ran = 0;
        if self.sessions.untold() != self.sessions.len() {
            self.ask_of_told()?;
        }
        let mut index = 0;
        let mut due = self.sessions.due();
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
        if let Some(index) = self.sessions.turn() {
            ran += self.poll_session(index).unwrap_or(0);
        }
        if self.shared.forwards.is_active() {
            self.relay();
        }
        if ran == 0 {
            self.idle = self.idle.saturating_add(1);
        } else {
            (self.idle, self.nap) = (0, NAPS.0);
            self.shared.executor.stats.frames += ran as u64;
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_TO_CLOCK) {
            self.now_and_then()?;
        }
        Ok(ran)
    }

    /// Asks the system which of the sessions that it reports have brought frames, and makes those busy.
    #[inline(never)]
    fn ask_of_told(&mut self) -> Result<(), Error> {
        let every = if self.sessions.are_all_told() { POLLS_TO_ASK.0 } else { POLLS_TO_ASK.1 };
        if !self.polls.wrapping_add(1).is_multiple_of(every) {
            return Ok(());
        }
        let events = self.watch.wait(Duration::ZERO)?;
        if events.iter().all(|event| matches!(event, Event::Doorbell(_))) {
            events.iter().for_each(|event| self.heed(event));
            return Ok(());
        }
        self.serve(&events)
    }

    /// Handles an event of a session that the system reports.
    fn heed(&mut self, event: Event) {
        let Event::Doorbell(id) = event else { return };
        self.nap = NAPS.0;
        // The events of other sessions are found by the next poll that looks at all.
        if let Some(index) = self.sessions.iter().position(|session| session.id == id)
            && (self.sessions[index].tells || self.sessions[index].doorbell_for_room)
        {
            self.sessions.make_busy(index);
        }
    }

    /// Polls one session, and returns how many of its frames ran; `None` if it has ended.
    #[inline(always)]
    fn poll_session(&mut self, index: usize) -> Option<usize> {
        let mut ran = 0;
        loop {
            match self.with_session(index, Session::poll) {
                Ok(frames) => {
                    ran += frames;
                    if ran != 0 {
                        self.sessions.make_busy(index);
                    }
                    return Some(ran);
                }
                Err(stop) => match self.make_room(stop) {
                    Ok(frames) => ran += frames,
                    Err(end) => {
                        self.end(index, end);
                        return None;
                    }
                },
            }
        }
    }

    /// Serves until a [`Stopper`] stops it: polls, spins for a while when idle, then sleeps.
    ///
    /// # Errors
    /// As [`Target::poll`].
    pub fn run(&mut self) -> Result<(), Error> {
        let mut waiter = Waiter::new(self.settings.wait);
        while !self.stopper.is_stopped() {
            if self.poll()? != 0 {
                waiter.reset();
                continue;
            }
            match waiter.turn() {
                Turn::Again => {}
                Turn::Yield => std::thread::yield_now(),
                // The wake may mean work: spin for it again.
                Turn::Sleep if self.wait(LONGEST_SLEEP)? => waiter.reset(),
                Turn::Sleep => {}
            }
        }
        self.close("the target stops");
        Ok(())
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

    /// Prepares to sleep on [`Target::as_fd`] in an event loop of the caller's. Returns the longest time to
    /// sleep, or `None` if there is work already. [`Target::disarm`] follows in any case.
    ///
    /// # Errors
    /// As [`Target::poll`].
    pub fn arm(&mut self) -> Result<Option<Duration>, Error> {
        let mut longest = LONGEST_SLEEP;
        let mut index = 0;
        while index < self.sessions.untold() {
            match self.with_session(index, Session::arm) {
                Ok(Rest::None) => return Ok(None),
                Ok(Rest::Sleep) => {}
                Ok(Rest::Nap) => longest = longest.min(self.nap),
                Err(end) => {
                    self.end(index, end);
                    continue;
                }
            }
            index += 1;
        }
        self.rewatch()?;
        match self.shared.forwards.arm() {
            Rest::None => return Ok(None),
            Rest::Sleep => {}
            Rest::Nap => longest = longest.min(self.nap),
        }
        let deadlines = self.arrivals.iter().map(|(_, arrival)| arrival.deadline());
        let due = self.key_file.as_ref().map(KeyFile::due);
        if let Some(deadline) =
            deadlines.chain(self.deaf_until).chain(self.askers_deadline()).chain(due).min()
        {
            longest = longest.min(deadline.saturating_duration_since(Instant::now()));
        }
        self.nap = (self.nap * 2).min(NAPS.1);
        Ok(Some(longest))
    }

    /// Ends the sleep: sources need not wake the target any more, and the next [`Target::poll`] asks the
    /// system for the event that woke it.
    pub fn disarm(&mut self) {
        self.shared.executor.clock.set();
        self.sessions.sweep();
        (self.polls, self.last_control) = (u32::MAX, None);
        self.shared.forwards.disarm();
        let mut index = 0;
        while index < self.sessions.untold() {
            match self.sessions[index].channel.disarm() {
                Ok(()) => index += 1,
                Err(error) => self.end(index, error.into()),
            }
        }
    }

    /// A descriptor that becomes readable when there is work while armed.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Hands the target to a thread of its own, which runs it until [`TargetThread::stop`].
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn spawn(self) -> Result<TargetThread, Error>
    where
        'a: 'static,
    {
        TargetThread::start(self)
    }

    /// A handle that stops [`Target::run`], from any thread or from a signal handler.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The value that [`TargetBuilder::args`] borrowed, between polls; `None` if it was of another type.
    pub fn args_mut<T: 'static>(&mut self) -> Option<&mut T> {
        let (args, type_id) = self.target_args;
        if type_id != Some(TypeId::of::<T>()) {
            return None;
        }
        // SAFETY: `args` points to a `T` that is borrowed for longer than `self` lives; injected code uses it
        // only inside `poll`, which needs `self` exclusively, as this borrow does.
        Some(unsafe { &mut *args.cast::<T>() })
    }

    /// The address that it listens at: as given, and with the port that the system chose for port 0.
    pub fn address(&self) -> String {
        self.listener.address().to_string()
    }

    /// The target's statistics.
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.executor.counted();
        stats.frames -= stats.waited;
        stats.bytes += self.sessions.iter().map(|session| session.received()).sum::<u64>();
        stats.summed += self.sessions.iter().map(|session| session.summed()).sum::<u64>();
        stats
    }

    /// Number of connected sources.
    pub fn sources(&self) -> usize {
        self.sessions.len()
    }

    /// The code in the store.
    pub fn images(&self) -> Vec<HeldImage> {
        let executor = &self.shared.executor;
        let now = executor.clock.now();
        executor.images().map(|linked| HeldImage::of(linked, now)).collect()
    }

    /// This target's epoch: another one each time a target is built.
    pub fn epoch(&self) -> u64 {
        self.shared.executor.epoch()
    }

    /// Adds the function of `library` to the target, in place of one of the same name; see
    /// [`TargetBuilder::local`].
    ///
    /// # Errors
    /// As [`Executor::set_local`](crate::Executor::set_local).
    pub fn set_local(&mut self, library: &Library) -> Result<(), Error> {
        let sessions = &mut self.sessions;
        self.shared.executor.set_local_with(library, |linked| Session::release(sessions, linked))
    }

    /// Removes the function of this name from the target's own; `false` if there was none.
    pub fn remove_local(&mut self, name: &str) -> bool {
        self.shared.executor.remove_local(name)
    }

    /// Offers a function as `name` from now on, before all earlier exports of that name (interposing). Code
    /// linked before keeps its addresses, also for sources to come; [`Target::forget`] has it linked again.
    /// Names that begin with `farjump_` are reserved for the services.
    pub fn export<F: ExportFn>(&mut self, name: &str, function: F) {
        self.shared.executor.export(name, function);
    }

    /// As [`Target::export`], for an address of a function or of data, as in C.
    ///
    /// # Safety
    /// `address` must be valid for whatever injected functions that import `name` do with it, until the
    /// target is dropped.
    pub unsafe fn export_raw(&mut self, name: &str, address: *const c_void) {
        // SAFETY: this function's caller guarantees it; the executor lives no longer than the target.
        unsafe { self.shared.executor.export_raw(name, address) };
    }

    /// As [`Target::export`], for the address of data.
    pub fn export_data<T: Sync>(&mut self, name: &str, data: &'static T) {
        self.shared.executor.export_data(name, data);
    }

    /// As [`Target::export`], for every symbol that a shared library itself defines, by path or soname. It is
    /// loaded now, which runs its constructors, and stays until the process ends. Returns the names of the
    /// exports that it replaces, in alphabetical order. From another process:
    /// [`Admin::export`](crate::admin::Admin::export).
    ///
    /// # Errors
    /// [`Error::Library`] when it cannot be loaded; nothing has changed then.
    ///
    /// # Safety
    /// As for [`TargetBuilder::export_library`]; its constructors run now.
    pub unsafe fn export_library(&mut self, path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        // SAFETY: this function's caller guarantees it.
        unsafe { self.shared.executor.export_library(path) }
    }

    /// Names the target at `address` (`unix:PATH`, `tcp:HOST:PORT`) as destination `name` from now on; see
    /// [`TargetBuilder::peer`]. Calls under way to another address of that name fail.
    ///
    /// # Errors
    /// When the address is malformed.
    pub fn set_peer(&mut self, name: &str, address: &str) -> Result<(), Error> {
        let (forwards, executor) = (&mut self.shared.forwards, &mut self.shared.executor);
        forwards.set(name, &address.parse()?, &self.watch, executor.forwarding());
        Ok(())
    }

    /// Drops code from the store; `false` if it is not there. Its statics are lost. A source that calls it
    /// again is asked for it.
    pub fn forget(&mut self, id: &CodeId) -> bool {
        for session in self.sessions.iter_mut() {
            session.forget(id);
        }
        self.shared.executor.forget(id)
    }

    /// Ends all links, and gives sources the reason.
    pub fn close(&mut self, why: &str) {
        for mut session in self.sessions.take() {
            // Best effort: a source that does not read learns it from the end of the connection.
            drop(session.control.send(&Message::Closing { text: why.to_owned() }, &[]));
            drop(session.channel.call_attention());
            self.watch.remove_session(&session);
            self.shared.executor.stats.bytes += session.received();
            self.shared.executor.stats.summed += session.summed();
            self.shared.executor.stats.links_ended += 1;
        }
        for (_, arrival) in self.arrivals.drain(..) {
            if let Some(fd) = arrival.as_fd() {
                self.watch.remove(fd);
            }
        }
        for (_, asker) in self.askers.drain(..) {
            self.watch.remove(asker.as_fd());
        }
        self.shared.forwards.close(&self.watch);
    }

    #[inline(always)]
    fn with_session<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Session, &mut Shared) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        act(&mut self.sessions[index], &mut self.shared)
    }

    /// Periodic tasks: returning credit to sources that may be short of it, reading control connections for
    /// which a notice is set, and, as often as the interval allows, everything that only the system can
    /// report.
    #[cold]
    fn now_and_then(&mut self) -> Result<(), Error> {
        self.shared.executor.prepare_thread();
        self.shared.forwards.progress();
        self.shared.executor.clock.set();
        let idle = self.idle >= POLLS_TO_CLOCK;
        // Idle sources need less of it: with hundreds of them it would take longer than many polls.
        let all = self.polls.is_multiple_of(POLLS_TO_SETTLE);
        let mut index = 0;
        while index < if all { self.sessions.untold() } else { self.sessions.busy() } {
            match self.with_session(index, |session, shared| session.progress(idle, shared)) {
                Ok(()) => index += 1,
                Err(end) => self.end(index, end),
            }
        }
        self.sessions.settle(|session| {
            if !session.tells && !all {
                Found::Unknown
            } else if session.has_brought() {
                Found::Busy
            } else if session.channel.tells_unasked() {
                Found::Told
            } else if session.tells {
                // A frame is here that was received beside something else.
                Found::Busy
            } else {
                Found::Idle
            }
        });
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
    fn serve(&mut self, events: &Events) -> Result<(), Error> {
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
                    self.nap = NAPS.0;
                    if let Some(index) = self.sessions.iter().position(|session| session.id == id) {
                        match self.with_session(index, Session::read_control) {
                            // The rest of its messages has its turn soon.
                            Ok(()) if self.sessions[index].unread => self.sessions.make_busy(index),
                            Ok(()) => {}
                            Err(end) => self.end(index, end),
                        }
                    }
                }
                // `run` checks for the stop itself.
                Event::Doorbell(_) => self.heed(event),
                Event::Met => self.shared.forwards.met(),
                Event::Peer(number) => {
                    self.nap = NAPS.0;
                    self.shared.forwards.attend(number);
                }
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
        self.drop_late_askers(now);
        self.end_late(now);
        self.rewatch()
    }

    /// Watches connections with unsent bytes for writability.
    fn rewatch(&mut self) -> Result<(), Error> {
        for session in self.sessions.iter_mut() {
            let wants = session.control.wants_write() && !session.is_leaving();
            if wants != session.watched_for_room {
                self.watch.wants_write(session.control.as_fd(), Event::Control(session.id), wants)?;
                session.watched_for_room = wants;
            }
            let wants = session.channel.wants_write();
            if wants != session.doorbell_for_room
                && let Some(descriptor) = session.channel.descriptor()
            {
                self.watch.wants_write(descriptor, Event::Doorbell(session.id), wants)?;
                session.doorbell_for_room = wants;
            }
        }
        self.shared.forwards.rewatch(&self.watch)
    }

    /// Sends calls that are forwarded, and hands outcomes to the sessions that wait for them; a source that
    /// left meanwhile gets none.
    #[cold]
    fn relay(&mut self) {
        let shared = &mut self.shared;
        shared.forwards.turn(&self.watch, shared.executor.forwarding());
        for outcome in shared.forwards.take_outcomes() {
            let session = outcome.caller.session;
            let Some(index) = self.sessions.iter().position(|one| one.id == session) else { continue };
            match self.with_session(index, |session, shared| session.relay(outcome, shared)) {
                Ok(None) => {}
                Ok(Some(outcome)) => self.shared.forwards.put_back(outcome),
                Err(end) => self.end(index, end),
            }
        }
    }

    /// Drops code for a session that cannot continue otherwise. Returns how many of its frames ran before;
    /// another cause of the stop is returned as error.
    #[cold]
    fn make_room(&mut self, Stop(end): Stop) -> Result<usize, Stop> {
        let End::Crowded(need, ran) = *end else { return Err(Stop(end)) };
        let sessions = &mut self.sessions;
        self.shared.executor.make_room(&need, |linked| Session::release(sessions, linked));
        Ok(ran)
    }

    /// Runs the frames that a source sent before it was gone, and drops the replies. Bounded by its mailbox's
    /// capacity.
    fn drain(&mut self, index: usize) {
        self.sessions[index].depart();
        let mut left = self.settings.mailbox / LINE;
        while left > 0 {
            let frames = match self.with_session(index, Session::poll) {
                Ok(0) => break,
                Ok(frames) => frames,
                Err(stop) => match self.make_room(stop) {
                    Ok(frames) => frames,
                    Err(Stop(end)) => {
                        if let End::Gone(_, ran) = *end {
                            self.shared.executor.stats.frames += ran as u64;
                        }
                        break;
                    }
                },
            };
            self.shared.executor.stats.frames += frames as u64;
            left = left.saturating_sub(frames);
        }
    }

    /// Ends a link: frames that were sent before are still run, its memory is freed.
    #[cold]
    fn end(&mut self, index: usize, Stop(end): Stop) {
        let why = match *end {
            End::Broken(refusal) => {
                self.shared.executor.stats.refuse(refusal.cause);
                let session = &mut self.sessions[index];
                self.shared.handlers.refused(&session.peer, &refusal);
                drop(session.control.send(&Message::Closing { text: refusal.text.clone() }, &[]));
                drop(session.channel.call_attention());
                refusal.text
            }
            end => {
                if let End::Gone(_, ran) = end {
                    self.shared.executor.stats.frames += ran as u64;
                }
                if self.lets_leave(index, &end) {
                    return;
                }
                // Frames sent before are whole or absent, however the source ended.
                self.drain(index);
                self.sessions[index].reason(&end)
            }
        };
        self.discard(index, &why);
    }

    /// Keeps a session whose channel may still bring frames that a source sent before its end, until the
    /// channel reports its end, for as long as a machine may be silent. Returns whether it does.
    fn lets_leave(&mut self, index: usize, end: &End) -> bool {
        let session = &mut self.sessions[index];
        if !session.channel.has_end() || session.is_leaving() {
            return false;
        }
        let why = session.reason(end);
        session.leave(Instant::now() + self.settings.peer_timeout, why);
        // An ended connection would stay readable for ever.
        self.watch.remove(session.control.as_fd());
        self.sessions.make_busy(index);
        true
    }

    /// Ends the links of sources that are gone and whose channels have not ended in time.
    fn end_late(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.sessions.len() {
            match self.sessions[index].is_late(now) {
                true => self.end(index, End::Bye.into()),
                false => index += 1,
            }
        }
    }

    /// Forgets a link that has ended.
    fn discard(&mut self, index: usize, why: &str) {
        let session = self.sessions.remove(index);
        self.watch.remove_session(&session);
        self.shared.executor.stats.bytes += session.received();
        self.shared.executor.stats.summed += session.summed();
        self.shared.executor.stats.links_ended += 1;
        self.shared.handlers.peer_gone(&session.peer, why);
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        // A forked child has a copy, which shares connections and the epoll instance with its parent: it ends
        // without a message.
        if self.process == std::process::id() {
            self.close("the target ended");
        }
    }
}
