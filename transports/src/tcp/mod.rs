//! `tcp`: frames on a stream of farjump's own, sealed by keys from the handshake.
//!
//! Works between any two machines, and needs nothing but sockets. farjump connects the stream beside the control connection, and
//! hands it over with a secret that both sides have ([`farjump_core::transport::Stream`]). A frame is one record, or several of 16 KiB.
//! What a record is, to the bit, is in `docs/protocol.md`; why it is so, and what was measured, in `docs/decisions/tcp.md`.

mod buffers;
mod forks;
mod head;
mod inbound;
mod keys;
mod long;
mod opening;
mod outbound;
mod parting;
mod post;
mod socket;
mod window;

use farjump_core::frame::{LINE, MAX_FRAME};
use farjump_core::transport::{
    ArrivalRules, Capabilities, Cause, FaultsNoticed, InboxKind, OpenRequest, Opening, Operation, Threading,
    Transport, TransportError, WakeSource,
};

use opening::{TcpOpening, Told};

/// The backend's name.
pub const NAME: &str = "tcp";

/// The backend. It holds nothing: all is in the ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tcp;

impl Tcp {
    /// A backend.
    pub const fn new() -> Tcp {
        Tcp
    }

    /// Whether it works on this machine: it does on every one.
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
        capabilities.max_inline = LINE;
        capabilities.faults = FaultsNoticed::PEER_DEATH;
        capabilities.wake = WakeSource::Descriptor;
        capabilities.threading = Threading::PerEndpoint;
        capabilities.stream = true;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        if request.max_frame > MAX_FRAME {
            let cause = Cause::TooLarge { len: request.max_frame, max: MAX_FRAME };
            return Err(error(Operation::Open, cause));
        }
        Ok(Box::new(TcpOpening::new(Told::new(request))))
    }
}

#[cold]
fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}
