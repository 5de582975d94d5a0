//! The control connection: framed messages on a stream socket, never blocking. On a Unix socket descriptors
//! travel beside them; on TCP with a key they are encrypted.

mod admit;
mod connect_unix;
mod limits;
mod lingering_peer;
pub(crate) mod message;
#[cfg(not(feature = "key"))]
mod no_noise;
#[cfg(feature = "key")]
mod noise;
pub(crate) mod preamble;
pub(crate) mod recv_buffer;
mod reject;
mod send_queue;
pub(crate) mod socket;
pub(crate) mod stream_offer;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use farjump_os::deferred_close::DeferredFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::address::PeerAddress;
use crate::connection::message::Message;
use crate::connection::preamble::{Security, prefix};
use crate::connection::recv_buffer::{Filled, Incoming};
use crate::connection::send_queue::Outgoing;
use crate::connection::socket::ControlSocket;
use crate::error::require_key_feature;
use crate::error::system;
use crate::key::keys::{Keys, NamedKey};
use crate::peer_identity::PeerIdentity;
use crate::tcp::{self, TcpOptions};
use crate::{ConnectionError, ControlOperation, ControlSystemError, HandshakeError, HandshakeEvent};

pub(crate) use admit::check_owner;
pub(crate) use connect_unix::connect_unix;
pub use lingering_peer::LingeringPeer;
#[cfg(not(feature = "key"))]
use no_noise::Seal;
#[cfg(feature = "key")]
use noise::Seal;
pub(crate) use reject::{out_of_order, rejected, send_reason};

/// Limit of reads in one [`Control::recv`]: a peer that never completes a message cannot hold the caller.
const READS: usize = 16;

/// A control connection.
///
/// No operation waits. The caller waits until [`Control::as_fd`] is readable, or writable while
/// [`Control::wants_write`] holds. Then it calls [`Control::recv`] until that returns `None`, and
/// [`Control::flush`]. Drop the connection after any error but [`HandshakeError::Congested`] and
/// [`HandshakeError::MessageTooLong`] of `send`.
#[derive(Debug)]
pub struct Control {
    socket: ControlSocket,
    peer: PeerIdentity,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Set if both processes have a key.
    seal: Option<Box<Seal>>,
    /// True if this process permits a clear stream for the link.
    clear: bool,
}

/// The role of this process on a link: each role sends different messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Source,
    Target,
}

impl Control {
    /// Connects to the target at `address` without a key, like [`Control::connect_with`].
    ///
    /// # Errors
    /// As [`Control::connect_with`].
    pub fn connect(address: &PeerAddress, deadline: Instant) -> Result<Control, ConnectionError> {
        Control::connect_with(address, &TcpOptions::default(), deadline)
    }

    /// Connects to the target at `address`, waiting up to `deadline`, on a Unix socket only for backlog
    /// space. With a key, no message travels unencrypted over TCP. Without a key, only loopback is tried.
    ///
    /// # Errors
    /// [`ConnectionError::NotListening`], [`ConnectionError::NoSocket`], [`ConnectionError::Denied`],
    /// [`ConnectionError::NotWritable`], [`ConnectionError::KeyMissing`], [`ConnectionError::FeatureMissing`],
    /// [`ConnectionError::TimedOut`], [`ConnectionError::System`].
    pub fn connect_with(
        address: &PeerAddress,
        options: &TcpOptions,
        deadline: Instant,
    ) -> Result<Control, ConnectionError> {
        match address {
            PeerAddress::Unix(_) | PeerAddress::Abstract(_) => {
                let mut control = Control::new(connect_unix(address, deadline)?)?;
                // The target may lend memory to this process, which a forked child maps too.
                control.socket = control.socket.end_by_last_close();
                Ok(control)
            }
            PeerAddress::Tcp { host, port } => {
                require_key_feature(address)?;
                let addresses = tcp::resolve(host, *port, Some(deadline))?;
                options.check(address, &addresses)?;
                let socket = tcp::connect_any(address, &addresses, deadline)?;
                Ok(Control::over_tcp(socket, options, Role::Source)?)
            }
        }
    }

    /// Makes a control connection of a connected socket, for example one of a pair made before a fork. The
    /// first [`Control::flush`] or [`Control::send`] sends its preamble.
    ///
    /// # Errors
    /// When the system does not identify the peer.
    pub fn from_stream(stream: UnixStream) -> Result<Control, ControlSystemError> {
        stream.set_nonblocking(true).map_err(|error| system(ControlOperation::SetUp, "", error))?;
        Control::new(stream.into())
    }

