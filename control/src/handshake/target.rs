//! The target's part of a handshake: driven in steps, so that no connecting process delays the others.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use farjump_core::cpu::Cpu;
use farjump_core::transport::Transport;
use farjump_os::deferred_close::DeferredFd;

use crate::admin::connection::AdminConnection;
use crate::admin::messages::AdminRequest;
use crate::connection::message::{MAX_MESSAGE, MAX_TRANSPORT_NAME, MAX_TRANSPORTS, Message};
use crate::connection::stream_offer::StreamAccept;
use crate::connection::{Control, Role, out_of_order, rejected, send_reason};
use crate::handshake::first_bytes::{First, Nature};
use crate::handshake::negotiation::{Connect, Handshake, LocalEndpoint, peer_cpu};
use crate::handshake::options::ArrivalOptions;
use crate::handshake::stream::{AwaitedStream, IncomingStream};
use crate::key::keys::Keys;
use crate::limits::Limits;
use crate::peer_identity::{PeerIdentity, plain};
use crate::refusal::RejectCause;
use crate::rights::{MissingRights, Rights};
use crate::{HandshakeError, HandshakeEvent, ParameterFault};

/// An incoming handshake.
pub struct Arrival {
    /// Set until the handshake has ended.
    control: Option<Control>,
    options: ArrivalOptions,
    deadline: Instant,
    peer: PeerIdentity,
    state: State,
    /// The first bytes of a connection of unknown kind.
    first: Option<First>,
    /// The stream of the link, where its transport has one.
    stream: Option<AwaitedStream>,
    /// The most sources of the target, if it rejects all others now.
    full: Option<usize>,
    /// The same, if it rejects all control connections now.
    crowded: Option<usize>,
}

/// Progress of a handshake.
#[derive(Debug)]
pub enum Progress {
    /// The source's next message is due.
    Pending,
    /// Done. Frames may flow; messages to the source may still wait ([`Control::wants_write`]).
    Handshake(Box<Handshake>),
    /// An admin request, which makes no link and needs a response.
    Admin(Box<AdminConnection>),
    /// The stream of a link instead of a control connection: for the arrival that awaits it
    /// ([`Arrival::awaits`]). Drop it if none does.
    Stream(Box<IncomingStream>),
}

/// The result of a handshake's messages.
enum Outcome {
    /// Only connecting is left.
    Connect(Box<Connect>),
    /// An admin request: no link follows.
    Admin(AdminRequest),
}

enum State {
    /// Waits for `Hello`.
    Connected,
    /// `Welcome` was sent; waits for `Ready`.
    Welcomed { own_endpoint: LocalEndpoint, peer_cpu: Cpu },
    /// `Ready` came, with this reply if a stream is awaited; waits for the stream.
    Ready { connect: Box<Connect>, reply: Option<StreamAccept> },
    /// The handshake has ended.
    Over,
}

impl Arrival {
    /// Starts a handshake on `control`, which must come from [`crate::Listener::accept`] or be trusted
    /// otherwise: admission is decided there.
    pub fn new(mut control: Control, options: ArrivalOptions) -> Arrival {
        if !control.awaits_key() && options.rights.contains(Rights::EXPORT) {
            control.allow_long_request();
        }
        let deadline = Instant::now() + options.patience;
        let peer = control.peer().clone();
        Arrival {
            first: control.is_untouched().then(First::new),
            control: Some(control),
            options,
            deadline,
            peer,
            state: State::Connected,
            stream: None,
            full: None,
            crowded: None,
        }
    }

