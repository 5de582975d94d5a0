//! The control connection: framed messages and descriptors on a Unix stream socket, never blocking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::address::PeerAddress;
use super::identity::{PeerIdentity, plain};
use super::incoming::{Filled, Incoming};
use super::message::{MAX_CODE, MAX_MEETING_MESSAGE, MAX_MESSAGE, MeetRefusal, Message, prefix};
use super::outgoing::Outgoing;
use crate::Error;

/// Longest text of a refusal, in characters.
const MAX_TEXT: usize = 4096;
/// How long to wait before connecting again to a target whose queue of connections is full.
const RETRY: Duration = Duration::from_millis(5);

/// A control connection.
///
/// No operation waits. Whoever drives it waits for [`Control::as_fd`] to become readable, or writable while
/// [`Control::wants_write`], then calls [`Control::recv`] until it gives `None`, and [`Control::flush`]. After any error
/// but [`Error::Congested`] and [`Error::MessageTooLong`] of `send`, drop it.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
    peer: PeerIdentity,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// Which part this process has on a link: each sends other things over the control connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Source,
    Target,
}

impl Control {
    /// Connects to the target at `address`, waiting up to `deadline` only for room in its queue of connections.
    ///
    /// # Errors
    /// [`Error::NobodyListens`], [`Error::Denied`], [`Error::TcpUnsupported`], [`Error::TooLate`], [`Error::System`].
    pub fn connect(address: &PeerAddress, deadline: Instant) -> Result<Control, Error> {
        let PeerAddress::Unix(path) = address else {
            return Err(Error::TcpUnsupported { address: address.clone() });
        };
        let system = |errno: Errno| Error::system(format!("connecting to {address}"), errno);
        let name = SocketAddrUnix::new(path).map_err(system)?;
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(system)?;
            let why = match rustix::net::connect(&socket, &name) {
                Ok(()) => return Control::new(socket),
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

    pub(super) fn new(socket: OwnedFd) -> Result<Control, Error> {
        let peer = PeerIdentity::of(socket.as_fd())?;
        Ok(Control { socket, peer, incoming: Incoming::new(), outgoing: Outgoing::new(&prefix()) })
    }

    /// Sends a message, or what the socket takes of it now; the rest waits for [`Control::flush`]. `descriptors`, at most
    /// 8 and only with a message that has an `End`, are duplicated: they stay the caller's.
    ///
    /// # Errors
    /// [`Error::PeerGone`]; what came from the peer before that can still be received. [`Error::Congested`] and
    /// [`Error::MessageTooLong`], with nothing sent. [`Error::System`].
    pub fn send(&mut self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.outgoing.push(message, descriptors, &self.peer)?;
        self.flush()
    }

    /// Sends more of what waits.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::System`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.outgoing.flush(self.socket.as_fd(), &self.peer)
    }

    /// Whether something waits for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The next message with its descriptors, which are the caller's; `None` if no whole one is here now.
    ///
    /// # Errors
    /// [`Error::PeerGone`] at the end of the connection, [`Error::CutShort`] if that is within a message. Whatever else
    /// the peer did wrong: [`Error::NotFarjump`], [`Error::Version`], [`Error::MessageTooLong`], [`Error::Garbled`],
    /// [`Error::Descriptors`]. [`Error::System`].
    pub fn recv(&mut self) -> Result<Option<(Message, Vec<OwnedFd>)>, Error> {
        loop {
            if let Some(message) = self.incoming.next(&self.peer)? {
                return Ok(Some(message));
            }
            match self.incoming.fill(self.socket.as_fd(), &self.peer)? {
                Filled::Some => {}
                Filled::Nothing => return Ok(None),
                Filled::End => return Err(self.incoming.end(&self.peer)),
            }
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

    /// The peer's name, as it introduced itself.
    pub(super) fn introduce(&mut self, program: &str) {
        self.peer.rename(program);
    }

    /// The sides have met: from now on code may travel from source to target, and its limits apply.
    pub(super) fn met(&mut self, role: Role) {
        // A target sends only small messages: a source that does not read them pins little of its memory.
        let (receive, send, queue) = match role {
            Role::Source => (MAX_MEETING_MESSAGE, MAX_MESSAGE, 2 * MAX_MESSAGE),
            Role::Target => (MAX_MESSAGE, MAX_MEETING_MESSAGE, 16 * MAX_MEETING_MESSAGE),
        };
        self.incoming.set_limit(receive);
        self.outgoing.set_limits(send, queue);
    }

    /// This process asks: the answer may be as long as an image.
    pub(super) fn asks(&mut self) {
        self.incoming.set_limit(MAX_MESSAGE);
    }

    /// This process answers, once.
    pub(super) fn answers(&mut self) {
        self.outgoing.set_limits(MAX_MESSAGE, 2 * MAX_MESSAGE);
    }

    /// The target takes no image of more than `most` bytes, so no message that could hold one either: what a source sends
    /// pins no more of its memory.
    pub(super) fn limit_code(&mut self, most: u64) {
        let most = usize::try_from(most).unwrap_or(MAX_CODE).min(MAX_CODE);
        self.incoming.set_limit((most + (MAX_MESSAGE - MAX_CODE)).max(MAX_MEETING_MESSAGE));
    }

    /// Waits for the next message. `expected` says what, for the error.
    pub(super) fn recv_until(
        &mut self,
        deadline: Instant,
        expected: &'static str,
    ) -> Result<(Message, Vec<OwnedFd>), Error> {
        loop {
            // First look, then send: a peer that refused and closed fails the sending, but its reason is here.
            if let Some(message) = self.recv()? {
                return Ok(message);
            }
            self.flush()?;
            let mut events = PollFlags::IN;
            events.set(PollFlags::OUT, self.wants_write());
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.socket, events)], timeout.as_ref()) {
                Ok(0) => return Err(Error::TooLate { peer: self.peer.to_string(), waiting_for: expected }),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(Error::system(format!("waiting for {}", self.peer), io::Error::from(error)));
                }
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Ends a meeting that failed for `error`: tells the peer why, unless it was the peer who ended it.
pub(super) fn tell(control: Control, error: Error) -> Error {
    let cause = match &error {
        Error::Refused { .. } | Error::PeerGone { .. } | Error::CutShort { .. } => return error,
        Error::OtherUser { .. } => MeetRefusal::OtherUser,
        Error::Full { .. } => MeetRefusal::Full,
        Error::NoCommonTransport { .. } => MeetRefusal::NoCommonTransport,
        Error::NoCommonRule { .. } => MeetRefusal::NoCommonRule,
        Error::TooLate { .. } => MeetRefusal::TooLate,
        Error::Transport(_) | Error::System { .. } => MeetRefusal::TransportFailed,
        _ => MeetRefusal::Protocol,
    };
    control.refuse(cause, &error.to_string());
    error
}
