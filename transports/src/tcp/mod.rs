//! `tcp`: frames on a stream between the two processes, encrypted by keys from the handshake.
//!
//! Works between any two machines, and needs only sockets. Farjump connects the stream beside the control
//! connection, and passes it on with a secret that both peers have ([`farjump_core::transport::Stream`]). A
//! frame is one record, or several of 16 KiB. `docs/reference/protocol.md` has the bytes of a record;
//! `docs/design/tcp.md` has the reasons and measurements.

mod buffers;
mod credit;
mod head;
mod inbound;
mod keys;
mod long_frame;
mod messages;
mod outbound;
mod socket;
mod unconnected;

use farjump_core::frame::MAX_FRAME;
use farjump_core::transport::{
    ArrivalRules, Capabilities, Cause, InboxKind, OpenRequest, Operation, Transport, TransportError,
    UnconnectedEndpoint,
};

use unconnected::{EndpointAddress, UnconnectedTcp};

/// The backend's name.
pub const NAME: &str = "tcp";

/// The backend. It has no state: all state is in its endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tcp;

impl Tcp {
    /// Makes a backend.
    pub const fn new() -> Tcp {
        Tcp
    }

    /// The backend's capabilities on this machine: it works on every one.
    ///
    /// # Errors
    /// None.
    pub fn usable() -> Result<Capabilities, String> {
        Ok(Tcp.capabilities())
    }
}

impl Transport for Tcp {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(InboxKind::TwoSided, ArrivalRules::DELIVERED, MAX_FRAME);
        capabilities.stream = true;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        if request.max_frame > MAX_FRAME {
            let cause = Cause::TooLarge { len: request.max_frame, max: MAX_FRAME };
            return Err(error(Operation::Open, cause));
        }
        Ok(Box::new(UnconnectedTcp::new(EndpointAddress::new(request))))
    }
}

#[cold]
fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}
