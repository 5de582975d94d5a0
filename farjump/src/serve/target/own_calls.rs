//! Calls that the target's own program makes, without a link.

use std::sync::Arc;

use farjump_control::{RefusalCause, plain};
use farjump_loader::{Domain, LinkedImage};

#[cfg(doc)]
use crate::CallError;
use crate::executor::{Callable, Chosen, Ended, Executor, OwnCode, Unbound, refused, running};
use crate::link::{CANARY_LEN, ReplyBytes, run_payload_init};
use crate::principals::Principal;
use crate::serve::Target;
use crate::serve::forward::{Caller, Outcome, Returned};
use crate::serve::session::{Session, Shared};
use crate::{Error, Refusal, Reply, ServeError};

impl Target<'_> {
    /// Runs code here, on this thread, without a link, and returns its reply: empty if it replied nothing. This is for
    /// programs that take calls by their own means, as a command of a server.
    ///
    /// The target treats the code like code that a source brings in mode cached or always: the same allow-list and
    /// limits, and the same store. Code that is in the store runs as it is there, statics included. New code is linked,
    /// and other code goes if it needs the space. The rights of sources and
    /// [`TargetBuilder::max_source_memory`](crate::TargetBuilder::max_source_memory) do not apply. The function gets
    /// the target's arguments, and a payload in its own memory, aligned as it requires.
    ///
    /// Messages that it forwards travel from the next [`Target::poll`] on: poll, even if the target
    /// is armed. Their outcomes do not become part of the reply, and are dropped.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), farjump::Error> {
    /// use farjump::{Library, Target};
    ///
    /// let sum = Library::open("libsum.so")?;
    /// let mut target = Target::listen("unix:store.sock").build()?;
    /// // SAFETY: the library is this program's own.
    /// let reply = unsafe { target.call(&sum, &[1, 0, 0, 0, 0, 0, 0, 0])? };
    /// println!("{} bytes came back", reply.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CallError::Refused`] for code that may not come in, cannot be linked, or is not in the store, and for arguments over
    /// the limit: nothing ran then. Bitcode that is new is refused, too, and compiled: poll, and call again. A reply over the
    /// limit is refused after the function has run. [`CallError::Panicked`]. [`Error::Library`] and
    /// [`Error::Inject`] if the library has no image for this CPU, or a payload routine fails. [`ServeError::InsideCall`] on
    /// a thread that runs an injected function; [`ServeError::Forked`].
    ///
    /// # Safety
    /// The code is trusted code, which the caller has chosen: it must accept any payload that `args` makes, and the target's
    /// arguments. For [`OwnCode::Stored`] that holds for the code of all sources that may inject.
    pub unsafe fn call<'c>(&mut self, code: impl Into<OwnCode<'c>>, args: &[u8]) -> Result<Reply, Error> {
        let own = Arc::clone(self.shared.forwards.own());
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { self.call_for(&own, code, args) }
    }

    /// As [`Target::call`], for a principal with information for exported functions ([`Principal::with_word`]), or for
    /// that of a source. The principal can be used again.
    ///
    /// # Errors
    /// As [`Target::call`].
    ///
    /// # Safety
    /// As for [`Target::call`].
    pub unsafe fn call_for<'c>(
        &mut self,
        principal: &Arc<Principal>,
        code: impl Into<OwnCode<'c>>,
        args: &[u8],
    ) -> Result<Reply, Error> {
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { self.run_own(principal, code.into(), args)? };
        Ok(Reply(ReplyBytes::from_slice(self.shared.executor.reply())))
    }

    /// As [`Target::call`], and appends the reply to `into`.
    ///
    /// # Errors
    /// As [`Target::call`].
    ///
    /// # Safety
    /// As for [`Target::call`].
    pub unsafe fn call_into<'c>(
        &mut self,
        code: impl Into<OwnCode<'c>>,
        args: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let own = Arc::clone(self.shared.forwards.own());
        // SAFETY: this function's caller gives the same guarantees.
        unsafe { self.run_own(&own, code.into(), args)? };
        into.extend_from_slice(self.shared.executor.reply());
        Ok(())
    }

    /// Runs code, whose reply is then the executor's.
    ///
    /// # Safety
    /// As for [`Target::call`].
    unsafe fn run_own(
        &mut self,
        principal: &Arc<Principal>,
        code: OwnCode<'_>,
        args: &[u8],
    ) -> Result<(), Error> {
        self.check_process()?;
        if running().is_some() {
            return Err(ServeError::InsideCall.into());
        }
        let chosen = self.shared.executor.choose(code)?;
        let linked = self
            .place_own(&chosen, principal.domain())
            .map_err(|unbound| self.refuse_own(&chosen, unbound.into()))?;
        let callable = Callable::of(&linked);
        let (payload, len) = match self.own_payload(code, args, callable.align)? {
            Ok(payload) => payload,
            Err(refusal) => return Err(self.refuse_own(&chosen, refusal)),
        };
        let Shared { executor, forwards, .. } = &mut self.shared;
        executor.prepare_thread();
        let limit = executor.reply_limit();
        executor.begin_for(principal);
        // SAFETY: `linked` holds the code. The payload is the scratch buffer's, of at least `len` bytes, and aligned as
        // the code requires; nothing else uses the buffer meanwhile. The caller guarantees the rest.
        let ended = unsafe { executor.run_alone(&callable, payload.cast(), len, limit) };
        // SAFETY: `linked` holds the code.
        unsafe { executor.count(callable.usage) };
        executor.end_for();
        if ended == Ended::Forwarded {
            forwards.push(executor, linked, chosen.family(), Caller::own(principal), limit);
        }
        if ended == Ended::ReplyTooLarge {
            executor.stats.refuse(RefusalCause::ReplyTooLarge);
        }
        executor.check_ended(&chosen.name(), ended)
    }

    /// Finds the code in the store, or places it.
    fn place_own(&mut self, code: &Chosen<'_>, domain: Domain) -> Result<Arc<LinkedImage>, Unbound> {
        let placed = self.shared.executor.find_own(code, domain, false);
        let Err(Unbound::NoSpace(need)) = &placed else { return placed };
        let sessions = &mut self.sessions;
        self.shared.executor.make_space(need, |linked| Session::release(sessions, linked));
        self.shared.executor.find_own(code, domain, true)
    }

    /// Returns the payload that `args` makes, in the scratch buffer, and its length; or the reason why it may not come
    /// in.
    fn own_payload(
        &mut self,
        code: OwnCode<'_>,
        args: &[u8],
        align: usize,
    ) -> Result<Result<(*mut u8, usize), Refusal>, Error> {
        let Shared { executor, scratch, .. } = &mut self.shared;
        let made = match code {
            OwnCode::Library(library) if !library.payload_is_args() => Some(library),
            _ => None,
        };
        let most = made.map_or(args.len(), |library| library.payload_max_size(args));
        let lent = most.checked_add(CANARY_LEN).and_then(|len| scratch.lend(len, align));
        let Some(space) = lent else { return Ok(Err(no_memory(most))) };
        let len = match made {
            // SAFETY: the space holds `most` bytes and a canary's.
            Some(library) => unsafe { run_payload_init(library, space.as_mut_ptr(), most, args) }
                .map_err(|error| *error)?,
            None => {
                space[..most].copy_from_slice(args);
                most
            }
        };
        Ok(executor.policy.payload(len).map(|()| (space.as_mut_ptr(), len)))
    }

    /// Counts a refusal of a call that the program has made.
    #[cold]
    fn refuse_own(&mut self, code: &Chosen<'_>, refusal: Refusal) -> Error {
        let executor: &mut Executor = &mut self.shared.executor;
        executor.stats.refuse(refusal.cause);
        refused(&code.name(), refusal)
    }
}

#[cold]
fn no_memory(len: usize) -> Refusal {
    let text = format!("there is no memory for a payload of up to {len} bytes: call it with less");
    Refusal { cause: RefusalCause::OutOfMemory, text }
}

/// Logs the reason why a message that a call of the program's own has forwarded went no farther.
#[cold]
pub(in crate::serve) fn note_lost(returned: &Returned) {
    if !returned.caller.is_own() {
        return;
    }
    match returned.outcome.kept().0 {
        Outcome::Failed(why) | Outcome::Withdrawn(why) => {
            log::warn!("a message of a call of the program's own was lost: {why}");
        }
        Outcome::Panicked(message) => {
            let message = plain(&String::from_utf8_lossy(message), usize::MAX);
            log::warn!("a message of a call of the program's own ended in a panic: {message}");
        }
        _ => {}
    }
}
