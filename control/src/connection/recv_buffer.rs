//! The receive buffer of a control connection: turns bytes and descriptors into whole messages.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use farjump_os::deferred_close::{DeferredFd, MOST_DELIVERED};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use zeroize::Zeroize;

use crate::connection::message::{HEAD_LEN, MAX_DESCRIPTORS, MAX_HANDSHAKE_MESSAGE, Message};
use crate::connection::preamble::{PREFIX_LEN, Security, read_prefix};
use crate::error::system;
use crate::peer_identity::PeerIdentity;
use crate::tcp;
use crate::{ControlOperation, HandshakeError, MessageFault, ReservedBytes};

/// Smallest and largest read, in bytes.
const READ: (usize, usize) = (4096, 256 * 1024);
/// Most bytes that are overwritten at their old address after a move: longer messages hold no secret.
const MOVED: usize = 2 * MAX_HANDSHAKE_MESSAGE;

/// Received bytes and descriptors not yet taken.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Bytes not yet taken: the start of a message, or nothing.
    bytes: Vec<u8>,
    /// Descriptors that came with them, oldest first. The system delivers a message's descriptors with its
    /// first byte, so when a message is whole its descriptors are here.
    descriptors: VecDeque<DeferredFd>,
    /// True if a valid preamble has come.
    greeted: bool,
    /// Longest body accepted, in bytes.
    limit: usize,
}

/// The result of one read of a socket.
pub(crate) struct Received {
    /// Bytes read.
    pub(crate) read: Result<usize, Errno>,
    /// Descriptors that came beside them.
    pub(crate) descriptors: Vec<DeferredFd>,
    /// True if the system dropped descriptors for which this process had no space.
    pub(crate) truncated: bool,
}

/// Reads once from a nonblocking `socket`, and takes the descriptors that come beside the bytes.
pub(crate) fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> Received {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DELIVERED))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let read = loop {
        let mut into = [IoSliceMut::new(into)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(socket, &mut into, &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            read => break read,
        }
    };
    let descriptors = ancillary
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.map(DeferredFd::from).collect(),
            _ => Vec::new(),
        })
        .collect();
    let truncated = read.as_ref().is_ok_and(|read| read.flags.contains(ReturnFlags::CTRUNC));
    Received { read: read.map(|read| read.bytes), descriptors, truncated }
}

/// Checks the descriptors of a connection after a read. `waiting` of them are not taken yet.
///
/// A read stops behind bytes that descriptors came with. So at most two messages that are not both whole can have
/// descriptors waiting, `MAX_DESCRIPTORS` each.
///
/// # Errors
/// More are waiting. Or the system dropped some: [`receive`] has space for as many as it delivers, so this process may open
/// no more.
pub(crate) fn check_descriptors(
    truncated: bool,
    waiting: usize,
    peer: &PeerIdentity,
) -> Result<(), HandshakeError> {
    if truncated {
        return Err(system(ControlOperation::Receive, peer, Errno::MFILE).into());
    }
    if waiting > 2 * MAX_DESCRIPTORS {
        let (peer, found, expected) = (peer.to_string(), waiting, MAX_DESCRIPTORS);
        return Err(HandshakeError::Descriptors { peer, found, expected });
    }
    Ok(())
}

/// The result of one poll of the socket.
#[derive(PartialEq, Eq)]
pub(crate) enum Filled {
    /// Bytes came.
    Some,
    /// No bytes now.
    Nothing,
    /// The peer closed its direction.
    End,
}

impl Incoming {
    pub(crate) fn new() -> Incoming {
        Incoming {
            bytes: Vec::new(),
            descriptors: VecDeque::new(),
            greeted: false,
            limit: MAX_HANDSHAKE_MESSAGE,
        }
    }

    /// Makes a buffer for messages out of encrypted packets, where the encryption handles the preamble.
    pub(crate) fn sealed() -> Incoming {
        let mut incoming = Incoming::new();
        incoming.greeted = true;
        incoming
    }

    /// Takes bytes of the connection that were read before.
    pub(crate) fn begin_with(&mut self, bytes: Vec<u8>, descriptors: Vec<DeferredFd>) {
        self.bytes = bytes;
        self.descriptors = descriptors.into();
    }