    /// Continues as far as possible without waiting. Only the transport's own connect
    /// ([`farjump_core::transport::UnconnectedEndpoint::connect`]) may wait, up to
    /// [`ArrivalOptions::patience`] from its start. Call it when [`Arrival::as_fd`] is readable, or writable
    /// while [`Arrival::wants_write`] holds, and at [`Arrival::deadline`]. Uses the first of `transports`, in
    /// any order, that the source names.
    ///
    /// # Errors
    /// The handshake has failed, and the source got the reason if it still listens. Drop the arrival; nothing
    /// is left behind. [`HandshakeError::TimedOut`] past the deadline, [`HandshakeError::Refused`] when the
    /// source rejected the link, [`HandshakeError::Full`] after [`Arrival::turn_sources_away`],
    /// [`HandshakeError::MissingRights`], and those of [`crate::connect_target`]. After an error,
    /// [`Progress::Handshake`] or [`Progress::Admin`] every further call returns
    /// [`HandshakeError::PeerGone`].
    pub fn advance(&mut self, transports: &mut [Box<dyn Transport>]) -> Result<Progress, HandshakeError> {
        let Some(mut control) = self.control.take() else {
            return Err(HandshakeError::PeerGone { peer: self.peer.to_string() });
        };
        if self.first.is_some() {
            match self.find_out(&mut control) {
                Ok(Nature::Control) => {}
                Ok(Nature::Unknown | Nature::Stream) => {
                    self.control = Some(control);
                    return Ok(Progress::Pending);
                }
                Ok(Nature::Opened) => {
                    let first = self.first.take().unwrap_or_else(First::new);
                    let opening = first.opening(&control)?;
                    return Ok(Progress::Stream(Box::new(IncomingStream::new(control, opening))));
                }
                Err(error) => {
                    // A stream carries no text to its peer.
                    let nature = self.first.as_ref().map(First::nature);
                    let is_stream = matches!(nature, Some(Nature::Stream | Nature::Opened));
                    return Err(if is_stream { error } else { send_reason(control, error) });
                }
            }
        }
        match self.step(&mut control, transports) {
            Ok(None) => {
                self.control = Some(control);
                Ok(Progress::Pending)
            }
            Ok(Some(Outcome::Admin(request))) => {
                Ok(Progress::Admin(Box::new(AdminConnection::new(control, request, self.deadline))))
            }
            Ok(Some(Outcome::Connect(connect))) => {
                let mut handshake = connect.run(control)?;
                (handshake.limits, handshake.rights) = (self.options.limits, self.rights(&handshake.control));
                // A source without the right to inject sends no code.
                let brings = handshake.rights.contains(Rights::INJECT);
                handshake.control.limit_code(if brings { handshake.limits.image } else { 0 });
                handshake.control.send(&Message::Rights(handshake.rights), &[])?;
                if handshake.limits != Limits::default() {
                    handshake.control.send(&Message::Limits(handshake.limits), &[])?;
                }
                handshake.control.send(&Message::Go, &[])?;
                Ok(Progress::Handshake(Box::new(handshake)))
            }
            // No other expected message has such a length.
            Err(error @ HandshakeError::MessageTooLong { len: ..=MAX_MESSAGE, .. })
                if matches!(self.state, State::Connected) =>
            {
                let missing = self.may(&control, Rights::EXPORT).err();
                Err(send_reason(control, missing.unwrap_or(error)))
            }
            Err(error) => Err(send_reason(control, error)),
        }
    }

    /// From now on rejects sources, but not admin requests ([`HandshakeError::Full`]), if the target has
    /// reached its `limit` of sources.
    pub fn turn_sources_away(&mut self, limit: Option<usize>) {
        self.full = limit;
    }

    /// From now on rejects control connections, but not streams, likewise.
    pub fn turn_away(&mut self, limit: Option<usize>) {
        self.crowded = limit;
    }

    /// Returns whether the connection has shown that it is a control connection.
    pub fn is_known(&self) -> bool {
        self.first.is_none()
    }

    /// Returns whether `stream` is the one of this link, and is still awaited.
    pub fn awaits(&self, stream: &IncomingStream) -> bool {
        // The token ends with its handshake.
        self.control.is_some() && self.stream.as_ref().is_some_and(|awaited| awaited.is(stream))
    }

    /// Returns whether the stream of this link is awaited and has not come.
    pub fn awaits_stream(&self) -> bool {
        self.control.is_some() && self.stream.as_ref().is_some_and(|awaited| !awaited.has_come())
    }

    /// Takes the awaited stream. Call [`Arrival::advance`] then.
    ///
    /// # Errors
    /// [`HandshakeError::Terms`] for one that it does not await; [`HandshakeError::System`].
    pub fn take_stream(&mut self, stream: IncomingStream) -> Result<(), HandshakeError> {
        match &mut self.stream {
            Some(awaited) if self.control.is_some() && awaited.is(&stream) => awaited.take(stream),
            _ => {
                let fault = ParameterFault::UnexpectedStream;
                Err(HandshakeError::Terms { peer: stream.peer().to_string(), fault })
            }
        }
    }

