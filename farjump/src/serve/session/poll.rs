//! The polls of a session: its frames run.

use farjump_core::channel::{Delivered, FastPoll, Mapped, PlainPath, PlainPoll, PlainSent, Put, Taken};
use farjump_core::frame::{Flags, Kind, ReplyStatus};

use super::head::HeldFrame;
use super::reply::reply;
use super::{Session, Shared, Stop};
use crate::executor::Ended;

/// Frames of one source that run before the next source's turn, unless the program wants another number.
const BATCH: usize = 64;
/// Polls of a source of messages from one call of `progress` to the next. Each poll makes progress by itself.
const POLLS_TO_PROGRESS: u8 = 8;

/// A program's choices for polls, if it has more to do than to serve. They take another path, so that other programs do
/// not pay for them.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Host {
    /// Frames of one source that run before the next source's turn. Not 0.
    pub(in crate::serve) batch: usize,
}

impl Default for Host {
    fn default() -> Host {
        Host { batch: BATCH }
    }
}

/// The work left after a call of [`Session::poll`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    /// To reply.
    Reply,
    /// To wake the source, if it sleeps and has missed the reply.
    Look,
    /// The work after a call that did not simply return.
    Otherwise(Ended),
}

impl Session {
    /// Returns whether a poll may find something.
    pub(in crate::serve) fn may_have_frames(&self) -> bool {
        self.head.is_blocked() || self.control.has_unread() || self.channel.may_have_frames()
    }

    /// Takes up to [`BATCH`] frames. Returns the number that ran.
    #[inline(always)]
    pub(in crate::serve) fn poll(&mut self, shared: &mut Shared) -> Result<usize, Stop> {
        self.poll_up_to(BATCH, shared)
    }

    /// [`Session::poll`], as the target's program wants it.
    #[inline(always)]
    pub(in crate::serve) fn poll_in_turn(&mut self, shared: &mut Shared) -> Result<usize, Stop> {
        if shared.host.is_some() { self.poll_for_host(shared) } else { self.poll(shared) }
    }

    /// [`Session::poll`] for a program that limits polls, or distinguishes callers.
    #[inline(never)]
    fn poll_for_host(&mut self, shared: &mut Shared) -> Result<usize, Stop> {
        let before = shared.executor.set_principal(&self.control.principal);
        let most = shared.host.map_or(BATCH, |host| host.batch);
        let polled = self.poll_up_to(most, shared);
        if let Ok(0) = polled {
            // Nothing ran: the last call is another source's.
            shared.executor.restore_principal(before);
        }
        polled
    }

    /// Takes up to `most` frames. Returns the number that ran.
    #[inline(always)]
    fn poll_up_to(&mut self, most: usize, shared: &mut Shared) -> Result<usize, Stop> {
        match self.channel.is_mapped() {
            true => self.poll_plain::<Mapped>(most, shared),
            false => self.poll_moved(most, shared),
        }
    }

    /// [`Session::poll`] where frames move only while the channel is called.
    #[inline(never)]
    fn poll_moved(&mut self, most: usize, shared: &mut Shared) -> Result<usize, Stop> {
        // Frames that always come must not hold up other work of the transport, such as the rest of a long reply.
        self.polls = self.polls.wrapping_add(1);
        let is_due = self.head.is_blocked() || self.polls.is_multiple_of(POLLS_TO_PROGRESS);
        if is_due {
            self.move_frames(shared)?;
        }
        if self.control.is_source_gone() {
            return self.poll_any(0, most, shared);
        }
        if !self.channel.has_mailbox() {
            // A poll that finds no message makes progress by itself.
            return self.poll_plain::<Delivered>(most, shared);
        }
        match self.poll_plain::<Put>(most, shared) {
            Ok(0) if !is_due => self.move_frames(shared).map(|()| 0),
            ran => ran,
        }
    }

    /// Makes the transport progress, and reads the control connection if the source has set a notice. Does nothing
    /// on a channel that is leaving, on which nothing more is sent.
    fn move_frames(&mut self, shared: &mut Shared) -> Result<(), Stop> {
        if !self.control.is_leaving() && self.channel.progress(false)? {
            self.read_control(shared)?;
        }
        Ok(())
    }

