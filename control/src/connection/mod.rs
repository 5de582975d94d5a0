//! The control connection: framed messages on a stream socket, never blocking. On a Unix socket descriptors travel beside them;
//! on TCP, where there is a key, they are sealed.

pub(crate) mod message;
#[cfg(not(feature = "key"))]
mod no_noise;
#[cfg(feature = "key")]
mod noise;
pub(crate) mod preamble;
pub(crate) mod recv_buffer;
mod send_queue;
pub(crate) mod socket;
pub(crate) mod stream_offer;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_os::deferred_close::DeferredFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::Error;
use crate::address::PeerAddress;
use crate::connection::message::{MAX_CODE, MAX_MEETING_MESSAGE, MAX_MESSAGE, Message};
use crate::connection::preamble::{Security, prefix};
use crate::connection::recv_buffer::{Filled, Incoming};
use crate::connection::send_queue::Outgoing;
use crate::connection::socket::ControlSocket;
use crate::error::require_key_feature;
use crate::keys::{Keys, NamedKey};
use crate::peer_identity::{PeerIdentity, admit, overflow_uid, own_user, plain};
use crate::refusal::MeetRefusal;
use crate::tcp::{self, TcpOptions};

#[cfg(not(feature = "key"))]
use no_noise::Seal;
#[cfg(feature = "key")]
use noise::Seal;

/// Longest text of a refusal, in characters.
const MAX_TEXT: usize = 4096;
/// Most reads in one [`Control::recv`]: a peer that sends without end, and never a whole message, does not keep its caller there.
const READS: usize = 16;
/// How long to wait before connecting again to a target whose queue of connections is full.
const RETRY: Duration = Duration::from_millis(5);

/// A control connection.
///
/// No operation waits. Whoever drives it waits for [`Control::as_fd`] to become readable, or writable while
/// [`Control::wants_write`], then calls [`Control::recv`] until it gives `None`, and [`Control::flush`]. After any error
/// but [`Error::Congested`] and [`Error::MessageTooLong`] of `send`, drop it.
#[derive(Debug)]
pub struct Control {
    socket: ControlSocket,
    peer: PeerIdentity,
    incoming: Incoming,
    outgoing: Outgoing,
    /// There where both sides have a key.
    seal: Option<Box<Seal>>,
    /// Whether this side is willing to leave the stream of a link clear.
    clear: bool,
}

/// Which part this process has on a link: each sends other things over the control connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Source,
    Target,
}

impl Control {
    /// Connects to the target at `address` without a key, as [`Control::connect_with`] does.
    ///
    /// # Errors
    /// As there.
    pub fn connect(address: &PeerAddress, deadline: Instant) -> Result<Control, Error> {
        Control::connect_with(address, &TcpOptions::default(), deadline)
    }

    /// Connects to the target at `address`, waiting up to `deadline`: on a Unix socket only for room in its queue of
    /// connections. With a key nothing is ever said without it over TCP; without one only this machine's loopback is
    /// connected to.
    ///
    /// # Errors
    /// [`Error::NobodyListens`], [`Error::Denied`], [`Error::KeyMissing`], [`Error::FeatureMissing`], [`Error::TooLate`],
    /// [`Error::System`].
    pub fn connect_with(
        address: &PeerAddress,
        options: &TcpOptions,
        deadline: Instant,
    ) -> Result<Control, Error> {
        let path = match address {
            PeerAddress::Unix(path) => path,
            PeerAddress::Tcp { host, port } => {
                require_key_feature(address)?;
                let addresses = tcp::resolve(host, *port, Some(deadline))?;
                options.check(address, &addresses)?;
                let socket = tcp::connect_any(address, &addresses, deadline)?;
                return Control::over_tcp(socket, options, Role::Source);
            }
        };
        Control::new(connect_unix(address, path, deadline)?)
    }

    /// A control connection over a socket that is connected already, for example one of a pair made before a fork. Its
    /// prefix is sent with the first [`Control::flush`] or [`Control::send`].
    ///
    /// # Errors
    /// [`Error::System`] when the system does not say who is at the other end.
    pub fn from_stream(stream: UnixStream) -> Result<Control, Error> {
        stream
            .set_nonblocking(true)
            .map_err(|error| Error::system("making a control connection non-blocking", error))?;
        Control::new(stream.into())
    }

    pub(crate) fn new(socket: OwnedFd) -> Result<Control, Error> {
        // First of all: from here on its close blocks nobody, whatever fails.
        let socket = ControlSocket::unix(socket)
            .map_err(|error| Error::system("setting up a control connection", error))?;
        let peer = PeerIdentity::of(socket.as_fd())?;
        Ok(Control::plain(socket, peer))
    }

