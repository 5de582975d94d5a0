//! The frame at the head of a session's mailboxes that was begun and cannot end yet.
//!
//! It stays in its mailbox, where its source can write, and sometimes for long: until code has come, or a
//! reply has been sent. So it is read once. The values read are kept here as one, together with the mailbox
//! that the frame lies in, and the session continues with them: later contents of the mailboxes are ignored
//! (`docs/design/fast-path.md`). The mailbox's channel holds the same frame until it has the `Taken`
//! back, with its fields about the code that it names.

use std::time::{Duration, Instant};

use farjump_control::RefusalCause;
use farjump_core::channel::Taken;
use farjump_core::frame::{Header, Kind, Messages, ReplyStatus};
use farjump_core::image::{CodeId, FamilyId};

use super::{End, Session, Shared, Stop};
use crate::Refusal;
#[cfg(feature = "bitcode")]
use crate::executor::Settled;
use crate::executor::{Executor, Supplied};
use crate::objects::Postponed;
use crate::policy::Budget;

/// The mailbox that a frame lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mailbox {
    /// The link's own.
    Own,
    /// The large mailbox. The link's own holds the `Large` that stands for the frame.
    Large,
}

/// A frame, as it was read when it was found.
#[derive(Debug)]
pub(super) struct HeldFrame {
    pub(super) frame: Taken,
    /// The `Large` in the link's own mailbox that stands for the frame, if that lies in the large one.
    pub(super) switch: Option<Taken>,
    /// True if the source has sent the code that the frame waited for, or has reported that it cannot: the code is not
    /// requested again.
    pub(super) code_settled: bool,
    /// The same for a manifest.
    pub(super) manifest_settled: bool,
    /// True if other code is dropped for the frame's before its next attempt.
    pub(super) space_was_made: bool,
    pub(super) begun_batch: Option<BegunBatch>,
}

/// A batch of which some calls have run.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunBatch {
    /// The head of the frame as it was when it was begun.
    pub(super) messages: Messages,
    /// Number of calls that have run.
    pub(super) done: u32,
}

impl HeldFrame {
    /// A frame of the link's own mailbox.
    pub(super) fn own(frame: Taken) -> HeldFrame {
        HeldFrame {
            frame,
            switch: None,
            code_settled: false,
            manifest_settled: false,
            space_was_made: false,
            begun_batch: None,
        }
    }

    /// A frame of the large mailbox.
    pub(super) fn large(frame: Taken, switch: Taken) -> HeldFrame {
        HeldFrame { switch: Some(switch), ..HeldFrame::own(frame) }
    }

    pub(super) fn mailbox(&self) -> Mailbox {
        if self.switch.is_some() { Mailbox::Large } else { Mailbox::Own }
    }

    pub(super) fn header(&self) -> Header {
        self.frame.header()
    }
}

/// Times that a session without credit keeps the target from a nap.
const LOOKS_FOR_CREDIT: u8 = 32;

/// The obstacle to a session's next frame.
// A tag of its own: each call compares it.
#[repr(u8)]
pub(super) enum BlockedOn {
    Nothing,
    /// Its own next turn: nothing else is missing for the kept frame.
    NextTurn,
    /// The code of the kept frame, which is missing.
    Code(CodeId),
    /// Its own next turn: the code has come, and is placed when the frame continues, so that nothing can drop
    /// it in between.
    CodeTurn {
        id: CodeId,
        image: Vec<u8>,
        /// True if other code is dropped for it before that turn.
        space_was_made: bool,
    },
    /// The target's compiler, which makes the code of the kept frame.
    #[cfg(feature = "bitcode")]
    Compiler(CodeId),
    /// The manifest of this family.
    Manifest(FamilyId),
    /// Credit for a reply.
    Credit {
        token: u32,
        status: ReplyStatus,
        bytes: Vec<u8>,
    },
    /// A report to the source that its reply is lost: its budget does not allow the memory in which the reply
    /// would wait for credit.
    LostReply {
        token: u32,
        len: usize,
    },
    /// The target's store, which gets the request again.
    Store(Postponed),
    /// The program's release of replies that it holds, of which there are many.
    Release,
    /// The source's reading of its refusals. This bounds the queue, and keeps refusals ahead of later
    /// replies.
    Reading,
}

