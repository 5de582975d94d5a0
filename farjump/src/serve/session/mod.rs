//! Sessions: a target's state for one link, which takes frames (`poll`), runs the functions that they name, and replies.

mod batch;
mod code;
mod control;
mod dispatch;
mod end;
mod events;
mod forward;
mod head;
mod held_replies;
mod in_place;
mod large;
mod poll;
mod reply;

use std::ffi::c_void;
use std::time::Duration;

use farjump_control::LingeringPeer;
use farjump_core::channel::{Armed, Channel, Taken};
use farjump_core::frame::{Flags, Header, ReplyStatus};
use farjump_core::transport::{PathInfo, Transport};
#[cfg(feature = "bitcode")]
use farjump_loader::CodeKey;

use self::code::{SessionCodes, code_missing};
pub(super) use self::control::SourceControl;
pub(super) use self::end::{End, Stop, cut};
pub(super) use self::events::ChannelEvents;
use self::forward::ForwardState;
use self::head::{BlockedOn, HeadFrame, HeldFrame};
use self::held_replies::HeldReplies;
pub(super) use self::large::LargeFrames;
use self::large::LargeMailbox;
pub(super) use self::poll::Host;
use self::reply::{Replies, reply};
use super::forward::Forwards;
use super::handlers::Handlers;
use super::scratch::Scratch;
use crate::executor::{Callable, CodeTable, Ended, Executor};
use crate::link::summary;
use crate::wait::Rest;

/// State that all sessions of a target share.
// The compiler puts the executor first, whose alignment is the largest.
pub(super) struct Shared {
    pub(super) executor: Executor,
    /// The program's choices for polls of sessions, if it has made any.
    pub(super) host: Option<Host>,
    // Boxed, so that the fields behind it lie near those that each call uses.
    pub(super) handlers: Box<Handlers>,
    /// Time limit of the rest of a frame after its signal.
    pub(super) stall_timeout: Duration,
    /// Buffers for code and misaligned payload.
    pub(super) scratch: Scratch,
    /// Calls on their way to the target's destinations.
    pub(super) forwards: Forwards,
    pub(super) transports: Vec<Box<dyn Transport>>,
    /// Bytes of a mailbox of a new link.
    pub(super) mailbox: usize,
    /// Limits for large mailboxes.
    pub(super) large_frames: LargeFrames,
    /// Time limit for a source to accept a large mailbox.
    pub(super) handshake_timeout: Duration,
}

// The fields that every call uses come first, side by side, from the start of a line.
#[repr(C, align(64))]
pub(super) struct Session {
    pub(super) channel: Channel,
    head: HeadFrame,
    replies: Replies,
    pub(super) codes: SessionCodes,
    pub(super) control: SourceControl,
    pub(super) large: LargeMailbox,
    pub(super) events: ChannelEvents,
    pub(super) id: u64,
    /// Number of polls so far, of a channel that needs progress.
    polls: u8,
    forward_state: ForwardState,
    /// Replies that the program holds, if it does.
    held_replies: Option<Box<HeldReplies>>,
}

impl Session {
    /// `max_reply` is the target's limit of a reply in bytes, `transport` the name of the link's, and `table`
    /// has the budget that pays for the mailbox.
    pub(super) fn new(
        id: u64,
        channel: Channel,
        control: SourceControl,
        table: CodeTable,
        max_reply: usize,
        transport: String,
    ) -> Self {
        Session {
            head: HeadFrame::new(),
            replies: Replies::new(&channel, max_reply),
            codes: SessionCodes::new(table),
            control,
            large: LargeMailbox::absent(transport),
            events: ChannelEvents::new(channel.wakes_unarmed()),
            id,
            channel,
            polls: 0,
            forward_state: ForwardState::default(),
            held_replies: None,
        }
    }

    /// Ends the session: its channel is closed, and no device reaches memory through it any more. Returns the source, as
    /// [`Control::linger`](farjump_control::Control::linger) does.
    pub(super) fn into_peer(self) -> Option<LingeringPeer> {
        let Session { control, .. } = self;
        control.linger()
    }

    /// Returns whether its next frame waits until this code is compiled.
    #[cfg(feature = "bitcode")]
    pub(super) fn awaits_compiler(&self, key: CodeKey) -> bool {
        self.codes.table.domain() == key.domain && self.head.awaits_compiler(&key.id)
    }

    /// Returns whether its next frame is a request that the target's store gets again.
    pub(super) fn waits_for_store(&self) -> bool {
        self.head.waits_for_store()
    }

    /// Returns whether arrived frames have to wait for something else.
    pub(super) fn is_blocked(&self) -> bool {
        self.head.is_blocked()
    }

