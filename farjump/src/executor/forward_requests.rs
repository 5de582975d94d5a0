//! Forwards that the running call requests: to a target's destinations, as `farjump_forward` sees them, and to the
//! target itself.

use std::sync::Arc;

use farjump_core::frame::PASSAGE_LEN;
use farjump_core::image::CodeId;
use farjump_loader::code_id;

use super::lent_bytes::LentBytes;
use crate::forward_limits::ForwardLimits;

/// The reason why `farjump_forward` or `farjump_again` rejects a message. The numbers are those of
/// `farjump_ifunc.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum NotForwarded {
    /// No destination has that name; or no target runs the call.
    UnknownPeer = -1,
    /// No frame to the destination can be that long.
    TooLarge = -2,
    /// The calls or bytes under way there have reached their limit.
    Busy = -3,
    /// This call has sent as many messages as it may, or none runs on this thread.
    TooOften = -4,
    /// The call has reached its limit of hops or repeats.
    TooFar = -5,
    /// The target lets no function make code.
    NotAllowed = -6,
}

/// A destination, and its present allowance.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) name: Box<str>,
    /// Further calls that may be under way to it.
    pub(crate) calls: usize,
    /// Bytes of payload that may wait for it; `None` if nothing waits, and then one payload may be of any
    /// length.
    pub(crate) bytes: Option<usize>,
    /// Longest payload in bytes.
    pub(crate) largest: usize,
    /// Bytes of payload that may wait for it at most.
    pub(crate) most_bytes: usize,
}

impl Gate {
    /// A gate through which nothing goes until it is opened.
    pub(crate) fn closed(name: &str) -> Gate {
        Gate { name: name.into(), calls: 0, bytes: None, largest: 0, most_bytes: 0 }
    }

    fn admits(&self, len: usize) -> Result<(), NotForwarded> {
        if len > self.largest {
            Err(NotForwarded::TooLarge)
        } else if self.calls == 0 || self.bytes.is_some_and(|bytes| bytes < len) {
            Err(NotForwarded::Busy)
        } else {
            Ok(())
        }
    }

    fn pass(&mut self, len: usize) {
        self.calls -= 1;
        self.bytes = Some(self.bytes.unwrap_or(self.most_bytes).saturating_sub(len));
    }
}

/// The recipient of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recipient {
    /// The destination with this index among the gates.
    Peer(usize),
    /// This target, later.
    Again,
}

/// A message that the running call requested.
#[derive(Debug)]
pub(crate) struct ForwardRequest {
    pub(crate) recipient: Recipient,
    /// The code to run, if that is not the running function's own.
    pub(crate) code: Option<CodeId>,
    pub(crate) payload: Vec<u8>,
    /// Whether it waits for the store's bell.
    pub(crate) awaits_store: bool,
    /// The gate's allowance before.
    before: (usize, Option<usize>),
}

impl ForwardRequest {
    pub(crate) fn new(recipient: Recipient, code: Option<CodeId>, payload: Vec<u8>) -> ForwardRequest {
        ForwardRequest { recipient, code, payload, awaits_store: false, before: (0, None) }
    }
}

/// The hops and repeats of a call so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CallHistory {
    /// Targets that have sent it on.
    pub(crate) hops: u32,
    /// Times that this target has run it again since it came.
    pub(crate) repeats: u32,
}

/// A target's destinations, and the running call's requests.
#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    /// In the order of the target's destinations.
    pub(crate) gates: Vec<Gate>,
    /// The gate of calls that run again here; `None` where no target would run them.
    pub(crate) again: Option<Gate>,
    pub(crate) limits: ForwardLimits,
    /// The way of the running call.
    pub(crate) history: CallHistory,
    /// Most bytes of code that a call may make; `None` if calls may make none.
    pub(crate) makes: Option<usize>,
    requested: Vec<ForwardRequest>,
    made: Vec<(CodeId, Arc<[u8]>)>,
    /// Memory for the next payload.
    pub(crate) spare: Vec<u8>,
    /// Number of messages beyond the limits of hops and repeats.
    too_far: u32,
    /// Whether the target holds the last call's reply.
    pub(crate) is_held: bool,
    /// True if the target's store has postponed the running call until its bell. Calls that it requests again here wait
    /// for that.
    pub(super) awaits_store: bool,
}

/// The requests of a call.
pub(crate) struct Requests {
    pub(crate) requested: Vec<ForwardRequest>,
    /// The code that it has made.
    pub(crate) made: Vec<(CodeId, Arc<[u8]>)>,
    pub(crate) too_far: u32,
    /// The way of the call.
    pub(crate) history: CallHistory,
    /// Whether the target holds the call's reply.
    pub(crate) is_held: bool,
}