/// The frame that was begun and cannot end yet, and the event that it waits for. The release of the frame resets all of
/// it.
pub(super) struct HeadFrame {
    blocked_on: BlockedOn,
    /// While there is one, the session takes no other.
    frame: Option<Box<HeldFrame>>,
    /// Time at which a frame was first seen without its end.
    partial_since: Option<Instant>,
    /// Times that the session did without a nap since it last had credit.
    looks: u8,
}

impl HeadFrame {
    /// No frame.
    pub(super) fn new() -> HeadFrame {
        HeadFrame { blocked_on: BlockedOn::Nothing, frame: None, partial_since: None, looks: 0 }
    }

    /// Returns whether arrived frames have to wait for something else.
    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        !matches!(self.blocked_on, BlockedOn::Nothing)
    }

    pub(super) fn blocked_on(&self) -> &BlockedOn {
        &self.blocked_on
    }

    /// Waits for something that ends by itself or by the source.
    pub(super) fn block(&mut self, on: BlockedOn) {
        self.blocked_on = on;
    }

    /// Returns whether to look once more for credit before a nap. A source that runs returns credit in a few
    /// microseconds, which no doorbell reports.
    pub(super) fn looks_again(&mut self) -> bool {
        // Each look that finds none blocks it anew.
        if !matches!(self.blocked_on, BlockedOn::Credit { .. }) {
            self.looks = 0;
            return false;
        }
        let again = self.looks < LOOKS_FOR_CREDIT;
        self.looks += u8::from(again);
        again
    }

    /// Ends the wait for the program's release.
    pub(super) fn released(&mut self) {
        if matches!(self.blocked_on, BlockedOn::Release) {
            self.blocked_on = BlockedOn::NextTurn;
        }
    }

    /// Returns whether the target's store gets a request again.
    #[inline]
    pub(super) fn waits_for_store(&self) -> bool {
        matches!(self.blocked_on, BlockedOn::Store(_))
    }

    /// Returns whether the store's bell rings before the store gets the request again.
    pub(super) fn waits_for_bell(&self, executor: &Executor) -> bool {
        match self.blocked_on {
            BlockedOn::Store(Postponed::Waits(rung)) => {
                executor.bell().is_some_and(|bell| bell.count() == rung)
            }
            _ => false,
        }
    }

    /// Returns whether nothing keeps replies back.
    pub(super) fn may_reply(&self) -> bool {
        matches!(self.blocked_on, BlockedOn::Nothing | BlockedOn::NextTurn)
    }

    /// Waits until the source has read its refusals, unless something else is awaited.
    pub(super) fn block_on_reading(&mut self) {
        if !self.is_blocked() {
            self.blocked_on = BlockedOn::Reading;
        }
    }

    /// Keeps a frame that cannot end yet. It continues when the awaited event has come, or at the session's
    /// next turn if there is none.
    #[cold]
    pub(super) fn keep(&mut self, frame: HeldFrame) {
        debug_assert!(self.frame.is_none());
        self.frame = Some(Box::new(frame));
        if !self.is_blocked() {
            self.blocked_on = BlockedOn::NextTurn;
        }
    }

    /// Returns whether a frame of the large mailbox is kept.
    pub(super) fn is_large(&self) -> bool {
        self.frame.as_ref().is_some_and(|held| held.mailbox() == Mailbox::Large)
    }

    /// Returns whether the code with this id is awaited.
    pub(super) fn awaits_code(&self, id: &CodeId) -> bool {
        matches!(&self.blocked_on, BlockedOn::Code(wanted) if wanted == id)
    }

    /// Returns whether the manifest of this family is awaited.
    pub(super) fn awaits_manifest(&self, family: &FamilyId) -> bool {
        matches!(&self.blocked_on, BlockedOn::Manifest(wanted) if wanted == family)
    }

    /// Continues the frame, whether the awaited manifest has come or does not come.
    pub(super) fn settle_manifest(&mut self) {
        self.blocked_on = BlockedOn::NextTurn;
        self.frame.iter_mut().for_each(|held| held.manifest_settled = true);
    }

    /// Waits until the target's compiler has made the code. The code is not requested from the source after that.
    #[cfg(feature = "bitcode")]
    pub(super) fn await_compiler(&mut self, id: CodeId) {
        self.settle_code(BlockedOn::Compiler(id));
    }

    /// Returns whether this code is awaited from the compiler.
    #[cfg(feature = "bitcode")]
    pub(super) fn awaits_compiler(&self, id: &CodeId) -> bool {
        matches!(&self.blocked_on, BlockedOn::Compiler(awaited) if awaited == id)
    }

    /// Continues the frame with the awaited code.
    pub(super) fn take_code(&mut self, id: CodeId, image: Vec<u8>) {
        self.settle_code(BlockedOn::CodeTurn { id, image, space_was_made: false });
    }

    /// Continues the frame although its code does not come.
    pub(super) fn continue_without_code(&mut self) {
        self.settle_code(BlockedOn::NextTurn);
    }

    fn settle_code(&mut self, then: BlockedOn) {
        self.blocked_on = then;
        self.frame.iter_mut().for_each(|held| held.code_settled = true);
    }

    /// Ends waits for events that only the source could bring, until the frames of a gone source have run.
    pub(super) fn wait_no_longer(&mut self, budget: &mut Budget) {
        match std::mem::replace(&mut self.blocked_on, BlockedOn::Nothing) {
            // Code that has come is still useful.
            turn @ BlockedOn::CodeTurn { .. } => self.blocked_on = turn,
            #[cfg(feature = "bitcode")]
            compiler @ BlockedOn::Compiler(_) => self.blocked_on = compiler,
            BlockedOn::Credit { bytes, .. } => budget.give_back(bytes.len()),
            _ => {}
        }
        if self.frame.is_some() && !self.is_blocked() {
            self.blocked_on = BlockedOn::NextTurn;
        }
    }

    /// Notes that the next frame is whole.
    #[inline]
    pub(super) fn note_whole(&mut self) {
        self.partial_since = None;
    }

    /// Returns whether a frame was seen without its end, which has not come yet.
    pub(super) fn is_partial(&self) -> bool {
        self.partial_since.is_some()
    }

    /// Checks the age of a frame whose start has come and whose end has not; it is limited.
    #[cold]
    pub(super) fn check_age(&mut self, limit: Duration) -> Result<(), Stop> {
        let since = *self.partial_since.get_or_insert_with(Instant::now);
        if since.elapsed() < limit {
            return Ok(());
        }
        let text = format!(
            "the target cut the link: the rest of a frame did not follow its signal within {limit:?}; connect again"
        );
        Err(End::Broken(Refusal { cause: RefusalCause::Stalled, text }).into())
    }
}

