//! First bytes of an accepted connection, which show its kind: control connection, or stream of a link.

use farjump_core::transport::Stream;
use farjump_os::deferred_close::DeferredFd;
use rustix::io::Errno;

use crate::connection::Control;
use crate::connection::preamble::{PREFIX_LEN, stream_prefix};
use crate::connection::recv_buffer::{check_descriptors, receive};
use crate::connection::stream_offer::OPENING_LEN;
use crate::tcp;
use crate::{ControlOperation, HandshakeError, MessageFault, ReservedBytes};
use std::os::fd::AsFd;

/// The bytes of a connection of unknown kind. No byte behind a stream's opening is read.
#[derive(Debug)]
pub(crate) struct First {
    bytes: [u8; OPENING_LEN],
    have: usize,
    descriptors: Vec<DeferredFd>,
}

/// The kind of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nature {
    /// Not known yet.
    Unknown,
    /// A control connection, or not farjump at all.
    Control,
    /// A stream with an incomplete opening.
    Stream,
    /// A stream with a complete opening.
    Opened,
}

impl First {
    pub(crate) fn new() -> First {
        First { bytes: [0; OPENING_LEN], have: 0, descriptors: Vec::new() }
    }

    /// Returns the kind that the bytes so far show.
    pub(crate) fn nature(&self) -> Nature {
        let len = self.have.min(PREFIX_LEN);
        match self.have {
            _ if self.bytes[..len] != stream_prefix()[..len] => Nature::Control,
            OPENING_LEN => Nature::Opened,
            PREFIX_LEN.. => Nature::Stream,
            _ => Nature::Unknown,
        }
    }

    /// Reads from `control`'s connection until its kind is known. If the connection ends before, the kind
    /// stays, and the control connection reports the end.
    pub(crate) fn fill(&mut self, control: &Control) -> Result<Nature, HandshakeError> {
        loop {
            let end = match self.nature() {
                Nature::Unknown => PREFIX_LEN,
                Nature::Stream => OPENING_LEN,
                known => return Ok(known),
            };
            let came = receive(control.as_fd(), &mut self.bytes[self.have..end]);
            self.descriptors.extend(came.descriptors);
            check_descriptors(came.truncated, self.descriptors.len(), control.peer())?;
            match came.read {
                Ok(0) | Err(Errno::CONNRESET) if self.nature() == Nature::Unknown => {
                    return Ok(Nature::Control);
                }
                Ok(0) | Err(Errno::CONNRESET) => return Err(self.cut_short(control)),
                Ok(read) => self.have += read,
                Err(Errno::AGAIN) => return Ok(self.nature()),
                Err(error) => {
                    return Err(tcp::failure(
                        error,
                        ControlOperation::Receive,
                        control.as_fd(),
                        control.peer(),
                    ));
                }
            }
        }
    }

    fn cut_short(&self, control: &Control) -> HandshakeError {
        HandshakeError::CutShort { peer: control.peer().to_string(), found: self.have, needed: OPENING_LEN }
    }

    /// Returns the opening of a stream, if it is whole and valid.
    pub(crate) fn opening(&self, control: &Control) -> Result<&[u8; OPENING_LEN], HandshakeError> {
        let peer = || control.peer().to_string();
        match self.descriptors.len() {
            0 => {}
            found => return Err(HandshakeError::Descriptors { peer: peer(), found, expected: 0 }),
        }
        if self.bytes[PREFIX_LEN..OPENING_LEN - Stream::TOKEN].iter().any(|byte| *byte != 0) {
            let fault = MessageFault::Reserved(ReservedBytes::StreamOpening);
            return Err(HandshakeError::Garbled { peer: peer(), fault });
        }
        Ok(&self.bytes)
    }

    /// Returns the bytes and descriptors that came, for a control connection.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<DeferredFd>) {
        (self.bytes[..self.have].to_vec(), self.descriptors)
    }
}
