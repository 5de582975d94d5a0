//! Replies and refusals.

use farjump_control::{Message, RefusalCause};
use farjump_core::channel::{Channel, SendError};
use farjump_core::frame::{Flags, Header, Kind, Plan, ReplyStatus};

use super::head::{BlockedOn, HeldFrame};
use super::{Session, Shared, Stop, cut};
use crate::Refusal;
use crate::executor::{Callable, Ended};

/// Bytes of a frame beside the reply.
const OVERHEAD: usize = 128;

/// The limits and counts of a session's replies.
pub(super) struct Replies {
    /// Most bytes of a reply.
    pub(super) max_len: usize,
    /// Calls that wait for the outcome of a destination.
    pub(super) forwarded_calls: usize,
}

impl Replies {
    /// Replies over `channel` to a target's limit of `max` bytes.
    pub(super) fn new(channel: &Channel, max: usize) -> Replies {
        Replies { max_len: channel.max_frame().saturating_sub(OVERHEAD).min(max), forwarded_calls: 0 }
    }
}

impl Session {
    /// Most bytes of a reply.
    pub(in crate::serve) fn reply_limit(&self) -> usize {
        self.replies.max_len
    }

    #[cold]
    pub(super) fn ended_otherwise(
        &mut self,
        header: Header,
        code: Callable,
        ended: Ended,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let (token, wants_reply) = (header.token, header.flags.contains(Flags::WANTS_REPLY));
        if ended == Ended::Panicked
            && let Some(postponed) = shared.executor.take_postponed()
        {
            // No process takes the reply of a gone source, and the results of the request would end with it.
            if !self.control.is_source_gone() {
                self.head.block(BlockedOn::Store(postponed));
                shared.executor.stats.waited += 1;
            }
            return Ok(());
        }
        if ended == Ended::Forwarded {
            return self.forward(header, code, shared);
        }
        if ended == Ended::Held {
            let (reply, holds) = (shared.executor.reply(), shared.forwards.holds_mut());
            return self.hold(wants_reply.then_some(token), reply, holds);
        }
        if ended == Ended::ReplyTooLarge {
            if !wants_reply {
                return Ok(());
            }
            let text = format!(
                "the function ran and replied more than the {} bytes that this link takes: connect with a larger reply mailbox",
                self.replies.max_len
            );
            return self.refuse(token, Refusal { cause: RefusalCause::ReplyTooLarge, text }, shared);
        }
        if wants_reply {
            return self.send_reply(token, ReplyStatus::Panicked, shared.executor.reply(), false);
        }
        let text = format!(
            "the function panicked at the target: {}",
            String::from_utf8_lossy(shared.executor.reply())
        );
        self.refuse(token, Refusal { cause: RefusalCause::Panicked, text }, shared)
    }

    /// Sends a reply, or keeps it until there is credit. The source's own mailbox is full, so only it waits.
    #[inline(always)]
    pub(super) fn send_reply(
        &mut self,
        token: u32,
        status: ReplyStatus,
        bytes: &[u8],
        alone: bool,
    ) -> Result<(), Stop> {
        if bytes.is_empty()
            && let Some(line) = self.channel.line()
        {
            return match line.send(&reply(token, status, alone), 0) {
                Err(error) if !self.control.is_source_gone() => Err(error.into()),
                _ => Ok(()),
            };
        }
        self.send_reply_bytes(token, status, bytes, alone)
    }

    #[inline(never)]
    pub(super) fn send_reply_bytes(
        &mut self,
        token: u32,
        status: ReplyStatus,
        bytes: &[u8],
        alone: bool,
    ) -> Result<(), Stop> {
        if self.control.is_source_gone() {
            return Ok(());
        }
        match self.channel.send_bytes(&reply(token, status, alone), bytes) {
            Ok(()) => Ok(()),
            Err(error) => self.reply_not_sent(token, status, bytes, error),
        }
    }

    #[cold]
    pub(super) fn reply_not_sent(
        &mut self,
        token: u32,
        status: ReplyStatus,
        bytes: &[u8],
        error: SendError,
    ) -> Result<(), Stop> {
        match error {
            SendError::Full => {
                self.head.block(if self.codes.table.budget.try_take(bytes.len()) {
                    BlockedOn::Credit { token, status, bytes: bytes.to_vec() }
                } else {
                    BlockedOn::LostReply { token, len: bytes.len() }
                });
                self.channel.progress(true)?;
                Ok(())
            }
            SendError::TooLarge { max, .. } => {
                // `run` keeps replies below the limit, so this is a link that cannot take even an empty one.
                Err(cut(format_args!("a reply of {} bytes is over its limit of {max}", bytes.len())))
            }
            SendError::Failed(error) => Err(error.into()),
        }
    }

    /// Counts a refusal and sends the source the reason.
    #[cold]
    pub(in crate::serve) fn refuse(
        &mut self,
        token: u32,
        refusal: Refusal,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        shared.executor.stats.refuse(refusal.cause);
        self.report_refusal(token, refusal, shared)
    }

    /// Sends the source the reason of a refusal that was counted.
    #[cold]
    pub(super) fn report_refusal(
        &mut self,
        token: u32,
        refusal: Refusal,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        shared.handlers.refused(self.control.peer(), &refusal);
        let (cause, text) = (refusal.cause, refusal.text);
        self.control.send_refusal(&Message::Refused { token, cause, text })?;
        self.set_notice()?;
        self.await_reading();
        Ok(())
    }

    /// As [`Session::refuse`], for a frame, which ends by that.
    #[cold]
    pub(super) fn refuse_frame(
        &mut self,
        held: HeldFrame,
        refusal: Refusal,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let refused = self.refuse(held.header().token, refusal, shared);
        self.release_held(held)?;
        refused
    }
}

/// A reply to the call with this token.
#[inline(always)]
pub(super) fn reply(token: u32, status: ReplyStatus, alone: bool) -> Plan<'static> {
    let (kind, index) = (Kind::Reply, status as u16);
    Plan { kind, wants_reply: false, alone, travelled: false, index, token, align_log2: 0, code: None }
}
