//! Calling code.

use std::ffi::c_void;
use std::sync::Arc;

use farjump_loader::Linked;

use super::code_table::{Callable, CodeTable};
use super::{Ended, Executor, Forwarding};

impl Executor {
    /// Calls code. Its reply, of at most `reply_limit` bytes, is then in [`Executor::reply`].
    ///
    /// # Safety
    /// `code` must come from a table that still holds it, or be this executor's own, or lie in a frame that is held. `payload` must be valid for reads and writes of `len` bytes during
    /// the call, and aligned as the code asks. What the code itself does is the business of who lets sources in: native code
    /// in a process is trusted code (`docs/security.md`).
    #[inline(always)]
    pub(crate) unsafe fn run(
        &mut self,
        code: Callable,
        payload: *mut c_void,
        len: usize,
        reply_limit: usize,
    ) -> Ended {
        // SAFETY: it is part of what the table holds.
        if unsafe { code.usage.as_ref() }.is_due() {
            // SAFETY: as the caller vouches.
            return unsafe { self.run_timed(code, payload, len, reply_limit) };
        }
        // SAFETY: `main` is the entry of an image that was checked and placed, and stays placed while the table holds it; the
        // arguments are as this function's caller vouches.
        unsafe { self.context.call(code.main, payload, len, self.target_args, reply_limit) }
    }

    /// Counts the call of `code` that was just made.
    ///
    /// # Safety
    /// As for the first argument of [`Executor::run`].
    #[inline(always)]
    pub(crate) unsafe fn count(&mut self, code: Callable) {
        // SAFETY: it is part of what the table holds.
        unsafe { code.usage.as_ref() }.count(self.clock.tick());
    }

    /// What keeps the code in its place that a call of `index`, or of a function of the target's own, has run.
    pub(crate) fn held(&self, table: &CodeTable, index: u16, code: Callable) -> Option<Arc<Linked>> {
        let bound = table.bound(index).map(|(_, linked)| linked);
        let mut all = bound.into_iter().chain(self.local.values());
        all.find(|linked| linked.main() as usize == code.main as usize).cloned()
    }

    /// Where calls may be forwarded to, and what the last call asked for.
    pub(crate) fn forwarding(&mut self) -> &mut Forwarding {
        self.context.forwarding()
    }

    /// Calls code, and notes how long it took.
    ///
    /// # Safety
    /// As [`Executor::run`].
    #[cold]
    #[inline(never)]
    unsafe fn run_timed(
        &mut self,
        code: Callable,
        payload: *mut c_void,
        len: usize,
        reply_limit: usize,
    ) -> Ended {
        let start = self.clock.set();
        // SAFETY: as in `run`.
        let ended = unsafe { self.context.call(code.main, payload, len, self.target_args, reply_limit) };
        // SAFETY: as in `run`; nothing was unbound meanwhile, for that takes this executor.
        unsafe { code.usage.as_ref() }.took(start.elapsed());
        ended
    }

    /// Most bytes that a call may reply.
    pub(crate) fn reply_limit(&self) -> usize {
        self.reply_limit
    }

    /// What the last call replied, or the message of its panic.
    pub(crate) fn reply(&self) -> &[u8] {
        self.context.reply()
    }
}
