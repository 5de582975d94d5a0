//! Sessions: a target's state for one link. Takes frames, runs the functions that they name, replies.

mod batch;
mod code;
mod control;
mod end;
mod forward;
mod head;
mod held;
mod in_place;
mod large;
mod reply;

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_control::{Control, PeerIdentity, RefusalCause, Rights};
use farjump_core::channel::{Armed, Channel, Glance, Received};
use farjump_core::frame::{Flags, Header, Kind, ReplyStatus, Template};
use farjump_core::image::CodeId;
use farjump_core::transport::{Route, Transport};
use farjump_loader::Linked;

use self::code::code_missing;
pub(super) use self::end::{End, Stop, cut};
pub(super) use self::large::{Bigger, Limits};
use self::reply::reply;
use super::Handlers;
use super::forward::Forwards;
use crate::Refusal;
use crate::executor::{Callable, CodeTable, Ended, Executor};
use crate::link::summary;
use crate::wait::Rest;
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
    /// Time limit of the rest of a frame after its signal.
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

/// The obstacle to a session's next frame.
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
                    "the function ran, and its reply of {len} bytes is lost: the link had no credit for it, and the target may not \
                     keep it, since the source has {} bytes of memory left there (--max-source-memory): take replies sooner, or \
                     connect with a larger reply mailbox",
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
            "the target cut the link: the rest of a frame did not follow its signal within {limit:?}; connect again"
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

    /// Lets the transport work; reads the control connection if the source has set a notice.
    pub(super) fn progress(&mut self, idle: bool, shared: &mut Shared) -> Result<(), Stop> {
        self.tell_link_times(shared)?;
        self.tend_bigger(shared)?;
        if self.is_leaving() {
            return Ok(());
        }
        let noticed = if idle { self.channel.progress_idle() } else { self.channel.progress(false) };
        if noticed? || self.unread { self.read_control(shared) } else { Ok(()) }
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
