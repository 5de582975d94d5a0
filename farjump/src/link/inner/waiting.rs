//! Taking outcomes: polling, spinning, sleeping.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use farjump_control::plain;
use farjump_core::channel::{
    Armed, Contents, Delivered, Mapped, PlainPath, PlainPoll, Polled, Put, SendError,
};
use farjump_core::frame::{IncompleteReply, Kind, ReplyStatus};
use farjump_core::wait::{Turn, WaitPolicy, Waiter};
use rustix::event::{PollFd, PollFlags};
use smallvec::SmallVec;

use super::super::Deadline;
use super::super::pending_calls::{MAX_CALLS, ReplyBytes};
use super::Inner;
use super::codes::refusals_in;
use super::control::MAX_TEXT;
use crate::error::system;
use crate::wait::{LONGEST_SLEEP, TURNS_TO_YIELD, may_share, nanoseconds, processor, timespec};
use crate::{Awaited, CallError, Error, InjectError, SystemOperation, WaitError};

/// Longest nap where there is no doorbell.
const NAP: Duration = Duration::from_millis(1);
/// Turns of a wait after which credit is returned and the clock is read. Also the most frames that one look
/// takes, so that a target that sends without end does not stop the clock from being read.
pub(in super::super) const TURNS_TO_IDLE: u32 = 256;

/// The same for turns that waited for an event, each of which may take a tenth of a millisecond.
const EVENTS_TO_IDLE: u32 = 8;

/// Polls of an awaited call before its task is registered: as long as a call of an idle target takes.
const LOOKS_BEFORE_TASKS: u32 = 32;

/// A wait: its policy and its limit.
pub(super) struct Wait {
    waiter: Waiter,
    deadline: Deadline,
    /// Frames taken meanwhile.
    frames: u32,
}

impl Wait {
    pub(super) fn new(policy: WaitPolicy, deadline: Deadline) -> Wait {
        Wait { waiter: Waiter::new(policy), deadline, frames: 0 }
    }

    pub(super) fn deadline_passed(&self) -> bool {
        self.deadline.passed()
    }
}

impl Inner {
    /// Waits for an outcome. The awaited one usually comes next, and soon: then it is not even noted in the
    /// table of calls, and the clock is not read.
    #[inline(always)]
    pub(in super::super) fn wait(&mut self, token: u32, timeout: Duration) -> Result<ReplyBytes, Error> {
        if self.connection.channel.is_mapped() {
            self.wait_on::<Mapped>(token, timeout)
        } else {
            self.wait_on_moved(token, timeout)
        }
    }

    /// [`Inner::wait`] where frames move only while the channel is called.
    #[inline(never)]
    fn wait_on_moved(&mut self, token: u32, timeout: Duration) -> Result<ReplyBytes, Error> {
        match self.connection.channel.has_mailbox() {
            true => self.wait_on::<Put>(token, timeout),
            false => self.wait_on::<Delivered>(token, timeout),
        }
    }

    /// [`Inner::wait`] on a path of the type `P`, or on another one.
    #[inline(always)]
    fn wait_on<P: PlainPath>(&mut self, token: u32, timeout: Duration) -> Result<ReplyBytes, Error> {
        // In a forked child the outcome is the parent's, also one that came before the fork.
        if self.is_own()
            && self.pending.slots.waits(token)
            && let Some(mut replies) = self.connection.channel.plain_frames::<P>(Kind::Reply)
        {
            for _ in 0..TURNS_TO_IDLE {
                match replies.next() {
                    PlainPoll::Nothing => {}
                    PlainPoll::Frame(reply)
                        if reply.token() == token && reply.index() == ReplyStatus::Done as u16 =>
                    {
                        // The next call is likely to follow at once.
                        reply.prefetch_reserved();
                        self.pending.slots.close(token);
                        let (len, spare) = (reply.payload_len(), &mut self.pending.spare_reply);
                        let bytes = reply_bytes(len, spare, |bytes| reply.copy_payload_to(bytes));
                        return match reply.release() {
                            Ok(()) => Ok(bytes),
                            Err(error) => Err(self.broken(&error)),
                        };
                    }
                    _ => break,
                }
            }
        }
        self.wait_slowly(token, timeout)
    }

    #[inline(never)]
    fn wait_slowly(&mut self, token: u32, timeout: Duration) -> Result<ReplyBytes, Error> {
        self.check_process()?;
        if let Err(error) = self.wake_for_group() {
            return self.last_chance(token, error);
        }
        for turn in 0..TURNS_TO_IDLE {
            if turn.is_multiple_of(TURNS_TO_YIELD) {
                self.yield_processor();
            }
            if let Some(outcome) = self.pending.slots.take(token) {
                return outcome;
            }
            if let Err(error) = self.step() {
                return self.last_chance(token, error);
            }
        }
        self.wait_until(token, Deadline::after(timeout), Awaited::Outcome)
    }

