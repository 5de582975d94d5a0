//! Forward requests: a target's destinations, as `farjump_forward` sees them, and the request of the running
//! call.

use super::lent_bytes::LentBytes;

/// The reason why `farjump_forward` rejects a call. The numbers are those of `farjump_ifunc.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum NotForwarded {
    /// No destination has that name.
    UnknownPeer = -1,
    /// No frame to the destination can be that long.
    TooLarge = -2,
    /// The destination has its maximum of calls under way.
    Busy = -3,
    /// This call is forwarded already, or none runs on this thread.
    Twice = -4,
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
}

/// A call to be forwarded.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Index of the destination among the gates.
    pub(crate) peer: usize,
    pub(crate) payload: Vec<u8>,
}

/// A target's destinations, and the running call's request.
#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    /// In the order of the target's destinations.
    pub(crate) gates: Vec<Gate>,
    asked: Option<Asked>,
}

impl Forwarding {
    /// Notes that the running call is to be forwarded when it returns.
    pub(super) fn ask(&mut self, peer: LentBytes<'_>, payload: LentBytes<'_>) -> Result<(), NotForwarded> {
        if self.asked.is_some() {
            return Err(NotForwarded::Twice);
        }
        let found = self.gates.iter().position(|gate| peer.are(gate.name.as_bytes()));
        let peer = found.ok_or(NotForwarded::UnknownPeer)?;
        let gate = &self.gates[peer];
        if payload.len() > gate.largest {
            return Err(NotForwarded::TooLarge);
        }
        if gate.calls == 0 || gate.bytes.is_some_and(|bytes| bytes < payload.len()) {
            return Err(NotForwarded::Busy);
        }
        self.asked = Some(Asked { peer, payload: payload.to_vec() });
        Ok(())
    }

    /// Whether the call that ended last is to be forwarded.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Takes the request of the call that ended last.
    pub(crate) fn take(&mut self) -> Option<Asked> {
        self.asked.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(calls: usize, bytes: Option<usize>) -> Forwarding {
        let gate = |name: &str| Gate { name: name.into(), calls, bytes, largest: 100 };
        Forwarding { gates: vec![gate("first"), gate("next")], asked: None }
    }

    fn ask(forwarding: &mut Forwarding, peer: &[u8], payload: &[u8]) -> Result<(), NotForwarded> {
        forwarding.ask(peer.into(), payload.into())
    }

    #[test]
    fn a_call_is_forwarded_once_to_a_peer_that_is_known_and_not_busy() {
        let mut forwarding = to(1, None);
        assert_eq!(ask(&mut forwarding, b"nex", b""), Err(NotForwarded::UnknownPeer));
        assert_eq!(ask(&mut forwarding, b"next", &[0; 101]), Err(NotForwarded::TooLarge));
        assert_eq!(ask(&mut forwarding, b"next", &[7; 100]), Ok(()));
        assert_eq!(ask(&mut forwarding, b"first", b""), Err(NotForwarded::Twice));
        let asked = forwarding.take().unwrap();
        assert_eq!((asked.peer, asked.payload), (1, vec![7; 100]));
        assert_eq!(ask(&mut forwarding, b"first", b""), Ok(()));

        assert_eq!(ask(&mut to(0, None), b"next", b""), Err(NotForwarded::Busy));
        assert_eq!(ask(&mut to(1, Some(9)), b"next", &[0; 10]), Err(NotForwarded::Busy));
        assert_eq!(ask(&mut to(1, Some(10)), b"next", &[0; 10]), Ok(()));
    }
}
