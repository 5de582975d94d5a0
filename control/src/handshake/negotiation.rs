//! Agreement on the terms of a link, and checks of the peer's offer. Both roles use the same.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farjump_core::channel::{Channel, ChannelParams};
use farjump_core::cpu::Cpu;
use farjump_core::frame::{LINE, MAX_FRAME};
use farjump_core::signal::LinkKey;
use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Endpoint, OpenRequest, PassedOver, Transport, TransportError,
    UnconnectedEndpoint,
};
use farjump_os::deferred_close::DeferredFd;
use farjump_os::scrubbed;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::connection::message::EndpointInfo;
use crate::connection::{Control, Role};
use crate::error::system;
use crate::handshake::stream::Joining;
use crate::limits::Limits;
use crate::peer_identity::PeerIdentity;
use crate::rights::Rights;
use crate::{ControlOperation, HandshakeError, ParameterFault};

/// A completed handshake: a connected link and its terms.
#[derive(Debug)]
pub struct Handshake {
    /// The control connection. Its end is the peer's death.
    pub control: Control,
    /// The connected endpoint of this process.
    pub endpoint: Endpoint,
    /// Name of the transport.
    pub transport: String,
    /// The single arrival rule of both directions.
    pub rule: ArrivalRules,
    /// Terms of the frames that this process sends.
    pub send: Direction,
    /// Terms of the frames that this process receives.
    pub receive: Direction,
    /// The target's epoch: the peer's for a source, its own for a target.
    pub epoch: u64,
    /// The peer.
    pub peer: PeerIdentity,
    /// The peer's CPU, as the peer claims. Its machine may differ from ours: libraries carry several images.
    pub peer_cpu: Cpu,
    /// Further limits of the target: as a target announced them, or sets them.
    pub limits: Limits,
    /// The source's rights at the target: as the target announced them, or sets them.
    pub rights: Rights,
    /// Transports common to both that a source prefers, and tried without success.
    pub passed_over: Vec<PassedOver>,
}

/// Connected endpoints and their terms.
#[derive(Debug)]
pub struct Joined {
    /// The connected endpoint of this process.
    pub endpoint: Endpoint,
    /// The single arrival rule of both directions.
    pub rule: ArrivalRules,
    /// Terms of the frames that this process sends.
    pub send: Direction,
    /// Terms of the frames that this process receives.
    pub receive: Direction,
}

/// The terms of one direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Direction {
    /// Key of the direction's signals, drawn by its receiver.
    pub key: LinkKey,
    /// Largest frame in bytes, all included.
    pub max_frame: usize,
    /// True if both transports place an aligned line whole: a frame of one line needs no trailer.
    pub line_whole: bool,
    /// One-sided: bytes of the region that the receiver reads, perhaps less than all. Two-sided: a hint.
    pub region_len: usize,
}

impl Joined {
    /// Makes a channel of the endpoint.
    ///
    /// # Errors
    /// Those of [`Channel::new`].
    pub fn into_channel(self) -> Result<Channel, TransportError> {
        let Joined { endpoint, rule, send, receive } = self;
        let params = ChannelParams {
            rule,
            line_whole: send.line_whole,
            send_key: send.key,
            receive_key: receive.key,
            send_limit: send.max_frame,
            receive_limit: receive.max_frame,
            send_region: send.region_len,
            receive_region: receive.region_len,
        };
        Channel::new(endpoint, params)
    }
}

/// The unconnected endpoint of this process.
pub(crate) struct LocalEndpoint {
    opening: Box<dyn UnconnectedEndpoint>,
    transport: String,
    capabilities: Capabilities,
    /// The arrival rules of `capabilities`, or fewer once the peer's endpoint is known.
    rules: ArrivalRules,
    key: [u8; LinkKey::LEN],
    max_frame: u32,
    region_len: usize,
}

