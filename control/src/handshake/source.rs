//! The source's part of a handshake: it waits, up to a deadline.

use std::time::Instant;

use farjump_core::transport::{OpenRequest, PassedOver, Transport};
use farjump_os::cpu::detected;
use farjump_os::deferred_close::DeferredFd;

use crate::address::PeerAddress;
use crate::connection::message::{MAX_TRANSPORTS, Message};
use crate::connection::{Control, Role, out_of_order, rejected};
use crate::error::system;
use crate::handshake::negotiation::{Connect, Handshake, LocalEndpoint, peer_cpu};
use crate::handshake::stream;
use crate::peer_identity::plain;
use crate::refusal::RejectCause;
use crate::tcp::TcpOptions;
use crate::{ControlOperation, HandshakeError, HandshakeEvent, ParameterFault};

/// Options of a source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceOptions {
    /// Name of the program, for display at the target.
    pub program: String,
    /// The source's own endpoint: the region that the target writes replies into, and the largest reply.
    pub request: OpenRequest,
    /// Options for a target on another machine.
    pub tcp: TcpOptions,
}

impl SourceOptions {
    /// Makes the options of `program` with its own endpoint from `request`.
    pub fn new(program: impl Into<String>, request: OpenRequest) -> SourceOptions {
        SourceOptions { program: program.into(), request, tcp: TcpOptions::default() }
    }
}

/// Connects to the target at `address`, over the first of `transports` that the target also has and that
/// works. After one fails, it connects once more with the others ([`Handshake::passed_over`]). Returns once
/// frames may flow.
///
/// # Errors
/// If none works, the error of the last, with the others' reasons. At `deadline`
/// [`HandshakeError::TimedOut`]. [`HandshakeError::Refused`] with the target's reason.
/// [`HandshakeError::OtherUser`] when the target runs as another user. [`HandshakeError::NeedsUnixSocket`]
/// when no transport works over TCP. Those of [`Control::connect_with`] and [`Control::recv`],
/// [`HandshakeError::OutOfOrder`], [`HandshakeError::Terms`], [`HandshakeError::NoCommonTransport`],
/// [`HandshakeError::NoCommonRule`], [`HandshakeError::Transport`]. The target gets the causes in this
/// process.
pub fn connect_target(
    address: &PeerAddress,
    transports: &mut [Box<dyn Transport>],
    options: &SourceOptions,
    deadline: Instant,
) -> Result<Handshake, HandshakeError> {
    let mut passed_over: Vec<PassedOver> = Vec::new();
    loop {
        let left = |transport: &&mut Box<dyn Transport>| {
            passed_over.iter().all(|passed| passed.transport != transport.name())
        };
        let mut offered: Vec<_> = transports.iter_mut().filter(left).collect();
        let mut chosen = None;
        match connect_once(address, &mut offered, options, deadline, &mut chosen) {
            Ok(handshake) => return Ok(Handshake { passed_over, ..handshake }),
            Err(error) => match chosen.filter(|_| offered.len() > 1 && lies_in_the_transport(&error)) {
                Some(transport) => {
                    log::info!("{address}: {transport} is passed over: {error}");
                    passed_over.push(PassedOver::new(transport, error.to_string()));
                }
                None if passed_over.is_empty() => return Err(error),
                None => {
                    return Err(HandshakeError::NoneJoins { last: Box::new(error), others: passed_over });
                }
            },
        }
    }
}

/// Returns whether another transport may work after this error.
fn lies_in_the_transport(error: &HandshakeError) -> bool {
    let refusals = [RejectCause::TransportFailed, RejectCause::NoCommonRule];
    match error {
        HandshakeError::Transport(_) | HandshakeError::NoCommonRule { .. } => true,
        HandshakeError::Refused { cause, .. } => refusals.contains(cause),
        _ => false,
    }
}

