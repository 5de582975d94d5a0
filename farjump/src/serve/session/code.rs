//! Frames that bring or name their code.

use std::sync::Arc;

use farjump_control::{Message, RefusalCause, Rights};
use farjump_core::frame::{Kind, MAX_NAME, ReplyStatus};
#[cfg(test)]
use farjump_loader::Domain;
use farjump_loader::{CodeKey, LinkedImage};

use super::head::{BlockedOn, HeldFrame};
use super::{End, Session, Shared, Stop};
use crate::Refusal;
use crate::executor::{Callable, CodeTable, Named, Ready};
use crate::mode::Mode;
use crate::policy::may;

/// The code of a session.
pub(in crate::serve) struct SessionCodes {
    pub(super) table: CodeTable,
    /// Indexes of code that was placed on this link and not yet reported.
    unreported_links: Vec<u16>,
}

impl SessionCodes {
    /// `table` has the budget that pays for the mailbox.
    pub(super) fn new(table: CodeTable) -> SessionCodes {
        SessionCodes { table, unreported_links: Vec::new() }
    }

    /// Bytes of the target's memory that the source has taken, and its limit; `None` where there is no limit.
    pub(in crate::serve) fn memory(&mut self) -> Option<(usize, usize)> {
        self.table.budget.taken()
    }

    /// Notes that the code bound to `index`, if there is any, was placed and is to be reported.
    #[cfg(feature = "bitcode")]
    pub(super) fn note_link(&mut self, index: u16) {
        if self.table.bound(index).is_some() {
            self.unreported_links.push(index);
        }
    }

    /// Replaces older code with the id of `linked` in its bindings.
    #[cfg(feature = "bitcode")]
    pub(in crate::serve) fn exchange(&mut self, linked: &Arc<LinkedImage>) {
        if self.table.domain() == linked.domain() {
            self.table.exchange(linked);
        }
    }

    /// Moves the source, which has brought nothing, to this domain.
    #[cfg(test)]
    pub(in crate::serve) fn move_to(&mut self, domain: Domain) {
        self.table = CodeTable::for_source(domain, std::mem::take(&mut self.table.budget));
    }

    /// Drops code, as if it had never come. Code of another domain is not here.
    pub(in crate::serve) fn drop_code(&mut self, key: CodeKey) {
        if self.table.domain() == key.domain {
            self.table.drop_code(&key.id);
        }
    }
}

impl Session {
    /// Drops all references to code before the store drops it.
    pub(in crate::serve) fn release(sessions: &mut [Session], linked: &Arc<LinkedImage>) {
        for session in sessions {
            // The store's own reference, and no other.
            if Arc::strong_count(linked) == 1 {
                return;
            }
            session.codes.drop_code(linked.key());
        }
    }

    /// Runs a frame that brings or names its code with the same header as the last one: that was checked
    /// then. `None` if another frame is next.
    #[inline]
    pub(super) fn repeat(&mut self, shared: &mut Shared) -> Option<Result<(), Stop>> {
        let frame = self.channel.predicted()?;
        let header = frame.header();
        let code = match header.kind {
            Kind::CallCode => {
                // The index may stand for other code meanwhile, or none.
                let (code, linked) = self.codes.table.bound(header.index)?;
                let contents = frame.contents();
                let same = contents.code().is_some_and(|part| part.id == linked.id());
                (same && contents.image_is(linked.image())).then_some(code)?
            }
            Kind::CallLocal => {
                let mut name = [0; MAX_NAME];
                let len = frame.contents().copy_name_to(&mut name);
                shared.executor.set_source(self.id);
                shared.executor.local(&name[..len]).ok()?
            }
            _ => return None,
        };
        if !frame.payload_is_aligned(code.align) {
            return None;
        }
        let payload = frame.payload().as_ptr();
        let frame = frame.take();
        Some(match header.kind {
            Kind::CallLocal => self.run_code_of(HeldFrame::own(frame), payload, code, shared),
            _ => self.run(frame, payload, code, shared),
        })
    }

