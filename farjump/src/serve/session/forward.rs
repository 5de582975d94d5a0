//! Forwarded calls of a session, and their outcomes.

use std::collections::BTreeMap;
use std::sync::Arc;

use farjump_control::{Message, RefusalCause, Rights};
use farjump_core::channel::SendError;
use farjump_core::frame::{Flags, Header, IncompleteReply, PASSAGE_LEN, Passage, ReplyStatus};
use farjump_core::image::FamilyId;
use farjump_loader::{Domain, LinkedImage};

use super::{Session, Shared, Stop, reply};
use crate::Refusal;
use crate::executor::{CallHistory, Callable, Ended, Executor};
use crate::link::Wanted;
use crate::policy::may;
use crate::serve::forward::{Caller, MOST_CALLS, Outcome, Returned, too_many_hops};

/// Most calls of one source that may be under way to destinations: their outcomes may all wait for its
/// credit.
const MOST_FORWARDED: usize = 256;
/// Most requests to one source without a response.
const MAX_REQUESTS: usize = 64;

/// Most families that are noted for one link. Of code beyond them, the family that was named first counts.
const MOST_FAMILIES: usize = 4096;

/// State of a session for the calls that it forwards.
#[derive(Default)]
pub(super) struct ForwardState {
    /// The families that frames named, by code index.
    families: BTreeMap<u16, FamilyId>,
    /// Requests without a response from the source.
    pub(super) requested: Vec<Wanted>,
}

impl Session {
    /// Notes the family that a frame named for the code that it binds to `index`.
    pub(super) fn note_family(&mut self, index: u16, family: Option<FamilyId>) {
        let families = &mut self.forward_state.families;
        match family {
            Some(family) if families.len() < MOST_FAMILIES || families.contains_key(&index) => {
                families.insert(index, family);
            }
            _ => drop(families.remove(&index)),
        }
    }

    /// Notes with the code bound to `index` the family that its frame named.
    #[cfg(feature = "bitcode")]
    pub(super) fn attach_family(&self, index: u16) {
        if let (Some((_, linked)), Some(family)) =
            (self.codes.table.bound(index), self.forward_state.families.get(&index))
        {
            linked.set_family(*family);
        }
    }

    /// The family of code that was called by `index`: that of the target's own library, or the one that the source
    /// named.
    fn family(&self, index: u16, linked: &Arc<LinkedImage>, executor: &Executor) -> Option<FamilyId> {
        match self.codes.table.bound(index) {
            Some((_, bound)) if Arc::ptr_eq(bound, linked) => {
                self.forward_state.families.get(&index).or(linked.family()).copied()
            }
            _ => executor.local_family(linked),
        }
    }

    /// Handles a function that requested a forward, and was allowed.
    #[cold]
    pub(super) fn forward(
        &mut self,
        header: Header,
        code: Callable,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let wants_reply = header.flags.contains(Flags::WANTS_REPLY);
        let caller = Caller::new(self.id, header.token, wants_reply, &self.control.principal);
        if shared.executor.forwarding().is_held {
            // The confirmation to its source that it has run waits, too.
            self.hold(None, &[], shared.forwards.holds_mut())?;
        }
        // A target has no more calls under way to another one.
        let has_travelled = header.flags.contains(Flags::TRAVELLED);
        let most = if has_travelled { MOST_CALLS } else { MOST_FORWARDED };
        let refusal = match shared.executor.linked_of(&self.codes.table, header.index, code) {
            Some(_) if wants_reply && self.replies.forwarded_calls >= most => Refusal::new(
                RefusalCause::ForwardFailed,
                format_args!(
                    "{most} forwarded calls of this source are pending: wait for some of them first"
                ),
            ),
            Some(linked) => {
                self.replies.forwarded_calls += usize::from(wants_reply);
                let family = self.family(header.index, &linked, &shared.executor);
                let limit = self.replies.max_len;
                shared.forwards.push(&mut shared.executor, linked, family, caller, limit);
                return Ok(());
            }
            None => Refusal::new(
                RefusalCause::ForwardFailed,
                "code that runs in place is not in the store, and cannot forward itself: call it in mode cached",
            ),
        };
        shared.executor.forwarding().drop_requests();
        self.refuse(header.token, refusal, shared)
    }