/// Connects over the first of `transports` that the target has too; `chosen` becomes its name.
fn connect_once(
    address: &PeerAddress,
    transports: &mut [&mut Box<dyn Transport>],
    options: &SourceOptions,
    deadline: Instant,
    chosen: &mut Option<String>,
) -> Result<Handshake, HandshakeError> {
    let names = offers(transports, address)?;
    if let [only] = transports {
        // UCX takes long to load. Its view of the machine is known before the target's timeout starts.
        let _ = only.capabilities();
    }
    let mut control = Control::connect_with(address, &options.tcp, deadline)?;
    let connect = match agree(&mut control, address, transports, names, options, deadline, chosen) {
        Ok(connect) => connect,
        Err(error) => return Err(control.fail(error)),
    };
    let stream = connect.stream.as_ref().map(|stream| stream.descriptor.try_clone()).transpose();
    let stream = stream.map_err(|error| system(ControlOperation::Duplicate, "", error))?;
    let mut handshake = connect.run(control)?;
    let (mut message, _) = next(&mut handshake.control, deadline, HandshakeEvent::Go)?;
    if let Message::Rights(rights) = message {
        handshake.rights = rights;
        (message, _) = next(&mut handshake.control, deadline, HandshakeEvent::Go)?;
    }
    if let Message::Limits(limits) = message {
        handshake.limits = limits;
        (message, _) = next(&mut handshake.control, deadline, HandshakeEvent::Go)?;
    }
    match message {
        Message::Go => {
            // On loopback the user of the stream's peer is known only once the target has accepted it.
            if let Some(stream) = stream {
                handshake.control.admit_stream(stream)?;
            }
            Ok(handshake)
        }
        other => Err(out_of_order(&handshake.control, "Go", &other)),
    }
}

/// Returns the names of the transports that can be set up through `address`, best first.
fn offers(
    transports: &[&mut Box<dyn Transport>],
    address: &PeerAddress,
) -> Result<Vec<String>, HandshakeError> {
    let suitable = transports.iter().filter(|transport| address.suits(transport.as_ref()));
    let names: Vec<_> = suitable.take(MAX_TRANSPORTS).map(|transport| transport.name().to_owned()).collect();
    match (&names[..], transports) {
        ([], [only, ..]) => Err(HandshakeError::NeedsUnixSocket {
            transport: only.name().to_owned(),
            address: address.clone(),
        }),
        _ => Ok(names),
    }
}

/// Runs the handshake until both endpoints are open and know of each other.
fn agree(
    control: &mut Control,
    address: &PeerAddress,
    transports: &mut [&mut Box<dyn Transport>],
    names: Vec<String>,
    options: &SourceOptions,
    deadline: Instant,
    chosen: &mut Option<String>,
) -> Result<Connect, HandshakeError> {
    // A target that admits every process could be another user's, placed where ours was expected.
    control.admit_target(deadline)?;
    let hello = Message::Hello {
        cpu: detected().encode(),
        pid: std::process::id(),
        program: options.program.clone(),
        transports: names.clone(),
    };
    match control.send(&hello, &[]) {
        // A target that rejects at once may have closed already: its reason can still be received.
        Ok(()) | Err(HandshakeError::PeerGone { .. }) => {}
        Err(error) => return Err(error),
    }
    let (welcome, descriptors) = next(control, deadline, HandshakeEvent::Welcome)?;
    let Message::Welcome { epoch, cpu, pid, program, endpoint, stream: offer } = welcome else {
        return Err(out_of_order(control, "Welcome", &welcome));
    };
    control.introduce(&program, pid);
    let peer_cpu = peer_cpu(control.peer(), &cpu)?;
    let offered = names.contains(&endpoint.transport);
    let found = transports.iter_mut().find(|transport| offered && transport.name() == endpoint.transport);
    let Some(transport) = found else {
        let fault = ParameterFault::NotOffered { transport: plain(&endpoint.transport, 64) };
        return Err(HandshakeError::Terms { peer: control.peer().to_string(), fault });
    };
    *chosen = Some(endpoint.transport.clone());
    let mut own_endpoint = LocalEndpoint::open(transport.as_mut(), &options.request)?;
    own_endpoint.narrow(control.peer(), &endpoint)?;
    let rule = own_endpoint.agree(control.peer(), &endpoint)?;
    let (stream, answer) = match (offer, own_endpoint.has_stream()) {
        (Some(offer), true) => {
            let (stream, answer) = stream::open(control, address, offer, deadline)?;
            (Some(stream), Some(answer))
        }
        (None, false) => (None, None),
        (offer, _) => {
            let transport = own_endpoint.transport().to_owned();
            let fault = ParameterFault::StreamMismatch { has_stream: offer.is_some(), transport };
            return Err(HandshakeError::Terms { peer: control.peer().to_string(), fault });
        }
    };
    own_endpoint.with_info(|endpoint, descriptors| {
        control.send(&Message::Ready { endpoint, stream: answer }, descriptors)
    })?;
    let role = Role::Source;
    Ok(Connect { own_endpoint, endpoint, descriptors, stream, role, rule, epoch, peer_cpu, deadline })
}

/// Receives the next message of the handshake; a rejection is an error.
fn next(
    control: &mut Control,
    deadline: Instant,
    expected: HandshakeEvent,
) -> Result<(Message, Vec<DeferredFd>), HandshakeError> {
    match control.recv_until(deadline, expected)? {
        (Message::Reject { cause, text }, _) => Err(rejected(control, cause, &text)),
        message => Ok(message),
    }
}
