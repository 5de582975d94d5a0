//! The stream for commands: a connected socket of any family.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, shutdown};

/// A connected stream socket. Clones of its descriptor share its blocking mode.
#[derive(Debug)]
pub(crate) struct Stream(File);

impl Stream {
    /// Sets whether reads and writes return at once instead of waiting.
    pub(super) fn set_nonblocking(&self, at_once: bool) -> io::Result<()> {
        Ok(ioctl_fionbio(&self.0, at_once)?)
    }

    /// Sets the longest wait of a read.
    pub(super) fn set_read_timeout(&self, longest: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(longest))?)
    }

    /// Ends writing; the peer can still write.
    pub(super) fn finish(&self) -> io::Result<()> {
        Ok(shutdown(&self.0, Shutdown::Write)?)
    }
}

impl From<OwnedFd> for Stream {
    fn from(descriptor: OwnedFd) -> Stream {
        Stream(File::from(descriptor))
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        OwnedFd::from(stream).into()
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        OwnedFd::from(stream).into()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
