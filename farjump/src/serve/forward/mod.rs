//! Calls on their way to a target's destinations, and their outcomes on the way back.
//!
//! A call that used `farjump_forward` goes into its destination's queue ([`Peer`]). Its outcome is kept here
//! until the session that it came from has credit for it. Nothing waits: [`Forwards::turn`] does all work
//! that is possible now.

mod connecting;
mod destination;
mod families;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use farjump_control::PeerAddress;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::LinkedImage;

use super::epoll::{Event, Watch};
use crate::Error;
use crate::executor::{Executor, Forwarding, Gate};
use crate::link::{ReplyBytes, Wanted};
use crate::wait::Rest;
pub(super) use connecting::Choices;
use connecting::Wake;
use destination::Peer;
use families::Families;

/// Most calls under way to one destination: those that wait to be sent and those that wait for an outcome.
const MOST_CALLS: usize = 1024;
/// Most bytes of a frame that are neither payload nor code: header, name, and alignment.
const FRAME_OVERHEAD: usize = 512;

/// Identity of the call that is forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// The session that it came from, which may have ended.
    pub(super) session: u64,
    pub(super) token: u32,
    pub(super) wants_reply: bool,
}

/// A call on its way to a destination.
struct Forward {
    linked: Arc<LinkedImage>,
    /// The family that its source named.
    family: Option<FamilyId>,
    payload: Vec<u8>,
    caller: Caller,
}

/// The outcome of a call, with the caller that waits for it.
pub(super) struct Returned {
    pub(super) caller: Caller,
    pub(super) outcome: Outcome,
}

/// The part of an outcome for its source.
pub(super) enum Outcome {
    /// The reply of the last function.
    Done(ReplyBytes),
    /// The message of its panic.
    Panicked(Vec<u8>),
    /// The reason why there is no reply, worded as part of a sentence.
    Failed(String),
}

/// The destinations of a target.
pub(super) struct Forwards {
    peers: Vec<Peer>,
    choices: Choices,
    /// Made with the first handshake.
    wake: Option<Arc<Wake>>,
    families: Box<Families>,
    /// Outcomes for sessions.
    outcomes: VecDeque<Returned>,
    /// Whether calls are under way, or an event is due.
    active: bool,
}

/// Context of a destination's turn.
struct Work<'a> {
    choices: &'a Choices,
    wake: &'a mut Option<Arc<Wake>>,
    watch: &'a Watch,
    families: &'a mut Families,
    executor: &'a Executor,
    outcomes: &'a mut VecDeque<Returned>,
}

impl Forwards {
    pub(super) fn new(choices: Choices) -> Forwards {
        let families = Box::new(Families::new(choices.patience));
        Forwards {
            peers: Vec::new(),
            choices,
            wake: None,
            families,
            outcomes: VecDeque::new(),
            active: false,
        }
    }

    /// Whether [`Forwards::turn`] has work.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Names a destination `name` from now on. Calls on their way to another one of that name fail if the
    /// address is another.
    pub(super) fn set(&mut self, name: &str, address: &PeerAddress, watch: &Watch, gates: &mut Forwarding) {
        let address = address.to_string();
        match self.peers.iter_mut().find(|peer| peer.name() == name) {
            Some(peer) => peer.set_address(address, watch, &mut self.outcomes),
            None => {
                self.peers.push(Peer::new(name, address, self.peers.len() as u64));
                gates.gates.push(Gate { name: name.into(), calls: 0, bytes: None, largest: 0 });
            }
        }
        self.open_gates(gates);
        self.active = true;
    }

    /// Takes the call that `gates` was asked to forward. Its source has named `family`.
    pub(super) fn push(
        &mut self,
        gates: &mut Forwarding,
        linked: Arc<LinkedImage>,
        family: Option<FamilyId>,
        caller: Caller,
    ) {
        let Some(asked) = gates.take() else { return };
        if let Some(family) = family {
            self.families.note(family, caller.session);
        }
        self.peers[asked.peer].push(Forward { linked, family, payload: asked.payload, caller });
        self.open_gates(gates);
        self.active = true;
    }

    /// Connects to destinations that calls wait for, sends while there is credit, and takes outcomes. Questions for
    /// sources are then in [`Forwards::take_unsent`].
    pub(super) fn turn(&mut self, watch: &Watch, executor: &mut Executor) {
        let mut work = Work {
            choices: &self.choices,
            wake: &mut self.wake,
            watch,
            families: &mut self.families,
            executor,
            outcomes: &mut self.outcomes,
        };
        for peer in &mut self.peers {
            peer.turn(&mut work);
        }
        self.open_gates(executor.forwarding());
        self.active = self.is_waiting();
    }

