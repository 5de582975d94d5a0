//! A second pair of ends for two processes that have met: for a mailbox that is made while the link is in use.
//!
//! Its ends are made, told of and connected as those of the meeting are; who tells whom, and when, is the caller's.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use farjump_core::transport::{OpenRequest, Transport};
use farjump_os::deferred_close::DeferredFd;

use crate::Error;
use crate::connection::message::End;
use crate::handshake::negotiation::{Joined, OwnEnd};
use crate::peer_identity::PeerIdentity;

/// This side's end of the second pair, opened and not yet connected. Dropping it closes it.
pub struct SecondEnd(OwnEnd);

impl std::fmt::Debug for SecondEnd {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SecondEnd").field("max_frame", &self.0.max_frame()).finish_non_exhaustive()
    }
}

impl SecondEnd {
    /// Opens an end of `transport`, the one that the link uses, and draws its key.
    ///
    /// # Errors
    /// [`Error::Transport`] when the transport cannot give so much, [`Error::System`].
    pub fn open(transport: &mut dyn Transport, request: &OpenRequest) -> Result<SecondEnd, Error> {
        OwnEnd::open(transport, &request.second()).map(SecondEnd)
    }

    /// Largest frame in bytes that is received at it: what was asked for, or less if the transport takes no more.
    pub fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    /// Takes into account what `peer` told of its end before this one is told of.
    ///
    /// # Errors
    /// [`Error::Transport`] where the two ends cannot be connected.
    pub fn answers(&mut self, peer: &PeerIdentity, end: &End) -> Result<(), Error> {
        self.0.narrow(peer, end)
    }

    /// Gives `use_it` what the peer is told, with the descriptors that go beside it.
    pub fn tell<T>(&self, use_it: impl FnOnce(End, &[BorrowedFd<'_>]) -> T) -> T {
        self.0.tell(use_it)
    }

    /// Connects it to the end that `peer` told of. A transport that has to wait for that takes until `deadline` at most.
    ///
    /// # Errors
    /// [`Error::Terms`], [`Error::NoCommonRule`] and [`Error::Transport`] when the peer's end makes no sense, does not go
    /// with this one or cannot be reached. Nothing is left behind, and the descriptors are closed in any case.
    pub fn join(
        self,
        peer: &PeerIdentity,
        end: End,
        descriptors: Vec<DeferredFd>,
        deadline: Instant,
    ) -> Result<Joined, Error> {
        let rule = self.0.agree(peer, &end)?;
        self.0.join(peer, end, descriptors, rule, None, deadline)
    }
}
