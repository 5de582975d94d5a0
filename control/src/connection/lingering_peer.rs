//! The peer of a control connection that this process has ended.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::Control;
use crate::ControlSystemError;
use crate::connection::recv_buffer::receive;
use crate::connection::socket::ControlSocket;
use crate::peer_identity::PeerIdentity;

/// Most reads in one [`LingeringPeer::is_gone`]: a peer that sends without end cannot hold the caller.
const READS: usize = 16;

/// The peer of a link that this process has ended, on a Unix socket. It shows when no process has the peer's
/// descriptor any more, not even one that the peer has forked.
#[derive(Debug)]
pub struct LingeringPeer {
    socket: ControlSocket,
    peer: PeerIdentity,
    is_gone: bool,
}

impl LingeringPeer {
    /// Makes a peer from a connected socket, for a store that is used without a target.
    ///
    /// # Errors
    /// When the system does not identify the peer.
    pub fn from_stream(stream: UnixStream) -> Result<LingeringPeer, ControlSystemError> {
        let Control { socket, peer, .. } = Control::from_stream(stream)?;
        Ok(LingeringPeer::new(socket, peer))
    }

    fn new(socket: ControlSocket, peer: PeerIdentity) -> LingeringPeer {
        // It fails if the peer was gone before: then there is nothing to end.
        let _ = shutdown(&socket, Shutdown::Write);
        LingeringPeer { socket, peer, is_gone: false }
    }

    /// Returns the process that connected. A process that it forked may have the descriptor instead.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Returns whether every copy of the peer's descriptor is closed. Does not wait.
    ///
    /// Drops unread messages, because the peer's descriptor could be in one of them.
    pub fn is_gone(&mut self) -> bool {
        let mut bytes = [0; 4096];
        for _ in 0..READS {
            if self.is_gone {
                break;
            }
            match receive(self.socket.as_fd(), &mut bytes).read {
                // A peer that had not read everything is reported as a reset.
                Ok(0) | Err(Errno::CONNRESET) => self.is_gone = true,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.is_gone
    }
}

impl AsFd for LingeringPeer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Control {
    /// Ends the connection at this end: the peer reads what was sent, and then the end. Returns the peer, to watch for its end;
    /// `None` over TCP, where no memory is shared.
    pub fn linger(self) -> Option<LingeringPeer> {
        let is_unix = self.carries_descriptors();
        let Control { socket, peer, .. } = self;
        is_unix.then(|| LingeringPeer::new(socket, peer))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Message;

    fn lingering() -> (LingeringPeer, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (LingeringPeer::from_stream(ours).unwrap(), theirs)
    }

    #[test]
    fn a_peer_is_gone_once_every_copy_of_its_descriptor_closes() {
        let (mut peer, theirs) = lingering();
        let copy = theirs.try_clone().unwrap();
        assert!(!peer.is_gone());
        drop(theirs);
        assert!(!peer.is_gone(), "there is a copy");
        drop(copy);
        assert!(peer.is_gone() && peer.is_gone());
        assert_eq!(peer.peer().pid, std::process::id());
    }

    #[test]
    fn unread_messages_do_not_hide_the_end() {
        let (mut peer, mut theirs) = lingering();
        theirs.write_all(&[7; 100_000]).unwrap();
        assert!(!peer.is_gone());
        drop(theirs);
        assert!((0..2).any(|_| peer.is_gone()), "two looks read 128 KiB");
    }

    #[test]
    fn an_unread_copy_of_its_descriptor_does_not_keep_a_peer() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let own_copy = theirs.try_clone().unwrap();
        let mut theirs = Control::from_stream(theirs).unwrap();
        theirs.send(&Message::AdminResponse { bytes: Vec::new() }, &[own_copy.as_fd()]).unwrap();
        let mut peer = Control::from_stream(ours).unwrap().linger().unwrap();
        drop((theirs, own_copy));
        // Another thread closes the copy in the message.
        let until = Instant::now() + Duration::from_secs(60);
        while !peer.is_gone() {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_peer_reads_what_was_sent_and_then_the_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut ours = Control::from_stream(ours).unwrap();
        ours.send(&Message::Bye, &[]).unwrap();
        let _peer = ours.linger().unwrap();
        let mut theirs = Control::from_stream(theirs).unwrap();
        assert!(matches!(theirs.recv(), Ok(Some((Message::Bye, _)))));
        assert!(matches!(theirs.recv(), Err(crate::HandshakeError::PeerGone { .. })));
    }
}
