//! The second connection of a link, for transports whose frames travel on a stream, and its setup.
//!
//! The target sends a token and half of a secret in [`Message::Welcome`](crate::Message::Welcome). The source
//! connects to the address of its control connection again, sends an opening of 64 bytes with that token, and
//! then [`Message::Ready`](crate::Message::Ready) with the other half. Nothing more travels on the stream
//! before [`Message::Go`](crate::Message::Go).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use farjump_core::transport::{Secret, Stream, StreamRole};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use zeroize::Zeroize;

use crate::address::PeerAddress;
use crate::connection::preamble::{PREFIX_LEN, stream_prefix};
use crate::connection::stream_offer::{OPENING_LEN, Share, StreamAccept, StreamOffer, draw};
use crate::connection::{Control, check_owner, connect_unix};
use crate::error::system;
use crate::peer_identity::PeerIdentity;
use crate::tcp;
use crate::{ControlOperation, HandshakeError};

/// Offset of the token in an opening.
const TOKEN_AT: usize = OPENING_LEN - Stream::TOKEN;

/// The two halves of a stream's secret.
pub(crate) struct Shares {
    pub(crate) target: Share,
    pub(crate) source: Share,
}

/// A stream whose opening both processes know, before a transport gets it.
pub(crate) struct Joining {
    pub(crate) descriptor: OwnedFd,
    pub(crate) role: StreamRole,
    pub(crate) token: [u8; Stream::TOKEN],
    /// `None` for a clear stream.
    pub(crate) shares: Option<Shares>,
}

impl Joining {
    /// Converts it for a transport. The secret lies on the stack: overwrite that later.
    pub(crate) fn into_stream(self) -> Stream {
        let secret = self.shares.map(|shares| {
            let mut bytes = [0; Secret::LEN];
            bytes[..Share::LEN].copy_from_slice(&shares.target.bytes()[..]);
            bytes[Share::LEN..].copy_from_slice(&shares.source.bytes()[..]);
            let secret = Secret::from_bytes(bytes);
            bytes.zeroize();
            secret
        });
        Stream { descriptor: self.descriptor, role: self.role, token: self.token, secret }
    }
}

/// A connection that has sent a stream's opening with a token. Dropping it closes it.
#[derive(Debug)]
pub struct IncomingStream {
    /// Used for its socket only.
    control: Control,
    token: [u8; Stream::TOKEN],
}

impl IncomingStream {
    /// Makes a stream of `control`, from whose connection exactly this opening was read.
    pub(crate) fn new(control: Control, opening: &[u8; OPENING_LEN]) -> IncomingStream {
        let mut token = [0; Stream::TOKEN];
        token.copy_from_slice(&opening[TOKEN_AT..]);
        IncomingStream { control, token }
    }

    /// Returns the process that connected.
    pub fn peer(&self) -> &PeerIdentity {
        self.control.peer()
    }
}

/// The stream that a target awaits from a source that got its `Welcome`.
pub(crate) struct AwaitedStream {
    token: [u8; Stream::TOKEN],
    share: Share,
    clear: bool,
    came: Option<OwnedFd>,
}

impl AwaitedStream {
    pub(crate) fn draw(clear: bool) -> Result<AwaitedStream, HandshakeError> {
        let mut token = [0; Stream::TOKEN];
        draw(&mut token)?;
        Ok(AwaitedStream { token, share: Share::draw()?, clear, came: None })
    }

    /// Returns the offer for the source.
    pub(crate) fn offer(&self) -> StreamOffer {
        StreamOffer { token: self.token, share: self.share.clone(), clear: self.clear }
    }

    /// Returns whether `stream` has the token. A token is good for one stream.
    pub(crate) fn is(&self, stream: &IncomingStream) -> bool {
        same(&self.token, &stream.token) & self.came.is_none()
    }

    pub(crate) fn take(&mut self, stream: IncomingStream) -> Result<(), HandshakeError> {
        let descriptor = stream.control.into_stream();
        self.came =
            Some(descriptor.map_err(|error| system(ControlOperation::OpenStream, "this process", error))?);
        Ok(())
    }

    pub(crate) fn has_come(&self) -> bool {
        self.came.is_some()
    }

    /// Returns the stream, if it has come. It is encrypted like the control connection, unless both processes
    /// permit a clear one.
    pub(crate) fn join(self, reply: StreamAccept, is_sealed: bool) -> Option<Joining> {
        let sealed = is_sealed && !(self.clear && reply.clear);
        let shares = sealed.then_some(Shares { target: self.share, source: reply.share });
        Some(Joining { descriptor: self.came?, role: StreamRole::Target, token: self.token, shares })
    }
}

/// Compares two tokens, in the same time for all that differ.
fn same(one: &[u8; Stream::TOKEN], other: &[u8; Stream::TOKEN]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    std::hint::black_box(differ) == 0
}

/// Opens the stream offered by the target of `control`, by connecting to the same address.
pub(crate) fn open(
    control: &Control,
    address: &PeerAddress,
    offer: StreamOffer,
    deadline: Instant,
) -> Result<(Joining, StreamAccept), HandshakeError> {
    let descriptor = match (address, control.peer().address) {
        (PeerAddress::Unix(_) | PeerAddress::Abstract(_), None) => {
            let socket = connect_unix(address, deadline)?;
            // Nothing is sent to another user's process.
            let peer = PeerIdentity::of(socket.as_fd())?;
            check_owner(peer.uid, &peer)?;
            socket
        }
        // Not to `address`: another address of the same name could be another target.
        (_, Some(end)) => tcp::connect_any(address, &[end], deadline)?,
        (_, None) => {
            return Err(system(ControlOperation::OpenStream, control.peer(), Errno::AFNOSUPPORT).into());
        }
    };
    let mut opening = [0; OPENING_LEN];
    opening[..PREFIX_LEN].copy_from_slice(&stream_prefix());
    opening[TOKEN_AT..].copy_from_slice(&offer.token);
    let failed =
        |error: io::Error| HandshakeError::from(system(ControlOperation::OpenStream, control.peer(), error));
    // A connection on which nothing was sent yet takes all of it.
    match send(&descriptor, &opening, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(OPENING_LEN) => {}
        Ok(_) => return Err(failed(io::ErrorKind::WriteZero.into())),
        Err(error) => return Err(failed(error.into())),
    }
    let reply = StreamAccept { share: Share::draw()?, clear: control.is_clear_willing() };
    let sealed = control.is_sealed() && !(offer.clear && reply.clear);
    let shares = sealed.then(|| Shares { target: offer.share, source: reply.share.clone() });
    Ok((Joining { descriptor, role: StreamRole::Source, token: offer.token, shares }, reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_same_only_if_each_bit_is() {
        let token: [u8; Stream::TOKEN] = std::array::from_fn(|at| at as u8);
        assert!(same(&token, &token));
        for bit in 0..8 * Stream::TOKEN {
            let mut other = token;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!same(&token, &other), "bit {bit}");
        }
    }
}
