//! Calls on their way to a target's destinations, and their outcomes on the way back.
//!
//! A call that used `farjump_forward` goes into its destination's queue ([`Peer`]), and one that used `farjump_again`
//! into this target's own ([`Again`]). The outcomes of several calls that one has led to are gathered ([`Gathers`]).
//! An outcome is kept here until the session that the call came from has credit for it. Nothing waits:
//! [`Forwards::turn`] does all work that is possible now.

mod again;
mod caller;
mod connecting;
mod destination;
mod ends;
mod families;
mod gathers;
mod kept;
mod made;
mod named;
mod outcomes;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use farjump_control::PeerAddress;
use farjump_core::frame::Passage;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{Domain, LinkedImage};

use super::epoll::{Event, Watch};
use super::holds::Holds;
use crate::Error;
use crate::executor::{CallHistory, Executor, ForwardRequest, Forwarding, Gate, Recipient, Requests};
use crate::link::{ReplyBytes, Wanted};
use crate::principals::Principal;
use crate::wait::Rest;
pub(super) use again::Again;
use again::Agains;
pub(super) use caller::Caller;
pub(super) use connecting::Choices;
use connecting::Wake;
use destination::Peer;
use families::Families;
use gathers::Gathers;
pub(super) use made::MadeCall;
use made::MadeCalls;
use named::FamilyKey;
pub(super) use outcomes::{Outcome, Returned};

/// Most calls under way to one destination: those that wait to be sent and those that wait for an outcome.
pub(super) const MOST_CALLS: usize = 1024;
/// Most bytes of a frame that are neither payload nor code: header, name, and alignment.
const FRAME_OVERHEAD: usize = 512;

/// Changes a session's count from the first number of bytes to the second. Returns `false`, and changes nothing, if its
/// source may not take so many.
pub(in crate::serve) type Recount<'a> = &'a mut dyn FnMut(u64, usize, usize) -> bool;

/// A call on its way to a destination.
struct Forward {
    linked: Arc<LinkedImage>,
    /// The family that its source named.
    family: Option<FamilyId>,
    /// With its passage behind it.
    payload: Vec<u8>,
    caller: Caller,
}

/// The destinations of a target.
pub(super) struct Forwards {
    peers: Vec<Peer>,
    choices: Choices,
    /// Made with the first handshake.
    wake: Option<Arc<Wake>>,
    families: Box<Families>,
    onward: Box<Onward>,
    /// Outcomes for sessions, and for calls that are gathered.
    outcomes: VecDeque<Returned>,
    /// True if calls are under way, or an event is due.
    active: bool,
    /// Whether links without calls have their turn too.
    everywhere: bool,
}

/// Calls that lead to others.
struct Onward {
    /// The program itself.
    own: Arc<Principal>,
    /// The releases that replies wait for.
    holds: Holds,
    /// Outcomes for sessions that wait for a release.
    held: Vec<Returned>,
    agains: Agains,
    made: MadeCalls,
    gathers: Gathers,
}