    /// Returns the payload of a frame, aligned as the code requires: in place, or in a copy.
    pub(super) fn payload(&self, held: &HeldFrame, code: Callable, shared: &mut Shared) -> *mut u8 {
        if held.frame.payload_is_aligned(code.align) {
            return held.frame.payload().as_ptr();
        }
        shared.scratch.align(&held.header(), self.contents(held), code.align)
    }

    /// Runs the code bound to the frame's index.
    pub(super) fn call(&mut self, held: HeldFrame, shared: &mut Shared) -> Result<(), Stop> {
        let header = held.header();
        match self.codes.table.callable(header.index) {
            Some(code) => {
                let payload = self.payload(&held, code, shared);
                self.run_code_of(held, payload, code, shared)
            }
            None => {
                let ready = shared.executor.ready(&self.codes.table, header.index);
                self.not_ready(held, ready, shared)
            }
        }
    }

    /// Runs the code bound to the frame's index, unless the frame only binds it: then replies that it is bound.
    fn call_or_report(&mut self, held: HeldFrame, code: Callable, shared: &mut Shared) -> Result<(), Stop> {
        let header = held.header();
        if header.kind == Kind::Bind {
            let replied = self.send_reply(header.token, ReplyStatus::Done, &[], false);
            self.release_held(held)?;
            return replied;
        }
        let payload = self.payload(&held, code, shared);
        self.run_code_of(held, payload, code, shared)
    }

    #[cold]
    pub(super) fn bind(&mut self, mut held: HeldFrame, shared: &mut Shared) -> Result<(), Stop> {
        let (index, binds_alone) = (held.header().index, held.header().kind == Kind::Bind);
        // A frame that brings its image waits for no code of its source. Code that was refused meanwhile is not tried again
        // by the same frame.
        if held.code_settled && (!binds_alone || self.codes.table.is_refused(index)) {
            return self.call(held, shared);
        }
        let Some(code) = self.contents(&held).code() else { return self.release_held(held) };
        if !binds_alone
            && let Some((callable, linked)) = self.codes.table.bound(index)
            && linked.id() == code.id
            && code.epoch == shared.executor.epoch()
            && self.contents(&held).image_is(linked.image())
        {
            // Mode always: the code equals the stored copy, which runs.
            if let Err(refusal) = shared.executor.allow(Mode::Always) {
                return self.not_ready(held, Err(refusal), shared);
            }
            self.predict(&held);
            let payload = self.payload(&held, callable, shared);
            return self.run_code_of(held, payload, callable, shared);
        }
        // Checked before it takes any memory here.
        if let Err(refusal) = shared.executor.policy.image(code.image_len as usize) {
            self.codes.table.refuse(index, &refusal);
            return self.not_ready(held, Err(refusal), shared);
        }
        // Copied before it is checked: the source can write the mailbox meanwhile.
        let copied = &mut shared.scratch.code;
        copied.fill(|bytes| self.contents(&held).copy_code(bytes));
        let placed = shared.executor.stats.images_linked;
        let family = self.contents(&held).family();
        self.note_family(index, family);
        let copied = &mut shared.scratch.code;
        let mut named = Named {
            id: code.id,
            epoch: code.epoch,
            family,
            copied,
            origin: &self.control.origin,
            space_was_made: std::mem::take(&mut held.space_was_made),
        };
        match shared.executor.bind(&mut self.codes.table, index, &mut named) {
            Ok(Ready::Yes) => {
                match self.codes.table.bound(index) {
                    Some((code, _)) => self.call_or_report(held, code, shared)?,
                    None => self.head.keep(held),
                }
                if shared.executor.stats.images_linked != placed {
                    self.codes.unreported_links.push(index);
                }
                Ok(())
            }
            other => self.not_ready(held, other, shared),
        }
    }

