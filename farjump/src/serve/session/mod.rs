//! Sessions: a target's state for one link. Takes frames, runs the functions that they name, replies.

mod batch;
mod forward;
mod held;
mod in_place;
mod large;

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_control::{Control, Error as MeetError, Message, PeerIdentity, RefusalCause, Rights};
use farjump_core::channel::{Armed, Channel, Glance, Polled, Received, SendError};
use farjump_core::frame::{Flags, Header, Kind, MAX_NAME, Plan, ReplyStatus, Template};
use farjump_core::image::CodeId;
use farjump_core::transport::{Cause, Route, Transport, TransportError};
use farjump_loader::{Linked, Need};

pub(super) use self::large::{Bigger, Limits};
use super::Handlers;
use super::forward::Forwards;
use crate::Refusal;
use crate::executor::{Callable, CodeTable, Ended, Executor, Named, Ready};
use crate::link::summary;
use crate::lull::Lull;
use crate::mode::Mode;
use crate::policy::may;
pub(super) use held::{Held, Mailbox};

/// Frames of one source that run before the next source's turn.
const BATCH: usize = 64;
/// Control messages that are taken from one source in a turn.
const MESSAGES: usize = 8;
/// Bytes of a frame that are not reply.
const REPLY_OVERHEAD: usize = 128;

/// State that all sessions of a target share.
pub(super) struct Shared {
    pub(super) executor: Executor,
    pub(super) handlers: Handlers,
    /// How long the rest of a frame may take after its signal.
    pub(super) stall_limit: Duration,
    /// Buffers for code and misaligned payload.
    pub(super) staging: Staging,
    /// Calls on their way to the target's destinations.
    pub(super) forwards: Forwards,
    pub(super) transports: Vec<Box<dyn Transport>>,
    /// Bytes of a mailbox of a new link.
    pub(super) mailbox: usize,
    /// Limits for large mailboxes.
    pub(super) limits: Limits,
}

/// Buffers that are reused.
#[derive(Debug, Default)]
pub(super) struct Staging {
    image: Vec<u8>,
    payload: Vec<u8>,
}

pub(super) struct Session {
    pub(super) id: u64,
    pub(super) channel: Channel,
    pub(super) control: Control,
    pub(super) peer: PeerIdentity,
    /// Rights of its source. The right to call is among them: without that there is no link.
    pub(super) rights: Rights,
    pub(super) table: CodeTable,
    pub(super) waiting: Waiting,
    /// The frame that was begun and cannot end yet. While there is one, the session waits.
    held: Option<Box<Held>>,
    /// Header prediction: the last frame that brought or named its code and ran by that. The next one is
    /// likely to have the same header.
    repeated: Option<Template>,
    /// When a frame was first seen without its end.
    pub(super) partial_since: Option<Instant>,
    /// Whether the source is gone and takes no replies and sends no code.
    departed: bool,
    /// Most bytes of a reply.
    reply_limit: usize,
    /// Code indexes whose code was placed on this link and not yet reported.
    placed: Vec<u16>,
    /// Calls that wait for the outcome of a destination.
    forwarded: usize,
    /// Whether the control connection is watched for writability.
    pub(super) watched_for_room: bool,
    pub(super) bigger: Bigger,
    lull: Lull,
    /// Refusals sent to the source on this link.
    refusals_told: u64,
    /// Bytes received at the last such query.
    had_come: u64,
    /// Whether control messages may be here that were not taken yet.
    pub(super) unread: bool,
    /// Whether the channel's descriptor reports frames without polling.
    pub(super) tells: bool,
    /// Whether the channel's descriptor is watched for writability.
    pub(super) doorbell_for_room: bool,
    /// Until when frames of a gone source are still taken, and why it is gone.
    leaving: Option<Box<(Instant, String)>>,
}

