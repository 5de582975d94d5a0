//! Connecting to a Unix socket.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::address::PeerAddress;
use crate::error::system;
use crate::{Awaited, ConnectError, NoListener, Operation};

/// Delay before connecting again to a target whose backlog is full.
const RETRY: Duration = Duration::from_millis(5);

/// Connects to the Unix socket at `path`, which is `address`, waiting up to `deadline` for backlog space.
pub(crate) fn connect_unix(
    address: &PeerAddress,
    path: &Path,
    deadline: Instant,
) -> Result<OwnedFd, ConnectError> {
    let failed = |errno: Errno| system(Operation::Connect, address, errno);
    let name = SocketAddrUnix::new(path).map_err(failed)?;
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
                return Err(ConnectError::TimedOut {
                    address: address.to_string(),
                    awaited: Awaited::Backlog,
                });
            }
            Err(Errno::NOENT) => NoListener::NoFile,
            Err(Errno::CONNREFUSED) => NoListener::Ended,
            Err(Errno::PROTOTYPE) => NoListener::OtherSocket,
            Err(Errno::ACCESS) => return Err(ConnectError::Denied { address: address.clone() }),
            Err(error) => return Err(failed(error).into()),
        };
        return Err(ConnectError::NobodyListens { address: address.clone(), found });
    }
}
