//! The code used last, and the release of images and code indexes whose libraries are closed.

use farjump_core::channel::SendError;
use farjump_core::frame::{Kind, Plan};
use farjump_loader::{Library, LibraryImage};

use super::super::sent_codes::Flush;
use super::Inner;
use crate::Error;
use crate::Mode;

impl Inner {
    /// Returns the index of `library`'s code, which becomes the code used last. While another image is compiled for it,
    /// it does not, so that the next call comes here again.
    #[inline(never)]
    pub(super) fn switch_to(&mut self, library: &Library) -> Result<u16, Error> {
        self.release_closed();
        library.check_payload()?;
        if library.images().is_empty() && self.settings.mode == Mode::Local {
            let absent = LibraryImage::absent(library.name(), self.connection.target.cpu.platform());
            return self.codes.switch_to(library, &absent);
        }
        #[cfg(feature = "build")]
        if self.exchanges.is_some() {
            if self.settings.mode == Mode::Cached {
                self.exchange(library);
            }
            let exchanged = self.exchanges.as_mut().and_then(|exchanges| exchanges.image_of(library));
            let index = match exchanged {
                Some(image) => self.codes.switch_to(library, &image),
                None => self.codes.switch_to(library, library.image_for_cpu(&self.connection.target.cpu)?),
            };
            if self.is_exchanging(library) {
                self.codes.drop_recent();
            }
            return index;
        }
        self.codes.switch_to(library, library.image_for_cpu(&self.connection.target.cpu)?)
    }

    /// As [`Inner::switch_to`]. `None` for an error, which the call reports when it travels in its own frame.
    #[cold]
    #[inline(never)]
    pub(super) fn switched_to(&mut self, library: &Library) -> Option<u16> {
        self.switch_to(library).ok()
    }

    /// Releases images and indexes of closed libraries as far as outcomes that came show that no frame needs
    /// them, and sends a flush if too many are left. Never waits.
    pub(super) fn release_closed(&mut self) {
        let slots = &mut self.pending.slots;
        self.codes.end_mark(|token| slots.is_in_flight(token));
        match self.codes.flush() {
            Flush::None if self.codes.needs_flush() => self.send_own_flush(),
            Flush::None => {}
            Flush::Sent(token, _) => match slots.take(token) {
                Some(Ok(outcome)) => self.codes.flush_ran(refusals_in(&outcome)),
                Some(Err(_)) => self.codes.flush_failed(),
                None => {}
            },
            Flush::Ran(_, refusals) => {
                if self.connection.control.refusals_read < refusals {
                    // The call that follows reports an error.
                    let _ = self.read_control();
                }
                if self.connection.control.refusals_read >= refusals {
                    let pending = self.pending.slots.codes_in_flight();
                    self.codes.flush_settled(|index| pending.contains(&index));
                }
            }
        }
    }

    /// Sends a flush if there is credit; the next call of another function tries again otherwise.
    #[cold]
    fn send_own_flush(&mut self) {
        let Some(token) = self.pending.slots.open(u16::MAX) else { return };
        match self.send_flush_frame(token) {
            Ok(()) => self.codes.flush_sent(token),
            // The call that follows reports a failure.
            Err(_) => self.pending.slots.close(token),
        }
    }

    /// Sends the frame of a flush, if there is credit right away.
    pub(super) fn send_flush_frame(&mut self, token: u32) -> Result<(), SendError> {
        self.connection.channel.send_bytes(&Plan { wants_reply: true, token, ..Plan::of(Kind::Flush) }, &[])
    }
}

/// The number of refusals that the target had sent before the outcome of a flush.
pub(super) fn refusals_in(outcome: &[u8]) -> u64 {
    outcome.get(..8).map_or(0, |count| u64::from_le_bytes(count.try_into().unwrap_or_default()))
}
