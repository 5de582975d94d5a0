//! Frames whose code runs where it lies, in the mailbox.

use farjump_control::RefusalCause;
use farjump_core::frame::CodePart;

use super::head::HeldFrame;
use super::{Session, Shared, Stop};
use crate::Refusal;
use crate::executor::{Callable, Named};

impl Session {
    /// Runs the code of the held frame in place. The frame is held until the code has returned, so an honest
    /// source writes nothing there meanwhile.
    #[cold]
    pub(super) fn call_in_place(&mut self, held: HeldFrame, shared: &mut Shared) -> Result<(), Stop> {
        let Some(part) = self.contents(&held).code() else { return self.release_held(held) };
        let header = held.header();
        match self.prepare_in_place(&held, &part, shared) {
            Ok(code) => {
                let payload = self.payload(&held, code, shared);
                let done = self.run_code_of(held, payload, code, shared);
                self.codes.table.over(header.index);
                done
            }
            Err(refusal) => self.not_ready(held, Err(refusal), shared),
        }
    }

    fn prepare_in_place(
        &mut self,
        held: &HeldFrame,
        part: &CodePart,
        shared: &mut Shared,
    ) -> Result<Callable, Refusal> {
        shared.executor.allow_in_place(part.epoch)?;
        let index = held.header().index;
        let place = self.mailbox_mut(held.mailbox()).in_place(&held.frame).map_err(|error| {
            Refusal::new(
                RefusalCause::Policy,
                format_args!("its mailbox cannot run code in place ({error}): choose another mode"),
            )
        })?;
        if !self.codes.table.is_checked(index, &part.id, place.len) {
            // Copied before it is checked: the source can write the mailbox meanwhile.
            let copied = &mut shared.scratch.code;
            copied.fill(|bytes| self.contents(held).copy_code(bytes));
            let (id, epoch, origin) = (part.id, part.epoch, &self.control.origin);
            let named = Named { id, epoch, family: None, copied, origin, space_was_made: false };
            shared.executor.check_in_place(&mut self.codes.table, index, &named)?;
        }
        // SAFETY: the frame is held: `run` releases it once the code has returned.
        unsafe { self.codes.table.prepare(index, &place, shared.executor.in_place_usage()) }
    }
}
