//! TCP sockets: addresses, connecting within a deadline, and detecting a dead machine.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getpeername, getsockname, listen, socket_with,
    sockopt,
};

use crate::address::PeerAddress;
use crate::key::Key;
use crate::key::keys::Keys;
use crate::loopback_owner::owner;
use crate::peer_identity::PeerIdentity;
use crate::{
    ConnectionError, ControlOperation, ControlSystemError, HandshakeError, HandshakeEvent, NoListener, error,
};

/// Minimum of unanswered probes before a machine counts as gone.
const PROBES: u32 = 3;
/// Shortest and longest allowed silence of a machine: the system counts in whole seconds, up to 32,767.
const PEER_TIMEOUTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32_767));

/// Options of connections between machines. Unix sockets ignore them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TcpOptions {
    /// The key of both processes. Without one both must be on this machine's loopback, and of one user.
    pub key: Option<Key>,
    /// The keys that a target accepts; defaults to `key`. Sources ignore them.
    pub keys: Option<Keys>,
    /// Allowed silence of the peer's machine: unacknowledged data, or unanswered probes of an idle
    /// connection. Defaults to 10 seconds; from 1 second to 32,767.
    pub peer_timeout: Duration,
    /// Permits a clear stream for frames although both processes have a key, on a trusted network. Takes
    /// effect if both processes permit it. Off by default.
    pub clear: bool,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions { key: None, keys: None, peer_timeout: Duration::from_secs(10), clear: false }
    }
}

impl TcpOptions {
    /// Returns the same options with this key, or with none.
    #[must_use]
    pub fn with_key(mut self, key: Option<Key>) -> TcpOptions {
        self.key = key;
        self
    }

    /// Returns the keys that a target accepts; `None` if it has none.
    pub(crate) fn taken(&self) -> Option<Keys> {
        self.keys.clone().or_else(|| self.key.clone().map(Keys::from))
    }

    /// Checks that the addresses of `host` are permitted: all with a key, loopback alone without.
    pub(crate) fn check(&self, address: &PeerAddress, all: &[SocketAddr]) -> Result<(), ConnectionError> {
        match self.key.is_some() || self.keys.is_some() || all.iter().all(is_loopback) {
            true => Ok(()),
            false => Err(ConnectionError::KeyMissing { address: address.clone() }),
        }
    }

    /// Returns the allowed silence in whole seconds.
    pub(crate) fn silence(&self) -> Duration {
        self.peer_timeout.clamp(PEER_TIMEOUTS.0, PEER_TIMEOUTS.1)
    }
}

/// Returns whether `address` is reachable from this machine only.
pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Resolves a host to its addresses, at least one.
///
/// # Errors
/// [`ConnectionError::System`] when the name is unknown; [`ConnectionError::TimedOut`] when it is not resolved by
/// `deadline`.
pub(crate) fn resolve(
    host: &str,
    port: u16,
    deadline: Option<Instant>,
) -> Result<Vec<SocketAddr>, ConnectionError> {
    if let Ok(number) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(number, port)]);
    }
    let system = |error: io::Error| error::system(ControlOperation::Resolve, host, error);
    let look_up = {
        let host = host.to_owned();
        move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>)
    };
    let found = match deadline {
        None => look_up(),
        Some(deadline) => {
            // The system's resolver has no deadline. An abandoned thread ends when the resolver does.
            let (sender, receiver) = sync_channel(1);
            std::thread::Builder::new()
                .name("farjump-resolve".into())
                .spawn(move || drop(sender.send(look_up())))
                .map_err(system)?;
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(found) => found,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(ConnectionError::TimedOut {
                        address: host.to_owned(),
                        awaited: HandshakeEvent::Resolution,
                    });
                }
                Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the thread for it ended")),
            }
        }
    };
    match found.map_err(system)? {
        none if none.is_empty() => Err(system(io::Error::other("it has no address")).into()),
        found => Ok(found),
    }
}

/// Makes a nonblocking socket for addresses like `address`.
pub(crate) fn new_socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

/// Makes a socket that listens at `address`, and returns its port. An earlier one closing there does no harm.
pub(crate) fn listen_at(address: &SocketAddr, backlog: i32) -> Result<(OwnedFd, u16), Errno> {
    let socket = new_socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, address)?;
    listen(&socket, backlog)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound.port()))
}