    /// [`Session::poll`] on a path of the type `P`.
    ///
    /// The loop is for calls that need nothing but a call and at most a reply, in a mapped mailbox a reply of one line.
    /// It keeps few values across a call, which preserves no register. It passes only the held frame to the general
    /// path.
    #[inline(always)]
    fn poll_plain<P: PlainPath>(&mut self, most: usize, shared: &mut Shared) -> Result<usize, Stop> {
        let mut ran = 0;
        'frames: while !self.head.is_blocked()
            && let Some(mut calls) = self.channel.plain_frames::<P>(Kind::Call)
        {
            let (frame, end) = loop {
                let mut call = match calls.next() {
                    PlainPoll::Nothing => return Ok(ran),
                    PlainPoll::Frame(call) => call,
                    PlainPoll::Other if !P::FINDS_ALL_KINDS => return self.poll_any(ran, most, shared),
                    other => {
                        let more = match other {
                            PlainPoll::OfOtherKind(frame) => {
                                let frame = frame.hold();
                                self.run_other(frame, shared).map(Some)
                            }
                            _ => self.take(shared),
                        };
                        match more.map_err(|stop| stop.after(ran))? {
                            None => return Ok(ran),
                            Some(more) => ran += more,
                        }
                        if ran >= most {
                            return Ok(ran);
                        }
                        continue 'frames;
                    }
                };
                let payload = call.payload();
                let Some(code) =
                    self.codes.table.callable_ref(call.index()).filter(|code| code.takes(payload))
                else {
                    return self.poll_any(ran, most, shared);
                };
                let usage = code.usage;
                // SAFETY: the channel lends the payload until the release below, or of the held frame. It is aligned as
                // the code requires, and the code is of this session's table, which holds it.
                let ended = unsafe {
                    shared.executor.run(
                        code,
                        payload.as_ptr().cast(),
                        call.payload_len(),
                        self.replies.max_len,
                    )
                };
                if ended != Ended::Returned {
                    break (call.hold(), CallEnd::Otherwise(ended));
                }
                // The reply first: the source waits for it.
                if call.flags().contains(Flags::WANTS_REPLY) {
                    // A source that waits for one reply at a time gets it alone.
                    let alone = call.flags().contains(Flags::ALONE);
                    let reply = reply(call.token(), ReplyStatus::Done, alone);
                    match call.reply(&reply, shared.executor.reply()) {
                        PlainSent::Sent => {}
                        PlainSent::Look => break (call.hold(), CallEnd::Look),
                        PlainSent::NotSent => break (call.hold(), CallEnd::Reply),
                    }
                }
                // SAFETY: the table still holds the code: nothing was unbound since the call.
                unsafe { shared.executor.count(usage) };
                call.release()?;
                ran += 1;
                if ran == most {
                    return Ok(ran);
                }
            };
            self.end_call(frame, end, shared)?;
            ran += 1;
            if ran == most {
                return Ok(ran);
            }
        }
        if ran != 0 { Ok(ran) } else { self.poll_any(0, most, shared) }
    }

    /// Runs a frame without code that is no single call. Returns the number of calls that ran.
    #[inline(never)]
    fn run_other(&mut self, frame: Taken, shared: &mut Shared) -> Result<usize, Stop> {
        let header = frame.header();
        if header.kind == Kind::CallBatch
            && let Some(code) = self.codes.table.callable(header.index)
        {
            return self.run_batch(frame, None, code, shared);
        }
        self.head.note_whole();
        self.run_held(HeldFrame::own(frame), shared)
    }

    /// Ends a call that has run: does the work left by `end`, and releases the frame.
    #[cold]
    #[inline(never)]
    fn end_call(&mut self, frame: Taken, end: CallEnd, shared: &mut Shared) -> Result<(), Stop> {
        let header = frame.header();
        let ended = match (end, self.codes.table.callable(header.index)) {
            (CallEnd::Reply, _) => {
                let alone = header.flags.contains(Flags::ALONE);
                self.send_reply(header.token, ReplyStatus::Done, shared.executor.reply(), alone)
            }
            (CallEnd::Look, _) => match self.channel.look_at_changed_peer() {
                Err(error) if !self.control.is_source_gone() => Err(error.into()),
                _ => Ok(()),
            },
            (CallEnd::Otherwise(ended), Some(code)) => self.ended_otherwise(header, code, ended, shared),
            // Nothing unbinds code during a call.
            (CallEnd::Otherwise(_), None) => Ok(()),
        };
        if let Some(code) = self.codes.table.callable(header.index) {
            // SAFETY: the table holds the code.
            unsafe { shared.executor.count(code.usage) };
        }
        // Also if the reply could not be sent: a frame that has run must not run again with the rest of a
        // gone source's frames.
        let released = self.channel.release(frame);
        ended?;
        Ok(released?)
    }

    /// [`Session::poll`] along the general path, after `ran` frames.
    #[inline(never)]
    fn poll_any(&mut self, mut ran: usize, most: usize, shared: &mut Shared) -> Result<usize, Stop> {
        if self.head.is_blocked() {
            match self.continue_frame(shared)? {
                Some(more) if !self.head.is_blocked() => ran += more,
                more => return Ok(ran + more.unwrap_or(0)),
            }
        }
        while ran < most {
            match self.channel.poll_fast() {
                FastPoll::Nothing => return Ok(ran),
                FastPoll::Frame(frame) => {
                    let header = frame.header();
                    if header.kind == Kind::Call
                        && let Some(code) = self.codes.table.callable(header.index)
                        && frame.payload_is_aligned(code.align)
                    {
                        let payload = frame.payload().as_ptr();
                        let frame = frame.take();
                        self.run(frame, payload, code, shared)?;
                        ran += 1;
                        if self.head.is_blocked() {
                            return Ok(ran);
                        }
                        continue;
                    }
                    if header.kind == Kind::CallBatch
                        && let Some(code) = self.codes.table.callable(header.index)
                    {
                        let frame = frame.take();
                        ran += self.run_batch(frame, None, code, shared)?;
                        if self.head.is_blocked() {
                            return Ok(ran);
                        }
                        continue;
                    }
                }
                FastPoll::Other => {
                    if let Some(done) = self.repeat(shared) {
                        done?;
                        ran += 1;
                        if self.head.is_blocked() {
                            return Ok(ran);
                        }
                        continue;
                    }
                }
            }
            match self.take(shared) {
                Ok(Some(more)) => ran += more,
                Ok(None) => return Ok(ran),
                Err(stop) => return Err(stop.after(ran)),
            }
            if self.head.is_blocked() {
                return Ok(ran);
            }
        }
        Ok(ran)
    }
}