    /// Returns whether the process is a source, and has the description of this process's endpoint.
    pub fn is_source(&self) -> bool {
        matches!(self.state, State::Welcomed { .. } | State::Ready { .. })
    }

    /// Returns the time at which the handshake times out. [`Arrival::advance`] fails after it.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether bytes wait for the connection to become writable.
    pub fn wants_write(&self) -> bool {
        self.is_known() && self.control.as_ref().is_some_and(Control::wants_write)
    }

    /// Returns the connection to wait for; `None` once the handshake has ended.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    /// Returns the process that has connected.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Reads the first bytes of a connection until they show its kind.
    fn find_out(&mut self, control: &mut Control) -> Result<Nature, HandshakeError> {
        let Some(first) = &mut self.first else { return Ok(Nature::Control) };
        let nature = first.fill(control)?;
        if nature == Nature::Control
            && let Some(first) = self.first.take()
        {
            let (bytes, descriptors) = first.into_parts();
            control.begin_with(bytes, descriptors)?;
            if let Some(limit) = self.crowded {
                return Err(HandshakeError::Full { limit });
            }
        } else if nature != Nature::Opened && Instant::now() >= self.deadline {
            let awaited = match nature {
                Nature::Unknown => HandshakeEvent::Hello,
                _ => HandshakeEvent::StreamOpening,
            };
            return Err(HandshakeError::TimedOut { peer: control.peer().to_string(), awaited });
        }
        Ok(nature)
    }

    /// Takes the messages that are here.
    fn step(
        &mut self,
        control: &mut Control,
        transports: &mut [Box<dyn Transport>],
    ) -> Result<Option<Outcome>, HandshakeError> {
        control.flush()?;
        while let Some((message, descriptors)) = self.recv(control)? {
            if let Message::Reject { cause, text } = &message {
                return Err(rejected(control, *cause, text));
            }
            match (std::mem::replace(&mut self.state, State::Over), message) {
                (State::Connected, Message::Hello { cpu, pid, program, transports: offered }) => {
                    control.introduce(&program, pid);
                    self.peer = control.peer().clone();
                    self.may(control, Rights::CALL)?;
                    if let Some(limit) = self.full {
                        return Err(HandshakeError::Full { limit });
                    }
                    let peer_cpu = peer_cpu(control.peer(), &cpu)?;
                    let own_endpoint = self.welcome(control, &offered, transports)?;
                    self.state = State::Welcomed { own_endpoint, peer_cpu };
                }
                (State::Welcomed { own_endpoint, peer_cpu }, Message::Ready { endpoint, stream: reply }) => {
                    if reply.is_some() != own_endpoint.has_stream() {
                        let transport = own_endpoint.transport().to_owned();
                        let fault = ParameterFault::StreamMismatch { has_stream: reply.is_some(), transport };
                        return Err(HandshakeError::Terms { peer: control.peer().to_string(), fault });
                    }
                    let rule = own_endpoint.agree(control.peer(), &endpoint)?;
                    let (role, epoch, deadline) = (Role::Target, self.options.epoch, self.deadline);
                    let connect = Box::new(Connect {
                        own_endpoint,
                        endpoint,
                        descriptors,
                        stream: None,
                        role,
                        rule,
                        epoch,
                        peer_cpu,
                        deadline,
                    });
                    self.state = State::Ready { connect, reply };
                    break;
                }
                (State::Connected, Message::AdminRequest(request)) => {
                    self.may(control, request.needs())?;
                    return match control.recv()? {
                        None => Ok(Some(Outcome::Admin(request))),
                        Some((second, _)) => Err(out_of_order(control, "nothing more", &second)),
                    };
                }
                (State::Connected, other) => {
                    return Err(out_of_order(control, "Hello or AdminRequest", &other));
                }
                (State::Ready { .. }, other) => return Err(out_of_order(control, "nothing more", &other)),
                (_, other) => return Err(out_of_order(control, "Ready", &other)),
            }
        }
        if let Some(connect) = self.joined(control) {
            return Ok(Some(Outcome::Connect(connect)));
        }
        if Instant::now() >= self.deadline {
            let awaited = match self.state {
                State::Connected => HandshakeEvent::Hello,
                State::Ready { .. } => HandshakeEvent::Stream,
                _ => HandshakeEvent::Ready,
            };
            return Err(HandshakeError::TimedOut { peer: control.peer().to_string(), awaited });
        }
        Ok(None)
    }

