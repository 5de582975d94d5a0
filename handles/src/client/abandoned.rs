//! Abandoned requests: their caller stopped waiting before the reply came. Whatever such a reply brings goes back to
//! the owner.

use std::sync::Arc;

use crate::client::connection::Inner;
use crate::client::lock;
use crate::streams::wire::{self, StreamOp};
use crate::wire::handle::Key;
use crate::wire::requests::{Op, Reader, Status, Writer};

/// The thing that the reply to an abandoned request brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Brings {
    /// A claim to an object. The reply has the object's length.
    Claim,
    /// An object, a part of one, or a reserved number. No other process knows it.
    Object,
    /// A publisher of a topic.
    Publisher,
    /// A subscriber to a topic.
    Subscriber,
}

impl Brings {
    /// Returns the thing that the reply to `request` brings. `None` if nothing has to go back.
    fn by(request: &[u8]) -> Option<Brings> {
        let mut fields = Reader(request);
        let op = fields.u8()?;
        match StreamOp::from_number(op) {
            Some(StreamOp::Open) => return Some(Brings::Publisher),
            Some(StreamOp::Subscribe) => return Some(Brings::Subscriber),
            _ => {}
        }
        match Op::from_number(op)? {
            Op::Claim | Op::ClaimLent => Some(Brings::Claim),
            Op::Allocate | Op::Reserve => Some(Brings::Object),
            // With a number, the request sets the contents of a reserved object, whose handle other processes know.
            Op::Put => (fields.u64()? == 0).then_some(Brings::Object),
            _ => None,
        }
    }
}

/// The way to give back the thing that an abandoned request has brought.
#[derive(PartialEq, Eq)]
enum Unwanted {
    /// By the release of this claim.
    Claim(u64),
    /// By this request.
    By(Vec<u8>),
}

impl Unwanted {
    /// Reads the thing from a reply. `None` if the owner has refused the request, or its reply is malformed.
    fn in_reply(reply: &[u8], brings: Brings) -> Option<Unwanted> {
        let mut fields = Reader(reply);
        fields.u8().filter(|status| *status == Status::Done as u8)?;
        let number = fields.u64()?;
        Some(match brings {
            Brings::Claim => Unwanted::Claim(number),
            Brings::Object => Unwanted::By(eviction(number, fields.key()?)),
            Brings::Publisher => {
                // This publisher has published nothing, so its subscribers miss nothing.
                let mut finish = wire::request(StreamOp::Finish);
                finish.u64(number).u8(1);
                Unwanted::By(finish.0)
            }
            Brings::Subscriber => {
                let mut leave = wire::request(StreamOp::Unsubscribe);
                leave.u64(number).u64(fields.u64()?);
                Unwanted::By(leave.0)
            }
        })
    }
}

impl Inner {
    /// Abandons a request whose reply has not come. When the reply comes, the thing that it brings goes back to the
    /// owner with the next request.
    pub(crate) fn abandon(&self, number: u32, request: &[u8]) {
        let Some(brings) = Brings::by(request) else { return self.link.abandon(number) };
        let (releases, library) = (Arc::clone(&self.releases), self.library.clone());
        self.link.abandon_undoing(number, move |link, reply| match Unwanted::in_reply(&reply, brings) {
            Some(Unwanted::Claim(claim)) => lock(&releases).add(claim),
            // If the link fails, nothing of it stays at the owner.
            Some(Unwanted::By(request)) => _ = link.send(&library, &request),
            // The owner has refused the request.
            None => {}
        });
    }

    /// Makes the owner take back an object that this client has made, finished or not. No other process has its handle.
    pub(crate) fn take_back(&self, number: u64, key: Key) {
        // If this fails, the link has failed.
        let _ = self.notify(&eviction(number, key));
    }
}

fn eviction(number: u64, key: Key) -> Vec<u8> {
    let mut request = Writer::request(Op::Evict);
    request.u64(number).bytes(&key.0);
    request.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_bring_something_are_distinguished_from_others() {
        let put = |number: u64| {
            let mut request = Writer::request(Op::Put);
            request.u64(number).bytes(&[0; 16]).text("").bytes(b"contents");
            request.0
        };
        assert_eq!(Brings::by(&put(0)), Some(Brings::Object));
        assert_eq!(Brings::by(&put(7)), None, "the contents of a reserved object");
        assert_eq!(Brings::by(&[Op::ClaimLent as u8]), Some(Brings::Claim));
        assert_eq!(Brings::by(&eviction(1, Key([2; 16]))), None);
        assert_eq!(Brings::by(&[StreamOp::Open as u8]), Some(Brings::Publisher));
        assert_eq!(Brings::by(&[StreamOp::Subscribe as u8]), Some(Brings::Subscriber));
        let others = [&[][..], &[StreamOp::Next as u8], &[Op::Put as u8], &[255]];
        assert_eq!(others.map(Brings::by), [None; 4]);
    }

    #[test]
    fn only_a_whole_reply_of_success_brings_something() {
        let mut reply = Writer::default();
        reply.u8(Status::Done as u8).u64(9).bytes(&[3; 16]);
        let brings = |reply: &[u8], brings| Unwanted::in_reply(reply, brings);
        assert!(brings(&reply.0, Brings::Object) == Some(Unwanted::By(eviction(9, Key([3; 16])))));
        assert!(brings(&reply.0, Brings::Claim) == Some(Unwanted::Claim(9)));
        assert!((0..9).all(|len| brings(&reply.0[..len], Brings::Claim).is_none()));
        assert!(brings(&reply.0[..24], Brings::Object).is_none());
        assert!(brings(&reply.0[..16], Brings::Subscriber).is_none());
        reply.0[0] = Status::Gone as u8;
        assert!(brings(&reply.0, Brings::Claim).is_none());
    }
}