    #[cold]
    fn wait_until(&mut self, token: u32, deadline: Deadline, awaited: Awaited) -> Result<ReplyBytes, Error> {
        let mut wait = Wait::new(self.settings.wait, deadline);
        loop {
            if let Some(outcome) = self.pending.slots.take(token) {
                return outcome;
            }
            if wait.deadline_passed() {
                self.pending.slots.abandon(token);
                return Err(self.timeout(awaited, deadline));
            }
            if let Err(error) = self.turn(&mut wait) {
                return self.last_chance(token, error);
            }
        }
    }

    /// Takes an outcome that came just before the link failed.
    #[cold]
    fn last_chance(&mut self, token: u32, error: Error) -> Result<ReplyBytes, Error> {
        self.pending.slots.take(token).unwrap_or_else(|| {
            self.pending.slots.abandon(token);
            Err(error)
        })
    }

    pub(in super::super) fn wait_into(
        &mut self,
        token: u32,
        timeout: Duration,
        into: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut outcome = self.wait(token, timeout)?;
        into.extend_from_slice(&outcome);
        if outcome.spilled() {
            outcome.clear();
            self.pending.spare_reply = outcome;
        }
        Ok(())
    }

    pub(in super::super) fn poll_call(&mut self, token: u32) -> Result<Option<ReplyBytes>, Error> {
        self.check_process()?;
        if let Some(outcome) = self.pending.slots.take(token) {
            return outcome.map(Some);
        }
        match self.look() {
            Ok(()) => self.pending.slots.take(token).transpose(),
            Err(error) => self.last_chance(token, error).map(Some),
        }
    }

    /// Looks for an outcome in some turns if no other task awaits this link, as that costs less than registering
    /// a task, and the outcome usually comes.
    pub(in super::super) fn look_before_tasks(&mut self, token: u32) -> Result<Option<ReplyBytes>, Error> {
        if self.is_watch_armed || self.pending.slots.known_tasks().is_some_and(|tasks| !tasks.is_empty()) {
            return Ok(None);
        }
        for _ in 0..LOOKS_BEFORE_TASKS {
            match self.poll_call(token)? {
                None => std::hint::spin_loop(),
                outcome => return Ok(outcome),
            }
        }
        Ok(None)
    }

    /// Takes an outcome that has come, without a poll.
    pub(in super::super) fn take_outcome(&mut self, token: u32) -> Option<Result<ReplyBytes, Error>> {
        if let Err(error) = self.check_process() {
            return Some(Err(error));
        }
        self.pending.slots.take(token)
    }

    /// Takes `turns` turns of a wait that sleeps elsewhere. Returns whether the time for that has come.
    pub(in super::super) fn turn_of_task(&mut self, waiter: &mut Waiter, turns: u32) -> Result<bool, Error> {
        self.check_alive()?;
        self.wake_for_group()?;
        for turn in 1..=turns {
            if self.step()? {
                waiter.reset();
                self.take_frames()?;
                break;
            }
            match waiter.turn() {
                // As late as a wait does: a reply usually comes before.
                Turn::Again if waiter.turns() > TURNS_TO_IDLE && turn.is_multiple_of(TURNS_TO_YIELD) => {
                    self.yield_processor();
                }
                Turn::Again | Turn::Event => {}
                Turn::Yield => break,
                Turn::Sleep => return Ok(true),
            }
        }
        self.look_around().map(|()| false)
    }

    /// Returns whether the outcome of the call with this token may still be taken.
    #[inline]
    pub(in super::super) fn is_owned(&mut self, token: u32) -> bool {
        self.pending.slots.is_owned(token)
    }

    pub(in super::super) fn abandon(&mut self, token: u32) {
        self.pending.slots.abandon(token);
    }

