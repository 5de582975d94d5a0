//! One link, seen from the target: takes frames, runs what they name, answers.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use farjump_core::channel::{Channel, Polled, Received, SendError};
use farjump_core::frame::{Flags, Kind, Plan, ReplyStatus};
use farjump_core::image::CodeId;
use farjump_core::transport::TransportError;
use farjump_transports::Error as MeetError;
use farjump_transports::meet::{Control, Message, PeerIdentity, RefusalCause};

use super::Handlers;
use crate::Refusal;
use crate::execute::{CodeTable, Ended, Executor, Named, Ready};

/// Frames that one source gets run before the next one's turn.
const BATCH: usize = 64;
/// Bytes of a frame that are not reply.
const REPLY_OVERHEAD: usize = 128;

/// What all sessions of a target work with.
pub(super) struct Shared<'t> {
    pub(super) executor: &'t mut Executor,
    pub(super) handlers: &'t mut Handlers,
    /// How long the rest of a frame may take after its signal.
    pub(super) stall_limit: Duration,
    /// Where code and misaligned payload are copied to.
    pub(super) staging: &'t mut Staging,
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
    table: CodeTable,
    waiting: Waiting,
    /// When a frame was first seen without its end.
    partial_since: Option<Instant>,
}

/// What keeps a session from taking its next frame.
enum Waiting {
    Nothing,
    /// The code of the frame at the head.
    Code(CodeId),
    /// Room for an answer.
    Room {
        token: u32,
        status: ReplyStatus,
        bytes: Vec<u8>,
    },
}

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The source is done.
    Bye,
    /// The source is gone.
    Gone(String),
    /// The source broke the protocol, or the transport failed.
    Broken(Refusal),
}

impl From<TransportError> for End {
    fn from(error: TransportError) -> Self {
        match error.cause() {
            farjump_core::transport::Cause::PeerGone => End::Gone(error.to_string()),
            _ => End::Broken(Refusal::new(RefusalCause::BadFrame, error.to_string())),
        }
    }
}

impl From<MeetError> for End {
    fn from(error: MeetError) -> Self {
        End::Gone(error.to_string())
    }
}

impl Session {
    pub(super) fn new(id: u64, channel: Channel, control: Control) -> Self {
        let peer = control.peer().clone();
        let (table, waiting) = (CodeTable::new(), Waiting::Nothing);
        Session { id, channel, control, peer, table, waiting, partial_since: None }
    }

    /// Takes up to [`BATCH`] frames. Returns how many ran.
    #[inline]
    pub(super) fn poll(&mut self, shared: &mut Shared<'_>) -> Result<usize, End> {
        if self.channel.needs_progress() {
            self.channel.progress(false)?;
        }
        if !matches!(self.waiting, Waiting::Nothing) && !self.can_go_on()? {
            return Ok(0);
        }
        for ran in 0..BATCH {
            match self.channel.poll()? {
                Polled::Frame(frame) => {
                    self.partial_since = None;
                    self.take(&frame, shared)?;
                    if !matches!(self.waiting, Waiting::Nothing) {
                        return Ok(ran + 1);
                    }
                }
                Polled::Nothing => return Ok(ran),
                Polled::Partial => {
                    self.stalled(shared.stall_limit)?;
                    return Ok(ran);
                }
            }
        }
        Ok(BATCH)
    }