impl Session {
    /// Predicts that later frames have the header of `held`: only for frames of the link's own mailbox.
    pub(super) fn predict(&mut self, held: &HeldFrame) {
        if held.mailbox() == Mailbox::Own {
            self.channel.predict(&held.frame);
        }
    }

    /// Continues with the kept frame, if the awaited event has come. Returns the number of calls; `None`
    /// while it has to wait.
    #[cold]
    pub(super) fn continue_frame(&mut self, shared: &mut Shared) -> Result<Option<usize>, Stop> {
        if !self.can_continue(shared)? {
            return Ok(None);
        }
        self.send_released()?;
        if self.head.is_blocked() {
            return Ok(None);
        }
        match self.head.frame.take() {
            Some(held) => self.run_held(*held, shared).map(Some),
            None => Ok(Some(0)),
        }
    }

    /// Returns the refusal for a reply of `len` bytes that may not wait for credit.
    pub(super) fn lost_reply(&self, len: usize) -> Refusal {
        let text = format!(
            "the function ran, and its reply of {len} bytes is lost: the link had no credit for it, and the target may not \
             keep it, since the source has {} bytes of memory left there (TargetBuilder::max_source_memory): take replies sooner, or \
             connect with a larger reply mailbox",
            self.codes.table.budget.left()
        );
        Refusal { cause: RefusalCause::ReplyTooLarge, text }
    }