    /// Over a TCP connection of this process in `role`.
    pub(crate) fn over_tcp(socket: OwnedFd, options: &TcpOptions, role: Role) -> Result<Control, Error> {
        tcp::tune(&socket, options)?;
        let socket = ControlSocket::tcp(socket);
        let name = if role == Role::Source { "the target" } else { "a process" };
        let peer = PeerIdentity::at(tcp::peer_of(&socket)?, name);
        let clear = options.clear;
        let mut outgoing = Outgoing::new();
        let seal = match role {
            Role::Target => options.taken().map(Seal::target).transpose()?,
            Role::Source => match &options.key {
                None => None,
                Some(key) => {
                    let (seal, first) = Seal::source(key)?;
                    outgoing.push_raw(first);
                    Some(seal)
                }
            },
        };
        let Some(seal) = seal else { return Ok(Control::plain(socket, peer)) };
        Ok(Control {
            socket,
            peer,
            incoming: Incoming::sealed(),
            outgoing,
            seal: Some(Box::new(seal)),
            clear,
        })
    }

    fn plain(socket: ControlSocket, peer: PeerIdentity) -> Control {
        let mut outgoing = Outgoing::new();
        outgoing.push_raw(prefix(Security::Plain).to_vec());
        Control { socket, peer, incoming: Incoming::new(), outgoing, seal: None, clear: false }
    }

    /// Sends a message, or what the socket takes of it now; the rest waits for [`Control::flush`]. `descriptors`, at most
    /// 8 and only with a message that has an `End`, are duplicated: they stay the caller's.
    ///
    /// # Errors
    /// [`Error::PeerGone`]; what came from the peer before that can still be received. [`Error::Congested`] and
    /// [`Error::MessageTooLong`], with nothing sent. [`Error::System`], for one with descriptors over TCP.
    pub fn send(&mut self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        if !descriptors.is_empty() && !self.carries_descriptors() {
            let what = format!("sending {} with file descriptors over TCP", message.name());
            return Err(Error::system(what, Errno::OPNOTSUPP));
        }
        self.outgoing.push(message, descriptors, &self.peer)?;
        self.flush()
    }