/// Connects to the first of `addresses` that answers. Each gets an equal share of the time left, so that one
/// that swallows packets does not keep the others from being tried.
///
/// # Errors
/// The error of the last: [`ConnectionError::NotListening`], [`ConnectionError::TimedOut`] at `deadline`,
/// [`ConnectionError::System`].
pub(crate) fn connect_any(
    address: &PeerAddress,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<OwnedFd, ConnectionError> {
    let mut outcome = Err(Errno::ADDRNOTAVAIL);
    for (at, one) in addresses.iter().enumerate() {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / (addresses.len() - at) as u32;
        outcome = connect_one(one, now + share);
        if outcome.is_ok() {
            break;
        }
    }
    outcome.map_err(|errno| match errno {
        Errno::CONNREFUSED => {
            ConnectionError::NotListening { address: address.clone(), found: NoListener::PortClosed }
        }
        Errno::TIMEDOUT => {
            ConnectionError::TimedOut { address: address.to_string(), awaited: HandshakeEvent::Connection }
        }
        errno => error::system(ControlOperation::Connect, address, errno).into(),
    })
}

fn connect_one(address: &SocketAddr, deadline: Instant) -> Result<OwnedFd, Errno> {
    let socket = new_socket(address)?;
    match connect(&socket, address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    loop {
        let timeout = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], timeout.as_ref()) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    sockopt::socket_error(&socket)??;
    Ok(socket)
}

/// Makes the system send at once, and detect a peer whose machine is silent for the time in `options`: with
/// unacknowledged data (`TCP_USER_TIMEOUT`) and when idle (probes, `SO_KEEPALIVE`).
pub(crate) fn tune(socket: impl AsFd, options: &TcpOptions) -> Result<(), ControlSystemError> {
    let silence = options.silence();
    let probe = Duration::from_secs((silence.as_secs() / u64::from(PROBES)).max(1));
    let set = || -> Result<(), Errno> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, probe)?;
        sockopt::set_tcp_keepintvl(&socket, probe)?;
        sockopt::set_tcp_keepcnt(&socket, PROBES)?;
        // At most 32,767,000.
        sockopt::set_tcp_user_timeout(&socket, silence.as_millis() as u32)
    };
    set().map_err(|error| error::system(ControlOperation::SetUp, "", error))
}

/// Undoes [`tune`] on a connection for a stream, where a slow peer must not count as gone.
pub(crate) fn untune(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::set_tcp_user_timeout(&socket, 0)?;
    sockopt::set_socket_keepalive(&socket, false)
}

/// Returns the address of the peer.
pub(crate) fn peer_of(socket: &impl AsFd) -> Result<SocketAddr, ControlSystemError> {
    let known = getpeername(socket).and_then(|known| SocketAddr::try_from(known.ok_or(Errno::NOTCONN)?));
    known.map_err(|error| error::system(ControlOperation::Identify, "", error))
}

/// Returns the user of the process at the other end of a loopback connection; `None` where the system does
/// not report it, or an address is not loopback.
pub(crate) fn owner_of_peer(socket: &impl AsFd) -> Result<Option<u32>, ControlSystemError> {
    let near = getsockname(socket).and_then(SocketAddr::try_from);
    let (near, far) =
        (near.map_err(|error| error::system(ControlOperation::Identify, "", error))?, peer_of(socket)?);
    match is_loopback(&near) && is_loopback(&far) {
        true => owner(far, near).map_err(|error| error::system(ControlOperation::Identify, "", error)),
        false => Ok(None),
    }
}

/// Converts an error of a connection's socket: systems report a silent machine in several ways.
pub(crate) fn failure(
    errno: Errno,
    operation: ControlOperation,
    socket: BorrowedFd<'_>,
    peer: &PeerIdentity,
) -> HandshakeError {
    match errno {
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN => {
            let seconds = sockopt::tcp_user_timeout(socket).unwrap_or(0) / 1000;
            HandshakeError::Silent { peer: peer.to_string(), seconds }
        }
        errno => error::system(operation, peer, errno).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_address_resolves_and_an_unknown_name_is_quoted() {
        assert_eq!(resolve("::1", 7, None).unwrap(), ["[::1]:7".parse().unwrap()]);
        let text = resolve("no such host", 1, None).unwrap_err().to_string();
        assert!(text.contains("no such host"), "{text}");
    }

    #[test]
    fn only_loopback_is_used_without_a_key() {
        let address: PeerAddress = "tcp:host:1".parse().unwrap();
        let all =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let without = TcpOptions::default();
        let with = TcpOptions::default().with_key(Some(Key::from_bytes([1; 32])));
        for local in [&["127.0.0.1:1"][..], &["[::1]:1", "127.9.9.9:1"], &["[::ffff:127.0.0.1]:1"]] {
            without.check(&address, &all(local)).unwrap();
            with.check(&address, &all(local)).unwrap();
        }
        for wide in [&["0.0.0.0:1"][..], &["[::]:1"], &["127.0.0.1:1", "10.0.0.1:1"], &["[fe80::1]:1"]] {
            let error = without.check(&address, &all(wide)).unwrap_err();
            assert!(error.to_string().contains("farjump key"), "{error}");
            with.check(&address, &all(wide)).unwrap();
        }
    }

    #[test]
    fn the_peer_timeout_is_clamped_and_sets_keepalive_and_user_timeout() {
        for (asked, silence, probe) in [(10, 10, 3), (0, 1, 1), (1 << 20, 32_767, 10_922)] {
            let socket = new_socket(&"127.0.0.1:1".parse().unwrap()).unwrap();
            let options = TcpOptions { peer_timeout: Duration::from_secs(asked), ..TcpOptions::default() };
            tune(&socket, &options).unwrap();
            assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), silence * 1000);
            assert!(sockopt::socket_keepalive(&socket).unwrap() && sockopt::tcp_nodelay(&socket).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(probe));
            assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), Duration::from_secs(probe));
        }
    }
}
