//! Connecting to a Unix socket.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::address::PeerAddress;
use crate::error::system;
use crate::socket_file::folder_of;
use crate::{ConnectionError, ControlOperation, FileKind, HandshakeEvent, NoListener};

/// Delay before connecting again to a target whose backlog is full.
const RETRY: Duration = Duration::from_millis(5);

/// Connects to the Unix socket at `address`, waiting up to `deadline` for backlog space.
pub(crate) fn connect_unix(address: &PeerAddress, deadline: Instant) -> Result<OwnedFd, ConnectionError> {
    let failed = |errno: Errno| system(ControlOperation::Connect, address, errno);
    let name = address.socket_address().map_err(failed)?;
    let path = match address {
        PeerAddress::Unix(path) => Some(path.as_path()),
        _ => None,
    };
    let has_folder = || path.is_none_or(|path| folder_of(path).is_dir());
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
        let found = match rustix::net::connect(&socket, &name) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(RETRY.min(deadline.saturating_duration_since(Instant::now())));
                continue;
            }
            Err(Errno::AGAIN) => {
                return Err(ConnectionError::TimedOut {
                    address: address.to_string(),
                    awaited: HandshakeEvent::Backlog,
                });
            }
            Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED)) => {
                if let Some(found) = path.and_then(FileKind::at) {
                    return Err(ConnectionError::NoSocket { address: address.clone(), found });
                }
                match (path, error) {
                    (None, _) => NoListener::NoName,
                    (_, Errno::CONNREFUSED) => NoListener::Ended,
                    _ if !has_folder() => NoListener::NoFolder,
                    _ => NoListener::NoFile,
                }
            }
            Err(Errno::PROTOTYPE) => NoListener::OtherSocket,
            Err(Errno::ACCESS) => {
                return Err(match path {
                    Some(path) => ConnectionError::denied(address, path),
                    None => ConnectionError::Denied { address: address.clone() },
                });
            }
            Err(error) => return Err(failed(error).into()),
        };
        return Err(ConnectionError::NotListening { address: address.clone(), found });
    }
}