    /// Prepares to sleep.
    pub(super) fn arm(&mut self, shared: &mut Shared) -> Result<Rest, Stop> {
        self.report_link_times(shared)?;
        self.tend_large(shared)?;
        if self.head.is_blocked() {
            self.progress(true, shared)?;
        }
        if self.sums_large() || self.head.looks_again() {
            return Ok(Rest::None);
        }
        // Also if its frames cannot run now: the doorbell's past signals are silenced.
        let armed = self.channel.arm()?;
        if self.control.has_unread() {
            return Ok(Rest::None);
        }
        Ok(match (self.head.blocked_on(), armed) {
            // They come on the control connection, which is watched in any case.
            (BlockedOn::Code(_) | BlockedOn::Manifest(_), _) => Rest::Sleep,
            // The bell is watched too.
            (BlockedOn::Store(_), _) if self.head.waits_for_bell(&shared.executor) => Rest::Sleep,
            // The program releases them at any time.
            (BlockedOn::Release, _) => Rest::Sleep,
            // It is watched too.
            #[cfg(feature = "bitcode")]
            (BlockedOn::Compiler(_), _) => Rest::Sleep,
            (
                BlockedOn::LostReply { .. }
                | BlockedOn::CodeTurn { .. }
                | BlockedOn::NextTurn
                | BlockedOn::Store(_),
                _,
            ) => Rest::None,
            (BlockedOn::Credit { .. } | BlockedOn::Reading, _) => Rest::Nap,
            (BlockedOn::Nothing, Armed::Ready) => Rest::None,
            (BlockedOn::Nothing, Armed::Sleep) if !self.head.is_partial() => Rest::Sleep,
            (BlockedOn::Nothing, Armed::Sleep | Armed::Nap) => Rest::Nap,
        })
    }

    /// Runs code on the payload of a frame of the link's own mailbox, replies, and releases the frame.
    #[inline(always)]
    fn run(
        &mut self,
        frame: Taken,
        payload: *mut u8,
        code: Callable,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let replied = self.run_code(|| frame.header(), payload, code, shared);
        // Also if the reply could not be sent: a frame that has run must not run again with the rest of a
        // gone source's frames.
        let released = self.channel.release(frame);
        replied?;
        Ok(released?)
    }

    /// As [`Session::run`], for a frame of either mailbox. Keeps the frame if the target's store gets the request
    /// again.
    fn run_code_of(
        &mut self,
        held: HeldFrame,
        payload: *mut u8,
        code: Callable,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let replied = self.run_code(|| held.header(), payload, code, shared);
        if self.head.waits_for_store() {
            self.head.keep(held);
            return replied;
        }
        let released = self.release_held(held);
        replied?;
        released
    }

    /// Runs code on the payload of a frame, which is released afterwards, and replies. `header` returns the frame's
    /// header. The header is unpacked before the call and again after it, because its few words cost less to keep than
    /// its fields.
    #[inline(always)]
    fn run_code(
        &mut self,
        header: impl Fn() -> Header,
        payload: *mut u8,
        code: Callable,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        if header().flags.contains(Flags::TRAVELLED) {
            return self.run_travelled(header(), payload, code, shared);
        }
        let len = header().payload_len as usize;
        // SAFETY: the payload is `len` bytes lent by the channel until the caller's release, or in the scratch buffer,
        // aligned as the image requires; the code is of this session's table, which holds it, or in the frame, which is
        // held until then.
        let ended =
            unsafe { shared.executor.run(&code, payload.cast::<c_void>(), len, self.replies.max_len) };
        let header = header();
        // The reply first: the source waits for it.
        let replied = if ended != Ended::Returned {
            self.ended_otherwise(header, code, ended, shared)
        } else if header.flags.contains(Flags::WANTS_REPLY) {
            // A source that waits for one reply at a time gets it alone.
            let alone = header.flags.contains(Flags::ALONE);
            self.send_reply(header.token, ReplyStatus::Done, shared.executor.reply(), alone)
        } else {
            Ok(())
        };
        // SAFETY: the table or the frame still holds the code: nothing was unbound since the call.
        unsafe { shared.executor.count(code.usage) };
        replied
    }

    /// Makes the transport progress; reads the control connection if the source has set a notice.
    pub(super) fn progress(&mut self, idle: bool, shared: &mut Shared) -> Result<(), Stop> {
        self.report_link_times(shared)?;
        self.tend_large(shared)?;
        if self.control.is_leaving() {
            return Ok(());
        }
        let noticed = if idle { self.channel.progress_idle() } else { self.channel.progress(false) };
        if noticed? || self.control.has_unread() { self.read_control(shared) } else { Ok(()) }
    }

    /// Returns the transport, and whether its frames are encrypted. Queries only streams: other channels may take long.
    pub(super) fn path(&self) -> String {
        let route = if self.channel.has_end() { self.channel.path_info() } else { PathInfo::default() };
        summary(self.large.transport(), &route)
    }
}