impl Onward {
    fn new(own: Arc<Principal>) -> Onward {
        let (agains, made, gathers) = (Agains::default(), MadeCalls::default(), Gathers::default());
        Onward { own, holds: Holds::default(), held: Vec::new(), agains, made, gathers }
    }
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
            onward: Box::new(Onward::new(Arc::new(Principal::own()))),
            outcomes: VecDeque::new(),
            active: false,
            everywhere: false,
        }
    }

    /// Sets the limits of calls that forward themselves, before any runs.
    pub(super) fn admit(&self, gates: &mut Forwarding) {
        gates.limits = self.choices.limits;
        gates.makes = self.choices.makes;
        gates.again = Some(Gate::closed(""));
        self.open_gates(gates);
    }

    /// The principal of calls that the program makes for itself.
    pub(super) fn own(&self) -> &Arc<Principal> {
        &self.onward.own
    }

    /// The releases that replies wait for.
    pub(super) fn holds(&self) -> &Holds {
        &self.onward.holds
    }

    /// The same, mutable.
    pub(super) fn holds_mut(&mut self) -> &mut Holds {
        &mut self.onward.holds
    }

    /// Returns whether [`Forwards::turn`] has work.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Makes the next poll of the target call [`Forwards::turn`], and do the work beside it.
    pub(super) fn wake(&mut self) {
        self.active = true;
    }

    /// Names a destination `name` from now on. Calls on their way to another one of that name fail if the
    /// address is another.
    pub(super) fn set(&mut self, name: &str, address: &PeerAddress, watch: &Watch, gates: &mut Forwarding) {
        let address = address.to_string();
        match self.peers.iter_mut().find(|peer| peer.name() == name) {
            Some(peer) => peer.set_address(address, watch, &mut self.outcomes),
            None => {
                self.peers.push(Peer::new(name, address, self.peers.len() as u64));
                gates.gates.push(Gate::closed(name));
            }
        }
        self.open_gates(gates);
        self.active = true;
    }

    /// Forwards the call that `executor` has just run, as it requested. Its source has named `family`, and takes
    /// replies of `limit` bytes.
    pub(super) fn push(
        &mut self,
        executor: &mut Executor,
        linked: Arc<LinkedImage>,
        family: Option<FamilyId>,
        mut caller: Caller,
        limit: usize,
    ) {
        let Requests { mut requested, made, too_far, history, is_held } = executor.forwarding().take();
        if is_held {
            caller.hold(&mut self.onward.holds);
        }
        let calls = requested.len() + too_far as usize;
        if calls == 0 {
            return self.end_maker(executor, caller);
        }
        // A call with a single forward leaves its reply to that.
        if caller.wants_reply && (calls > 1 || !executor.reply().is_empty()) {
            let gather = self.onward.gathers.begin(caller.clone(), calls, executor.reply(), limit);
            caller.part_of = Some(gather);
        }
        let is_sent = requested
            .iter()
            .any(|requested| requested.recipient != Recipient::Again && requested.code.is_none());
        if let Some(family) = family.filter(|_| is_sent) {
            self.families.note(FamilyKey::of(family, &caller), caller.session);
        }
        for requested in requested.drain(..) {
            executor.stats.forwarded += u64::from(requested.recipient != Recipient::Again);
            match requested.code {
                None => self.send(requested, &linked, family, caller.clone(), history, executor.forwarding()),
                Some(id) => {
                    let code = made.iter().find(|(made, _)| *made == id).map(|(_, code)| Arc::clone(code));
                    let (maker, ForwardRequest { recipient, payload, .. }) = (Arc::clone(&linked), requested);
                    self.onward.made.push(MadeCall {
                        id,
                        code,
                        maker,
                        caller: caller.clone(),
                        has_waited: false,
                        recipient,
                        payload,
                        history,
                    });
                    self.active = true;
                }
            }
        }
        executor.forwarding().take_back(requested);
        for _ in 0..too_far {
            let outcome = Outcome::Failed(self.too_far(history));
            self.outcomes.push_back(Returned { caller: caller.clone(), outcome });
            self.active = true;
        }
    }

    /// Ends a call that has made code, and has sent it nothing.
    #[cold]
    fn end_maker(&mut self, executor: &Executor, caller: Caller) {
        if caller.wants_reply {
            let outcome = Outcome::Done(ReplyBytes::from_slice(executor.reply()));
            self.outcomes.push_back(Returned { caller, outcome });
            self.active = true;
        }
    }

    fn send(
        &mut self,
        ForwardRequest { recipient, mut payload, awaits_store, .. }: ForwardRequest,
        linked: &Arc<LinkedImage>,
        family: Option<FamilyId>,
        caller: Caller,
        history: CallHistory,
        gates: &mut Forwarding,
    ) {
        let linked = Arc::clone(linked);
        match recipient {
            Recipient::Peer(index) => {
                payload.extend_from_slice(&Passage { hops: history.hops + 1 }.to_bytes());
                let peer = &mut self.peers[index];
                let wants_reply = caller.wants_reply;
                match peer.send_now(Forward { linked, family, payload, caller }) {
                    Ok(payload) => {
                        gates.spare = payload;
                        // Polls look for its reply.
                        self.active |= wants_reply;
                    }
                    Err(forward) => {
                        peer.push(forward);
                        self.active = true;
                    }
                }
                self.open_gate(index, gates);
            }
            Recipient::Again => {
                let history = CallHistory { repeats: history.repeats + 1, ..history };
                self.onward.agains.push(Again { linked, family, payload, caller, history, awaits_store });
                self.open_again(gates);
                self.active = true;
            }
        }
    }

    /// Returns the reason why a call that has come this way goes no farther.
    fn too_far(&self, history: CallHistory) -> String {
        let limits = self.choices.limits;
        match history.hops < limits.hops {
            true => format!(
                "the target refused a call: it has run again {} times, the limit of that target",
                limits.repeats
            ),
            false => too_many_hops(history.hops, limits.hops),
        }
    }

    /// Takes the next call that is to run again.
    pub(super) fn next_again(&mut self) -> Option<Again> {
        self.onward.agains.pop()
    }

    /// Number of calls that are to run again now.
    pub(super) fn agains(&self) -> usize {
        self.onward.agains.ready()
    }

    /// Makes the calls ready that wait for the target's store, whose bell has rung.
    pub(super) fn wake_store_calls(&mut self) {
        self.onward.agains.wake_store_calls();
        self.active = true;
    }

    /// Connects to destinations that calls wait for, sends while there is credit, and takes outcomes. Requests for
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
        let everywhere = std::mem::take(&mut self.everywhere);
        for peer in self.peers.iter_mut().filter(|peer| everywhere || peer.is_active()) {
            peer.turn(&mut work);
        }
        self.gather();
        self.open_gates(executor.forwarding());
        self.active = self.is_waiting();
    }

    fn is_waiting(&self) -> bool {
        let runs = self.onward.agains.ready() != 0 || self.onward.made.ready() != 0;
        !self.outcomes.is_empty()
            || runs
            || self.peers.iter().any(|peer| peer.in_flight() != 0 || peer.awaits_code())
    }

    /// Takes the requests for sessions. [`Forwards::take_manifest`], [`Forwards::take_image`] or
    /// [`Forwards::note_unserved`] ends each.
    pub(super) fn take_unsent(&mut self) -> Vec<(u64, Wanted)> {
        self.families.take_unsent()
    }

    /// Takes a manifest that was requested from a session.
    pub(super) fn take_manifest(&mut self, session: u64, domain: Domain, id: FamilyId, text: &[u8]) {
        self.families.take_manifest(session, FamilyKey { id, domain }, text);
        self.active = true;
    }

    /// Takes an image that was requested from a session.
    pub(super) fn take_image(&mut self, session: u64, domain: Domain, id: CodeId, image: Vec<u8>) {
        self.families.take_image(session, domain.key(id), image);
        self.active = true;
    }

    /// Notes that a session does not serve a request.
    pub(super) fn note_unserved(&mut self, session: u64, wanted: Wanted, why: &str) {
        self.families.failed(session, wanted, why.to_owned());
        self.active = true;
    }

    /// Time at which a request times out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.families.deadline()
    }

    /// Updates the gates: the present allowance of each destination.
    fn open_gates(&self, gates: &mut Forwarding) {
        self.open_again(gates);
        for index in 0..self.peers.len() {
            self.open_gate(index, gates);
        }
    }

    fn open_again(&self, gates: &mut Forwarding) {
        if let Some(gate) = &mut gates.again {
            self.onward.agains.open(gate, self.most_bytes(), &self.onward.made);
        }
    }

    /// Updates the gate of one destination.
    #[inline]
    fn open_gate(&self, index: usize, gates: &mut Forwarding) {
        let (Some(peer), Some(gate)) = (self.peers.get(index), gates.gates.get_mut(index)) else { return };
        let (mailbox, most_bytes) = (self.choices.mailbox_size, self.most_bytes());
        gate.calls = MOST_CALLS.saturating_sub(peer.in_flight());
        gate.bytes = peer.queued_bytes().map(|queued| most_bytes.saturating_sub(queued));
        gate.most_bytes = most_bytes;
        gate.largest =
            peer.max_frame().map_or(mailbox, |most| most.min(mailbox)).saturating_sub(FRAME_OVERHEAD);
    }

    /// Bytes of payload that may wait for one destination.
    fn most_bytes(&self) -> usize {
        self.choices.limits.bytes.unwrap_or(self.choices.mailbox_size)
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
        let is_linked = self.peers.iter().any(Peer::is_linked);
        self.active |= is_linked;
        self.everywhere |= is_linked;
    }

    /// Prepares to sleep on the descriptors that the target watches.
    pub(super) fn arm(&mut self) -> Rest {
        if self.onward.agains.ready() != 0 || self.onward.made.ready() != 0 {
            return Rest::None;
        }
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
                (self.active, self.everywhere) = (true, true);
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
        *self.onward = Onward::new(Arc::clone(&self.onward.own));
        self.active = false;
    }
}

/// Returns the reason why a call that targets have forwarded so many times goes no farther.
pub(super) fn too_many_hops(hops: u32, most: u32) -> String {
    format!(
        "the target refused a call: it has gone from target to target {hops} times, and that target's limit of hops is {most}"
    )
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
