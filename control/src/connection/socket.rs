//! The socket of a control connection, whose close never blocks.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farjump_os::deferred_close;
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{Shutdown, shutdown, sockopt};

/// A connected socket. Unread messages on a Unix socket may hold descriptors. Closing the socket closes those
/// too, which can block ([`deferred_close`]).
#[derive(Debug)]
pub(crate) struct ControlSocket {
    descriptor: ManuallyDrop<OwnedFd>,
    is_unix: bool,
    /// True if the end of the connection shows the peer that no process has the socket any more. Then only
    /// the last close ends the connection.
    ends_by_last_close: bool,
    /// The process that owns the connection. A forked child has a copy, and must not end the connection.
    process: u32,
}

impl ControlSocket {
    /// Makes a socket whose peer can pass descriptors.
    pub(crate) fn unix(descriptor: OwnedFd) -> Result<ControlSocket, Errno> {
        let socket = ControlSocket::new(descriptor, true);
        // Out-of-band bytes can have descriptors beside them. If a receiver skips such a byte, the system
        // closes them in the receiving thread; read inline, they arrive like other descriptors.
        sockopt::set_socket_oobinline(&socket, true)?;
        Ok(socket)
    }

    /// Lets the peer see the end when the last copy of the descriptor is closed, here or in a forked child, and not before.
    pub(crate) fn end_by_last_close(mut self) -> ControlSocket {
        self.ends_by_last_close = true;
        self
    }

    /// Makes a socket that carries only bytes.
    pub(crate) fn tcp(descriptor: OwnedFd) -> ControlSocket {
        ControlSocket::new(descriptor, false)
    }

    /// Returns the descriptor, for the caller to close.
    pub(crate) fn into_descriptor(mut self) -> OwnedFd {
        // SAFETY: this is the only take: `forget` below keeps `drop` from running.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        std::mem::forget(self);
        descriptor
    }

    fn new(descriptor: OwnedFd, is_unix: bool) -> ControlSocket {
        let (descriptor, process) = (ManuallyDrop::new(descriptor), std::process::id());
        ControlSocket { descriptor, is_unix, ends_by_last_close: false, process }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once, and never after `into_descriptor`, which forgets the value.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        if !self.is_unix {
            // Without `SO_LINGER` its close never waits.
            return drop(descriptor);
        }
        if self.process == std::process::id() {
            // The peer can queue no more. Unless the last close has to be the end, the peer sees the end now,
            // whenever the close comes.
            let way = if self.ends_by_last_close { Shutdown::Read } else { Shutdown::Both };
            let ended = shutdown(&descriptor, way);
            if ended.is_ok() && ioctl_fionread(&descriptor) == Ok(0) {
                // An empty queue holds no descriptor either.
                return drop(descriptor);
            }
        }
        deferred_close::close(descriptor);
    }
}
