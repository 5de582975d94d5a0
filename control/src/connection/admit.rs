//! Admission: the users whose processes may be at the other end of a control connection.

use std::os::fd::AsFd;
use std::time::Instant;

use farjump_os::overflow_uid;

use crate::HandshakeError;
use crate::connection::message::Message;
use crate::connection::{Control, rejected};
use crate::peer_identity::{PeerIdentity, admit, own_user};
use crate::tcp;

impl Control {
    /// Checks that the peer of the accepted `stream` is of this process's user, unless a key proves it.
    pub(crate) fn admit_stream(&self, stream: impl AsFd) -> Result<(), HandshakeError> {
        match self.seal.is_some() || self.peer.address.is_none() {
            true => Ok(()),
            false => check_owner(tcp::owner_of_peer(&stream)?, &self.peer),
        }
    }

    /// Checks that the peer is admitted. Holders of the key are. Without a key only processes of this user
    /// are: the system knows the user of a Unix socket at connect, and of a loopback connection once taken.
    ///
    /// # Errors
    /// [`HandshakeError::OtherUser`]; [`HandshakeError::OwnerUnknown`], [`HandshakeError::OwnUserUnknown`] if
    /// the system does not say.
    pub(crate) fn admit(&mut self) -> Result<(), HandshakeError> {
        if self.seal.is_some() {
            return Ok(());
        }
        if self.peer.address.is_some() {
            self.peer.uid = tcp::owner_of_peer(&self.socket)?;
        }
        check_owner(self.peer.uid, &self.peer)
    }

    /// Like [`Control::admit`], for the target that this process connected to. Called before anything is
    /// sent; on a Unix socket also before anything is read, because descriptors could come with that.
    ///
    /// # Errors
    /// As there; [`HandshakeError::Refused`] when the target rejected first; over TCP those of awaiting its
    /// preamble.
    pub(crate) fn admit_target(&mut self, deadline: Instant) -> Result<(), HandshakeError> {
        // On loopback the target's user is known once its preamble shows that it has accepted.
        self.await_prefix(deadline)?;
        let Err(error) = self.admit() else { return Ok(()) };
        if self.peer.address.is_none() {
            return Err(error);
        }
        // A target that rejects at once may be gone already, but its reason can still be received.
        match self.recv() {
            Ok(Some((Message::Reject { cause, text }, _))) => Err(rejected(self, cause, &text)),
            _ => Err(error),
        }
    }
}

/// Checks that `uid`, the user of `peer` from the system, is this process's own.
///
/// # Errors
/// [`HandshakeError::OtherUser`]; [`HandshakeError::OwnerUnknown`], [`HandshakeError::OwnUserUnknown`] if the
/// system does not say.
pub(crate) fn check_owner(uid: Option<u32>, peer: &PeerIdentity) -> Result<(), HandshakeError> {
    let own = own_user();
    if admit(uid, own) {
        return Ok(());
    }
    let peer = peer.to_string();
    Err(match (uid, own) {
        (_, None) => HandshakeError::OwnUserUnknown { peer, uid: overflow_uid() },
        (None, _) => HandshakeError::OwnerUnknown { peer },
        (Some(uid), Some(own)) => HandshakeError::OtherUser { peer, uid, own },
    })
}