/// What keeps a session from taking its next frame.
pub(super) enum Waiting {
    Nothing,
    /// The code of the held frame is missing.
    Code(CodeId),
    /// Its own next turn: nothing else is missing for the held frame.
    Held,
    /// A report to the source that its reply is lost: its budget does not allow the memory in which the reply
    /// would wait for credit.
    Lost {
        token: u32,
        len: usize,
    },
    /// Its own next turn: the code has come, and is placed when the frame continues, so that nothing can drop
    /// it in between.
    Turn(CodeId, Vec<u8>),
    /// Credit for a reply.
    Room {
        token: u32,
        status: ReplyStatus,
        bytes: Vec<u8>,
    },
    /// Blocked until the source has read its refusals. This bounds the queue, and keeps refusals ahead of
    /// later replies.
    Reading,
}

/// How long a session lets its target sleep.
pub(super) enum Rest {
    /// Not at all: there is work.
    None,
    /// For a nap: an event is awaited that no descriptor reports.
    Nap,
    /// Until a descriptor reports an event.
    Sleep,
}

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The source has closed the link.
    Bye,
    /// The source is gone, for this reason. So many frames ran in this turn before.
    Gone(String, usize),
    /// The source broke the protocol, or the transport failed.
    Broken(Refusal),
    /// No end: other code must go before the session can continue, and other sessions may have it bound. So
    /// many frames ran before.
    Crowded(Need, usize),
}

/// An [`End`] on its way out: a pointer, so that results of the work for every frame travel in registers.
pub(super) struct Stop(pub(super) Box<End>);

impl Stop {
    /// Adds the frames that ran in this turn before.
    #[cold]
    fn after(mut self, ran: usize) -> Stop {
        if let End::Crowded(_, before) | End::Gone(_, before) = &mut *self.0 {
            *before = ran;
        }
        self
    }
}

impl From<End> for Stop {
    #[cold]
    fn from(end: End) -> Self {
        Stop(Box::new(end))
    }
}

impl From<TransportError> for Stop {
    #[cold]
    fn from(error: TransportError) -> Self {
        match error.cause() {
            Cause::PeerGone | Cause::Unreachable(_) => End::Gone(error.to_string(), 0).into(),
            _ => cut(error),
        }
    }
}

impl From<MeetError> for Stop {
    #[cold]
    fn from(error: MeetError) -> Self {
        match error {
            MeetError::PeerGone { .. } | MeetError::CutShort { .. } | MeetError::System { .. } => {
                End::Gone(error.to_string(), 0).into()
            }
            error => cut(error),
        }
    }
}

/// The end of a source that broke the protocol.
#[cold]
pub(super) fn cut(reason: impl std::fmt::Display) -> Stop {
    let text = format!("the target cut the link: {reason}");
    End::Broken(Refusal { cause: RefusalCause::BadFrame, text }).into()
}

impl Session {
    /// `most` is the target's limit of a reply in bytes, `transport` the name of the link's, and `table` has
    /// the budget that pays for the mailbox.
    pub(super) fn new(
        id: u64,
        channel: Channel,
        control: Control,
        table: CodeTable,
        most: usize,
        transport: String,
        rights: Rights,
    ) -> Self {
        let peer = control.peer().clone();
        let waiting = Waiting::Nothing;
        let reply_limit = channel.max_frame().saturating_sub(REPLY_OVERHEAD).min(most);
        let lull = Lull::of(&channel);
        let tells = channel.tells_unasked();
        Session {
            id,
            channel,
            control,
            peer,
            rights,
            table,
            waiting,
            held: None,
            repeated: None,
            partial_since: None,
            departed: false,
            reply_limit,
            placed: Vec::new(),
            forwarded: 0,
            watched_for_room: false,
            bigger: Bigger::absent(transport),
            lull,
            refusals_told: 0,
            had_come: 0,
            unread: false,
            tells,
            doorbell_for_room: false,
            leaving: None,
        }
    }

    /// Whether frames have come since the last such query, or wait here.
    pub(super) fn has_brought(&mut self) -> bool {
        let come = self.channel.received();
        let more = come != self.had_come;
        self.had_come = come;
        more || self.is_blocked() || self.unread
    }

