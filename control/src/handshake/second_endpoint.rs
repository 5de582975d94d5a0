//! A second pair of endpoints for two linked processes: for a large mailbox, made while the link is in use.
//!
//! They are made, described and connected like those of the handshake; the caller decides on order and time.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use farjump_core::transport::{OpenRequest, Transport};
use farjump_os::deferred_close::DeferredFd;

use crate::HandshakeError;
use crate::connection::message::EndpointInfo;
use crate::handshake::negotiation::{Joined, LocalEndpoint};
use crate::peer_identity::PeerIdentity;

/// The unconnected endpoint of this process in the second pair. Dropping it closes it.
pub struct SecondEndpoint(LocalEndpoint);

impl std::fmt::Debug for SecondEndpoint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SecondEndpoint").field("max_frame", &self.0.max_frame()).finish_non_exhaustive()
    }
}

impl SecondEndpoint {
    /// Opens an endpoint of `transport`, the link's own, and draws its key.
    ///
    /// # Errors
    /// [`HandshakeError::Transport`] when the transport cannot give so much, [`HandshakeError::System`].
    pub fn open(
        transport: &mut dyn Transport,
        request: &OpenRequest,
    ) -> Result<SecondEndpoint, HandshakeError> {
        LocalEndpoint::open(transport, &request.second()).map(SecondEndpoint)
    }

    /// Returns the largest frame in bytes that it receives: as requested, or less by the transport's limit.
    pub fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    /// Adapts this endpoint to that of `peer`, before this one is described.
    ///
    /// # Errors
    /// [`HandshakeError::Transport`] when the two endpoints cannot be connected.
    pub fn adapt_to(&mut self, peer: &PeerIdentity, endpoint: &EndpointInfo) -> Result<(), HandshakeError> {
        self.0.narrow(peer, endpoint)
    }

    /// Calls `use_it` with the description for the peer, and the descriptors beside it.
    pub fn with_info<T>(&self, use_it: impl FnOnce(EndpointInfo, &[BorrowedFd<'_>]) -> T) -> T {
        self.0.with_info(use_it)
    }

    /// Connects it to the endpoint that `peer` described. Transports that wait for the peer's endpoint do so
    /// until `deadline` at most.
    ///
    /// # Errors
    /// [`HandshakeError::Terms`], [`HandshakeError::NoCommonRule`] and [`HandshakeError::Transport`] when the
    /// peer's endpoint is invalid, incompatible or unreachable. Nothing is left behind, and the descriptors
    /// are always closed.
    pub fn join(
        self,
        peer: &PeerIdentity,
        endpoint: EndpointInfo,
        descriptors: Vec<DeferredFd>,
        deadline: Instant,
    ) -> Result<Joined, HandshakeError> {
        let rule = self.0.agree(peer, &endpoint)?;
        self.0.join(peer, endpoint, descriptors, rule, None, deadline)
    }
}