    /// Sends more of what waits.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::Silent`], [`Error::System`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.outgoing.flush(self.socket.as_fd(), &self.peer, self.seal.as_deref_mut())
    }

    /// Whether something waits for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        self.outgoing.wants_write(self.seal.as_deref())
    }

    /// Whether file descriptors can travel on it: on Unix sockets only.
    pub fn carries_descriptors(&self) -> bool {
        self.peer.address.is_none()
    }

    /// The next message with its descriptors, which are the caller's; `None` if no whole one is here now, or after 16 reads that did
    /// not make one whole: the connection is readable then. To close them may
    /// block, so they do not close in the caller's thread ([`DeferredFd`]).
    ///
    /// # Errors
    /// [`Error::PeerGone`] at the end of the connection, [`Error::CutShort`] if that is within a message. Whatever else
    /// the peer did wrong: [`Error::NotFarjump`], [`Error::Version`], [`Error::MessageTooLong`], [`Error::Garbled`],
    /// [`Error::Descriptors`]; over TCP, where one side has a key and the other none or another, or somebody meddles,
    /// [`Error::KeyWanted`], [`Error::KeyUnknown`], [`Error::WrongKey`], [`Error::Tampered`]. [`Error::Silent`] when the peer's
    /// machine is. [`Error::System`].
    pub fn recv(&mut self) -> Result<Option<(Message, Vec<DeferredFd>)>, Error> {
        for _ in 0..READS {
            if let Some(message) = self.incoming.next(&self.peer)? {
                return Ok(Some(message));
            }
            let was_known = self.key().is_some();
            match self.fill()? {
                // What who has this key may send is the caller's to say first. The rest is read the next time.
                Filled::Some if self.key().is_some() != was_known => return Ok(None),
                Filled::Some => {}
                Filled::Nothing => return Ok(None),
                Filled::End => return Err(self.end()),
            }
        }
        // What is left is in the socket, which stays readable.
        self.incoming.next(&self.peer)
    }

    /// The key by which the source at the other end came, once a target knows; `None` on connections that need none.
    pub fn key(&self) -> Option<&Arc<NamedKey>> {
        self.seal.as_ref()?.key()
    }

    /// Whether the source has yet to show which key it has.
    pub(crate) fn awaits_key(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.key().is_none())
    }

    /// A target takes these keys from now on: what has not shown which one it has is tried with them.
    pub(crate) fn try_keys(&mut self, keys: &Keys) {
        if let Some(seal) = &mut self.seal {
            seal.try_keys(keys);
        }
    }

    /// Reads once.
    fn fill(&mut self) -> Result<Filled, Error> {
        let (socket, incoming, peer) = (self.socket.as_fd(), &mut self.incoming, &self.peer);
        let Some(seal) = &mut self.seal else { return incoming.fill(socket, peer) };
        let filled = seal.fill(socket, incoming, &mut self.outgoing, peer);
        if let Some(key) = seal.key()
            && self.peer.key.is_none()
        {
            self.peer.key.clone_from(&key.name);
        }
        // What the handshake answers is sent before anybody thinks of waiting. If that fails, reading says why.
        if let Err(error) = self.flush() {
            log::debug!("{}: answering its handshake: {error}", self.peer);
        }
        filled
    }

    /// What is wrong when the connection ends now.
    fn end(&self) -> Error {
        match self.seal.as_ref().and_then(|seal| seal.cut_short()) {
            Some((found, needed)) => Error::CutShort { peer: self.peer.to_string(), found, needed },
            None => self.incoming.end(&self.peer),
        }
    }

    /// Takes what was read of the connection before, and the descriptors that came with it.
    pub(crate) fn begin_with(&mut self, bytes: Vec<u8>, descriptors: Vec<DeferredFd>) -> Result<(), Error> {
        let Some(seal) = &mut self.seal else {
            self.incoming.begin_with(bytes, descriptors);
            return Ok(());
        };
        seal.begin_with(bytes, &mut self.outgoing, &self.peer)
    }

    /// Whether nothing was read of it yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.seal.as_ref().map_or_else(|| self.incoming.is_untouched(), |seal| seal.is_untouched())
    }

    /// Whether all that is said on it is sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Whether this side is willing to leave the stream of a link clear.
    pub(crate) fn is_clear_willing(&self) -> bool {
        self.clear
    }

    /// The socket alone, as it was before this was made of it.
    pub(crate) fn into_stream(self) -> Result<OwnedFd, Errno> {
        let is_unix = self.carries_descriptors();
        let socket = self.socket.into_descriptor();
        if !is_unix {
            tcp::untune(&socket)?;
        }
        Ok(socket)
    }

    /// Checks that `stream`, which the target has taken, belongs to a process of this one's user, where no key says so.
    pub(crate) fn admit_stream(&self, stream: impl AsFd) -> Result<(), Error> {
        match self.seal.is_some() || self.peer.address.is_none() {
            true => Ok(()),
            false => check_owner(tcp::owner_of_peer(&stream)?, &self.peer),
        }
    }

    /// Whether the process at the other end may be there. Who has the key may. Without one, only processes of this one's user:
    /// the system says whose a Unix socket is when it connects, and whose a loopback connection is once it is accepted.
    ///
    /// # Errors
    /// [`Error::OtherUser`]; [`Error::OwnerUnknown`] and [`Error::OwnUserUnknown`] where the system does not say.
    pub(crate) fn admit(&mut self) -> Result<(), Error> {
        if self.seal.is_some() {
            return Ok(());
        }
        if self.peer.address.is_some() {
            self.peer.uid = tcp::owner_of_peer(&self.socket)?;
        }
        check_owner(self.peer.uid, &self.peer)
    }

    /// As [`Control::admit`], of the target that this side connected to. Before anything is said to it; on a Unix socket also before
    /// anything of it is read, as descriptors could come with that.
    ///
    /// # Errors
    /// As there; [`Error::Refused`] where the target was faster to refuse; those of waiting for its prefix over TCP.
    pub(crate) fn admit_target(&mut self, deadline: Instant) -> Result<(), Error> {
        // On loopback a target is known once it has taken the connection, which its prefix shows.
        self.await_prefix(deadline)?;
        let Err(error) = self.admit() else { return Ok(()) };
        if self.peer.address.is_none() {
            return Err(error);
        }
        // One that refuses at once may be gone already, with its reason left here.
        match self.recv() {
            Ok(Some((Message::Refuse { cause, text }, _))) => Err(refused(self, cause, &text)),
            _ => Err(error),
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Says why there will be no link, and closes. What the socket does not take at once is lost: nobody waits for a
    /// process that is not wanted.
    pub fn refuse(mut self, cause: MeetRefusal, text: &str) {
        let text = plain(text, MAX_TEXT);
        if let Err(error) = self.send(&Message::Refuse { cause, text }, &[]) {
            log::debug!("{}: could not be told why it was refused: {error}", self.peer);
        }
    }

    /// The peer's name, as it introduced itself, and its process id, which is believed where the system says none.
    pub(crate) fn introduce(&mut self, program: &str, pid: u32) {
        self.peer.rename(program);
        if self.peer.address.is_some() {
            self.peer.pid = pid;
        }
    }

    /// The sides have met: from now on code may travel from source to target, and its limits apply.
    pub(crate) fn met(&mut self, role: Role) {
        // A target sends only small messages: a source that does not read them pins little of its memory.
        let (receive, send, queue) = match role {
            Role::Source => (MAX_MEETING_MESSAGE, MAX_MESSAGE, 2 * MAX_MESSAGE),
            Role::Target => (MAX_MESSAGE, MAX_MEETING_MESSAGE, 16 * MAX_MEETING_MESSAGE),
        };
        self.incoming.set_limit(receive);
        self.outgoing.set_limits(send, queue);
    }

    /// This process asks: question and answer may be as long as an image.
    pub(crate) fn asks(&mut self) {
        self.incoming.set_limit(MAX_MESSAGE);
        self.outgoing.set_limits(MAX_MESSAGE, 2 * MAX_MESSAGE);
    }

    /// This process may be asked with something as long as an image.
    pub(crate) fn is_asked_at_length(&mut self) {
        self.incoming.set_limit(MAX_MESSAGE);
    }

    /// This process answers, once.
    pub(crate) fn answers(&mut self) {
        self.outgoing.set_limits(MAX_MESSAGE, 2 * MAX_MESSAGE);
    }

    /// The target takes no image of more than `most` bytes, if there is a limit, so no message that could hold one either: what
    /// a source sends pins no more of its memory.
    pub(crate) fn limit_code(&mut self, most: Option<u64>) {
        let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_CODE).min(MAX_CODE);
        self.incoming.set_limit((most + (MAX_MESSAGE - MAX_CODE)).max(MAX_MEETING_MESSAGE));
    }

    /// Waits for the next message. `expected` says what, for the error.
    pub(crate) fn recv_until(
        &mut self,
        deadline: Instant,
        expected: &'static str,
    ) -> Result<(Message, Vec<DeferredFd>), Error> {
        loop {
            // First look, then send: a peer that refused and closed fails the sending, but its reason is here.
            if let Some(message) = self.recv()? {
                return Ok(message);
            }
            self.flush()?;
            self.wait(deadline, expected)?;
        }
    }

    /// On a TCP connection without a key, waits until the peer has introduced itself, and so taken the connection. What else
    /// it sent stays for [`Control::recv`].
    pub(crate) fn await_prefix(&mut self, deadline: Instant) -> Result<(), Error> {
        while self.seal.is_none() && self.peer.address.is_some() && !self.incoming.is_greeted() {
            self.flush()?;
            match self.fill()? {
                Filled::Some => self.incoming.greet(&self.peer)?,
                Filled::Nothing => self.wait(deadline, "its prefix")?,
                Filled::End => return Err(self.end()),
            }
        }
        Ok(())
    }

    /// Waits until the socket can be read, or written where something waits for that.
    fn wait(&self, deadline: Instant, expected: &'static str) -> Result<(), Error> {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, self.wants_write());
        let left = deadline.saturating_duration_since(Instant::now());
        // Also where the peer sends all the time.
        if left.is_zero() {
            return Err(Error::TooLate { peer: self.peer.to_string(), waiting_for: expected });
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&self.socket, events)], timeout.as_ref()) {
            Ok(0) => Err(Error::TooLate { peer: self.peer.to_string(), waiting_for: expected }),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::system(format!("waiting for {}", self.peer), io::Error::from(error))),
        }
    }
}

