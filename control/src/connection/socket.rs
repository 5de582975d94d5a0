//! The socket of a control connection, whose close blocks nobody.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farjump_os::deferred_close;
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{Shutdown, shutdown, sockopt};

/// A connected socket. On a Unix socket messages with descriptors may lie unread, and closing the socket closes those too,
/// which can block ([`deferred_close`]).
#[derive(Debug)]
pub(crate) struct ControlSocket {
    descriptor: ManuallyDrop<OwnedFd>,
    is_unix: bool,
    /// The process that the connection belongs to. A forked child has a copy, and must not end the connection with it.
    process: u32,
}

impl ControlSocket {
    /// One whose peer can pass descriptors.
    pub(crate) fn unix(descriptor: OwnedFd) -> Result<ControlSocket, Errno> {
        let socket = ControlSocket::new(descriptor, true);
        // Out-of-band bytes can have descriptors beside them. A receiver that skips such a byte has the system close them, in
        // the thread that receives; taken with the other bytes they come as other descriptors do.
        sockopt::set_socket_oobinline(&socket, true)?;
        Ok(socket)
    }

    /// One that carries bytes alone.
    pub(crate) fn tcp(descriptor: OwnedFd) -> ControlSocket {
        ControlSocket::new(descriptor, false)
    }

    /// The descriptor, which is the caller's to close.
    pub(crate) fn into_descriptor(mut self) -> OwnedFd {
        // SAFETY: nothing else takes the descriptor, as the value is not dropped.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        std::mem::forget(self);
        descriptor
    }

    fn new(descriptor: OwnedFd, is_unix: bool) -> ControlSocket {
        let (descriptor, process) = (ManuallyDrop::new(descriptor), std::process::id());
        ControlSocket { descriptor, is_unix, process }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // SAFETY: a value is dropped once, and nothing else takes the descriptor.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        if !self.is_unix {
            // It has no `SO_LINGER`, so its close never waits.
            return drop(descriptor);
        }
        if self.process == std::process::id() {
            // The peer sees the end now, whenever the close comes, and can queue nothing more.
            let ended = shutdown(&descriptor, Shutdown::Both);
            if ended.is_ok() && ioctl_fionread(&descriptor) == Ok(0) {
                // Without a byte in its queue there is no descriptor in it either.
                return drop(descriptor);
            }
        }
        deferred_close::close(descriptor);
    }
}