    /// Returns the remaining step, once `Ready` has come, and the stream if one is awaited.
    fn joined(&mut self, control: &Control) -> Option<Box<Connect>> {
        if self.stream.as_ref().is_some_and(|awaited| !awaited.has_come()) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Ready { mut connect, reply } => {
                // A source that took long to open its endpoint has as much time to connect it as any other.
                connect.deadline = Instant::now() + self.options.patience;
                let awaited = self.stream.take().zip(reply);
                connect.stream =
                    awaited.and_then(|(awaited, reply)| awaited.join(reply, control.is_sealed()));
                Some(connect)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Accepts only these keys from now on. Returns a reason if the process may not stay: then reject it.
    pub fn rekey(&mut self, keys: &Keys) -> Option<String> {
        let rights = self.options.rights;
        let control = self.control.as_mut()?;
        control.try_keys(keys);
        keys.revokes(control.key()?, rights)
    }

    /// Rejects the handshake with a reason.
    pub fn reject(self, text: &str) {
        if let Some(control) = self.control {
            control.reject(RejectCause::Rights, text);
        }
    }

    /// Receives the next message. Its limits are set as soon as the process is known.
    fn recv(&self, control: &mut Control) -> Result<Option<(Message, Vec<DeferredFd>)>, HandshakeError> {
        let awaited = control.awaits_key();
        let received = control.recv()?;
        if !awaited || control.awaits_key() {
            return Ok(received);
        }
        if matches!(self.state, State::Connected) && self.rights(control).contains(Rights::EXPORT) {
            control.allow_long_request();
        }
        control.recv()
    }

    /// Returns the rights of the process, once it is known.
    fn rights(&self, control: &Control) -> Rights {
        control.key().map_or(self.options.rights, |key| key.rights_instead_of(self.options.rights))
    }

    /// Checks that the process has these rights.
    fn may(&self, control: &Control, needed: Rights) -> Result<(), HandshakeError> {
        match self.rights(control).lacks(needed) {
            None => Ok(()),
            Some(missing) => Err(MissingRights { of_key: control.key().is_some(), ..missing }.into()),
        }
    }

    /// Chooses the transport, opens this process's endpoint and describes it to the source.
    fn welcome(
        &mut self,
        control: &mut Control,
        offered: &[String],
        transports: &mut [Box<dyn Transport>],
    ) -> Result<LocalEndpoint, HandshakeError> {
        if offered.len() > MAX_TRANSPORTS || offered.iter().any(|name| name.len() > MAX_TRANSPORT_NAME) {
            let fault = ParameterFault::Transports { count: offered.len() };
            return Err(HandshakeError::Terms { peer: control.peer().to_string(), fault });
        }
        let chosen = offered
            .iter()
            .find_map(|name| {
                transports.iter().position(|transport| {
                    transport.name() == name
                        && (control.carries_descriptors() || !transport.capabilities().descriptors)
                })
            })
            .ok_or_else(|| HandshakeError::NoCommonTransport {
                source_has: listed(offered.iter().map(String::as_str)),
                target_has: listed(transports.iter().map(|transport| transport.name())),
            })?;
        let transport = transports[chosen].as_mut();
        let request = self.options.request(transport.capabilities().inbox);
        let own_endpoint = LocalEndpoint::open(transport, &request)?;
        log::debug!("{}: handshake over {}", control.peer(), own_endpoint.transport());
        if own_endpoint.has_stream() {
            self.stream = Some(AwaitedStream::draw(control.is_clear_willing())?);
        }
        let stream = self.stream.as_ref().map(AwaitedStream::offer);
        own_endpoint.with_info(|endpoint, descriptors| {
            let (epoch, cpu, pid) = (self.options.epoch, self.options.cpu.encode(), std::process::id());
            let program = self.options.program.clone();
            control.send(&Message::Welcome { epoch, cpu, pid, program, endpoint, stream }, descriptors)
        })?;
        Ok(own_endpoint)
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| plain(name, MAX_TRANSPORT_NAME)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