impl Forwarding {
    /// Notes that the running call is to be forwarded when it returns.
    pub(super) fn forward(
        &mut self,
        peer: LentBytes<'_>,
        payload: LentBytes<'_>,
    ) -> Result<(), NotForwarded> {
        let found = self.gates.iter().position(|gate| peer.are(gate.name.as_bytes()));
        let recipient = Recipient::Peer(found.ok_or(NotForwarded::UnknownPeer)?);
        self.note(recipient, None, payload, self.history.hops < self.limits.hops)
    }

    /// Notes that the running call is to run again.
    pub(super) fn repeat(&mut self, payload: LentBytes<'_>) -> Result<(), NotForwarded> {
        self.note(Recipient::Again, None, payload, self.history.repeats < self.limits.repeats)
    }

    /// Takes code, for messages of the running call. Returns its id.
    pub(super) fn make(&mut self, code: LentBytes<'_>) -> Result<CodeId, NotForwarded> {
        if code.len() > self.makes.ok_or(NotForwarded::NotAllowed)? {
            return Err(NotForwarded::TooLarge);
        }
        let code = code.to_vec();
        let id = code_id(&code);
        if self.made.iter().all(|(made, _)| *made != id) {
            if self.made.len() >= self.limits.messages {
                return Err(NotForwarded::TooOften);
            }
            self.made.push((id, code.into()));
        }
        Ok(id)
    }

    /// Notes a message to other code, at a destination or here.
    pub(super) fn inject(
        &mut self,
        code: CodeId,
        peer: LentBytes<'_>,
        payload: LentBytes<'_>,
    ) -> Result<(), NotForwarded> {
        self.makes.ok_or(NotForwarded::NotAllowed)?;
        if peer.len() == 0 {
            return self.note(
                Recipient::Again,
                Some(code),
                payload,
                self.history.repeats < self.limits.repeats,
            );
        }
        let found = self.gates.iter().position(|gate| peer.are(gate.name.as_bytes()));
        let recipient = Recipient::Peer(found.ok_or(NotForwarded::UnknownPeer)?);
        self.note(recipient, Some(code), payload, self.history.hops < self.limits.hops)
    }

    fn note(
        &mut self,
        recipient: Recipient,
        code: Option<CodeId>,
        payload: LentBytes<'_>,
        is_near: bool,
    ) -> Result<(), NotForwarded> {
        let gate = match recipient {
            Recipient::Peer(index) => self.gates.get_mut(index),
            Recipient::Again => self.again.as_mut(),
        };
        let gate = gate.ok_or(NotForwarded::UnknownPeer)?;
        if self.requested.len() + self.too_far as usize >= self.limits.messages {
            return Err(NotForwarded::TooOften);
        }
        if !is_near {
            self.too_far += 1;
            return Err(NotForwarded::TooFar);
        }
        gate.admits(payload.len())?;
        let before = (gate.calls, gate.bytes);
        gate.pass(payload.len());
        let mut copy = std::mem::take(&mut self.spare);
        copy.clear();
        copy.reserve(payload.len() + PASSAGE_LEN);
        payload.append_to(&mut copy, payload.len());
        let awaits_store = self.awaits_store && recipient == Recipient::Again;
        self.requested.push(ForwardRequest { recipient, code, payload: copy, awaits_store, before });
        Ok(())
    }

    /// Returns whether the running call has made requests, or tried to.
    pub(super) fn has_requests(&self) -> bool {
        !self.requested.is_empty() || !self.made.is_empty() || self.too_far != 0
    }

    /// Takes the requests of the call that ended last.
    pub(crate) fn take(&mut self) -> Requests {
        Requests {
            requested: std::mem::take(&mut self.requested),
            made: std::mem::take(&mut self.made),
            too_far: std::mem::take(&mut self.too_far),
            history: self.history,
            is_held: std::mem::take(&mut self.is_held),
        }
    }

    /// Takes the list of [`Forwarding::take`] back, empty, for reuse.
    pub(crate) fn take_back(&mut self, requested: Vec<ForwardRequest>) {
        debug_assert!(requested.is_empty());
        self.requested = requested;
    }