    /// Returns whether the awaited event has come.
    #[cold]
    fn can_continue(&mut self, shared: &mut Shared) -> Result<bool, Stop> {
        if self.head.waits_for_bell(&shared.executor) {
            return Ok(false);
        }
        match std::mem::replace(&mut self.head.blocked_on, BlockedOn::Nothing) {
            BlockedOn::Nothing | BlockedOn::NextTurn | BlockedOn::Store(_) => Ok(true),
            waits @ (BlockedOn::Code(_) | BlockedOn::Manifest(_)) => {
                self.head.blocked_on = waits;
                Ok(false)
            }
            BlockedOn::LostReply { token, len } => {
                let refusal = self.lost_reply(len);
                self.refuse(token, refusal, shared)?;
                Ok(!self.head.is_blocked())
            }
            BlockedOn::CodeTurn { id, image, space_was_made } => {
                let (table, origin) = (&mut self.codes.table, &self.control.origin);
                match shared.executor.supply(table, id, &image, origin, space_was_made) {
                    // The frame finds the code bound, or refused.
                    Supplied::Settled => Ok(true),
                    Supplied::Crowded(need) => {
                        self.head.blocked_on = BlockedOn::CodeTurn { id, image, space_was_made: true };
                        Err(End::Crowded(need, 0).into())
                    }
                    #[cfg(feature = "bitcode")]
                    Supplied::Compiling => {
                        self.head.await_compiler(id);
                        Ok(false)
                    }
                    #[cfg(not(feature = "bitcode"))]
                    Supplied::Compiling => Ok(true),
                }
            }
            #[cfg(feature = "bitcode")]
            BlockedOn::Compiler(id) => match shared.executor.settle(&mut self.codes.table, &id) {
                Settled::Decided => {
                    if let Some(index) = self.head.frame.as_ref().map(|held| held.header().index) {
                        self.codes.note_link(index);
                        self.attach_family(index);
                    }
                    Ok(true)
                }
                Settled::Waits => {
                    self.head.blocked_on = BlockedOn::Compiler(id);
                    Ok(false)
                }
            },
            BlockedOn::Credit { token, status, bytes } => {
                self.codes.table.budget.give_back(bytes.len());
                self.send_reply(token, status, &bytes, false)?;
                Ok(!self.head.is_blocked())
            }
            BlockedOn::Release if self.control.is_source_gone() => Ok(true),
            BlockedOn::Release => {
                self.head.blocked_on = BlockedOn::Release;
                Ok(false)
            }
            BlockedOn::Reading => {
                self.control.flush()?;
                self.await_reading();
                Ok(!self.head.is_blocked())
            }
        }
    }

    /// Handles `held`, which is then released or kept. Returns the number of calls.
    #[cold]
    pub(super) fn run_held(&mut self, held: HeldFrame, shared: &mut Shared) -> Result<usize, Stop> {
        match (held.mailbox(), held.header().kind) {
            (Mailbox::Own, Kind::CallBatch) => self.call_batch(held, shared),
            _ => self.dispatch(held, shared).map(|()| 1),
        }
    }
}