    pub(crate) fn new(socket: OwnedFd) -> Result<Control, ControlSystemError> {
        // First of all: from here on its close never blocks, whatever fails.
        let socket =
            ControlSocket::unix(socket).map_err(|error| system(ControlOperation::SetUp, "", error))?;
        let peer = PeerIdentity::of(socket.as_fd())?;
        Ok(Control::plain(socket, peer))
    }

    /// Makes a control connection over a TCP connection of this process in `role`.
    pub(crate) fn over_tcp(
        socket: OwnedFd,
        options: &TcpOptions,
        role: Role,
    ) -> Result<Control, ControlSystemError> {
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

    /// Sends as much of a message as the socket takes now; the rest waits for [`Control::flush`].
    /// `descriptors`, at most 8 and only with a message that has an `End`, are duplicated: the caller keeps
    /// its own.
    ///
    /// # Errors
    /// [`HandshakeError::PeerGone`]; earlier messages of the peer can still be received.
    /// [`HandshakeError::Congested`] and [`HandshakeError::MessageTooLong`], with nothing sent.
    /// [`HandshakeError::System`], for descriptors over TCP.
    pub fn send(&mut self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), HandshakeError> {
        if !descriptors.is_empty() && !self.carries_descriptors() {
            let object = format!("{} with file descriptors, over TCP,", message.name());
            return Err(system(ControlOperation::Encode, object, Errno::OPNOTSUPP).into());
        }
        self.outgoing.push(message, descriptors, &self.peer)?;
        self.flush()
    }

    /// Sends more of the queue.
    ///
    /// # Errors
    /// [`HandshakeError::PeerGone`], [`HandshakeError::Silent`], [`HandshakeError::System`].
    pub fn flush(&mut self) -> Result<(), HandshakeError> {
        self.outgoing.flush(self.socket.as_fd(), &self.peer, self.seal.as_deref_mut())
    }

    /// Returns whether bytes wait for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        self.outgoing.wants_write(self.seal.as_deref())
    }

    /// Returns whether it carries file descriptors: on Unix sockets only.
    pub fn carries_descriptors(&self) -> bool {
        self.peer.address.is_none()
    }

    /// Returns the next message with its descriptors, which the caller owns. Returns `None` if no whole
    /// message is here, or after 16 reads that completed none: the connection is readable then. Closing the
    /// descriptors may block, so that does not happen in the caller's thread ([`DeferredFd`]).
    ///
    /// # Errors
    /// [`HandshakeError::PeerGone`] at the end of the connection, [`HandshakeError::CutShort`] if that is
    /// within a message. For other faults of the peer: [`HandshakeError::NotFarjump`],
    /// [`HandshakeError::Version`], [`HandshakeError::MessageTooLong`], [`HandshakeError::Garbled`],
    /// [`HandshakeError::Descriptors`]; over TCP, for missing or different keys or interference,
    /// [`HandshakeError::KeyWanted`], [`HandshakeError::KeyUnknown`], [`HandshakeError::WrongKey`],
    /// [`HandshakeError::Tampered`]. [`HandshakeError::Silent`] when the peer's machine is silent.
    /// [`HandshakeError::System`].
    pub fn recv(&mut self) -> Result<Option<(Message, Vec<DeferredFd>)>, HandshakeError> {
        for _ in 0..READS {
            if let Some(message) = self.incoming.next(&self.peer)? {
                return Ok(Some(message));
            }
            let was_known = self.key().is_some();
            match self.fill()? {
                // The caller first sets the limits for this key. The next call reads the rest.
                Filled::Some if self.key().is_some() != was_known => return Ok(None),
                Filled::Some => {}
                Filled::Nothing => return Ok(None),
                Filled::End => return Err(self.end()),
            }
        }
        // The rest is in the socket, which stays readable.
        self.incoming.next(&self.peer)
    }

    /// Returns the key that the source used, once a target knows it; `None` on connections that need none.
    pub fn key(&self) -> Option<&Arc<NamedKey>> {
        self.seal.as_ref()?.key()
    }