impl LocalEndpoint {
    /// Opens an endpoint of `transport` and draws its key.
    pub(crate) fn open(
        transport: &mut dyn Transport,
        request: &OpenRequest,
    ) -> Result<LocalEndpoint, HandshakeError> {
        let capabilities = transport.capabilities();
        let max_frame = request.max_frame.min(capabilities.max_frame).min(MAX_FRAME);
        let mut key = [0; LinkKey::LEN];
        match getrandom(&mut key[..], GetRandomFlags::empty()) {
            Ok(LinkKey::LEN) => {}
            Ok(_) => return Err(system(ControlOperation::Random, "", rustix::io::Errno::IO).into()),
            Err(error) => return Err(system(ControlOperation::Random, "", error).into()),
        }
        let mut within = *request;
        within.max_frame = max_frame;
        Ok(LocalEndpoint {
            opening: transport.open(&within)?,
            transport: transport.name().to_owned(),
            capabilities,
            rules: capabilities.arrival,
            key,
            max_frame: max_frame as u32,
            region_len: request.region_len,
        })
    }

    /// Drops the arrival rules that do not hold between this endpoint and the peer's. For the process that
    /// learns of the peer's endpoint before it describes its own.
    pub(crate) fn narrow(
        &mut self,
        peer: &PeerIdentity,
        endpoint: &EndpointInfo,
    ) -> Result<(), HandshakeError> {
        if endpoint.transport == self.transport {
            let narrowed = self.opening.arrival_with(&endpoint.address);
            self.rules &= narrowed.map_err(|error| error.with_peer(peer.to_string()))?;
        }
        Ok(())
    }

    /// Returns whether its frames travel on a stream.
    pub(crate) fn has_stream(&self) -> bool {
        self.capabilities.stream
    }

    /// Returns its transport's name.
    pub(crate) fn transport(&self) -> &str {
        &self.transport
    }