    pub(in super::super) fn flush(&mut self, timeout: Duration) -> Result<(), Error> {
        self.check_alive()?;
        self.send_several(timeout).map_err(|error| *error)?;
        let deadline = Deadline::after(timeout);
        let token = self
            .pending
            .slots
            .open(u16::MAX)
            .ok_or(Error::Inject(InjectError::TooManyCalls { max: MAX_CALLS }))?;
        if let Err(error) = self.send_flush(token, deadline) {
            self.pending.slots.close(token);
            return Err(error);
        }
        let outcome = self.wait_until(token, deadline, Awaited::Flush)?;
        let refusals_sent = refusals_in(&outcome);
        // The target reports refusals before its reply, on the control connection, which may be slower. If the target
        // is gone by now, its reports have come.
        let mut wait = Wait::new(self.settings.wait, deadline);
        while self.read_control().is_ok()
            && (self.connection.control.unread || self.connection.control.refusals_read < refusals_sent)
        {
            if deadline.passed() {
                return Err(self.timeout(Awaited::Refusals, deadline));
            }
            if !self.connection.control.unread && self.turn(&mut wait).is_err() {
                break;
            }
        }
        match self.pending.one_way_refusal.take() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    fn send_flush(&mut self, token: u32, deadline: Deadline) -> Result<(), Error> {
        let mut wait = Wait::new(self.settings.wait, deadline);
        loop {
            match self.send_flush_frame(token) {
                Ok(()) => return Ok(()),
                Err(SendError::Full) if !deadline.passed() => self.turn(&mut wait)?,
                Err(SendError::Failed(error)) => return Err(self.broken(&error)),
                Err(_) => return Err(self.timeout(Awaited::Flush, deadline)),
            }
        }
    }

    /// Yields the processor if the target waits for it: polling would keep the target from replying.
    fn yield_processor(&mut self) {
        // A policy that never yields owns its processor.
        if self.settings.wait.yields != 0 && self.may_share_processor() {
            std::thread::yield_now();
        }
    }

    /// Returns whether the target may be waiting for the processor that this thread runs on.
    pub(in super::super) fn may_share_processor(&mut self) -> bool {
        may_share(&mut self.connection.channel, self.connection.control.stream.peer(), processor())
    }

    /// Takes some turns of a wait: polls, and if nothing came waits by the policy. Sleeps at most once.
    pub(super) fn turn(&mut self, wait: &mut Wait) -> Result<(), Error> {
        self.check_process()?;
        self.wake_for_group()?;
        let mut events = 0;
        for turn in 0..TURNS_TO_IDLE {
            if turn.is_multiple_of(TURNS_TO_YIELD) {
                self.yield_processor();
            }
            if self.step()? {
                wait.waiter.reset();
                wait.frames = wait.frames.wrapping_add(1);
                // Frames without end must not hide control messages.
                return if wait.frames.is_multiple_of(TURNS_TO_IDLE) { self.look_around() } else { Ok(()) };
            }
            match wait.waiter.turn_awaiting(|| self.connection.channel.awaited()) {
                Turn::Again => {}
                Turn::Event => {
                    events += 1;
                    if events == EVENTS_TO_IDLE {
                        break;
                    }
                }
                Turn::Yield => {
                    std::thread::yield_now();
                    break;
                }
                Turn::Sleep => {
                    self.sleep(wait.deadline)?;
                    return self.look_everywhere();
                }
            }
        }
        self.look_around()
    }

    /// Polls for frames without waiting, and for the target's end as often as the interval allows.
    pub(in super::super) fn look(&mut self) -> Result<(), Error> {
        self.check_alive()?;
        self.wake_for_group()?;
        self.take_frames()?;
        self.look_around()
    }

    /// Polls for frames and control messages without waiting.
    pub(in super::super) fn look_everywhere(&mut self) -> Result<(), Error> {
        self.check_process()?;
        self.wake_for_group()?;
        self.take_frames()?;
        self.progress()?;
        self.read_own_control()
    }

    pub(super) fn take_frames(&mut self) -> Result<(), Error> {
        for _ in 0..TURNS_TO_IDLE {
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// Work for which an idle link has time. A notice announces control messages in memory. Only the target's end shows
    /// on the control connection alone, which takes a system call to read.
    fn look_around(&mut self) -> Result<(), Error> {
        let called = self.progress()?;
        if called || self.connection.control.unread || self.connection.control.next_check <= nanoseconds() {
            self.read_own_control()
        } else {
            Ok(())
        }
    }

    /// Makes the transport progress. Returns whether the target has set a notice.
    fn progress(&mut self) -> Result<bool, Error> {
        if self.connection.control.leaving.is_some() {
            return Ok(true);
        }
        self.tend_large()?;
        match self.connection.channel.progress_idle() {
            Ok(called) => Ok(called),
            Err(error) => self.broken_for_now(&error).map(|()| true),
        }
    }

    /// Takes one frame, if one is there.
    pub(super) fn step(&mut self) -> Result<bool, Error> {
        let frame = match self.connection.channel.poll() {
            Ok(Polled::Frame(frame)) => frame,
            Ok(Polled::Nothing | Polled::Partial) => return Ok(false),
            Err(error) => return Err(self.finished(&error)),
        };
        let header = frame.header();
        if header.kind == Kind::Reply {
            let (calls, codes, contents, spare) =
                (&mut self.pending.slots, &self.codes, frame.contents(), &mut self.pending.spare_reply);
            if header.index == ReplyStatus::Done as u16 {
                calls.set_outcome(header.token, || Ok(reply_in(contents, spare)));
            } else {
                let ifunc = calls.code(header.token).and_then(|code| codes.name(code.into()));
                let ifunc = ifunc.unwrap_or_default().to_owned();
                calls.set_outcome(header.token, || {
                    let mut payload = Vec::new();
                    contents.copy_payload(&mut payload);
                    Err(Error::Call(without_reply(header.index, ifunc, &payload)))
                });
            }
        }
        // A target sends no frames of other kinds; there is nothing to run here.
        match frame.release() {
            Ok(()) => Ok(true),
            Err(error) => Err(self.broken(&error)),
        }
    }

    pub(super) fn sleep(&mut self, deadline: Deadline) -> Result<(), Error> {
        if self.connection.control.unread {
            return Ok(());
        }
        let armed = match self.connection.channel.arm() {
            Ok(armed) => armed,
            Err(error) => return self.broken_for_now(&error),
        };
        let longest = match armed {
            Armed::Ready => return Ok(()),
            Armed::Sleep if !self.is_starved() => LONGEST_SLEEP,
            Armed::Sleep | Armed::Nap => NAP,
        };
        let interest = |wants_write| if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = timespec(deadline.left().min(longest));
        let mut watched = SmallVec::<[PollFd<'_>; 2]>::new();
        if self.connection.control.leaving.is_none() {
            // An ended connection would stay readable for ever.
            watched.push(PollFd::from_borrowed_fd(
                self.connection.control.stream.as_fd(),
                interest(self.connection.control.stream.wants_write()),
            ));
        }
        if let Some(doorbell) = self.connection.channel.descriptor().filter(|_| armed == Armed::Sleep) {
            let wants_write =
                self.connection.channel.wants_write() && self.connection.control.leaving.is_none();
            watched.push(PollFd::from_borrowed_fd(doorbell, interest(wants_write)));
        }
        let slept = rustix::event::poll(&mut watched, Some(&timeout));
        drop(watched);
        if std::mem::take(&mut self.is_watch_armed)
            && let Some(tasks) = self.pending.slots.known_tasks()
        {
            // This sleep ends that of the tasks.
            Arc::clone(tasks).wake();
        }
        if let Err(error) = self.connection.channel.disarm() {
            return self.broken_for_now(&error);
        }
        match slept {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(system(SystemOperation::Sleep)(errno)),
        }
    }

    #[cold]
    fn timeout(&self, awaited: Awaited, deadline: Deadline) -> Error {
        Error::Wait(WaitError::TimedOut {
            awaited,
            peer: self.settings.address.clone(),
            timeout: deadline.timeout,
        })
    }
}

/// The payload of a reply; in the memory of `spare` if it needs any.
#[inline(always)]
fn reply_in(reply: Contents<'_>, spare: &mut ReplyBytes) -> ReplyBytes {
    reply_bytes(reply.payload_len(), spare, |bytes| {
        reply.copy_payload_to(bytes);
    })
}

/// The `len` bytes of a reply that `copy` writes; in the memory of `spare` if they need any.
#[inline(always)]
fn reply_bytes(len: usize, spare: &mut ReplyBytes, copy: impl FnOnce(&mut [u8])) -> ReplyBytes {
    let mut bytes = ReplyBytes::new();
    if len > bytes.inline_size() {
        bytes = std::mem::take(spare);
    }
    if len != 0 {
        bytes.resize(len, 0);
        copy(&mut bytes);
    }
    bytes
}

/// The outcome of a call without a usable reply. `payload` came with this status.
#[cold]
fn without_reply(status: u16, ifunc: String, payload: &[u8]) -> CallError {
    let words = |text: &[u8]| plain(&String::from_utf8_lossy(text).replace('\n', " "), MAX_TEXT);
    match IncompleteReply::of(payload) {
        Some(IncompleteReply { lost, text, replies }) if status == ReplyStatus::Incomplete as u16 => {
            let (text, replies) = (words(text), replies.to_vec());
            CallError::Incomplete(Box::new(crate::error::IncompleteReply { ifunc, lost, text, replies }))
        }
        _ => CallError::Panicked { ifunc, message: words(payload) },
    }
}
