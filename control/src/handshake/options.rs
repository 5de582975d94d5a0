//! Options of a target for incoming handshakes.

use std::sync::Arc;
use std::time::Duration;

use farjump_core::cpu::Cpu;
use farjump_core::transport::{InboxKind, OpenRequest, Transport};
use farjump_os::cpu::detected;

use crate::HandshakeError;
use crate::handshake::negotiation::LocalEndpoint;
use crate::limits::Limits;
use crate::rights::Rights;

/// Options of a target for each source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ArrivalOptions {
    /// Name of the program, for display at the source.
    pub program: String,
    /// The target's epoch: a new one each time it starts.
    pub epoch: u64,
    /// The CPU that the target claims to have. Defaults to the one that it runs on.
    pub cpu: Arc<Cpu>,
    /// The target's own endpoint: the mailbox that the source writes into, and the largest frame accepted.
    pub request: OpenRequest,
    /// Largest frame over a transport that delivers whole ones, without a mailbox. Defaults to the request's.
    pub longest_delivered: usize,
    /// Timeout of the handshake, from the connection until both processes know each other's endpoint. A
    /// transport whose connect waits for the peer has as long again for that. Defaults to 2 s.
    pub patience: Duration,
    /// Limits for the source besides the length of frames. Defaults to none.
    pub limits: Limits,
    /// Rights of the process; a key with rights of its own overrides them. Defaults to observe, call and
    /// inject. With the right to export, its messages pin as much memory as an image
    /// ([`crate::AdminRequest::Export`]).
    pub rights: Rights,
}

impl ArrivalOptions {
    /// Makes the options of the target `program` in `epoch`, with its own endpoint from `request`.
    pub fn new(program: impl Into<String>, epoch: u64, request: OpenRequest) -> ArrivalOptions {
        let (patience, limits) = (Duration::from_secs(2), Limits::default());
        let longest_delivered = request.max_frame;
        let program = program.into();
        ArrivalOptions {
            program,
            epoch,
            cpu: detected(),
            request,
            longest_delivered,
            patience,
            limits,
            rights: Rights::default(),
        }
    }

    /// Keeps those of `transports` that can open an endpoint for a source here and now. Lockable memory can
    /// be missing, for example. The test endpoints are closed again.
    ///
    /// # Errors
    /// The first one's error, if none can.
    pub fn keep_openable(&self, transports: &mut Vec<Box<dyn Transport>>) -> Result<(), HandshakeError> {
        let mut failed = None;
        transports.retain_mut(|transport| {
            let request = self.request(transport.capabilities().inbox);
            match LocalEndpoint::open(transport.as_mut(), &request) {
                Ok(_) => true,
                Err(error) => {
                    failed.get_or_insert(error);
                    false
                }
            }
        });
        match failed {
            Some(error) if transports.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the request for a transport of this family.
    pub(super) fn request(&self, inbox: InboxKind) -> OpenRequest {
        match inbox {
            InboxKind::OneSided => self.request,
            InboxKind::TwoSided => OpenRequest::new(self.request.region_len, self.longest_delivered),
        }
    }
}