    /// As [`Session::run_code`], for a call that targets have forwarded.
    #[cold]
    #[inline(never)]
    pub(super) fn run_travelled(
        &mut self,
        header: Header,
        payload: *mut u8,
        code: Callable,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let (token, len) = (header.token, header.argument_len());
        let mut passage = [0; PASSAGE_LEN];
        // SAFETY: the caller lends `payload_len` bytes, of which these are the last ones.
        unsafe { farjump_core::shared::copy_out(payload.add(len), passage.as_mut_ptr(), PASSAGE_LEN) };
        let (hops, most) = (Passage::from_bytes(passage).hops, shared.executor.forwarding().limits.hops);
        if hops > most {
            let refusal = Refusal { cause: RefusalCause::ForwardFailed, text: too_many_hops(hops, most) };
            return self.refuse(token, refusal, shared);
        }
        shared.executor.forwarding().history = CallHistory { hops, repeats: 0 };
        // SAFETY: the caller lends the payload and holds the code, as for `run_code`; the function gets fewer bytes.
        let ended = unsafe { shared.executor.run(&code, payload.cast(), len, self.replies.max_len) };
        let replied = match ended {
            Ended::Returned if header.flags.contains(Flags::WANTS_REPLY) => {
                self.send_reply(token, ReplyStatus::Done, shared.executor.reply(), false)
            }
            Ended::Returned => Ok(()),
            ended => self.ended_otherwise(header, code, ended, shared),
        };
        shared.executor.forwarding().history = CallHistory::default();
        // SAFETY: the table or the frame still holds the code: nothing was unbound since the call.
        unsafe { shared.executor.count(code.usage) };
        replied
    }

    /// Requests an image that another machine needs, or the manifest, from the source. The response goes to
    /// [`Shared::forwards`].
    #[cold]
    pub(in super::super) fn request_wanted(
        &mut self,
        wanted: Wanted,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let brings = may(self.control.rights(), Rights::INJECT, || self.control.has_key());
        let refused = match wanted {
            _ if self.control.is_source_gone() => Some("its source is gone".to_owned()),
            Wanted::Code(_) if brings.is_err() => brings.err().map(|refusal| refusal.text),
            _ if self.forward_state.requested.len() >= MAX_REQUESTS => {
                Some(format!("its source has {MAX_REQUESTS} questions to answer"))
            }
            _ => None,
        };
        if let Some(why) = refused {
            shared.forwards.note_unserved(self.id, wanted, &why);
            return Ok(());
        }
        self.forward_state.requested.push(wanted);
        log::debug!("{}: asked for {wanted}, to forward it", self.control.peer());
        self.notify(&match wanted {
            Wanted::Manifest(family) => Message::NeedManifest { family: family.0 },
            Wanted::Code(id) => Message::NeedCode { index: 0, id: id.0 },
        })
    }

    fn domain(&self) -> Domain {
        self.codes.table.domain()
    }

    /// Takes the response to a request of [`Session::request_wanted`]; `None` if the source has none.
    #[cold]
    pub(super) fn take_requested(&mut self, wanted: Wanted, answer: Option<Vec<u8>>, shared: &mut Shared) {
        if let Some(index) = self.forward_state.requested.iter().position(|requested| *requested == wanted) {
            self.forward_state.requested.swap_remove(index);
        }
        let Some(answer) = answer else {
            return shared.forwards.note_unserved(
                self.id,
                wanted,
                &format!("its source does not have {wanted}"),
            );
        };
        match wanted {
            Wanted::Manifest(family) => {
                shared.forwards.take_manifest(self.id, self.domain(), family, &answer)
            }
            Wanted::Code(id) => match shared.executor.policy.image(answer.len()) {
                Ok(()) => shared.forwards.take_image(self.id, self.domain(), id, answer),
                Err(refusal) => shared.forwards.note_unserved(self.id, wanted, &refusal.text),
            },
        }
    }