    /// Drops the requests of the call that ended last.
    pub(crate) fn drop_requests(&mut self) {
        (self.too_far, self.is_held) = (0, false);
        self.made.clear();
        while let Some(ForwardRequest { recipient, before, .. }) = self.requested.pop() {
            let gate = match recipient {
                Recipient::Peer(index) => self.gates.get_mut(index),
                Recipient::Again => self.again.as_mut(),
            };
            if let Some(gate) = gate {
                (gate.calls, gate.bytes) = before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarding_with(calls: usize, bytes: Option<usize>) -> Forwarding {
        let gate = |name: &str| Gate { name: name.into(), calls, bytes, largest: 100, most_bytes: 150 };
        let limits = ForwardLimits { messages: 3, hops: 2, repeats: 1, ..ForwardLimits::default() };
        let gates = vec![gate("first"), gate("next")];
        Forwarding { gates, again: Some(gate("")), limits, ..Forwarding::default() }
    }

    fn forward(forwarding: &mut Forwarding, peer: &[u8], payload: &[u8]) -> Result<(), NotForwarded> {
        forwarding.forward(peer.into(), payload.into())
    }

    #[test]
    fn calls_go_to_peers_that_are_known_and_not_busy() {
        let mut forwarding = forwarding_with(1, None);
        assert_eq!(forward(&mut forwarding, b"nex", b""), Err(NotForwarded::UnknownPeer));
        assert_eq!(forward(&mut forwarding, b"next", &[0; 101]), Err(NotForwarded::TooLarge));
        assert_eq!(forward(&mut forwarding, b"next", &[7; 100]), Ok(()));
        assert_eq!(forward(&mut forwarding, b"next", b""), Err(NotForwarded::Busy));
        assert_eq!(forward(&mut forwarding, b"first", b""), Ok(()));
        let requested = forwarding.take().requested;
        assert_eq!((requested[0].recipient, &requested[0].payload), (Recipient::Peer(1), &vec![7; 100]));
        assert_eq!((requested[1].recipient, requested.len()), (Recipient::Peer(0), 2));

        assert_eq!(forward(&mut forwarding_with(0, None), b"next", b""), Err(NotForwarded::Busy));
        assert_eq!(forward(&mut forwarding_with(1, Some(9)), b"next", &[0; 10]), Err(NotForwarded::Busy));
        assert_eq!(forward(&mut forwarding_with(1, Some(10)), b"next", &[0; 10]), Ok(()));
    }

    #[test]
    fn each_message_of_a_call_counts_until_it_is_forgotten() {
        let mut forwarding = forwarding_with(9, None);
        assert_eq!(forward(&mut forwarding, b"next", &[0; 90]), Ok(()), "the first one may be of any length");
        assert_eq!(forward(&mut forwarding, b"next", &[0; 61]), Err(NotForwarded::Busy));
        assert_eq!(forward(&mut forwarding, b"next", &[0; 60]), Ok(()));
        assert_eq!(forwarding.repeat((&[0; 100][..]).into()), Ok(()));
        assert_eq!(forward(&mut forwarding, b"first", b""), Err(NotForwarded::TooOften));
        forwarding.drop_requests();
        let gates = forwarding.gates.iter().chain(&forwarding.again);
        assert!(gates.map(|gate| (gate.calls, gate.bytes)).all(|found| found == (9, None)));
        assert!(forwarding.take().requested.is_empty());
        assert_eq!(forward(&mut forwarding, b"next", &[0; 90]), Ok(()));
    }

    #[test]
    fn a_call_goes_no_farther_than_it_may_and_that_is_counted() {
        let mut forwarding = forwarding_with(9, None);
        forwarding.history = CallHistory { hops: 1, repeats: 1 };
        assert_eq!(forward(&mut forwarding, b"next", b""), Ok(()));
        assert_eq!(forwarding.repeat((&[][..]).into()), Err(NotForwarded::TooFar));
        forwarding.history.hops = 2;
        assert_eq!(forward(&mut forwarding, b"next", b""), Err(NotForwarded::TooFar));
        let requests = forwarding.take();
        assert_eq!((requests.requested.len(), requests.too_far), (1, 2));
        assert_eq!(forwarding.take().too_far, 0);
    }

    #[test]
    fn code_is_made_where_that_is_allowed_and_named_by_its_hash() {
        let (code, none) = (LentBytes::from(&b"some code"[..]), LentBytes::from(&[][..]));
        let mut forwarding = forwarding_with(9, None);
        let id = code_id(b"some code");
        assert_eq!(forwarding.make(code), Err(NotForwarded::NotAllowed));
        assert_eq!(forwarding.inject(id, none, none), Err(NotForwarded::NotAllowed));
        forwarding.makes = Some(8);
        assert_eq!(forwarding.make(code), Err(NotForwarded::TooLarge));
        forwarding.makes = Some(9);
        assert_eq!([forwarding.make(code), forwarding.make(code)], [Ok(id); 2]);
        assert_eq!(forwarding.inject(id, none, none), Ok(()));
        assert_eq!(forwarding.inject(id, (&b"next"[..]).into(), none), Ok(()));
        assert_eq!(forwarding.inject(id, (&b"nobody"[..]).into(), none), Err(NotForwarded::UnknownPeer));
        let requests = forwarding.take();
        assert_eq!(requests.made.len(), 1);
        assert!(
            requests
                .requested
                .iter()
                .map(|requested| (requested.recipient, requested.code))
                .eq([(Recipient::Again, Some(id)), (Recipient::Peer(1), Some(id))])
        );
        forwarding.make(code).unwrap();
        forwarding.drop_requests();
        assert!(forwarding.take().made.is_empty());
    }

    #[test]
    fn without_a_target_nothing_runs_again() {
        assert_eq!(Forwarding::default().repeat((&[][..]).into()), Err(NotForwarded::UnknownPeer));
    }
}
