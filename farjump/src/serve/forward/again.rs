//! Calls that run again here.

use std::collections::VecDeque;
use std::sync::Arc;

use farjump_core::image::FamilyId;
use farjump_loader::LinkedImage;

use super::ends::take_from;
use super::made::MadeCalls;
use super::{Caller, Forwards, MOST_CALLS, Outcome, Returned};
use crate::executor::{CallHistory, Callable, Ended, Executor, Gate};
use crate::link::ReplyBytes;
use crate::serve::scratch::Scratch;

/// A call that is to run again.
pub(in crate::serve) struct Again {
    pub(super) linked: Arc<LinkedImage>,
    pub(super) family: Option<FamilyId>,
    pub(super) payload: Vec<u8>,
    pub(in crate::serve) caller: Caller,
    pub(super) history: CallHistory,
    /// Whether it waits for the store's bell.
    pub(super) awaits_store: bool,
}

/// The calls that are to run again, in the order in which they run.
#[derive(Default)]
pub(super) struct Agains {
    queue: VecDeque<Again>,
    /// Those that wait for the target's store.
    put_off: VecDeque<Again>,
    /// Bytes of the payloads of all.
    bytes: usize,
}

impl Agains {
    pub(super) fn push(&mut self, again: Again) {
        self.bytes += again.payload.len();
        match again.awaits_store {
            true => self.put_off.push_back(again),
            false => self.queue.push_back(again),
        }
    }

    /// Makes the calls ready that wait for the target's store, whose bell has rung.
    pub(super) fn wake_store_calls(&mut self) {
        self.queue.append(&mut self.put_off);
    }

    pub(super) fn pop(&mut self) -> Option<Again> {
        let again = self.queue.pop_front()?;
        self.bytes -= again.payload.len();
        Some(again)
    }

    /// Removes the calls for whose callers `goes` returns `true`, and adds these callers to `taken`.
    pub(super) fn take_waiting(&mut self, goes: &mut impl FnMut(&Caller) -> bool, taken: &mut Vec<Caller>) {
        for queue in [&mut self.queue, &mut self.put_off] {
            take_from(queue, |again| &again.caller, goes, taken);
        }
        self.bytes = self.queue.iter().chain(&self.put_off).map(|again| again.payload.len()).sum();
    }

    /// Number of those that may run now.
    pub(super) fn ready(&self) -> usize {
        self.queue.len()
    }

    /// Sets the gate to the present allowance. `made` are further calls that will run here or leave.
    pub(super) fn open(&self, gate: &mut Gate, most_bytes: usize, made: &MadeCalls) {
        let calls = self.queue.len() + self.put_off.len() + made.len();
        gate.calls = MOST_CALLS.saturating_sub(calls);
        gate.bytes = (calls != 0).then(|| most_bytes.saturating_sub(self.bytes + made.bytes()));
        (gate.largest, gate.most_bytes) = (most_bytes, most_bytes);
    }
}

impl Forwards {
    /// Runs a call again, with a reply of up to `limit` bytes. Its outcome is handled like those from destinations.
    pub(in crate::serve) fn run_again(
        &mut self,
        mut again: Again,
        limit: usize,
        executor: &mut Executor,
        scratch: &mut Scratch,
    ) {
        let code = Callable::of(&again.linked);
        let len = again.payload.len();
        let payload = scratch.aligned(&mut again.payload, code.align);
        executor.forwarding().history = again.history;
        executor.begin_for(&again.caller.principal);
        // SAFETY: `again` holds the code. The payload is its own, or a copy in the scratch buffer, of `len` bytes, and
        // aligned as the code requires.
        let ended = unsafe { executor.run_alone(&code, payload.cast(), len, limit) };
        // SAFETY: `again` holds the code.
        unsafe { executor.count(code.usage) };
        executor.end_for();
        let mut caller = again.caller;
        if ended == Ended::Held {
            caller.hold(&mut self.onward.holds);
        }
        let outcome = match ended {
            Ended::Returned | Ended::Held if !caller.wants_reply => None,
            Ended::Returned | Ended::Held => Some(Outcome::Done(ReplyBytes::from_slice(executor.reply()))),
            Ended::Panicked => Some(Outcome::Panicked(executor.reply().to_vec())),
            Ended::ReplyTooLarge => caller.wants_reply.then_some(Outcome::Overlong),
            Ended::Forwarded => {
                self.push(executor, again.linked, again.family, caller, limit);
                executor.forwarding().history = CallHistory::default();
                self.active = true;
                return;
            }
        };
        executor.forwarding().history = CallHistory::default();
        self.outcomes.extend(outcome.map(|outcome| Returned { caller, outcome }));
        self.active = true;
    }
}