    /// Sends the source the outcome of a forwarded call. An outcome without credit comes back.
    pub(in super::super) fn relay(
        &mut self,
        returned: Returned,
        shared: &mut Shared,
    ) -> Result<Option<Returned>, Stop> {
        // A source returns credit in memory only.
        self.progress(true, shared)?;
        let Returned { caller, outcome } = &returned;
        let (outcome, kept) = outcome.kept();
        let incomplete;
        let sent = match outcome {
            _ if self.control.wants_write() => return Ok(Some(self.keep(returned))),
            Outcome::Done(bytes) if bytes.len() > self.replies.max_len => {
                let text = format!(
                    "the function replied {} bytes at a destination of the target, and this link takes {} at most: connect with a larger reply mailbox",
                    bytes.len(),
                    self.replies.max_len
                );
                Err(Refusal { cause: RefusalCause::ReplyTooLarge, text })
            }
            Outcome::Done(bytes) => Ok((ReplyStatus::Done, &bytes[..])),
            Outcome::Panicked(message) if caller.wants_reply => {
                Ok((ReplyStatus::Panicked, &message[..message.len().min(self.replies.max_len)]))
            }
            Outcome::Panicked(message) => {
                let text = format!(
                    "the function panicked at a peer of the target: {}",
                    String::from_utf8_lossy(message)
                );
                Err(Refusal { cause: RefusalCause::Panicked, text })
            }
            Outcome::Incomplete { lost, why, replies } => {
                let reply = IncompleteReply { lost: *lost, text: why, replies };
                match reply.head(self.replies.max_len) {
                    Some(mut head) => {
                        head.extend_from_slice(replies);
                        incomplete = head;
                        Ok((ReplyStatus::Incomplete, &incomplete[..]))
                    }
                    None => {
                        let text = format!(
                            "{lost} calls that it led to were lost, and there is no room for the replies of the others; the first: {}",
                            String::from_utf8_lossy(why)
                        );
                        Err(Refusal { cause: RefusalCause::ForwardFailed, text })
                    }
                }
            }
            Outcome::Overlong => {
                let text = format!(
                    "the function ran and replied more than the {} bytes that this link takes: connect with a larger reply mailbox",
                    self.replies.max_len
                );
                Err(Refusal { cause: RefusalCause::ReplyTooLarge, text })
            }
            Outcome::Failed(text) => Err(Refusal { cause: RefusalCause::ForwardFailed, text: text.clone() }),
            Outcome::Withdrawn(text) => Err(Refusal { cause: RefusalCause::Rights, text: text.clone() }),
            Outcome::Kept { bytes: len, .. } | Outcome::Lost(len) => Err(self.lost_reply(*len)),
        };
        match sent {
            Ok((status, bytes)) => {
                match self.channel.send_bytes(&reply(caller.token, status, false), bytes) {
                    Err(SendError::Full) => return Ok(Some(self.keep(returned))),
                    Err(SendError::Failed(error)) => return Err(error.into()),
                    // An outcome that is too large was replaced above.
                    Ok(()) | Err(SendError::TooLarge { .. }) => {}
                }
            }
            // It was counted when the call was dropped.
            Err(refusal) if matches!(outcome, Outcome::Withdrawn(_)) => {
                self.report_refusal(caller.token, refusal, shared)?;
            }
            Err(refusal) => self.refuse(caller.token, refusal, shared)?,
        }
        self.recount(kept, 0);
        self.replies.forwarded_calls -= usize::from(caller.wants_reply);
        Ok(None)
    }

    /// Counts an outcome that waits for credit.
    fn keep(&mut self, Returned { caller, outcome }: Returned) -> Returned {
        Returned { caller, outcome: outcome.keep(|from, to| self.recount(from, to)) }
    }

    /// Changes the source's count of the target's memory from `from` bytes to `to` bytes. Returns `false`, and changes
    /// nothing, if it may not take so many.
    pub(in super::super) fn recount(&mut self, from: usize, to: usize) -> bool {
        let budget = &mut self.codes.table.budget;
        if to > from {
            return budget.try_take(to - from);
        }
        budget.give_back(from - to);
        true
    }
}
