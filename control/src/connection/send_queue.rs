//! The send queue of a control connection: messages that wait until the socket takes them.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farjump_core::counted;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use zeroize::Zeroize;

use crate::connection::Seal;
use crate::connection::message::{HEAD_LEN, MAX_DESCRIPTORS, MAX_HANDSHAKE_MESSAGE, Message};
use crate::error::system;
use crate::peer_identity::PeerIdentity;
use crate::tcp;
use crate::{ControlOperation, HandshakeError};

/// Limit of bytes that wait during the handshake.
const HANDSHAKE_QUEUE_LIMIT: usize = 2 * MAX_HANDSHAKE_MESSAGE;
/// Bytes of memory for a message of the handshake at first, with its head.
const HANDSHAKE_SPACE: usize = 1024;

/// Parts to send, oldest first.
#[derive(Debug)]
pub(crate) struct Outgoing {
    parts: VecDeque<Part>,
    /// Sum of the bytes in `parts` not yet sent.
    queued: usize,
    /// Limit of bytes that wait.
    queue_limit: usize,
    /// Longest body sent, in bytes.
    limit: usize,
}

/// A message with its head, or raw bytes.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    sent: usize,
    /// True if the bytes are in wire form. `false` if they are still to be encrypted.
    ready: bool,
    /// True if the bytes hold a secret until they are encrypted.
    secret: bool,
    /// Descriptors, which travel with the first byte.
    descriptors: Vec<OwnedFd>,
}

impl Outgoing {
    /// Makes an empty queue.
    pub(crate) fn new() -> Outgoing {
        Outgoing {
            parts: VecDeque::new(),
            queued: 0,
            queue_limit: HANDSHAKE_QUEUE_LIMIT,
            limit: MAX_HANDSHAKE_MESSAGE,
        }
    }

    /// Sends these bytes unchanged, ahead of all messages: a preamble, a handshake.
    pub(crate) fn push_raw(&mut self, bytes: Vec<u8>) {
        self.queued += bytes.len();
        let place = self.parts.iter().take_while(|part| part.ready).count();
        self.parts
            .insert(place, Part { bytes, sent: 0, ready: true, secret: false, descriptors: Vec::new() });
    }

    /// Sends bodies of up to `limit` bytes from now on, and queues up to `queue_limit` bytes.
    pub(crate) fn set_limits(&mut self, limit: usize, queue_limit: usize) {
        (self.limit, self.queue_limit) = (limit, queue_limit);
    }

    /// Queues a message. Takes nothing of it on failure.
    pub(crate) fn push(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
        peer: &PeerIdentity,
    ) -> Result<(), HandshakeError> {
        let most = message.max_descriptors();
        if descriptors.len() > most {
            let object = format!(
                "{} with {}, {most} at most,",
                message.name(),
                counted(descriptors.len(), "descriptor")
            );
            return Err(system(ControlOperation::Encode, object, Errno::INVAL).into());
        }
        let secret = message.is_secret();
        let mut space = Vec::with_capacity(match self.limit {
            // A message with a secret must not move while it is encoded.
            _ if secret => HEAD_LEN + MAX_HANDSHAKE_MESSAGE,
            // During the handshake, most have some hundred bytes.
            MAX_HANDSHAKE_MESSAGE => HANDSHAKE_SPACE,
            _ => HEAD_LEN,
        });
        space.resize(HEAD_LEN, 0);
        let bytes = postcard::to_extend(message, space).map_err(|error| {
            system(ControlOperation::Encode, message.name(), std::io::Error::other(error))
        })?;
        let len = bytes.len() - HEAD_LEN;
        if len > self.limit {
            return Err(HandshakeError::MessageTooLong { peer: peer.to_string(), len, limit: self.limit });
        }
        let queued = self.queued + bytes.len();
        if queued > self.queue_limit {
            return Err(HandshakeError::Congested {
                peer: peer.to_string(),
                queued,
                limit: self.queue_limit,
            });
        }
        let descriptors = descriptors
            .iter()
            .map(|descriptor| descriptor.try_clone_to_owned())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| system(ControlOperation::Duplicate, "", error))?;
        let mut part = Part { bytes, sent: 0, ready: false, secret, descriptors };
        // Both fit: the limits above are far below 2^32, and there are at most 8 descriptors.
        part.bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
        part.bytes[4] = part.descriptors.len() as u8;
        self.queued = queued;
        self.parts.push_back(part);
        Ok(())
    }

    /// Returns whether bytes wait for the socket. Messages that wait for `seal` to open do not count.
    pub(crate) fn wants_write(&self, seal: Option<&Seal>) -> bool {
        self.parts.front().is_some_and(|part| part.ready || seal.is_none_or(Seal::is_open))
    }

    /// Sends what `socket` takes without blocking, encrypted by the seal. Messages wait until the seal is
    /// open.
    pub(crate) fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        peer: &PeerIdentity,
        mut seal: Option<&mut Seal>,
    ) -> Result<(), HandshakeError> {
        while let Some(part) = self.parts.front_mut() {
            if !part.ready {
                match &mut seal {
                    Some(seal) if !seal.is_open() => return Ok(()),
                    Some(seal) => {
                        let sealed = seal.close(&part.bytes)?;
                        self.queued += sealed.len() - part.bytes.len();
                        part.wipe();
                        (part.bytes, part.secret) = (sealed, false);
                    }
                    None => {}
                }
                part.ready = true;
            }
            match part.send(socket) {
                Ok(sent) => {
                    part.sent += sent;
                    part.descriptors.clear();
                    self.queued -= sent;
                    if part.sent == part.bytes.len() {
                        self.parts.pop_front();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    return Err(HandshakeError::PeerGone { peer: peer.to_string() });
                }
                Err(error) => return Err(tcp::failure(error, ControlOperation::Send, socket, peer)),
            }
        }
        Ok(())
    }
}

impl Part {
    /// Overwrites a secret.
    fn wipe(&mut self) {
        if self.secret {
            self.bytes.zeroize();
        }
    }

    fn send(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let borrowed: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
            debug_assert!(fits, "the space is made for as many as a message may have");
        }
        // Without NOSIGNAL a dead peer would kill this process by SIGPIPE.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(&self.bytes[self.sent..])], &mut ancillary, flags)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.wipe();
    }
}
