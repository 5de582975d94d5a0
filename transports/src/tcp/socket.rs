//! The system calls that move bytes. None blocks, and none raises a signal.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use farjump_core::transport::Cause;
use farjump_os::deferred_close::{self, MOST_DELIVERED};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    recv, recvmsg, send, sendmsg, sockopt,
};

use crate::fork::{Inherited, Listed};

const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Silence before the system probes the peer, and time between probes.
const PROBE: std::time::Duration = std::time::Duration::from_secs(10);
/// Unanswered probes before the system ends the stream: the maximum. The control connection detects a gone machine,
/// within the time that its user has set. These probes only keep the entry of a NAT alive.
const PROBES: u32 = 127;

/// The result of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Got {
    Bytes(usize),
    /// Nothing has arrived.
    Nothing,
    /// Nothing more arrives.
    End,
}

/// A stream socket.
#[derive(Debug)]
pub(super) struct Socket {
    /// Before the descriptor, so that it is dropped first.
    _listed: Listed,
    descriptor: OwnedFd,
    is_unix: bool,
}

impl Socket {
    /// Sets the socket's options. The system continues to tune its buffers: `SO_RCVBUF` and `SO_SNDBUF` would
    /// end that.
    pub(super) fn new(descriptor: OwnedFd) -> Result<Socket, Errno> {
        let is_unix = sockopt::socket_domain(&descriptor)? == AddressFamily::UNIX;
        if is_unix {
            // For an out-of-band byte that is skipped, the system closes the descriptors sent with it, in the receiving
            // thread.
            sockopt::set_socket_oobinline(&descriptor, true)?;
        } else {
            sockopt::set_tcp_nodelay(&descriptor, true)?;
            sockopt::set_socket_keepalive(&descriptor, true)?;
            sockopt::set_tcp_keepidle(&descriptor, PROBE)?;
            sockopt::set_tcp_keepintvl(&descriptor, PROBE)?;
            sockopt::set_tcp_keepcnt(&descriptor, PROBES)?;
        }
        let socket = descriptor.as_raw_fd();
        Ok(Socket { _listed: Listed::new(Inherited::Stream { socket }), descriptor, is_unix })
    }

    pub(super) fn is_unix(&self) -> bool {
        self.is_unix
    }

    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Sends `bytes`, and returns the number that the system took: 0 if it takes none now.
    #[inline]
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Box<Cause>> {
        count();
        sent(send(&self.descriptor, bytes, SEND))
    }

    /// Sends bytes in several pieces, and returns the number that the system took.
    pub(super) fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Box<Cause>> {
        count();
        sent(sendmsg(&self.descriptor, pieces, &mut SendAncillaryBuffer::default(), SEND))
    }

    /// Receives the bytes that have arrived.
    #[inline]
    pub(super) fn receive(&self, space: &mut [u8]) -> Result<Got, Box<Cause>> {
        if self.is_unix {
            return self.receive_beside(&mut [IoSliceMut::new(space)]);
        }
        got(recv(&self.descriptor, space, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes))
    }

    /// Receives into several pieces.
    pub(super) fn receive_pieces(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<Got, Box<Cause>> {
        if self.is_unix {
            return self.receive_beside(pieces);
        }
        let received =
            recvmsg(&self.descriptor, pieces, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT);
        got(received.map(|received| received.bytes))
    }

    /// Receives on a Unix socket. Without a buffer for descriptors that a peer passes, the system would close them in
    /// this thread, which can block. The buffer here fits all descriptors, and other threads close them.
    fn receive_beside(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<Got, Box<Cause>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DELIVERED))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.descriptor, pieces, &mut ancillary, flags);
        let mut passed = 0_usize;
        for message in ancillary.drain() {
            passed += close_passed(message);
        }
        match passed {
            0 => got(received.map(|received| received.bytes)),
            _ => Err(Box::new(Cause::System(format!(
                "the peer broke the protocol: it passed {passed} descriptors on its stream"
            )))),
        }
    }
}

/// Closes the descriptors that a peer passed, and returns their number. Out of line: no honest peer
/// passes any.
#[cold]
#[inline(never)]
fn close_passed(message: RecvAncillaryMessage<'_>) -> usize {
    let RecvAncillaryMessage::ScmRights(descriptors) = message else { return 0 };
    descriptors.map(deferred_close::close).count()
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[inline]
fn sent(sent: Result<usize, Errno>) -> Result<usize, Box<Cause>> {
    match sent {
        Ok(bytes) => Ok(bytes),
        Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(0),
        Err(errno) => Err(Box::new(failure(errno))),
    }
}

#[inline]
fn got(received: Result<usize, Errno>) -> Result<Got, Box<Cause>> {
    match received {
        Ok(0) | Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => Ok(Got::End),
        Ok(bytes) => {
            count();
            Ok(Got::Bytes(bytes))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(Got::Nothing),
        Err(errno) => Err(Box::new(failure(errno))),
    }
}

#[cold]
fn failure(errno: Errno) -> Cause {
    match errno {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Cause::PeerGone,
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN => {
            Cause::Unreachable(errno.to_string())
        }
        errno => Cause::System(errno.to_string()),
    }
}

#[cfg(test)]
thread_local! {
    /// Calls of this thread that sent, or received something.
    pub(super) static CALLS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a call that moves bytes.
#[inline]
fn count() {
    #[cfg(test)]
    CALLS.set(CALLS.get() + 1);
}