    /// Returns whether nothing has come yet.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.greeted && self.bytes.is_empty()
    }

    /// Appends `len` bytes that `write` fills in, or none if it fails.
    #[cfg(feature = "key")]
    pub(crate) fn extend<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let have = self.bytes.len();
        if (1..=MOVED).contains(&have) && self.bytes.capacity() < have + len {
            // The bytes may hold a secret: leave no copy at the old address.
            let mut moved = Vec::with_capacity((have + len).next_power_of_two());
            moved.extend_from_slice(&self.bytes);
            std::mem::replace(&mut self.bytes, moved).zeroize();
        }
        self.bytes.resize(have + len, 0);
        let written = write(&mut self.bytes[have..]);
        self.bytes.truncate(have + written.as_ref().map_or(0, |written| *written));
        written.map(drop)
    }

    /// Returns whether the preamble came, if one is expected.
    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Accepts bodies of up to `limit` bytes from now on.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the next message if it is whole. After an error no more can be taken.
    pub(crate) fn next(
        &mut self,
        peer: &PeerIdentity,
    ) -> Result<Option<(Message, Vec<DeferredFd>)>, HandshakeError> {
        self.greet(peer)?;
        if !self.greeted {
            return Ok(None);
        }
        let Some((len, announced)) = self.head(peer)? else { return Ok(None) };
        let Some(body) = self.bytes.get(HEAD_LEN..HEAD_LEN + len) else { return Ok(None) };
        let garbled = |fault| HandshakeError::Garbled { peer: peer.to_string(), fault };
        let (message, rest) = postcard::take_from_bytes::<Message>(body)
            .map_err(|cause| garbled(MessageFault::Undecodable { len, cause }))?;
        if !rest.is_empty() {
            return Err(garbled(MessageFault::Excess { len: rest.len(), message: message.name() }));
        }
        let expected = message.max_descriptors();
        if announced > expected {
            return Err(HandshakeError::Descriptors { peer: peer.to_string(), found: announced, expected });
        }
        if announced > self.descriptors.len() {
            let found = self.descriptors.len();
            return Err(HandshakeError::Descriptors { peer: peer.to_string(), found, expected: announced });
        }
        if message.is_secret() {
            self.bytes[..HEAD_LEN + len].zeroize();
        }
        self.bytes.drain(..HEAD_LEN + len);
        if self.bytes.is_empty() {
            // An image may have passed through; do not keep its space for the rest of the link.
            self.bytes = Vec::new();
            // No bytes have come that could claim more, so the rest was never announced.
            if self.descriptors.len() > announced {
                let found = self.descriptors.len();
                return Err(HandshakeError::Descriptors {
                    peer: peer.to_string(),
                    found,
                    expected: announced,
                });
            }
        }
        Ok(Some((message, self.descriptors.drain(..announced).collect())))
    }

    /// Reads once from a nonblocking `socket`.
    pub(crate) fn fill(
        &mut self,
        socket: BorrowedFd<'_>,
        peer: &PeerIdentity,
    ) -> Result<Filled, HandshakeError> {
        let have = self.bytes.len();
        let due = match self.greeted {
            true => self.head(peer)?.map_or(HEAD_LEN, |(len, _)| HEAD_LEN + len),
            false => PREFIX_LEN,
        };
        self.bytes.resize(have + due.saturating_sub(have).clamp(READ.0, READ.1), 0);
        let came = receive(socket, &mut self.bytes[have..]);
        self.bytes.truncate(have + came.read.unwrap_or(0));
        self.descriptors.extend(came.descriptors);
        let read = match came.read {
            Ok(read) => read,
            Err(Errno::AGAIN) => return Ok(Filled::Nothing),
            Err(Errno::CONNRESET) => return Ok(Filled::End),
            Err(error) => return Err(tcp::failure(error, ControlOperation::Receive, socket, peer)),
        };
        if let Err(error) = check_descriptors(came.truncated, self.descriptors.len(), peer) {
            self.descriptors.clear();
            return Err(error);
        }
        Ok(if read == 0 { Filled::End } else { Filled::Some })
    }

    /// Returns the error for an end of the connection now: a message may be cut short.
    pub(crate) fn end(&self, peer: &PeerIdentity) -> HandshakeError {
        let peer_name = peer.to_string();
        let needed = match self.head(peer) {
            _ if self.bytes.is_empty() => return HandshakeError::PeerGone { peer: peer_name },
            _ if !self.greeted => PREFIX_LEN,
            Ok(Some((len, _))) => HEAD_LEN + len,
            _ => HEAD_LEN,
        };
        HandshakeError::CutShort { peer: peer_name, found: self.bytes.len(), needed }
    }

    /// Takes the preamble if it is expected and whole. Fails at the first wrong byte.
    pub(crate) fn greet(&mut self, peer: &PeerIdentity) -> Result<(), HandshakeError> {
        if self.greeted {
            return Ok(());
        }
        match read_prefix(&self.bytes, peer)? {
            None => return Ok(()),
            Some(Security::Plain) => {}
            Some(Security::Key) if peer.address.is_some() => {
                return Err(HandshakeError::KeyWanted { peer: peer.to_string() });
            }
            // No key is needed where the system identifies the peer.
            Some(Security::Key) => {
                let fault = MessageFault::KeyOnUnixSocket;
                return Err(HandshakeError::Garbled { peer: peer.to_string(), fault });
            }
        }
        self.bytes.drain(..PREFIX_LEN);
        self.greeted = true;
        Ok(())
    }

    /// Returns the length of the next body and its number of descriptors, once its head has come.
    fn head(&self, peer: &PeerIdentity) -> Result<Option<(usize, usize)>, HandshakeError> {
        let Some(&[a, b, c, d, descriptors, r, s, t]) = self.bytes.first_chunk::<HEAD_LEN>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        if len > self.limit {
            return Err(HandshakeError::MessageTooLong { peer: peer.to_string(), len, limit: self.limit });
        }
        if [r, s, t] != [0; 3] {
            let fault = MessageFault::Reserved(ReservedBytes::Head);
            return Err(HandshakeError::Garbled { peer: peer.to_string(), fault });
        }
        if usize::from(descriptors) > MAX_DESCRIPTORS {
            let (found, expected) = (descriptors.into(), MAX_DESCRIPTORS);
            return Err(HandshakeError::Descriptors { peer: peer.to_string(), found, expected });
        }
        // Checked as soon as the body begins, so descriptors are not kept while the rest comes.
        let kind = self.bytes.get(HEAD_LEN).filter(|_| len > 0);
        if descriptors > 0 && kind.is_some_and(|kind| !Message::kind_has_descriptors(*kind)) {
            return Err(HandshakeError::Descriptors {
                peer: peer.to_string(),
                found: descriptors.into(),
                expected: 0,
            });
        }
        Ok(Some((len, descriptors.into())))
    }
}

impl Drop for Incoming {
    /// The remaining bytes may hold a secret.
    fn drop(&mut self) {
        if self.bytes.len() <= MOVED {
            self.bytes.zeroize();
        }
    }
}
