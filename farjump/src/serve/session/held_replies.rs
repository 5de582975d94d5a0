//! Replies that the program holds until it releases them: only then are the effects of their calls durable.

use std::collections::VecDeque;

use farjump_core::frame::ReplyStatus;

use super::head::BlockedOn;
use super::{Session, Stop};
use crate::serve::holds::Holds;

/// Replies held, and their bytes, from which on no further frame of the source runs.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// A session's held replies, in the order of their calls.
#[derive(Default)]
pub(super) struct HeldReplies {
    replies: VecDeque<(u32, Vec<u8>)>,
    bytes: usize,
    /// Number of released replies, which wait for credit.
    released: usize,
    /// True if calls have run since the last release. Some may have no reply.
    is_holding: bool,
}

impl Session {
    /// Returns whether a call has run whose source must not know of it yet.
    pub(super) fn is_holding(&self) -> bool {
        self.held_replies.as_ref().is_some_and(|held| held.is_holding)
    }

    /// Holds the reply to a call, or notes a held call without a reply. `holds` numbers the target's releases.
    #[cold]
    pub(super) fn hold(&mut self, token: Option<u32>, bytes: &[u8], holds: &mut Holds) -> Result<(), Stop> {
        if self.control.is_source_gone() {
            return Ok(());
        }
        holds.hold();
        let held = self.held_replies.get_or_insert_default();
        held.is_holding = true;
        let Some(token) = token else { return Ok(()) };
        if !self.codes.table.budget.try_take(bytes.len()) {
            self.head.block(BlockedOn::LostReply { token, len: bytes.len() });
            return Ok(());
        }
        held.replies.push_back((token, bytes.to_vec()));
        held.bytes += bytes.len();
        if held.replies.len() >= MOST || held.bytes >= MOST_BYTES {
            self.head.block(BlockedOn::Release);
        }
        Ok(())
    }

    /// Releases the held replies. Returns whether the session has something to do in its next turn.
    pub(in crate::serve) fn release_replies(&mut self) -> Result<bool, Stop> {
        let Some(held) = &mut self.held_replies else { return Ok(false) };
        held.released = held.replies.len();
        held.is_holding = false;
        self.head.released();
        self.send_released()?;
        Ok(self.head.is_blocked())
    }

    /// Sends released replies, as far as there is credit.
    pub(super) fn send_released(&mut self) -> Result<(), Stop> {
        while self.head.may_reply()
            && let Some(held) = &mut self.held_replies
        {
            if held.released == 0 {
                if held.replies.is_empty() && !held.is_holding {
                    self.held_replies = None;
                }
                break;
            }
            held.released -= 1;
            let Some((token, bytes)) = held.replies.pop_front() else { break };
            held.bytes -= bytes.len();
            self.codes.table.budget.give_back(bytes.len());
            self.send_reply(token, ReplyStatus::Done, &bytes, false)?;
        }
        Ok(())
    }
}
