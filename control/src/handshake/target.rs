//! The target's side of a meeting: driven step by step, so that no process that connects can hold up the others.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use farjump_core::image::Machine;
use farjump_core::transport::{InboxKind, OpenRequest, Transport};
use farjump_os::deferred_close::DeferredFd;

use crate::Error;
use crate::admin::connection::Asker;
use crate::admin::messages::Question;
use crate::connection::message::{Limits, MAX_MESSAGE, MAX_TRANSPORT_NAME, MAX_TRANSPORTS, Message};
use crate::connection::stream_offer::StreamAnswer;
use crate::connection::{Control, Role, out_of_order, refused, tell};
use crate::handshake::first_bytes::{First, Nature};
use crate::handshake::negotiation::{Connect, Met, OwnEnd, own_machine};
use crate::handshake::stream::{Awaited, IncomingStream};
use crate::keys::Keys;
use crate::peer_identity::{PeerIdentity, plain};
use crate::refusal::MeetRefusal;
use crate::rights::Rights;

/// What a target tells each source that it meets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ArrivalOptions {
    /// Name of the program, shown to the people at the source.
    pub program: String,
    /// The target's epoch: another each time it starts.
    pub epoch: u64,
    /// The target's own end: the mailbox that the source writes into, and the largest frame taken.
    pub request: OpenRequest,
    /// The largest frame taken over a transport that delivers whole ones, which needs no mailbox for it. That of the request
    /// unless set.
    pub longest_delivered: usize,
    /// How long the meeting may take, from the connection until both sides know each other's end. A transport whose connecting waits for
    /// the peer has as long again for that. 2 s unless set.
    pub patience: Duration,
    /// What is taken of the source besides frames of the request's length. Everything unless set.
    pub limits: Limits,
    /// What the process may do. Where that is to export, what it sends pins as much memory as an image ([`Question::Export`]).
    /// To observe, call and inject unless set. A key that has rights of its own gives those instead.
    pub rights: Rights,
}

impl ArrivalOptions {
    /// Options of the target `program` in `epoch` whose own end is as `request` says.
    pub fn new(program: impl Into<String>, epoch: u64, request: OpenRequest) -> ArrivalOptions {
        let (patience, limits) = (Duration::from_secs(2), Limits::default());
        let longest_delivered = request.max_frame;
        let program = program.into();
        ArrivalOptions {
            program,
            epoch,
            request,
            longest_delivered,
            patience,
            limits,
            rights: Rights::default(),
        }
    }