    /// Takes up to [`BATCH`] frames. Returns how many ran.
    #[inline(always)]
    pub(super) fn poll(&mut self, shared: &mut Shared) -> Result<usize, Stop> {
        // Nothing more is sent on a channel that is leaving.
        if self.channel.needs_progress() && !self.is_leaving() {
            self.channel.progress(false)?;
        }
        let mut ran = 0;
        if self.is_blocked() {
            match self.go_on(shared)? {
                Some(more) if !self.is_blocked() => ran = more,
                more => return Ok(more.unwrap_or(0)),
            }
        }
        while ran < BATCH {
            match self.channel.glance() {
                Glance::Nothing => return Ok(ran),
                Glance::Frame(frame) => {
                    let header = frame.header();
                    if header.kind == Kind::Call
                        && let Some(code) = self.table.callable(header.index)
                        && frame.payload_is_aligned(code.align)
                    {
                        let payload = frame.payload().as_ptr();
                        self.run(&header, payload, code, shared)?;
                        ran += 1;
                        if self.is_blocked() {
                            return Ok(ran);
                        }
                        continue;
                    }
                    if header.kind == Kind::Calls
                        && let Some(code) = self.table.callable(header.index)
                    {
                        let frame = *frame;
                        ran += self.run_several(&frame, None, code, shared)?;
                        if self.is_blocked() {
                            return Ok(ran);
                        }
                        continue;
                    }
                }
                Glance::Other => {
                    if let Some(done) = self.repeat(shared) {
                        done?;
                        ran += 1;
                        if self.is_blocked() {
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
            if self.is_blocked() {
                return Ok(ran);
            }
        }
        Ok(ran)
    }

    /// Whether the awaited event has come.
    #[cold]
    fn can_go_on(&mut self, shared: &mut Shared) -> Result<bool, Stop> {
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Nothing | Waiting::Held => Ok(true),
            Waiting::Code(id) => {
                self.waiting = Waiting::Code(id);
                Ok(false)
            }
            Waiting::Lost { token, len } => {
                let text = format!(
                    "the function ran, and its answer of {len} bytes is lost: the link had no room for it, and at the target it may \
                     not wait, where its source has {} bytes left (--max-source-memory): take answers sooner, or make the link with \
                     more reply room",
                    self.table.budget.left()
                );
                self.refuse(token, Refusal { cause: RefusalCause::ReplyTooLarge, text }, shared)?;
                Ok(!self.is_blocked())
            }
            Waiting::Turn(id, image) => {
                match shared.executor.supply(&mut self.table, id, &image, &self.peer) {
                    // The frame finds the code bound, or refused.
                    None => Ok(true),
                    Some(need) => {
                        self.waiting = Waiting::Turn(id, image);
                        Err(End::Crowded(need, 0).into())
                    }
                }
            }
            Waiting::Room { token, status, bytes } => {
                self.table.budget.give_back(bytes.len());
                self.answer(token, status, &bytes, false)?;
                Ok(!self.is_blocked())
            }
            Waiting::Reading => {
                self.control.flush()?;
                self.await_reading();
                Ok(!self.is_blocked())
            }
        }
    }

    /// Takes no more frames until the messages to the source have been sent.
    pub(super) fn await_reading(&mut self) {
        // Nothing waits for a gone source to read.
        if self.control.wants_write() && !self.departed && !self.is_blocked() {
            self.waiting = Waiting::Reading;
        }
    }

    /// Whether arrived frames have to wait for something else.
    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        !matches!(self.waiting, Waiting::Nothing)
    }

    /// Checks the age of a frame whose start has come and whose end has not; it is limited.
    #[cold]
    pub(super) fn stalled(&mut self, limit: Duration) -> Result<(), Stop> {
        let since = *self.partial_since.get_or_insert_with(Instant::now);
        if since.elapsed() < limit {
            return Ok(());
        }
        let text = format!(
            "the target cut the link: a frame's signal came and its end did not within {limit:?}; connect again"
        );
        Err(End::Broken(Refusal { cause: RefusalCause::Stalled, text }).into())
    }

    /// Prepares to sleep.
    pub(super) fn arm(&mut self, shared: &mut Shared) -> Result<Rest, Stop> {
        self.tell_link_times(shared)?;
        self.tend_bigger(shared)?;
        if self.is_blocked() {
            self.progress(true, shared)?;
        }
        if self.sums_bigger() {
            return Ok(Rest::None);
        }
        // Also if its frames cannot run now: the doorbell's past signals are silenced.
        let armed = self.channel.arm()?;
        if self.unread {
            return Ok(Rest::None);
        }
        Ok(match (&self.waiting, armed) {
            // Code comes on the control connection, which is watched in any case.
            (Waiting::Code(_), _) => Rest::Sleep,
            (Waiting::Lost { .. }, _) => Rest::None,
            (Waiting::Turn(..) | Waiting::Held, _) => Rest::None,
            (Waiting::Room { .. } | Waiting::Reading, _) => Rest::Nap,
            (Waiting::Nothing, Armed::Ready) => Rest::None,
            (Waiting::Nothing, Armed::Sleep) if self.partial_since.is_none() => Rest::Sleep,
            (Waiting::Nothing, Armed::Sleep | Armed::Nap) => Rest::Nap,
        })
    }

    /// Runs a frame that brings or names its code with the same header as the last one: that was checked
    /// then. `None` if another frame is next.
    #[inline]
    fn repeat(&mut self, shared: &mut Shared) -> Option<Result<(), Stop>> {
        let template = self.repeated.as_ref()?;
        let frame = self.channel.repeats(template)?;
        let header = frame.header();
        let code = match header.kind {
            Kind::CallCode => {
                // The index may stand for other code meanwhile, or none.
                let (code, linked) = self.table.bound(header.index)?;
                let same = self.channel.code().is_some_and(|part| part.id == linked.id());
                (same && self.channel.image_is(linked.image())).then_some(code)?
            }
            Kind::CallLocal => {
                let mut name = [0; MAX_NAME];
                let len = self.channel.copy_name_to(&mut name);
                shared.executor.local(&name[..len]).ok()?
            }
            _ => return None,
        };
        if !frame.payload_is_aligned(code.align) {
            return None;
        }
        Some(self.run(&header, frame.payload().as_ptr(), code, shared))
    }

    /// Takes the next frame along the general path. Returns the number of calls, or `None` if no frame is
    /// whole.
    #[cold]
    fn take(&mut self, shared: &mut Shared) -> Result<Option<usize>, Stop> {
        let frame = match self.channel.poll_slowly()? {
            Polled::Frame(frame) => frame,
            Polled::Nothing => return Ok(None),
            Polled::Partial => {
                if !self.channel.is_summing() {
                    self.stalled(shared.stall_limit)?;
                }
                return Ok(None);
            }
        };
        if frame.header().kind == Kind::Switch {
            return self.take_switched(shared);
        }
        self.partial_since = None;
        let header = frame.header();
        // The most frequent frame where a transport delivers whole messages, and each comes along this path.
        if header.kind == Kind::Call
            && let Some(code) = self.table.callable(header.index)
            && frame.payload_is_aligned(code.align)
            && may_run(&header, Mailbox::Own, shared).is_ok()
        {
            return self.run(&header, frame.payload().as_ptr(), code, shared).map(|()| Some(1));
        }
        self.take_other(&frame, shared).map(Some)
    }

    #[cold]
    #[inline(never)]
    fn take_other(&mut self, frame: &Received, shared: &mut Shared) -> Result<usize, Stop> {
        self.run_held(&Held::new(Mailbox::Own, *frame), shared)
    }

    /// Handles a frame, and releases it in the link's own mailbox; or keeps it, where its code has to come
    /// first.
    #[cold]
    fn dispatch(&mut self, held: &Held, shared: &mut Shared) -> Result<(), Stop> {
        let header = held.header();
        let allowed = self.may_send(header.kind).and_then(|()| may_run(&header, held.mailbox, shared));
        if let Err(refusal) = allowed {
            if matches!(header.kind, Kind::CallCode | Kind::CallId) {
                // The frame was to bind other code than the index stood for before.
                self.table.refuse(header.index, &refusal);
            }
            return self.refuse_frame(header.token, refusal, shared);
        }
        match header.kind {
            Kind::Call => self.call(held, shared),
            Kind::CallCode | Kind::CallId => self.bind(held, shared),
            Kind::CallLocal => self.call_local(held, shared),
            Kind::CallInPlace => self.call_in_place(held, shared),
            Kind::Flush => {
                // Refusals travel beside the frames: by their number the source knows when it has them all.
                let told = self.refusals_told.to_le_bytes();
                let answered = self.answer(header.token, ReplyStatus::Done, &told, false);
                self.channel.release()?;
                answered
            }
            Kind::Reply | Kind::Skip | Kind::Switch | Kind::Calls => {
                let text = "a source sent a frame that only targets send, or one that leads nowhere, or several messages where one belongs";
                self.refuse_frame(header.token, Refusal::new(RefusalCause::BadFrame, text), shared)
            }
        }
    }

    /// Checks that its source may send such a frame at all. A frame that names code is checked again if the
    /// code is missing.
    fn may_send(&self, kind: Kind) -> Result<(), Refusal> {
        match kind {
            Kind::CallCode | Kind::CallInPlace => may(self.rights, Rights::INJECT),
            _ => Ok(()),
        }
    }

    /// The payload of a frame, aligned as the code asks: in place, or in a copy.
    fn payload(&self, held: &Held, code: Callable, shared: &mut Shared) -> *mut u8 {
        if held.frame.payload_is_aligned(code.align) {
            return held.frame.payload().as_ptr();
        }
        shared.staging.align(self.mailbox(held.mailbox), &held.frame, code.align)
    }

    /// Runs the code bound to the frame's index.
    fn call(&mut self, held: &Held, shared: &mut Shared) -> Result<(), Stop> {
        let header = held.header();
        match self.table.callable(header.index) {
            Some(code) => {
                let payload = self.payload(held, code, shared);
                self.run(&header, payload, code, shared)
            }
            None => {
                let ready = shared.executor.ready(&self.table, header.index);
                self.not_ready(held, ready, shared)
            }
        }
    }

    #[cold]
    fn bind(&mut self, held: &Held, shared: &mut Shared) -> Result<(), Stop> {
        if held.answered {
            return self.call(held, shared);
        }
        let (header, mailbox) = (held.header(), held.mailbox);
        let Some(code) = self.mailbox(mailbox).code() else { return Ok(()) };
        let index = header.index;
        if let Some((callable, linked)) = self.table.bound(index)
            && linked.id() == code.id
            && code.epoch == shared.executor.epoch()
            && self.mailbox(mailbox).image_is(linked.image())
        {
            // Mode always: the code equals the stored copy, which runs.
            if let Err(refusal) = shared.executor.allow(Mode::Always) {
                return self.not_ready(held, Err(refusal), shared);
            }
            self.repeated = self.template(held);
            let payload = self.payload(held, callable, shared);
            return self.run(&held.header(), payload, callable, shared);
        }
        // Checked before it takes any memory here.
        if let Err(refusal) = shared.executor.policy.image(code.image_len as usize) {
            self.table.refuse(index, &refusal);
            return self.not_ready(held, Err(refusal), shared);
        }
        // Copied before it is checked: the source can write the mailbox meanwhile.
        self.mailbox(mailbox).copy_image(&mut shared.staging.image);
        let mut name = [0; MAX_NAME];
        let name_len = self.mailbox(mailbox).copy_name_to(&mut name);
        let placed = shared.executor.stats.images_linked;
        let image = &shared.staging.image;
        let named =
            Named { id: code.id, epoch: code.epoch, name: &name[..name_len], image, origin: &self.peer };
        match shared.executor.bind(&mut self.table, index, &named) {
            Ok(Ready::Yes) => {
                if let Some((code, _)) = self.table.bound(index) {
                    let payload = self.payload(held, code, shared);
                    self.run(&held.header(), payload, code, shared)?;
                }
                if shared.executor.stats.images_linked != placed {
                    self.placed.push(index);
                }
                Ok(())
            }
            other => self.not_ready(held, other, shared),
        }
    }

    /// Runs a function of the target's own.
    #[cold]
    fn call_local(&mut self, held: &Held, shared: &mut Shared) -> Result<(), Stop> {
        let mut name = [0; MAX_NAME];
        let len = self.mailbox(held.mailbox).copy_name_to(&mut name);
        match shared.executor.local(&name[..len]) {
            Ok(code) => {
                self.repeated = self.template(held);
                let payload = self.payload(held, code, shared);
                self.run(&held.header(), payload, code, shared)
            }
            Err(refusal) => self.not_ready(held, Err(refusal), shared),
        }
    }

    /// Reports how long placing took for code placed since the last report. For statistics: the source is not
    /// notified, and no call waits for the system call that it takes.
    fn tell_link_times(&mut self, shared: &Shared) -> Result<(), Stop> {
        while let Some(index) = self.placed.pop() {
            let time = shared.executor.link_time(&self.table, index);
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.say(&Message::Linked { index, nanoseconds })?;
            self.await_reading();
        }
        Ok(())
    }

    /// Handles code that is missing or refused.
    #[cold]
    fn not_ready(
        &mut self,
        held: &Held,
        ready: Result<Ready, Refusal>,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let header = held.header();
        match ready {
            Ok(Ready::Yes) => Ok(()),
            Ok(Ready::Crowded(need)) => {
                self.keep(*held);
                Err(End::Crowded(need, 0).into())
            }
            Ok(Ready::Needs(_)) if self.departed => self.refuse_frame(header.token, code_missing(), shared),
            Ok(Ready::Needs(id)) => {
                if let Err(refusal) = may(self.rights, Rights::INJECT) {
                    // Code that the source may not bring is not requested.
                    return self.refuse_frame(header.token, refusal, shared);
                }
                // The frame and those behind it stay in their place: their order is kept and none is lost.
                self.waiting = Waiting::Code(id);
                self.keep(*held);
                shared.handlers.code_missing(&self.peer, &id);
                self.tell(&Message::NeedCode { index: header.index, id: id.0 })?;
                // Counted here because the frames of a poll that ends the link are not counted either.
                shared.executor.stats.waited += 1;
                Ok(())
            }
            Err(refusal) => self.refuse_frame(header.token, refusal, shared),
        }
    }

    /// Runs code on the payload of the held frame, and replies.
    #[inline(always)]
    fn run(
        &mut self,
        header: &Header,
        payload: *mut u8,
        code: Callable,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let (len, token) = (header.payload_len as usize, header.token);
        let wants_reply = header.flags.contains(Flags::WANTS_REPLY);
        // A source that waits for one reply at a time gets it alone.
        let alone = header.flags.contains(Flags::ALONE);
        // SAFETY: the payload is `len` bytes lent by the channel until `release` below, or in the staging
        // buffer, aligned as the image asks; the code is of this session's table, which holds it, or in the
        // frame, which is held until then.
        let ended = unsafe { shared.executor.run(code, payload.cast::<c_void>(), len, self.reply_limit) };
        // The reply first: the source waits for it.
        let answered = if ended != Ended::Returned {
            self.ended_otherwise(header, code, ended, shared)
        } else if wants_reply {
            self.answer(token, ReplyStatus::Done, shared.executor.reply(), alone)
        } else {
            Ok(())
        };
        // SAFETY: the table or the frame still holds the code: nothing was unbound since the call.
        unsafe { shared.executor.count(code) };
        // Also if the reply could not be sent: a frame that has run must not run again with the rest of a
        // gone source's frames.
        let released = self.channel.release();
        answered?;
        Ok(released?)
    }

    #[cold]
    fn ended_otherwise(
        &mut self,
        header: &Header,
        code: Callable,
        ended: Ended,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let (token, wants_reply) = (header.token, header.flags.contains(Flags::WANTS_REPLY));
        if ended == Ended::Forwarded {
            return self.forward(header, code, shared);
        }
        if ended == Ended::ReplyTooLarge {
            if !wants_reply {
                return Ok(());
            }
            let text = format!(
                "the function ran and replied more than the {} bytes that this link takes: make the link with more reply room",
                self.reply_limit
            );
            return self.refuse(token, Refusal { cause: RefusalCause::ReplyTooLarge, text }, shared);
        }
        if wants_reply {
            return self.answer(token, ReplyStatus::Panicked, shared.executor.reply(), false);
        }
        let text = format!(
            "the function panicked at the target: {}",
            String::from_utf8_lossy(shared.executor.reply())
        );
        self.refuse(token, Refusal { cause: RefusalCause::Panicked, text }, shared)
    }

    /// Sends a reply, or keeps it until there is credit. The source's own mailbox is full, so only it waits.
    #[inline(always)]
    fn answer(&mut self, token: u32, status: ReplyStatus, bytes: &[u8], alone: bool) -> Result<(), Stop> {
        if bytes.is_empty()
            && let Some(line) = self.channel.line()
        {
            return match line.send(&reply(token, status, alone), 0) {
                Err(error) if !self.departed => Err(error.into()),
                _ => Ok(()),
            };
        }
        self.answer_with(token, status, bytes, alone)
    }

    #[inline(never)]
    fn answer_with(
        &mut self,
        token: u32,
        status: ReplyStatus,
        bytes: &[u8],
        alone: bool,
    ) -> Result<(), Stop> {
        if self.departed {
            return Ok(());
        }
        match self.channel.send_bytes(&reply(token, status, alone), bytes) {
            Ok(()) => Ok(()),
            Err(error) => self.not_answered(token, status, bytes, error),
        }
    }

    #[cold]
    fn not_answered(
        &mut self,
        token: u32,
        status: ReplyStatus,
        bytes: &[u8],
        error: SendError,
    ) -> Result<(), Stop> {
        match error {
            SendError::Full => {
                self.waiting = if self.table.budget.try_take(bytes.len()) {
                    Waiting::Room { token, status, bytes: bytes.to_vec() }
                } else {
                    Waiting::Lost { token, len: bytes.len() }
                };
                self.channel.progress(true)?;
                Ok(())
            }
            SendError::TooLarge { max, .. } => {
                // `run` keeps replies below the limit, so this is a link that cannot take even an empty one.
                Err(cut(format_args!("an answer of {} bytes is over its limit of {max}", bytes.len())))
            }
            SendError::Failed(error) => Err(error.into()),
        }
    }

    /// Counts a refusal and sends the source the reason.
    #[cold]
    pub(super) fn refuse(&mut self, token: u32, refusal: Refusal, shared: &mut Shared) -> Result<(), Stop> {
        shared.executor.stats.refuse(refusal.cause);
        shared.handlers.refused(&self.peer, &refusal);
        self.refusals_told += 1;
        self.tell(&Message::Refused { token, cause: refusal.cause, text: refusal.text })?;
        self.await_reading();
        Ok(())
    }

    /// As [`Session::refuse`], for the held frame, which ends by that.
    #[cold]
    pub(super) fn refuse_frame(
        &mut self,
        token: u32,
        refusal: Refusal,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let told = self.refuse(token, refusal, shared);
        self.channel.release()?;
        told
    }

    /// Sends a message and sets a notice, so that the source reads it now.
    pub(super) fn tell(&mut self, message: &Message) -> Result<(), Stop> {
        self.say(message)?;
        if self.departed { Ok(()) } else { Ok(self.channel.call_attention()?) }
    }

    /// Sends a message, unless the source is gone.
    fn say(&mut self, message: &Message) -> Result<(), Stop> {
        if self.departed { Ok(()) } else { Ok(self.control.send(message, &[])?) }
    }

    /// Lets the transport work; reads the control connection if the source has set a notice.
    pub(super) fn progress(&mut self, idle: bool, shared: &mut Shared) -> Result<(), Stop> {
        self.tell_link_times(shared)?;
        self.tend_bigger(shared)?;
        let idle = idle && self.lull.is_long(self.channel.received());
        if self.is_leaving() {
            return Ok(());
        }
        if self.channel.progress(idle)? || self.unread { self.read_control(shared) } else { Ok(()) }
    }

    /// Takes control messages.
    pub(super) fn read_control(&mut self, shared: &mut Shared) -> Result<(), Stop> {
        if self.is_leaving() {
            return Ok(());
        }
        // Until none is left: messages read along with the last one taken are here, where no descriptor
        // reports them.
        self.unread = true;
        for _ in 0..MESSAGES {
            let Some((message, descriptors)) = self.control.recv()? else {
                self.unread = false;
                break;
            };
            match (message, &self.waiting) {
                (Message::Code { id, image }, Waiting::Code(wanted)) if wanted.0 == id => {
                    self.waiting = Waiting::Turn(CodeId(id), image);
                    self.held.iter_mut().for_each(|held| held.answered = true);
                }
                (Message::NoCode { id }, Waiting::Code(wanted)) if wanted.0 == id => {
                    self.waiting = Waiting::Held;
                    self.held.iter_mut().for_each(|held| held.answered = true);
                    self.table.withhold(&CodeId(id), &code_missing());
                }
                (Message::Bye, _) => return Err(End::Bye.into()),
                (Message::Enlarge { frame, payload }, _) => self.enlarge(frame, payload, shared)?,
                (Message::Accept { end }, _) => self.enlarged(end, descriptors)?,
                (Message::Shrink, _) => self.shrink()?,
                (other, _) => return Err(cut(format_args!("its source sent {} unasked", other.name()))),
            }
        }
        if self.control.wants_write() {
            self.control.flush()?;
        }
        Ok(())
    }

    /// Bytes of the target's memory that its source has taken, and its limit; `None` where there is no limit.
    pub(super) fn memory(&mut self) -> Option<(usize, usize)> {
        self.table.budget.taken()
    }

    /// The transport, and whether its frames are encrypted. Only streams are queried: other channels may take
    /// long.
    pub(super) fn path(&self) -> String {
        let route = if self.channel.has_end() { self.channel.route() } else { Route::default() };
        summary(self.bigger.transport(), &route)
    }

    /// Drops all references to code before the store drops it.
    pub(super) fn release(sessions: &mut [Session], linked: &Arc<Linked>) {
        for session in sessions {
            // The store's own reference, and no other.
            if Arc::strong_count(linked) == 1 {
                return;
            }
            session.forget(&linked.id());
        }
    }

    /// Drops code, as if it had never come.
    pub(super) fn forget(&mut self, id: &CodeId) {
        self.table.forget(id);
    }

    /// Marks the source gone for the reason `why`; the channel may still bring frames sent before, until
    /// `until`.
    pub(super) fn leave(&mut self, until: Instant, why: String) {
        self.depart();
        self.unread = false;
        self.leaving = Some(Box::new((until, why)));
    }

    /// Whether the source is gone, and the channel may still bring frames sent before.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whether the channel has taken too long to bring the rest.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.leaving.as_deref().is_some_and(|(until, _)| *until <= now)
    }

    /// Why the source is gone, from its session's `end` or an earlier cause.
    pub(super) fn reason(&self, end: &End) -> String {
        match (self.leaving.as_deref(), end) {
            (Some((_, why)), _) | (None, End::Gone(why, _)) => why.clone(),
            _ => "it closed the link".to_owned(),
        }
    }

    /// Marks the source gone: it takes no replies and sends no code. Frames that it sent before are still to
    /// be run.
    pub(super) fn depart(&mut self) {
        self.departed = true;
        self.wait_no_longer();
    }
}

/// Checks whether a frame may have its payload.
fn may_run(header: &Header, mailbox: Mailbox, shared: &Shared) -> Result<(), Refusal> {
    shared.executor.policy.payload(header.payload_len as usize)?;
    // It lies in the large mailbox, or was delivered and fits none.
    if mailbox == Mailbox::Bigger || header.frame_len as usize > shared.mailbox {
        shared.limits.check_payload(header.payload_len.into())?;
    }
    Ok(())
}

/// A reply to the call with this token.
#[inline(always)]
fn reply(token: u32, status: ReplyStatus, alone: bool) -> Plan<'static> {
    let (kind, index) = (Kind::Reply, status as u16);
    Plan { kind, wants_reply: false, alone, index, token, align_log2: 0, code: None }
}

fn code_missing() -> Refusal {
    Refusal::new(
        RefusalCause::CodeMissing,
        "it does not hold the code, and the source did not send it: send the code with the next call",
    )
}

impl Staging {
    /// Copies the payload of `frame`, which `channel` holds, to an address aligned to `align` bytes: as many
    /// bytes as its header says, whatever there is to copy.
    #[cold]
    fn align(&mut self, channel: &Channel, frame: &Received, align: usize) -> *mut u8 {
        let len = frame.header().payload_len as usize;
        self.payload.clear();
        self.payload.resize(len + align, 0);
        let skip = self.payload.as_ptr().align_offset(align).min(align);
        channel.copy_payload_to(&mut self.payload[skip..skip + len]);
        self.payload[skip..].as_mut_ptr()
    }
}
