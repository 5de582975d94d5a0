//! Frames that bring or name their code.

use farjump_control::{Message, RefusalCause, Rights};
use farjump_core::frame::{Kind, MAX_NAME};

use super::{End, Held, Session, Shared, Stop, Waiting};
use crate::Refusal;
use crate::executor::{Callable, Named, Ready};
use crate::mode::Mode;
use crate::policy::may;

impl Session {
    /// Runs a frame that brings or names its code with the same header as the last one: that was checked
    /// then. `None` if another frame is next.
    #[inline]
    pub(super) fn repeat(&mut self, shared: &mut Shared) -> Option<Result<(), Stop>> {
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

    /// The payload of a frame, aligned as the code asks: in place, or in a copy.
    pub(super) fn payload(&self, held: &Held, code: Callable, shared: &mut Shared) -> *mut u8 {
        if held.frame.payload_is_aligned(code.align) {
            return held.frame.payload().as_ptr();
        }
        shared.staging.align(self.mailbox(held.mailbox), &held.frame, code.align)
    }

    /// Runs the code bound to the frame's index.
    pub(super) fn call(&mut self, held: &Held, shared: &mut Shared) -> Result<(), Stop> {
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
    pub(super) fn bind(&mut self, held: &Held, shared: &mut Shared) -> Result<(), Stop> {
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
    pub(super) fn call_local(&mut self, held: &Held, shared: &mut Shared) -> Result<(), Stop> {
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
    pub(super) fn tell_link_times(&mut self, shared: &Shared) -> Result<(), Stop> {
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
    pub(super) fn not_ready(
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
}

pub(super) fn code_missing() -> Refusal {
    Refusal::new(
        RefusalCause::CodeMissing,
        "it does not hold the code, and the source did not send it: send the code with the next call",
    )
}
