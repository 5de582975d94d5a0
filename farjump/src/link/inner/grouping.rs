//! Groups: calls that wake a sleeping target once.

use farjump_loader::Library;

use super::Inner;
use crate::Error;

impl Inner {
    /// As [`Inner::inject`], without waking the target: [`Inner::wake_for_group`] follows. After an error this wakes
    /// the target, for the earlier calls.
    pub(in super::super) fn inject_grouped<const WANTS_REPLY: bool>(
        &mut self,
        library: &Library,
        args: &[u8],
        wants_credit: bool,
    ) -> Result<usize, Box<Error>> {
        // Others follow, so the first one is no lone call. The target would give the reply to a lone call the rest of
        // its mailbox, and wait for credit with the second reply.
        let follows =
            (WANTS_REPLY && self.pending.slots.none_in_flight()).then(|| self.pending.slots.open(u16::MAX));
        self.connection.channel.begin_group();
        let injected = self.inject::<WANTS_REPLY>(library, args, wants_credit);
        self.connection.channel.end_group();
        if let Some(token) = follows.flatten() {
            self.pending.slots.close(token);
        }
        if injected.is_err() {
            // The next call would report its own error.
            let _ = self.wake_for_group();
        }
        injected
    }

    /// Wakes the target, if it sleeps, for the calls of [`Inner::inject_grouped`]. Call this before any wait for the
    /// target.
    #[inline]
    pub(in super::super) fn wake_for_group(&mut self) -> Result<(), Error> {
        if self.connection.channel.owes_wake() { self.wake_for_calls() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn wake_for_calls(&mut self) -> Result<(), Error> {
        match self.connection.channel.wake_for_group() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.broken(&error)),
        }
    }
}