    /// Whether what was waited for has come.
    fn can_go_on(&mut self) -> Result<bool, End> {
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Nothing => Ok(true),
            Waiting::Code(id) => {
                self.waiting = Waiting::Code(id);
                Ok(false)
            }
            Waiting::Room { token, status, bytes } => {
                self.answer(token, status, &bytes)?;
                Ok(matches!(self.waiting, Waiting::Nothing))
            }
        }
    }

    /// The start of a frame is there and its end is not: that may last so long and no longer.
    #[cold]
    fn stalled(&mut self, limit: Duration) -> Result<(), End> {
        let since = *self.partial_since.get_or_insert_with(Instant::now);
        if since.elapsed() < limit {
            return Ok(());
        }
        let text = format!("a frame's signal came and its end did not within {limit:?}: the link was cut");
        Err(End::Broken(Refusal::new(RefusalCause::Stalled, text)))
    }

    /// Whether something is under way that no descriptor tells of: the target then naps instead of sleeping.
    pub(super) fn must_nap(&self) -> bool {
        matches!(self.waiting, Waiting::Room { .. }) || self.partial_since.is_some()
    }

    #[inline]
    fn take(&mut self, frame: &Received, shared: &mut Shared<'_>) -> Result<(), End> {
        let header = *frame.header();
        match header.kind {
            Kind::Call => match shared.executor.ready(&self.table, header.index) {
                Ok(Ready::Yes) => self.run(frame, shared),
                other => self.not_ready(frame, other, shared),
            },
            Kind::CallCode | Kind::CallId => self.bind(frame, shared),
            Kind::Flush => {
                self.channel.release()?;
                self.answer(header.token, ReplyStatus::Done, &[])
            }
            Kind::Reply | Kind::Skip => {
                let text = "a source sent a frame that only targets send";
                self.refuse(header.token, Refusal::new(RefusalCause::BadFrame, text), shared)?;
                Ok(self.channel.release()?)
            }
        }
    }

    #[cold]
    fn bind(&mut self, frame: &Received, shared: &mut Shared<'_>) -> Result<(), End> {
        let Some(code) = frame.parts().code else { return Ok(()) };
        let index = frame.header().index;
        // Copied before it is looked at: the source can write the mailbox meanwhile.
        self.channel.copy_image(&mut shared.staging.image);
        let name = self.channel.copy_name();
        let placed = shared.executor.stats.images_linked;
        let image = &shared.staging.image;
        let named = Named { id: code.id, epoch: code.epoch, name: &name, image };
        match shared.executor.bind(&mut self.table, index, &named) {
            Ok(Ready::Yes) => {
                self.run(frame, shared)?;
                if shared.executor.stats.images_linked != placed {
                    self.tell_link_time(index, shared)?;
                }
                Ok(())
            }
            other => self.not_ready(frame, other, shared),
        }
    }

    /// For people's figures: not urgent, so nobody is called to look.
    fn tell_link_time(&mut self, index: u16, shared: &Shared<'_>) -> Result<(), End> {
        let time = shared.executor.link_time(&self.table, index);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Ok(self.control.send(&Message::Linked { index, nanoseconds }, &[])?)
    }

    /// The code is not there, or refused.
    #[cold]
    fn not_ready(
        &mut self,
        frame: &Received,
        ready: Result<Ready, Refusal>,
        shared: &mut Shared<'_>,
    ) -> Result<(), End> {
        let header = frame.header();
        match ready {
            Ok(Ready::Yes) => Ok(()),
            Ok(Ready::Needs(id)) => {
                // The frame stays where it is, and so do those behind it: their order is kept and none is lost.
                self.waiting = Waiting::Code(id);
                shared.handlers.code_missing(&self.peer, &id);
                self.tell(&Message::NeedCode { index: header.index, id: id.0 })
            }
            Err(refusal) => {
                self.refuse(header.token, refusal, shared)?;
                Ok(self.channel.release()?)
            }
        }
    }

    #[inline]
    fn run(&mut self, frame: &Received, shared: &mut Shared<'_>) -> Result<(), End> {
        let header = *frame.header();
        let len = header.payload_len as usize;
        let align = shared.executor.payload_align_log2(&self.table, header.index);
        let payload = if frame.payload_is_aligned(align.max(3)) {
            frame.payload().as_ptr()
        } else {
            shared.staging.align(&self.channel, len, align)
        };
        let limit = self.channel.max_frame().saturating_sub(REPLY_OVERHEAD);
        // SAFETY: the payload is `len` bytes lent by the channel until `release` below, or in the staging buffer, aligned as
        // the image asks; `take` and `bind` come here only with code that is ready.
        let ended =
            unsafe { shared.executor.run(&self.table, header.index, payload.cast::<c_void>(), len, limit) };
        self.channel.release()?;
        if header.flags.contains(Flags::WANTS_REPLY) {
            match ended {
                Ended::Returned => self.answer(header.token, ReplyStatus::Done, shared.executor.reply()),
                Ended::Panicked => self.answer(header.token, ReplyStatus::Panicked, shared.executor.reply()),
                Ended::ReplyTooLarge => {
                    let text = format!(
                        "it replied with more than the {limit} bytes that this link takes: make the link with more reply room"
                    );
                    self.refuse(header.token, Refusal::new(RefusalCause::ReplyTooLarge, text), shared)
                }
            }
        } else if ended == Ended::Panicked {
            let text = format!("it panicked: {}", String::from_utf8_lossy(shared.executor.reply()));
            self.refuse(header.token, Refusal::new(RefusalCause::Panicked, text), shared)
        } else {
            Ok(())
        }
    }

    /// Sends an answer, or keeps it until there is room. The source's own mailbox is what is full, so only it waits.
    #[inline]
    fn answer(&mut self, token: u32, status: ReplyStatus, bytes: &[u8]) -> Result<(), End> {
        let plan = Plan {
            kind: Kind::Reply,
            wants_reply: false,
            index: status as u16,
            token,
            align_log2: 0,
            code: None,
        };
        match self.channel.send_bytes(&plan, bytes) {
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
    ) -> Result<(), End> {
        match error {
            SendError::Full => {
                self.waiting = Waiting::Room { token, status, bytes: bytes.to_vec() };
                self.channel.progress(true)?;
                Ok(())
            }
            SendError::TooLarge { max, .. } => {
                let text = format!(
                    "its reply of {} bytes is over the link's {max}: make the link with more reply room",
                    bytes.len()
                );
                self.tell(&Message::Refused { token, cause: RefusalCause::ReplyTooLarge, text })
            }
            SendError::Failed(error) => Err(error.into()),
        }
    }

    /// Counts a refusal and tells the source why.
    #[cold]
    fn refuse(&mut self, token: u32, refusal: Refusal, shared: &mut Shared<'_>) -> Result<(), End> {
        shared.executor.stats.refuse(refusal.cause);
        shared.handlers.refused(&self.peer, &refusal);
        self.tell(&Message::Refused { token, cause: refusal.cause, text: refusal.text })
    }

    /// Sends a message that the source should look at now.
    fn tell(&mut self, message: &Message) -> Result<(), End> {
        self.control.send(message, &[])?;
        Ok(self.channel.call_attention()?)
    }

    /// Lets the transport work; looks at the control connection if the source asks for that.
    pub(super) fn progress(&mut self, idle: bool, shared: &mut Shared<'_>) -> Result<(), End> {
        if self.channel.progress(idle)? { self.read_control(shared) } else { Ok(()) }
    }

    /// Takes what has come on the control connection.
    pub(super) fn read_control(&mut self, shared: &mut Shared<'_>) -> Result<(), End> {
        while let Some((message, _)) = self.control.recv()? {
            match message {
                Message::Code { id, image } => self.code_came(CodeId(id), &image, shared),
                Message::NoCode { id } => {
                    let refusal = Refusal::new(
                        RefusalCause::CodeMissing,
                        "the target lost the code, and the source no longer has it: open the library again",
                    );
                    self.table.withhold(&CodeId(id), &refusal);
                    self.waiting = Waiting::Nothing;
                }
                Message::Bye => return Err(End::Bye),
                other => log::debug!("{}: unexpected {} ignored", self.peer, other.name()),
            }
        }
        if self.control.wants_write() {
            self.control.flush()?;
        }
        Ok(())
    }

    /// The frame that waits is polled again, and finds the code bound, or refused.
    fn code_came(&mut self, id: CodeId, image: &[u8], shared: &mut Shared<'_>) {
        let Waiting::Code(wanted) = self.waiting else { return };
        if wanted != id {
            return;
        }
        shared.executor.supply(&mut self.table, id, image);
        self.waiting = Waiting::Nothing;
    }

    /// Drops code, as if it had never come.
    pub(super) fn forget(&mut self, id: &CodeId) {
        self.table.forget(id);
    }

    /// Runs what a source that is gone had sent before. Bounded by what fits its mailbox.
    pub(super) fn drain(&mut self, shared: &mut Shared<'_>) -> usize {
        let mut ran = 0;
        for _ in 0..self.channel.max_frame() / farjump_core::frame::LINE {
            match self.poll(shared) {
                Ok(0) | Err(_) => break,
                Ok(frames) => ran += frames,
            }
        }
        ran
    }
}

impl Staging {
    /// A copy of the payload of the frame that `channel` holds, at an address aligned to `1 << log2` bytes.
    #[cold]
    fn align(&mut self, channel: &Channel, len: usize, log2: u8) -> *mut u8 {
        let align = 1_usize << log2.max(3);
        self.payload.clear();
        self.payload.reserve(len + align);
        let skip = self.payload.as_ptr().align_offset(align).min(align);
        self.payload.resize(skip, 0);
        channel.copy_payload(&mut self.payload);
        self.payload[skip..].as_mut_ptr()
    }
}
