//! Admin requests to a target: a process connects, sends one request, and gets one response.
//!
//! The process makes no link and is no source. Both processes have deadlines: an unread response blocks no
//! target.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::address::PeerAddress;
use crate::admin::messages::{AdminRequest, AdminResponse};
use crate::connection::message::Message;
use crate::connection::{Control, out_of_order, rejected};
use crate::error::system;
use crate::key::keys::NamedKey;
use crate::peer_identity::PeerIdentity;
use crate::refusal::RejectCause;
use crate::tcp::TcpOptions;
use crate::{ControlOperation, DeferredFd, HandshakeError, HandshakeEvent, MessageFault};

/// An admin request at the target, with its connection. Driven without waiting.
#[derive(Debug)]
pub struct AdminConnection {
    control: Control,
    request: AdminRequest,
    deadline: Instant,
}

impl AdminConnection {
    /// Makes the connection of `request`, which `control` has delivered with nothing behind it.
    pub(crate) fn new(mut control: Control, request: AdminRequest, deadline: Instant) -> AdminConnection {
        control.allow_long_response();
        AdminConnection { control, request, deadline }
    }

    /// Returns the request.
    pub fn request(&self) -> &AdminRequest {
        &self.request
    }

    /// Returns the process that sent the request.
    pub fn peer(&self) -> &PeerIdentity {
        self.control.peer()
    }

    /// Returns the key that the process used, if it needed one.
    pub fn key(&self) -> Option<&Arc<NamedKey>> {
        self.control.key()
    }

    /// Returns the time by which the response must have been taken. [`AdminConnection::advance`] fails after
    /// it.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sends the response, once; [`AdminConnection::advance`] sends the part that does not fit now.
    ///
    /// # Errors
    /// As [`Control::send`].
    pub fn respond(&mut self, response: &AdminResponse) -> Result<(), HandshakeError> {
        self.respond_with(response, None)
    }

    /// Returns whether a descriptor can be sent with a response: on Unix sockets only.
    pub fn carries_descriptors(&self) -> bool {
        self.control.carries_descriptors()
    }

    /// As [`AdminConnection::respond`], with a descriptor beside an [`AdminResponse::Region`].
    ///
    /// # Errors
    /// As [`Control::send`].
    pub fn respond_with(
        &mut self,
        response: &AdminResponse,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), HandshakeError> {
        let bytes = postcard::to_stdvec(response).map_err(|error| {
            system(ControlOperation::Encode, response.name(), std::io::Error::other(error))
        })?;
        self.control.send(&Message::AdminResponse { bytes }, descriptor.as_slice())
    }

    /// Sends more of the response. Returns `true` once all of it has left: then drop the connection. Call it
    /// when [`AdminConnection::as_fd`] is readable or writable, and at [`AdminConnection::deadline`].
    ///
    /// # Errors
    /// Drop the connection after any of these: [`HandshakeError::PeerGone`], [`HandshakeError::OutOfOrder`]
    /// for a second request, [`HandshakeError::TimedOut`] past the deadline, and those of [`Control::recv`].
    pub fn advance(&mut self) -> Result<bool, HandshakeError> {
        self.control.flush()?;
        if !self.control.wants_write() {
            return Ok(true);
        }
        if let Some((other, _)) = self.control.recv()? {
            return Err(out_of_order(&self.control, "nothing more", &other));
        }
        if Instant::now() >= self.deadline {
            let peer = self.control.peer().to_string();
            return Err(HandshakeError::TimedOut { peer, awaited: HandshakeEvent::ResponseSpace });
        }
        Ok(false)
    }

    /// Rejects the request with a cause.
    pub fn reject(self, cause: RejectCause, text: &str) {
        self.control.reject(cause, text);
    }
}

impl AsFd for AdminConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// Sends a request to the target at `address`, and waits for the response.
///
/// # Errors
/// At `deadline` [`HandshakeError::TimedOut`]. [`HandshakeError::Refused`] with the target's reason.
/// [`HandshakeError::OtherUser`] when the target runs as another user; no request was sent then. Those of
/// [`Control::connect`] and [`Control::recv`], [`HandshakeError::OutOfOrder`].
pub fn admin_request(
    address: &PeerAddress,
    request: AdminRequest,
    deadline: Instant,
) -> Result<AdminResponse, HandshakeError> {
    admin_request_with(address, &TcpOptions::default(), request, deadline)
}

/// Like [`admin_request`], for a target that may be on another machine.
///
/// # Errors
/// As [`admin_request`], and those of a key ([`Control::recv`]).
pub fn admin_request_with(
    address: &PeerAddress,
    options: &TcpOptions,
    request: AdminRequest,
    deadline: Instant,
) -> Result<AdminResponse, HandshakeError> {
    request_descriptor(address, options, request, deadline).map(|(response, _)| response)
}

/// Like [`admin_request_with`], and returns the descriptor that came with an [`AdminResponse::Region`].
///
/// # Errors
/// As [`admin_request_with`].
pub fn request_descriptor(
    address: &PeerAddress,
    options: &TcpOptions,
    request: AdminRequest,
    deadline: Instant,
) -> Result<(AdminResponse, Option<DeferredFd>), HandshakeError> {
    let mut control = Control::connect_with(address, options, deadline)?;
    control.admit_target(deadline)?;
    control.allow_long_request_and_response();
    match control.send(&Message::AdminRequest(request), &[]) {
        // A target that rejects at once may have closed already: its reason can still be received.
        Ok(()) | Err(HandshakeError::PeerGone { .. }) => {}
        Err(error) => return Err(error),
    }
    let (bytes, mut descriptors) = match control.recv_until(deadline, HandshakeEvent::Response)? {
        (Message::Reject { cause, text }, _) => return Err(rejected(&control, cause, &text)),
        (Message::AdminResponse { bytes }, descriptors) => (bytes, descriptors),
        (other, _) => return Err(out_of_order(&control, "AdminResponse", &other)),
    };
    let fault = match postcard::take_from_bytes(&bytes) {
        Ok((response, [])) => return Ok((response, descriptors.pop())),
        Ok((_, rest)) => MessageFault::Excess { len: rest.len(), message: "response" },
        Err(cause) => MessageFault::Undecodable { len: bytes.len(), cause },
    };
    Err(HandshakeError::Garbled { peer: control.peer().to_string(), fault })
}
