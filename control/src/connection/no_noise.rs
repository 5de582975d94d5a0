//! Encryption in builds without the feature `key`: [`Seal`] has no value.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::connection::recv_buffer::{Filled, Incoming};
use crate::connection::send_queue::Outgoing;
use crate::error::system;
use crate::key::Key;
use crate::key::keys::{Keys, NamedKey};
use crate::peer_identity::PeerIdentity;
use crate::{ControlOperation, ControlSystemError, HandshakeError};

/// The encryption of a connection. It has no value, so no method of it is ever called.
#[derive(Debug)]
pub(crate) enum Seal {}

impl Seal {
    /// Always fails.
    pub(crate) fn target(_: Keys) -> Result<Seal, ControlSystemError> {
        Err(refusal())
    }

    /// Always fails.
    pub(crate) fn source(_: &Key) -> Result<(Seal, Vec<u8>), ControlSystemError> {
        Err(refusal())
    }

    pub(crate) fn key(&self) -> Option<&Arc<NamedKey>> {
        match *self {}
    }

    pub(crate) fn try_keys(&mut self, _: &Keys) {
        match *self {}
    }

    pub(crate) fn begin_with(
        &mut self,
        _: Vec<u8>,
        _: &mut Outgoing,
        _: &PeerIdentity,
    ) -> Result<(), HandshakeError> {
        match *self {}
    }

    pub(crate) fn is_untouched(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_open(&self) -> bool {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: &[u8]) -> Result<Vec<u8>, ControlSystemError> {
        match *self {}
    }

    pub(crate) fn fill(
        &mut self,
        _: BorrowedFd<'_>,
        _: &mut Incoming,
        _: &mut Outgoing,
        _: &PeerIdentity,
    ) -> Result<Filled, HandshakeError> {
        match *self {}
    }

    pub(crate) fn cut_short(&self) -> Option<(usize, usize)> {
        match *self {}
    }
}

fn refusal() -> ControlSystemError {
    system(ControlOperation::Encrypt, "", rustix::io::Errno::OPNOTSUPP)
}
