//! Addresses of targets, as users type them.

use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, UdpSocket};
use std::num::{IntErrorKind, ParseIntError};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use farjump_core::transport::Transport;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::AddressError;

/// Longest path of a Unix socket, in bytes: `sun_path` of unix(7) less its closing zero.
pub const MAX_PATH: usize = 107;

/// The address of a target: `unix:PATH`, `unix:@NAME` or `tcp:HOST:PORT`.
///
/// ```
/// use farjump_control::PeerAddress;
/// let address: PeerAddress = "unix:store.sock".parse()?;
/// assert_eq!(address.to_string(), "unix:store.sock");
/// # Ok::<(), farjump_control::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum PeerAddress {
    /// A Unix socket at this path, absolute or relative to the working directory.
    Unix(PathBuf),
    /// An abstract Unix socket (unix(7)) of this name, which has no file: it belongs to the network
    /// namespace, and is gone with its listener. Any process there may take a free name, and connect. So the
    /// users that the system reports are the only check, in both directions.
    Abstract(String),
    /// A TCP port. A peer needs a key, or is a process of the same user over loopback
    /// ([`TcpOptions`](crate::TcpOptions)).
    Tcp {
        /// Name or number of the host; an IPv6 number has no brackets.
        host: String,
        /// The port; 0 listens on one that the system chooses.
        port: u16,
    },
}

impl PeerAddress {
    /// Returns the address of a Unix socket at `path`. A relative path that begins with `@` is a file like any
    /// other, and is displayed as `./@…`.
    ///
    /// # Errors
    /// [`AddressError::EmptyPath`], [`AddressError::PathTooLong`], [`AddressError::PathZero`].
    pub fn unix(path: impl Into<PathBuf>) -> Result<PeerAddress, AddressError> {
        let mut path = path.into();
        if path.as_os_str().as_bytes().starts_with(b"@") {
            path = Path::new(".").join(path);
        }
        let bytes = path.as_os_str().as_bytes();
        match bytes.len() {
            0 => Err(AddressError::EmptyPath),
            len if len > MAX_PATH => Err(AddressError::PathTooLong { path, len }),
            _ if bytes.contains(&0) => Err(AddressError::PathZero { path }),
            _ => Ok(PeerAddress::Unix(path)),
        }
    }

    /// Returns the address of the abstract Unix socket `name`.
    ///
    /// # Errors
    /// [`AddressError::EmptyName`], [`AddressError::NameTooLong`], [`AddressError::PathZero`].
    pub fn abstract_unix(name: impl Into<String>) -> Result<PeerAddress, AddressError> {
        let name = name.into();
        match name.len() {
            0 => Err(AddressError::EmptyName),
            len if len > MAX_PATH => Err(AddressError::NameTooLong { name, len }),
            _ if name.contains('\0') => Err(AddressError::PathZero { path: name.into() }),
            _ => Ok(PeerAddress::Abstract(name)),
        }
    }

    /// The address for the system's calls, of a Unix socket; an error for TCP.
    pub(crate) fn socket_address(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            PeerAddress::Unix(path) => SocketAddrUnix::new(path),
            PeerAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            PeerAddress::Tcp { .. } => Err(Errno::AFNOSUPPORT),
        }
    }

    /// Returns whether connections to this address carry file descriptors.
    pub fn carries_descriptors(&self) -> bool {
        matches!(self, PeerAddress::Unix(_) | PeerAddress::Abstract(_))
    }

    /// Returns whether `transport` can be set up over this address: only Unix sockets carry descriptors.
    pub fn suits(&self, transport: &dyn Transport) -> bool {
        self.carries_descriptors() || !transport.capabilities().descriptors
    }

    /// Returns whether the text names this machine: a Unix socket, or loopback.
    pub fn is_this_machine(&self) -> bool {
        match self {
            PeerAddress::Unix(_) | PeerAddress::Abstract(_) => true,
            PeerAddress::Tcp { host, .. } => {
                host == "localhost"
                    || host.parse::<IpAddr>().is_ok_and(|number| number.to_canonical().is_loopback())
            }
        }
    }

    /// Returns whether it is a number of a device here. Packets to it stay here, unless a port is forwarded.
    pub fn is_own_device(&self) -> bool {
        match self {
            PeerAddress::Unix(_) | PeerAddress::Abstract(_) => false,
            // The system binds a socket only to an address of its own. Nothing is sent.
            PeerAddress::Tcp { host, .. } => {
                host.parse::<IpAddr>().is_ok_and(|number| UdpSocket::bind((number, 0)).is_ok())
            }
        }
    }
}

impl FromStr for PeerAddress {
    type Err = AddressError;

