//! Messages to code that functions have made.
//!
//! A function hands over an image or bitcode (`farjump_make`) and sends it messages by its id (`farjump_inject`). The
//! target treats the code like code that a source brings, with the same checks; bitcode waits for the compiler. Then
//! the messages continue as if that code had forwarded itself.

use std::collections::VecDeque;
use std::sync::Arc;

use farjump_core::image::CodeId;
use farjump_loader::{CodeKey, LinkedImage};

use super::ends::take_from;
use super::{Caller, Forwards, Outcome, Returned};
use crate::Refusal;
use crate::executor::{CallHistory, ForwardRequest, Forwarding, Recipient, Unbound};

/// A message to code by its id.
pub(in crate::serve) struct MadeCall {
    pub(super) id: CodeId,
    /// The code, if the call that sent the message has made it.
    pub(in crate::serve) code: Option<Arc<[u8]>>,
    /// The function that made it.
    pub(in crate::serve) maker: Arc<LinkedImage>,
    pub(in crate::serve) caller: Caller,
    /// Whether it has waited for the compiler.
    pub(in crate::serve) has_waited: bool,
    pub(super) recipient: Recipient,
    pub(super) payload: Vec<u8>,
    pub(super) history: CallHistory,
}

/// The messages whose code is not placed yet.
#[derive(Default)]
pub(super) struct MadeCalls {
    ready: VecDeque<MadeCall>,
    /// Those that wait for the compiler.
    compiling: VecDeque<MadeCall>,
}

impl MadeCalls {
    pub(super) fn push(&mut self, call: MadeCall) {
        self.ready.push_back(call);
    }

    /// Number of messages that are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Removes the messages for whose callers `goes` returns `true`, and adds these callers to `taken`.
    pub(super) fn take_waiting(&mut self, goes: &mut impl FnMut(&Caller) -> bool, taken: &mut Vec<Caller>) {
        for queue in [&mut self.ready, &mut self.compiling] {
            take_from(queue, |call| &call.caller, goes, taken);
        }
    }

    fn all(&self) -> impl Iterator<Item = &MadeCall> {
        self.ready.iter().chain(&self.compiling)
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.compiling.len()
    }

    /// Bytes of payload and code. Code with several messages counts for each.
    pub(super) fn bytes(&self) -> usize {
        self.all().map(|call| call.payload.len() + call.code.as_ref().map_or(0, |code| code.len())).sum()
    }
}

impl MadeCall {
    /// The code, of its principal's domain.
    pub(in crate::serve) fn key(&self) -> CodeKey {
        self.caller.principal.domain().key(self.id)
    }
}

impl Forwards {
    /// Takes the next message whose code is to be placed, for [`Forwards::placed`].
    pub(in crate::serve) fn next_made(&mut self) -> Option<MadeCall> {
        self.onward.made.ready.pop_front()
    }

    /// Number of messages whose code is to be placed.
    pub(in crate::serve) fn made(&self) -> usize {
        self.onward.made.ready()
    }

    /// Forwards a message whose code is placed. Otherwise the message waits for the compiler, or fails.
    pub(in crate::serve) fn placed(
        &mut self,
        call: MadeCall,
        code: Result<Arc<LinkedImage>, Unbound>,
        gates: &mut Forwarding,
    ) {
        match code {
            Ok(linked) => {
                let requested = ForwardRequest::new(call.recipient, None, call.payload);
                self.send(requested, &linked, None, call.caller, call.history, gates);
            }
            Err(Unbound::Compiling) => {
                self.onward.made.compiling.push_back(MadeCall { has_waited: true, ..call });
            }
            Err(unbound) => {
                let Refusal { text, .. } = unbound.into();
                self.outcomes.push_back(Returned { caller: call.caller, outcome: Outcome::Failed(text) });
            }
        }
        self.active = true;
    }

    /// Makes the messages ready that wait for this code.
    #[cfg(feature = "bitcode")]
    pub(in crate::serve) fn compiled(&mut self, key: CodeKey) {
        let (settled, waiting) =
            std::mem::take(&mut self.onward.made.compiling).into_iter().partition(|call| call.key() == key);
        self.onward.made.compiling = waiting;
        self.onward.made.ready.extend::<VecDeque<_>>(settled);
        self.active |= self.onward.made.ready() != 0;
    }
}