    /// Calls `use_it` with the description for the peer, and the descriptors beside it.
    pub(crate) fn with_info<T>(&self, use_it: impl FnOnce(EndpointInfo, &[BorrowedFd<'_>]) -> T) -> T {
        let address = self.opening.address();
        let end = EndpointInfo {
            transport: self.transport.clone(),
            address: address.bytes,
            key: self.key,
            rules: self.rules.bits(),
            line_whole: self.capabilities.line_whole,
            max_frame: self.max_frame,
            region_len: self.region_len as u64,
        };
        use_it(end, &address.descriptors)
    }

    /// Returns the rule for this endpoint and the peer's, and checks the peer's numbers.
    pub(crate) fn agree(
        &self,
        peer: &PeerIdentity,
        endpoint: &EndpointInfo,
    ) -> Result<ArrivalRules, HandshakeError> {
        let terms = |fault| Err(HandshakeError::Terms { peer: peer.to_string(), fault });
        if endpoint.transport != self.transport {
            let (found, expected) = (endpoint.transport.clone(), self.transport.clone());
            return terms(ParameterFault::OtherTransport { found, expected });
        }
        if !(LINE..=MAX_FRAME).contains(&(endpoint.max_frame as usize)) {
            return terms(ParameterFault::FrameLimit { len: endpoint.max_frame });
        }
        if usize::try_from(endpoint.region_len).is_err() {
            return terms(ParameterFault::RegionLength { len: endpoint.region_len });
        }
        let theirs = ArrivalRules::from_bits_truncate(endpoint.rules);
        self.rules.agree(theirs).ok_or_else(|| HandshakeError::NoCommonRule {
            transport: self.transport.clone(),
            peer: peer.to_string(),
            ours: self.rules,
            theirs,
        })
    }

    /// Returns the largest frame in bytes that it receives.
    pub(crate) fn max_frame(&self) -> usize {
        self.max_frame as usize
    }

    /// Connects it to the peer's endpoint, with which it agreed on `rule`.
    pub(crate) fn join(
        self,
        peer: &PeerIdentity,
        info: EndpointInfo,
        descriptors: Vec<DeferredFd>,
        rule: ArrivalRules,
        stream: Option<Joining>,
        deadline: Instant,
    ) -> Result<Joined, HandshakeError> {
        if !self.capabilities.descriptors && !descriptors.is_empty() {
            // A backend that expects none would close them in this thread.
            let (count, transport) = (descriptors.len(), self.transport);
            let fault = ParameterFault::Descriptors { count, transport };
            return Err(HandshakeError::Terms { peer: peer.to_string(), fault });
        }
        // The backend closes them in any case.
        let descriptors = descriptors.into_iter().map(DeferredFd::into_owned_fd).collect();
        let mut address = Address { bytes: info.address, descriptors, stream: None };
        // It fits: `LocalEndpoint::agree` has checked it.
        let peer_region_len = info.region_len as usize;
        let endpoint = match stream {
            None => reach(self.opening, address, peer_region_len, deadline, peer)?,
            // A secret crosses the stack.
            Some(stream) => scrubbed(|| {
                address.stream = Some(stream.into_stream());
                reach(self.opening, address, peer_region_len, deadline, peer)
            })?,
        };
        let line_whole = self.capabilities.line_whole && info.line_whole;
        Ok(Joined {
            endpoint,
            rule,
            send: Direction {
                key: LinkKey::from_bytes(info.key),
                max_frame: (info.max_frame as usize).min(self.capabilities.max_frame),
                line_whole,
                region_len: peer_region_len,
            },
            receive: Direction {
                key: LinkKey::from_bytes(self.key),
                max_frame: self.max_frame as usize,
                line_whole,
                region_len: self.region_len,
            },
        })
    }
}

/// Endpoints that are open and know of each other, ready to connect.
pub(crate) struct Connect {
    pub(crate) own_endpoint: LocalEndpoint,
    /// The peer's endpoint, and the descriptors that came with it.
    pub(crate) endpoint: EndpointInfo,
    pub(crate) descriptors: Vec<DeferredFd>,
    /// The stream for frames, if any.
    pub(crate) stream: Option<Joining>,
    pub(crate) role: Role,
    pub(crate) rule: ArrivalRules,
    pub(crate) epoch: u64,
    pub(crate) peer_cpu: Cpu,
    pub(crate) deadline: Instant,
}

impl Connect {
    /// Connects. On failure the peer gets the reason, unless it has sent one itself: a transport that reports
    /// the end of a peer does not know the cause.
    pub(crate) fn run(self, mut control: Control) -> Result<Handshake, HandshakeError> {
        let transport = self.own_endpoint.transport.clone();
        // Stays open until the reason is sent, so that the peer has the reason when it sees the stream's end.
        // Without one more descriptor, the end may come first.
        let stream = self.stream.as_ref().and_then(|stream| stream.descriptor.try_clone().ok());
        let joined = self.own_endpoint.join(
            control.peer(),
            self.endpoint,
            self.descriptors,
            self.rule,
            self.stream,
            self.deadline,
        );
        let joined = match joined {
            Ok(joined) => joined,
            Err(error) => {
                let reason = control.fail(error);
                drop(stream);
                return Err(reason);
            }
        };
        control.end_handshake(self.role);
        Ok(Handshake {
            peer: control.peer().clone(),
            control,
            endpoint: joined.endpoint,
            transport,
            rule: joined.rule,
            send: joined.send,
            receive: joined.receive,
            epoch: self.epoch,
            peer_cpu: self.peer_cpu,
            limits: Limits::default(),
            // Until the target sends them.
            rights: Rights::all(),
            passed_over: Vec::new(),
        })
    }
}

/// Connects `opening` to the peer's address, and checks the peer's stated length of the region there.
fn reach(
    opening: Box<dyn UnconnectedEndpoint>,
    address: Address,
    region_len: usize,
    deadline: Instant,
    peer: &PeerIdentity,
) -> Result<Endpoint, HandshakeError> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let endpoint = opening
        .connect(address, u32::try_from(left.as_millis()).unwrap_or(u32::MAX))
        .map_err(|error| error.with_peer(peer.to_string()))?;
    match &endpoint {
        Endpoint::OneSided { remote, .. } if remote.len() < region_len => {
            let fault = ParameterFault::ShortRegion { stated: region_len, found: remote.len() };
            Err(HandshakeError::Terms { peer: peer.to_string(), fault })
        }
        _ => Ok(endpoint),
    }
}

/// Decodes the CPU that `peer` claims to have. Refuses one whose memory may be laid out differently: frames
/// are little-endian, and injected code and its payload rely on addresses of 64 bits.
pub(crate) fn peer_cpu(peer: &PeerIdentity, cpu: &[u8]) -> Result<Cpu, HandshakeError> {
    let fault = match Cpu::decode(cpu) {
        Ok(cpu) if cpu.machine().is_known() => return Ok(cpu),
        Ok(cpu) => ParameterFault::Machine { machine: cpu.machine() },
        Err(fault) => ParameterFault::Cpu(fault),
    };
    Err(HandshakeError::Terms { peer: peer.to_string(), fault })
}
