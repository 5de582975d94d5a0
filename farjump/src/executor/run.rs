//! Calling code.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use farjump_loader::{LinkedImage, Usage, address_map};

use super::enter::{ControlWords, Main};
use super::{Ended, Executor, Forwarding};
use crate::executor::code::table::{Callable, CodeTable};

impl Executor {
    /// Calls code. Its reply, of at most `reply_limit` bytes, is then in [`Executor::reply`].
    ///
    /// # Safety
    /// `code` must come from a table that still holds it, or be this executor's own, or lie in a frame that is held.
    /// `payload` must be valid for reads and writes of `len` bytes during the call, and aligned as the code requires.
    /// Native code in a process is trusted code: the user who admits sources is responsible for its actions
    /// (`docs/security.md`).
    #[inline(always)]
    pub(crate) unsafe fn run(
        &mut self,
        code: &Callable,
        payload: *mut c_void,
        len: usize,
        reply_limit: usize,
    ) -> Ended {
        // SAFETY: `usage` belongs to the code, which the caller guarantees is held.
        if unsafe { code.usage.as_ref() }.is_due() {
            // SAFETY: this function's caller gives the same guarantees.
            return unsafe { self.run_timed(code.main, code.usage, payload, len, reply_limit) };
        }
        // SAFETY: `main` is the entry of an image that was checked and placed, and stays placed while the
        // table holds it; this function's caller guarantees the arguments.
        unsafe { self.context.call(code.main, payload, len, self.context.target_args, reply_limit) }
    }

    /// As [`Executor::run`], for a call outside of those of a poll: restores the program's modes of arithmetic itself.
    ///
    /// # Safety
    /// As [`Executor::run`].
    pub(crate) unsafe fn run_alone(
        &mut self,
        code: &Callable,
        payload: *mut c_void,
        len: usize,
        reply_limit: usize,
    ) -> Ended {
        let outer = self.begin_calls();
        // SAFETY: this function's caller gives the same guarantees.
        let ended = unsafe { self.run(code, payload, len, reply_limit) };
        self.end_calls(outer);
        ended
    }

    /// Notes the program's modes of arithmetic, at the beginning of a poll. Call [`Executor::restore_modes`] after its
    /// calls.
    #[inline(always)]
    pub(crate) fn note_modes(&mut self) {
        self.context.note_modes();
    }

    /// Restores the program's modes of arithmetic, whichever modes calls have left.
    #[inline(always)]
    pub(crate) fn restore_modes(&mut self) {
        self.context.restore_modes();
    }

    /// As [`Executor::note_modes`], for calls during a poll or outside of one. Returns the modes noted before, for
    /// [`Executor::end_calls`].
    pub(crate) fn begin_calls(&mut self) -> ControlWords {
        self.context.begin_calls()
    }

    /// Restores the program's modes after the calls that [`Executor::begin_calls`] began. `outer` is its result.
    pub(crate) fn end_calls(&mut self, outer: ControlWords) {
        self.context.end_calls(outer);
    }

    /// Counts the call that was just made of the code that these counters belong to.
    ///
    /// # Safety
    /// The code must be held, as for the first argument of [`Executor::run`].
    #[inline(always)]
    pub(crate) unsafe fn count(&mut self, usage: NonNull<Usage>) {
        // SAFETY: the caller guarantees that the code is held, and the counters with it.
        unsafe { usage.as_ref() }.count(self.clock.tick());
    }

    /// The reference that keeps the code of `index`, or a function of the target's own, placed.
    pub(crate) fn linked_of(
        &self,
        table: &CodeTable,
        index: u16,
        code: Callable,
    ) -> Option<Arc<LinkedImage>> {
        let bound = table.bound(index).map(|(_, linked)| linked);
        let mut all = bound.into_iter().chain(self.local.values().map(|local| &local.linked));
        all.find(|linked| linked.main() as usize == code.main as usize).cloned()
    }

    /// Destinations for calls, and the request of the last call.
    pub(crate) fn forwarding(&mut self) -> &mut Forwarding {
        self.context.forwarding()
    }

    /// Calls code, and notes the time that it took.
    ///
    /// # Safety
    /// As [`Executor::run`].
    #[cold]
    #[inline(never)]
    unsafe fn run_timed(
        &mut self,
        main: Main,
        usage: NonNull<Usage>,
        payload: *mut c_void,
        len: usize,
        reply_limit: usize,
    ) -> Ended {
        let start = self.clock.set();
        // SAFETY: `main` is the entry of a placed image, and this function's caller guarantees the arguments,
        // as in `run`.
        let ended = unsafe { self.context.call(main, payload, len, self.context.target_args, reply_limit) };
        if self.context.has_strayed() {
            self.note_stray(main);
        }
        // SAFETY: the caller guarantees that the code is held; nothing was unbound meanwhile, because that
        // takes this executor.
        unsafe { usage.as_ref() }.took(start.elapsed());
        ended
    }

    /// Logs, now and then, that a function returned with other modes of arithmetic than at its call. Only timed calls
    /// are checked, the first of each function among them.
    #[cold]
    fn note_stray(&mut self, main: Main) {
        self.strays = self.strays.saturating_add(1);
        if self.strays.is_power_of_two() {
            let found = address_map::find(main as usize as u64);
            let name = found.as_ref().map_or("an injected function", |found| found.name());
            log::warn!(
                "{name} returned with another rounding mode, or other modes of arithmetic, than it was called with (seen {}): \
                 the program's are restored when the poll ends; have the function restore them (fesetenv)",
                farjump_core::counted(self.strays as usize, "time")
            );
        }
    }

    /// Most bytes that a call may reply.
    pub(crate) fn reply_limit(&self) -> usize {
        self.reply_limit
    }

    /// Reply of the last call, or the message of its panic.
    pub(crate) fn reply(&self) -> &[u8] {
        self.context.reply()
    }
}