    /// Runs a function of the target's own.
    #[cold]
    pub(super) fn call_local(&mut self, held: HeldFrame, shared: &mut Shared) -> Result<(), Stop> {
        let mut name = [0; MAX_NAME];
        let len = self.contents(&held).copy_name_to(&mut name);
        shared.executor.set_source(self.id);
        match shared.executor.local(&name[..len]) {
            Ok(code) => {
                self.predict(&held);
                let payload = self.payload(&held, code, shared);
                self.run_code_of(held, payload, code, shared)
            }
            Err(refusal) => self.not_ready(held, Err(refusal), shared),
        }
    }

    /// Reports the time that placing took, for code placed since the last report. This is for statistics: the source is
    /// not notified, and no call waits for the system call. It also allocates memory for the next code outside calls.
    pub(super) fn report_link_times(&mut self, shared: &mut Shared) -> Result<(), Stop> {
        if !self.codes.unreported_links.is_empty() {
            shared.executor.prepare(&mut self.codes.table);
            // A limited source pays for the bytes that its code needs, and no more are kept for it.
            if !self.codes.table.budget.is_limited() {
                shared.scratch.code.prepare();
            }
        }
        while let Some(index) = self.codes.unreported_links.pop() {
            let time = shared.executor.link_time(&self.codes.table, index);
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.control.send(&Message::CodeLinked { index, nanoseconds })?;
            self.await_reading();
        }
        Ok(())
    }

    /// Handles code that is missing or refused.
    #[cold]
    pub(super) fn not_ready(
        &mut self,
        mut held: HeldFrame,
        ready: Result<Ready, Refusal>,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        let header = held.header();
        match ready {
            Ok(Ready::Yes) => {
                self.head.keep(held);
                Ok(())
            }
            Ok(Ready::Crowded(need)) => {
                held.space_was_made = true;
                self.head.keep(held);
                Err(End::Crowded(need, 0).into())
            }
            Ok(Ready::Needs(_)) if self.control.is_source_gone() => {
                self.refuse_frame(held, code_missing(), shared)
            }
            Ok(Ready::NeedsManifest(family)) if held.manifest_settled || self.control.is_source_gone() => {
                let text = format!(
                    "its source sent no manifest of family {family}, in which the code would have to be: send code that is allowed"
                );
                self.refuse_frame(held, Refusal::new(RefusalCause::Policy, text), shared)
            }
            Ok(Ready::NeedsManifest(family)) => {
                self.head.block(BlockedOn::Manifest(family));
                self.head.keep(held);
                self.notify(&Message::NeedManifest { family: family.0 })?;
                shared.executor.stats.waited += 1;
                Ok(())
            }
            #[cfg(not(feature = "bitcode"))]
            Ok(Ready::Compiling(_)) => self.refuse_frame(held, code_missing(), shared),
            #[cfg(feature = "bitcode")]
            Ok(Ready::Compiling(id)) => {
                self.head.keep(held);
                self.head.await_compiler(id);
                shared.executor.stats.waited += 1;
                Ok(())
            }
            Ok(Ready::Needs(id)) => {
                if let Err(refusal) = may(self.control.rights(), Rights::INJECT, || self.control.has_key()) {
                    // Code that the source may not bring is not requested.
                    return self.refuse_frame(held, refusal, shared);
                }
                // The frame and those behind it stay in their place: their order is kept and none is lost.
                self.head.block(BlockedOn::Code(id));
                self.head.keep(held);
                shared.handlers.code_missing(self.control.peer(), &id);
                self.notify(&Message::NeedCode { index: header.index, id: id.0 })?;
                // Counted here because the frames of a poll that ends the link are not counted either.
                shared.executor.stats.waited += 1;
                Ok(())
            }
            Err(refusal) => self.refuse_frame(held, refusal, shared),
        }
    }
}

pub(super) fn code_missing() -> Refusal {
    Refusal::new(
        RefusalCause::CodeMissing,
        "it does not hold the code, and the source did not send it: send the code with the next call",
    )
}