    /// Leaves those of `transports` of which an end can be opened for a source, here and now: memory that may be locked can be
    /// missing, for one. Nothing is left of the ends.
    ///
    /// # Errors
    /// Why the first cannot, where none can.
    pub fn keep_openable(&self, transports: &mut Vec<Box<dyn Transport>>) -> Result<(), Error> {
        let mut failed = None;
        transports.retain_mut(|transport| {
            let request = self.request(transport.capabilities().inbox);
            match OwnEnd::open(transport.as_mut(), &request) {
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

    /// What is asked of a transport of this family.
    fn request(&self, inbox: InboxKind) -> OpenRequest {
        match inbox {
            InboxKind::OneSided => self.request,
            InboxKind::TwoSided => OpenRequest::new(self.request.region_len, self.longest_delivered),
        }
    }
}

/// A process that has connected and is being met.
pub struct Arrival {
    /// There until the meeting has ended, one way or the other.
    control: Option<Control>,
    options: ArrivalOptions,
    deadline: Instant,
    peer: PeerIdentity,
    state: State,
    /// What came of a connection that has not shown what it is.
    first: Option<First>,
    /// The stream of the link, where its transport has one.
    stream: Option<Awaited>,
    /// Why no source is taken now.
    full: Option<String>,
    /// Why no control connection is taken now.
    crowded: Option<String>,
}

/// How far a meeting is.
#[derive(Debug)]
pub enum Progress {
    /// The source's next message is due.
    Pending,
    /// Done. Frames may flow; messages to the source may still wait ([`Control::wants_write`]).
    Met(Box<Met>),
    /// It makes no link: it asks, and is to be answered.
    Asked(Box<Asker>),
    /// It is no control connection but the stream of a link: for the arrival that awaits it ([`Arrival::awaits`]). One that none awaits is
    /// to be dropped.
    Stream(Box<IncomingStream>),
}

/// What a meeting comes to.
enum Outcome {
    /// Only connecting is left.
    Connect(Box<Connect>),
    /// There will be no link.
    Ask(Question),
}

enum State {
    /// `Hello` is due.
    Connected,
    /// `Welcome` was sent and `Ready` is due.
    Welcomed { own_end: OwnEnd, peer_machine: Machine },
    /// `Ready` came, with this answer where a stream is awaited, and the stream is due.
    Ready { connect: Box<Connect>, answer: Option<StreamAnswer> },
    /// Nothing more is due.
    Over,
}

impl Arrival {
    /// Begins to meet the process behind `control`, which must have come from [`crate::Listener::accept`] or be trusted
    /// otherwise: who may connect is decided there.
    pub fn new(mut control: Control, options: ArrivalOptions) -> Arrival {
        if !control.awaits_key() && options.rights.contains(Rights::EXPORT) {
            control.is_asked_at_length();
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

    /// Goes on as far as is possible without waiting; the transport's own connecting may wait
    /// ([`farjump_core::transport::Opening::connect`]), for [`ArrivalOptions::patience`] from its beginning. Call it when [`Arrival::as_fd`] is readable, or writable while
    /// [`Arrival::wants_write`], and at [`Arrival::deadline`]. Of `transports`, whose order does not matter, the first that
    /// the source names is used.
    ///
    /// # Errors
    /// The meeting has failed, and the source was told why if it still listens. Drop the arrival; nothing is left behind.
    /// [`Error::TooLate`] past the deadline, [`Error::Refused`] when the source gave up, [`Error::Full`] as
    /// [`Arrival::turn_sources_away`] says, [`Error::MissingRight`], and as [`crate::meet_target`].
    /// After an error, [`Progress::Met`] or [`Progress::Asked`] every further call gives [`Error::PeerGone`].
    pub fn advance(&mut self, transports: &mut [Box<dyn Transport>]) -> Result<Progress, Error> {
        let Some(mut control) = self.control.take() else {
            return Err(Error::PeerGone { peer: self.peer.to_string() });
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
                    // On a stream nothing is said.
                    let nature = self.first.as_ref().map(First::nature);
                    let is_stream = matches!(nature, Some(Nature::Stream | Nature::Opened));
                    return Err(if is_stream { error } else { tell(control, error) });
                }
            }
        }
        match self.step(&mut control, transports) {
            Ok(None) => {
                self.control = Some(control);
                Ok(Progress::Pending)
            }
            Ok(Some(Outcome::Ask(question))) => {
                Ok(Progress::Asked(Box::new(Asker::new(control, question, self.deadline))))
            }
            Ok(Some(Outcome::Connect(connect))) => {
                let mut met = connect.run(control)?;
                (met.limits, met.rights) = (self.options.limits, self.rights(&met.control));
                // No code comes from a source that may bring none.
                let brings = met.rights.contains(Rights::INJECT);
                met.control.limit_code(if brings { met.limits.image } else { Some(0) });
                met.control.send(&Message::Rights(met.rights), &[])?;
                if met.limits != Limits::default() {
                    met.control.send(&Message::Limits(met.limits), &[])?;
                }
                met.control.send(&Message::Go, &[])?;
                Ok(Progress::Met(Box::new(met)))
            }
            // Nothing else that is due has such a length.
            Err(Error::MessageTooLong { len: ..=MAX_MESSAGE, .. })
                if matches!(self.state, State::Connected)
                    && let Err(missing) = self.may(&control, Rights::EXPORT) =>
            {
                Err(tell(control, missing))
            }
            Err(error) => Err(tell(control, error)),
        }
    }

    /// From now on, unless `reason` is `None`, a process that says that it is a source is refused with it
    /// ([`MeetRefusal::Full`]). One that asks is not.
    pub fn turn_sources_away(&mut self, reason: Option<String>) {
        self.full = reason;
    }

    /// From now on, unless `reason` is `None`, a connection that shows that it is a control connection is refused with it
    /// ([`MeetRefusal::Full`]). The stream of a link is not.
    pub fn turn_away(&mut self, reason: Option<String>) {
        self.crowded = reason;
    }

    /// Whether the connection has shown that it is a control connection.
    pub fn is_known(&self) -> bool {
        self.first.is_none()
    }

    /// Whether `stream` is the one of this link, and is awaited still.
    pub fn awaits(&self, stream: &IncomingStream) -> bool {
        // With its meeting the token ends.
        self.control.is_some() && self.stream.as_ref().is_some_and(|awaited| awaited.is(stream))
    }

    /// Whether the stream of this link is due and has not come.
    pub fn awaits_stream(&self) -> bool {
        self.control.is_some() && self.stream.as_ref().is_some_and(|awaited| !awaited.has_come())
    }

    /// Takes the stream that it awaits. Call [`Arrival::advance`] then.
    ///
    /// # Errors
    /// [`Error::Terms`] for one that it does not await; [`Error::System`].
    pub fn take_stream(&mut self, stream: IncomingStream) -> Result<(), Error> {
        match &mut self.stream {
            Some(awaited) if self.control.is_some() && awaited.is(&stream) => awaited.take(stream),
            _ => {
                let what = "it opens a stream that is not awaited".to_owned();
                Err(Error::Terms { peer: stream.peer().to_string(), what })
            }
        }
    }

    /// Whether the process has said that it is a source, and was told of this side's end.
    pub fn is_source(&self) -> bool {
        matches!(self.state, State::Welcomed { .. } | State::Ready { .. })
    }

    /// Until when the meeting must be done. [`Arrival::advance`] after it fails.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether something waits for the connection to become writable.
    pub fn wants_write(&self) -> bool {
        self.is_known() && self.control.as_ref().is_some_and(Control::wants_write)
    }

    /// The connection to wait for; `None` once the meeting has ended.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    /// Who has connected.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Reads what a connection begins with, until it has shown what it is.
    fn find_out(&mut self, control: &mut Control) -> Result<Nature, Error> {
        let Some(first) = &mut self.first else { return Ok(Nature::Control) };
        let nature = first.fill(control)?;
        if nature == Nature::Control
            && let Some(first) = self.first.take()
        {
            let (bytes, descriptors) = first.into_parts();
            control.begin_with(bytes, descriptors)?;
            if let Some(reason) = self.crowded.take() {
                return Err(Error::Full { reason });
            }
        } else if nature != Nature::Opened && Instant::now() >= self.deadline {
            let waiting_for = match nature {
                Nature::Unknown => "its hello",
                _ => "the opening of its stream",
            };
            return Err(Error::TooLate { peer: control.peer().to_string(), waiting_for });
        }
        Ok(nature)
    }

    /// Takes the messages that are here.
    fn step(
        &mut self,
        control: &mut Control,
        transports: &mut [Box<dyn Transport>],
    ) -> Result<Option<Outcome>, Error> {
        control.flush()?;
        while let Some((message, descriptors)) = self.recv(control)? {
            if let Message::Refuse { cause, text } = &message {
                return Err(refused(control, *cause, text));
            }
            match (std::mem::replace(&mut self.state, State::Over), message) {
                (State::Connected, Message::Hello { machine, pid, program, transports: offered }) => {
                    control.introduce(&program, pid);
                    self.peer = control.peer().clone();
                    self.may(control, Rights::CALL)?;
                    if let Some(reason) = self.full.take() {
                        return Err(Error::Full { reason });
                    }
                    let own_end = self.welcome(control, &offered, transports)?;
                    self.state = State::Welcomed { own_end, peer_machine: Machine(machine) };
                }
                (State::Welcomed { own_end, peer_machine }, Message::Ready { end, stream: answer }) => {
                    if answer.is_some() != own_end.has_stream() {
                        let has = if answer.is_some() { "a" } else { "no" };
                        let what = format!("it opens {has} stream for {}", own_end.transport());
                        return Err(Error::Terms { peer: control.peer().to_string(), what });
                    }
                    let rule = own_end.agree(control.peer(), &end)?;
                    let (role, epoch, deadline) = (Role::Target, self.options.epoch, self.deadline);
                    let connect = Box::new(Connect {
                        own_end,
                        end,
                        descriptors,
                        stream: None,
                        role,
                        rule,
                        epoch,
                        peer_machine,
                        deadline,
                    });
                    self.state = State::Ready { connect, answer };
                    break;
                }
                (State::Connected, Message::Ask(question)) => {
                    self.may(control, question.needs())?;
                    return match control.recv()? {
                        None => Ok(Some(Outcome::Ask(question))),
                        Some((second, _)) => Err(out_of_order(control, "nothing more", &second)),
                    };
                }
                (State::Connected, other) => return Err(out_of_order(control, "Hello or Ask", &other)),
                (State::Ready { .. }, other) => return Err(out_of_order(control, "nothing more", &other)),
                (_, other) => return Err(out_of_order(control, "Ready", &other)),
            }
        }
        if let Some(connect) = self.joined(control) {
            return Ok(Some(Outcome::Connect(connect)));
        }
        if Instant::now() >= self.deadline {
            let waiting_for = match self.state {
                State::Connected => "its hello",
                State::Ready { .. } => "the stream of its link",
                _ => "its end of the link",
            };
            return Err(Error::TooLate { peer: control.peer().to_string(), waiting_for });
        }
        Ok(None)
    }

    /// What is left to be done, once `Ready` has come, and the stream where one is awaited.
    fn joined(&mut self, control: &Control) -> Option<Box<Connect>> {
        if self.stream.as_ref().is_some_and(|awaited| !awaited.has_come()) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Ready { mut connect, answer } => {
                // A source that took long to open its end has as much time to connect it as another one.
                connect.deadline = Instant::now() + self.options.patience;
                let awaited = self.stream.take().zip(answer);
                connect.stream =
                    awaited.and_then(|(awaited, answer)| awaited.join(answer, control.is_sealed()));
                Some(connect)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The target takes other keys from now on. Why the process may stay no longer, if so: then refuse it.
    pub fn rekey(&mut self, keys: &Keys) -> Option<String> {
        let rights = self.options.rights;
        let control = self.control.as_mut()?;
        control.try_keys(keys);
        keys.revokes(control.key()?, rights)
    }

    /// Ends the meeting, and says why.
    pub fn refuse(self, text: &str) {
        if let Some(control) = self.control {
            control.refuse(MeetRefusal::Rights, text);
        }
    }

    /// The next message. What it may be like is said as soon as it is known whose it is.
    fn recv(&self, control: &mut Control) -> Result<Option<(Message, Vec<DeferredFd>)>, Error> {
        let awaited = control.awaits_key();
        let received = control.recv()?;
        if !awaited || control.awaits_key() {
            return Ok(received);
        }
        if matches!(self.state, State::Connected) && self.rights(control).contains(Rights::EXPORT) {
            control.is_asked_at_length();
        }
        control.recv()
    }

    /// What the process may do, once it is known who it is.
    fn rights(&self, control: &Control) -> Rights {
        control.key().and_then(|key| key.rights).unwrap_or(self.options.rights)
    }

    /// Whether the process has these rights.
    fn may(&self, control: &Control, needed: Rights) -> Result<(), Error> {
        match self.rights(control).lacks(needed) {
            None => Ok(()),
            Some(what) => Err(Error::MissingRight { what }),
        }
    }

    /// Chooses the transport, opens this side's end and tells the source of it.
    fn welcome(
        &mut self,
        control: &mut Control,
        offered: &[String],
        transports: &mut [Box<dyn Transport>],
    ) -> Result<OwnEnd, Error> {
        if offered.len() > MAX_TRANSPORTS || offered.iter().any(|name| name.len() > MAX_TRANSPORT_NAME) {
            let what = format!("it names {} transports, or one with too long a name", offered.len());
            return Err(Error::Terms { peer: control.peer().to_string(), what });
        }
        let chosen = offered
            .iter()
            .find_map(|name| {
                transports.iter().position(|transport| {
                    transport.name() == name
                        && (control.carries_descriptors() || !transport.capabilities().descriptors)
                })
            })
            .ok_or_else(|| Error::NoCommonTransport {
                source_has: listed(offered.iter().map(String::as_str)),
                target_has: listed(transports.iter().map(|transport| transport.name())),
            })?;
        let transport = transports[chosen].as_mut();
        let request = self.options.request(transport.capabilities().inbox);
        let own_end = OwnEnd::open(transport, &request)?;
        log::debug!("{}: meeting over {}", control.peer(), own_end.transport());
        if own_end.has_stream() {
            self.stream = Some(Awaited::draw(control.is_clear_willing())?);
        }
        let stream = self.stream.as_ref().map(Awaited::offer);
        own_end.tell(|end, descriptors| {
            let (epoch, machine, pid) = (self.options.epoch, own_machine(), std::process::id());
            let program = self.options.program.clone();
            control.send(&Message::Welcome { epoch, machine, pid, program, end, stream }, descriptors)
        })?;
        Ok(own_end)
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| plain(name, MAX_TRANSPORT_NAME)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
