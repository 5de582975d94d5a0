//! Calls on their way to a target's peers, and their answers on the way back.
//!
//! A call that `farjump_forward` was used in goes into its peer's queue ([`Peer`]); what comes of it is kept here until
//! the session that it came from has room for it. Nothing waits: [`Forwards::turn`] does what can be done now.

mod connecting;
mod destination;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use farjump_control::PeerAddress;
use farjump_loader::Linked;

use super::epoll::{Event, Watch};
use super::session::Rest;
use crate::Error;
use crate::executor::{Forwarding, Gate};
use crate::link::ReplyBytes;
pub(super) use connecting::Choices;
use connecting::Wake;
use destination::Peer;

/// Most calls under way to one peer: those that wait to be sent and those that wait for an answer.
const MOST_CALLS: usize = 1024;
/// Bytes of a frame that are not payload nor code, at most: header, name, and what alignment takes.
const FRAME_OVERHEAD: usize = 512;

/// The call that is forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// The session that it came from, which may have ended.
    pub(super) session: u64,
    pub(super) token: u32,
    pub(super) wants_reply: bool,
}

/// A call on its way to a peer.
struct Forward {
    linked: Arc<Linked>,
    payload: Vec<u8>,
    caller: Caller,
}

/// What came of a call.
pub(super) struct Outcome {
    pub(super) caller: Caller,
    pub(super) answer: Answer,
}

/// What its source is to be told.
pub(super) enum Answer {
    /// What the function replied in the end.
    Done(ReplyBytes),
    /// The message of its panic.
    Panicked(Vec<u8>),
    /// Why there is no answer, in a sentence's words.
    Failed(String),
}

/// The peers of a target.
pub(super) struct Forwards {
    peers: Vec<Peer>,
    choices: Choices,
    /// Made with the first meeting.
    wake: Option<Arc<Wake>>,
    /// What sessions are to be told.
    outcomes: VecDeque<Outcome>,
    /// Something is under way, or is to be looked at.
    active: bool,
}

impl Forwards {
    pub(super) fn new(choices: Choices) -> Forwards {
        Forwards { peers: Vec::new(), choices, wake: None, outcomes: VecDeque::new(), active: false }
    }

    /// Whether [`Forwards::turn`] has something to do.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Knows a peer by `name` from now on. Calls on their way to another one of that name fail if the address is another.
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

    /// Takes the call that `gates` was asked to forward.
    pub(super) fn push(&mut self, gates: &mut Forwarding, linked: Arc<Linked>, caller: Caller) {
        let Some(asked) = gates.take() else { return };
        self.peers[asked.peer].push(Forward { linked, payload: asked.payload, caller });
        self.open_gates(gates);
        self.active = true;
    }

    /// Meets peers that something waits for, sends what there is room for, and takes answers.
    pub(super) fn turn(&mut self, watch: &Watch, gates: &mut Forwarding) {
        for peer in &mut self.peers {
            peer.turn(&self.choices, &mut self.wake, watch, &mut self.outcomes);
        }
        self.open_gates(gates);
        self.active = self.is_waiting();
    }

    fn is_waiting(&self) -> bool {
        !self.outcomes.is_empty() || self.peers.iter().any(|peer| peer.under_way() != 0)
    }

    /// Tells what may be forwarded now.
    fn open_gates(&self, gates: &mut Forwarding) {
        let room = self.choices.room;
        for (peer, gate) in self.peers.iter().zip(&mut gates.gates) {
            gate.calls = MOST_CALLS.saturating_sub(peer.under_way());
            gate.bytes = peer.queued_bytes().map(|queued| room.saturating_sub(queued));
            gate.largest =
                peer.max_frame().map_or(room, |most| most.min(room)).saturating_sub(FRAME_OVERHEAD);
        }
    }

    /// The outcomes that sessions are to be told of. What cannot be told now comes back by [`Forwards::put_back`].
    pub(super) fn take_outcomes(&mut self) -> VecDeque<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// An outcome that its session has no room for.
    pub(super) fn put_back(&mut self, outcome: Outcome) {
        self.outcomes.push_back(outcome);
        self.active = true;
    }

    /// A peer was met, or could not be.
    pub(super) fn met(&mut self) {
        if let Some(wake) = &self.wake {
            wake.clear();
        }
        self.active = true;
    }

    /// Something came from the peer with this number.
    pub(super) fn attend(&mut self, number: u64) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.number() == number) {
            peer.attend();
        }
        self.active = true;
    }

    /// Lets the links' transports work, where there are links.
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

    /// Awake again.
    pub(super) fn disarm(&mut self) {
        for peer in &mut self.peers {
            if !peer.disarm() {
                self.active = true;
            }
        }
    }

    /// Watches control connections for room where something waits for it.
    pub(super) fn rewatch(&mut self, watch: &Watch) -> Result<(), Error> {
        self.peers.iter_mut().try_for_each(|peer| peer.rewatch(watch))
    }

    /// Gives up all that is under way, without a word to anybody.
    pub(super) fn close(&mut self, watch: &Watch) {
        for peer in &mut self.peers {
            peer.close(watch);
        }
        self.outcomes.clear();
        self.active = false;
    }
}

/// The descriptor by which meetings wake the target, made and watched if it is not there yet.
fn wake<'w>(wake: &'w mut Option<Arc<Wake>>, watch: &Watch) -> Result<&'w Arc<Wake>, Error> {
    match wake {
        Some(wake) => Ok(wake),
        none => {
            let made = Wake::new()?;
            watch.add(made.as_fd(), Event::Met, false)?;
            Ok(none.insert(Arc::new(made)))
        }
    }
}