    fn is_waiting(&self) -> bool {
        !self.outcomes.is_empty() || self.peers.iter().any(|peer| peer.under_way() != 0 || peer.is_asking())
    }

    /// Takes the questions for sessions. Each is answered by [`Forwards::take_manifest`], [`Forwards::take_image`] or
    /// [`Forwards::go_without`].
    pub(super) fn take_unsent(&mut self) -> Vec<(u64, Wanted)> {
        self.families.take_unsent()
    }

    /// Takes a manifest that a session was asked for.
    pub(super) fn take_manifest(&mut self, session: u64, family: FamilyId, text: &[u8]) {
        self.families.take_manifest(session, family, text);
        self.active = true;
    }

    /// Takes an image that a session was asked for.
    pub(super) fn take_image(&mut self, session: u64, id: CodeId, image: Vec<u8>) {
        self.families.take_image(session, id, image);
        self.active = true;
    }

    /// Notes that a session does not answer a question.
    pub(super) fn go_without(&mut self, session: u64, wanted: Wanted, why: &str) {
        self.families.failed(session, wanted, why.to_owned());
        self.active = true;
    }

    /// Forgets a session that has ended.
    pub(super) fn source_ended(&mut self, session: u64) {
        self.families.source_ended(session);
    }

    /// When a question becomes too old.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.families.deadline()
    }

    /// Updates the gates: the present allowance of each destination.
    fn open_gates(&self, gates: &mut Forwarding) {
        let mailbox = self.choices.mailbox_size;
        for (peer, gate) in self.peers.iter().zip(&mut gates.gates) {
            gate.calls = MOST_CALLS.saturating_sub(peer.under_way());
            gate.bytes = peer.queued_bytes().map(|queued| mailbox.saturating_sub(queued));
            gate.largest =
                peer.max_frame().map_or(mailbox, |most| most.min(mailbox)).saturating_sub(FRAME_OVERHEAD);
        }
    }

    /// Takes the outcomes for sessions. Those that cannot be delivered now come back by
    /// [`Forwards::put_back`].
    pub(super) fn take_outcomes(&mut self) -> VecDeque<Returned> {
        std::mem::take(&mut self.outcomes)
    }

    /// Keeps an outcome for which its session has no credit.
    pub(super) fn put_back(&mut self, outcome: Returned) {
        self.outcomes.push_back(outcome);
        self.active = true;
    }

    /// Handles the end of a handshake with a destination.
    pub(super) fn connected(&mut self) {
        if let Some(wake) = &self.wake {
            wake.clear();
        }
        self.active = true;
    }

    /// Handles an event of the destination with this number.
    pub(super) fn attend(&mut self, number: u64) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.number() == number) {
            peer.attend();
        }
        self.active = true;
    }

    /// Makes the links' transports progress.
    pub(super) fn progress(&mut self) {
        self.active |= self.peers.iter().any(Peer::is_linked);
    }

    /// Prepares to sleep on the descriptors that the target watches.
    pub(super) fn arm(&mut self) -> Rest {
        let mut rest = if self.outcomes.is_empty() { Rest::Sleep } else { Rest::Nap };
        for peer in &mut self.peers {
            match peer.arm() {
                Rest::None => {
                    self.active = true;
                    return Rest::None;
                }
                Rest::Nap => rest = Rest::Nap,
                Rest::Sleep => {}
            }
        }
        rest
    }

    /// Ends the sleep.
    pub(super) fn disarm(&mut self) {
        for peer in &mut self.peers {
            if !peer.disarm() {
                self.active = true;
            }
        }
    }

    /// Watches control connections with unsent bytes for writability.
    pub(super) fn rewatch(&mut self, watch: &Watch) -> Result<(), Error> {
        self.peers.iter_mut().try_for_each(|peer| peer.rewatch(watch))
    }

    /// Drops everything under way, without messages.
    pub(super) fn close(&mut self, watch: &Watch) {
        for peer in &mut self.peers {
            peer.close(watch);
        }
        *self.families = Families::new(self.choices.patience);
        self.outcomes.clear();
        self.active = false;
    }
}

/// The descriptor by which handshakes wake the target, made and watched at first use.
fn wake<'w>(wake: &'w mut Option<Arc<Wake>>, watch: &Watch) -> Result<&'w Arc<Wake>, Error> {
    match wake {
        Some(wake) => Ok(wake),
        none => {
            let made = Wake::new()?;
            watch.add(made.as_fd(), Event::Handshake, false)?;
            Ok(none.insert(Arc::new(made)))
        }
    }
}