/// Connects to the Unix socket at `path`, which is `address`, waiting up to `deadline` for room in its queue of connections.
pub(crate) fn connect_unix(address: &PeerAddress, path: &Path, deadline: Instant) -> Result<OwnedFd, Error> {
    let system = |errno: Errno| Error::system(format!("connecting to {address}"), errno);
    let name = SocketAddrUnix::new(path).map_err(system)?;
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(system)?;
        let why = match rustix::net::connect(&socket, &name) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(RETRY.min(deadline.saturating_duration_since(Instant::now())));
                continue;
            }
            Err(Errno::AGAIN) => {
                return Err(Error::TooLate {
                    peer: address.to_string(),
                    waiting_for: "room in its queue of connections",
                });
            }
            Err(Errno::NOENT) => "there is no such file",
            Err(Errno::CONNREFUSED) => "the one that did has ended",
            Err(Errno::PROTOTYPE) => "another kind of socket is there",
            Err(Errno::ACCESS) => return Err(Error::Denied { address: address.clone() }),
            Err(error) => return Err(system(error)),
        };
        return Err(Error::NobodyListens { address: address.clone(), why });
    }
}

/// Checks that `uid`, the user of `peer` as the system says, is this process's own.
///
/// # Errors
/// [`Error::OtherUser`]; [`Error::OwnerUnknown`] and [`Error::OwnUserUnknown`] where the system does not say.
pub(crate) fn check_owner(uid: Option<u32>, peer: &PeerIdentity) -> Result<(), Error> {
    let own = own_user();
    if admit(uid, own) {
        return Ok(());
    }
    let peer = peer.to_string();
    Err(match (uid, own) {
        (_, None) => Error::OwnUserUnknown { peer, uid: overflow_uid() },
        (None, _) => Error::OwnerUnknown { peer },
        (Some(uid), Some(own)) => Error::OtherUser { peer, uid, own },
    })
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Ends a meeting that failed for `error`: tells the peer why, unless it was the peer who ended it.
pub(crate) fn tell(control: Control, error: Error) -> Error {
    let cause = match &error {
        Error::Refused { .. } | Error::PeerGone { .. } | Error::CutShort { .. } => return error,
        Error::OtherUser { .. } | Error::OwnerUnknown { .. } | Error::OwnUserUnknown { .. } => {
            MeetRefusal::OtherUser
        }
        Error::Full { .. } => MeetRefusal::Full,
        Error::NoCommonTransport { .. } => MeetRefusal::NoCommonTransport,
        Error::NoCommonRule { .. } => MeetRefusal::NoCommonRule,
        Error::TooLate { .. } => MeetRefusal::TooLate,
        Error::MissingRight { .. } => MeetRefusal::Rights,
        Error::Transport(_) | Error::System { .. } => MeetRefusal::TransportFailed,
        _ => MeetRefusal::Protocol,
    };
    control.refuse(cause, &error.to_string());
    error
}

/// What a refusal of the peer is to this side.
pub(crate) fn refused(control: &Control, cause: MeetRefusal, text: &str) -> Error {
    Error::Refused { peer: control.peer().to_string(), cause, text: plain(text, 4096) }
}

/// A message that was not due.
pub(crate) fn out_of_order(control: &Control, expected: &'static str, got: &Message) -> Error {
    Error::OutOfOrder { peer: control.peer().to_string(), expected, got: got.name() }
}

#[cfg(all(test, feature = "key"))]
mod tests {
    use super::*;
    use crate::{Key, Listener};

    /// Bytes that one call reads at most while packets are short.
    const MOST: u64 = (READS * 4096) as u64;

    #[test]
    fn packets_without_a_message_in_them_keep_nobody_receiving() {
        let options = TcpOptions::default().with_key(Some(Key::from_bytes([7; Key::LEN])));
        let listener = Listener::bind_with(&"tcp:127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
        // Room for more than one call reads, which a connection that has carried nothing yet would not have.
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1 << 20).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut source = Control::connect_with(listener.address(), &options, deadline).unwrap();
        source.flush().unwrap();
        let mut target = loop {
            if let Some(target) = listener.accept().unwrap() {
                break target;
            }
        };
        let is_open = |control: &Control| control.seal.as_ref().is_some_and(|seal| seal.is_open());
        while !(is_open(&source) && is_open(&target)) {
            assert!(target.recv().unwrap().is_none() && source.recv().unwrap().is_none());
        }
        let seal = source.seal.as_mut().unwrap();
        let mut packets = Vec::new();
        while packets.len() < 3 * MOST as usize {
            packets.extend(seal.empty_packet());
        }
        let mut sent = 0;
        while rustix::io::ioctl_fionread(&target.socket).unwrap() < 2 * MOST {
            assert!(Instant::now() < deadline, "{sent} bytes were sent");
            sent += rustix::io::write(&source.socket, &packets[sent..]).unwrap_or(0);
        }
        let before = rustix::io::ioctl_fionread(&target.socket).unwrap();
        assert!(target.recv().unwrap().is_none());
        let left = rustix::io::ioctl_fionread(&target.socket).unwrap();
        // More may have come meanwhile.
        assert!(left > 0 && before.saturating_sub(left) <= MOST, "{before} bytes, then {left}");
        let error = target.recv_until(Instant::now(), "a message").unwrap_err();
        assert!(matches!(error, Error::TooLate { .. }), "{error}");
    }
}