    /// Returns whether the source has yet to prove its key.
    pub(crate) fn awaits_key(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.key().is_none())
    }

    /// Makes a target accept these keys from now on, also for a source that has not proved its key yet.
    pub(crate) fn try_keys(&mut self, keys: &Keys) {
        if let Some(seal) = &mut self.seal {
            seal.try_keys(keys);
        }
    }

    /// Reads once.
    fn fill(&mut self) -> Result<Filled, HandshakeError> {
        let (socket, incoming, peer) = (self.socket.as_fd(), &mut self.incoming, &self.peer);
        let Some(seal) = &mut self.seal else { return incoming.fill(socket, peer) };
        let filled = seal.fill(socket, incoming, &mut self.outgoing, peer);
        if let Some(key) = seal.key()
            && self.peer.key.is_none()
        {
            self.peer.key.clone_from(&key.name);
        }
        // Sends the handshake's response before any wait. If that fails, reading reports the cause.
        if let Err(error) = self.flush() {
            log::debug!("{}: answering its handshake: {error}", self.peer);
        }
        filled
    }

    /// Returns the error for an end of the connection now.
    fn end(&self) -> HandshakeError {
        match self.seal.as_ref().and_then(|seal| seal.cut_short()) {
            Some((found, needed)) => HandshakeError::CutShort { peer: self.peer.to_string(), found, needed },
            None => self.incoming.end(&self.peer),
        }
    }

    /// Takes bytes of the connection that were read before, with their descriptors.
    pub(crate) fn begin_with(
        &mut self,
        bytes: Vec<u8>,
        descriptors: Vec<DeferredFd>,
    ) -> Result<(), HandshakeError> {
        let Some(seal) = &mut self.seal else {
            self.incoming.begin_with(bytes, descriptors);
            return Ok(());
        };
        seal.begin_with(bytes, &mut self.outgoing, &self.peer)
    }

    /// Returns whether nothing was read of it yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.seal.as_ref().map_or_else(|| self.incoming.is_untouched(), |seal| seal.is_untouched())
    }

    /// Returns whether everything on it is encrypted.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Returns whether this process permits a clear stream for the link.
    pub(crate) fn is_clear_willing(&self) -> bool {
        self.clear
    }

    /// Returns the socket alone, as it was before this value was made of it.
    pub(crate) fn into_stream(self) -> Result<OwnedFd, Errno> {
        let is_unix = self.carries_descriptors();
        let socket = self.socket.into_descriptor();
        if !is_unix {
            tcp::untune(&socket)?;
        }
        Ok(socket)
    }

    /// Returns the peer.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Sets the peer's own name, and its process id, which is used where the system reports none.
    pub(crate) fn introduce(&mut self, program: &str, pid: u32) {
        self.peer.rename(program);
        if self.peer.address.is_some() {
            self.peer.pid = pid;
        }
    }

    /// Waits for the next message. `expected` describes it, for the error.
    pub(crate) fn recv_until(
        &mut self,
        deadline: Instant,
        expected: HandshakeEvent,
    ) -> Result<(Message, Vec<DeferredFd>), HandshakeError> {
        loop {
            // Receive first: sending to a peer that rejected and closed fails, but its reason is here.
            if let Some(message) = self.recv()? {
                return Ok(message);
            }
            self.flush()?;
            self.wait(deadline, expected)?;
        }
    }

    /// On a TCP connection without a key, waits for the peer's preamble, which shows that it accepted the
    /// connection. Later bytes stay for [`Control::recv`].
    pub(crate) fn await_prefix(&mut self, deadline: Instant) -> Result<(), HandshakeError> {
        while self.seal.is_none() && self.peer.address.is_some() && !self.incoming.is_greeted() {
            self.flush()?;
            match self.fill()? {
                Filled::Some => self.incoming.greet(&self.peer)?,
                Filled::Nothing => self.wait(deadline, HandshakeEvent::Preamble)?,
                Filled::End => return Err(self.end()),
            }
        }
        Ok(())
    }

    /// Waits until the socket is readable, or writable if bytes wait for that.
    fn wait(&self, deadline: Instant, awaited: HandshakeEvent) -> Result<(), HandshakeError> {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, self.wants_write());
        let left = deadline.saturating_duration_since(Instant::now());
        // Also if the peer sends all the time.
        if left.is_zero() {
            return Err(HandshakeError::TimedOut { peer: self.peer.to_string(), awaited });
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&self.socket, events)], timeout.as_ref()) {
            Ok(0) => Err(HandshakeError::TimedOut { peer: self.peer.to_string(), awaited }),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system(ControlOperation::Wait, &self.peer, error).into()),
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(all(test, feature = "key"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Key, Listener};

    /// Limit of bytes that one call reads while packets are short.
    const MOST: u64 = (READS * 4096) as u64;

    #[test]
    fn one_receive_reads_a_bounded_length_of_empty_packets() {
        let options = TcpOptions::default().with_key(Some(Key::from_bytes([7; Key::LEN])));
        let listener = Listener::bind_with(&"tcp:127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
        // Space for more than one call reads; a fresh connection would not have it.
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
        let error = target.recv_until(Instant::now(), HandshakeEvent::Hello).unwrap_err();
        assert!(matches!(error, HandshakeError::TimedOut { .. }), "{error}");
    }
}