    fn from_str(given: &str) -> Result<PeerAddress, AddressError> {
        if let Some(name) = given.strip_prefix("unix:@") {
            return PeerAddress::abstract_unix(name);
        }
        if let Some(path) = given.strip_prefix("unix:") {
            return PeerAddress::unix(OsStr::new(path));
        }
        if let Some(rest) = given.strip_prefix("tcp:") {
            let wrong = || AddressError::Tcp { given: given.to_owned() };
            let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            // Without brackets the last group of an IPv6 number would be read as the port.
            if bare.unwrap_or(host).is_empty() || (bare.is_none() && host.contains(':')) {
                return Err(wrong());
            }
            let port = port.parse().map_err(|error: ParseIntError| match error.kind() {
                IntErrorKind::PosOverflow => {
                    AddressError::Port { given: given.to_owned(), port: port.to_owned() }
                }
                _ => wrong(),
            })?;
            return Ok(PeerAddress::Tcp { host: bare.unwrap_or(host).to_owned(), port });
        }
        Err(AddressError::Scheme { given: given.to_owned() })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Unix(path) => write!(out, "unix:{}", path.display()),
            PeerAddress::Abstract(name) => write!(out, "unix:@{name}"),
            PeerAddress::Tcp { host, port } if host.contains(':') => write!(out, "tcp:[{host}]:{port}"),
            PeerAddress::Tcp { host, port } => write!(out, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_displays_as_the_text_it_was_parsed_from() {
        for text in
            ["unix:a", "unix:@a", "unix:./@a", "unix:/run/user/0/x y.sock", "tcp:node7:7471", "tcp:[::1]:1"]
        {
            assert_eq!(text.parse::<PeerAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn unix_sockets_and_loopback_are_on_this_machine() {
        for (text, expected) in [
            ("unix:a", true),
            ("unix:@a", true),
            ("tcp:localhost:1", true),
            ("tcp:127.0.0.2:1", true),
            ("tcp:[::1]:1", true),
            ("tcp:[::ffff:127.0.0.1]:1", true),
            ("tcp:0.0.0.0:1", false),
            ("tcp:node7:1", false),
            ("tcp:192.0.2.1:1", false),
        ] {
            assert_eq!(text.parse::<PeerAddress>().unwrap().is_this_machine(), expected, "{text}");
        }
    }

    #[test]
    fn only_a_numeric_local_tcp_address_is_on_an_own_device() {
        for (text, expected) in [
            ("unix:a", false),
            ("tcp:127.0.0.1:1", true),
            ("tcp:0.0.0.0:1", true),
            ("tcp:198.51.100.77:1", false),
            ("tcp:[2001:db8::1]:1", false),
            // Names are not looked up.
            ("tcp:node7:1", false),
        ] {
            assert_eq!(text.parse::<PeerAddress>().unwrap().is_own_device(), expected, "{text}");
        }
    }

    #[test]
    fn a_path_over_107_bytes_is_refused_with_its_length() {
        let longest = format!("unix:{}", "x".repeat(MAX_PATH));
        assert_eq!(longest.parse::<PeerAddress>().unwrap().to_string(), longest);
        let error = format!("{longest}x").parse::<PeerAddress>().unwrap_err();
        assert!(matches!(error, AddressError::PathTooLong { len: 108, .. }), "{error}");
        assert!(error.to_string().contains("108") && error.to_string().contains("107"), "{error}");
    }

    #[test]
    fn an_abstract_name_over_107_bytes_is_refused_with_its_length() {
        let longest = format!("unix:@{}", "x".repeat(MAX_PATH));
        assert_eq!(longest.parse::<PeerAddress>().unwrap().to_string(), longest);
        let error = format!("{longest}x").parse::<PeerAddress>().unwrap_err();
        assert!(matches!(error, AddressError::NameTooLong { len: 108, .. }), "{error}");
        assert!(error.to_string().contains("108") && error.to_string().contains("107"), "{error}");
    }

    #[test]
    fn a_file_path_beginning_with_at_displays_with_a_leading_dot() {
        let address = PeerAddress::unix("@a").unwrap();
        assert_eq!(address.to_string(), "unix:./@a");
        assert_eq!("unix:@a".parse(), PeerAddress::abstract_unix("a"));
    }

    #[test]
    fn each_kind_of_malformed_address_has_its_own_error() {
        let error = |text: &str| text.parse::<PeerAddress>().unwrap_err();
        assert!(matches!(error("unix:"), AddressError::EmptyPath));
        assert!(matches!(error("unix:@"), AddressError::EmptyName));
        assert!(matches!(error("unix:a\0b"), AddressError::PathZero { .. }));
        assert!(matches!(error("unix:@a\0b"), AddressError::PathZero { .. }));
        for text in ["store.sock", "", "udp:x:1", "UNIX:a"] {
            assert!(matches!(error(text), AddressError::Scheme { .. }), "{text}");
        }
        for text in ["tcp:x:65536", "tcp:[::1]:22222222222222222222"] {
            let error = error(text);
            assert!(
                matches!(error, AddressError::Port { .. }) && error.to_string().contains("65535"),
                "{error}"
            );
        }
        for text in ["tcp:", "tcp:x", "tcp:x:", "tcp::1", "tcp:x:-1", "tcp:::1:5", "tcp:[]:1"] {
            assert!(matches!(error(text), AddressError::Tcp { .. }), "{text}");
        }
    }
}
