//! The second connection of a link, for transports whose frames travel on a stream: how it is opened, and what the sides tell each
//! other of it.
//!
//! The target names a token and half of a secret in [`Message::Welcome`](super::Message::Welcome). The source connects once more to
//! where its control connection goes, sends the 64 bytes of an opening with that token, and then
//! [`Message::Ready`](super::Message::Ready) with the other half. Nothing more travels on the stream before
//! [`Message::Go`](super::Message::Go).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use farjump_core::transport::{Secret, Side, Stream};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroize;

use super::address::PeerAddress;
use super::control::{Control, check_owner, connect_unix};
use super::identity::PeerIdentity;
use super::prefix::{PREFIX_LEN, stream_prefix};
use super::tcp;
use crate::Error;

/// Length of a stream's opening in bytes: a prefix, zeros, and the token.
pub const OPENING_LEN: usize = 64;
/// Where the token lies in an opening.
const TOKEN_AT: usize = OPENING_LEN - Stream::TOKEN;

/// What a target says of the stream that it awaits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamOffer {
    /// What the stream's opening is to name. Another for each meeting.
    pub token: [u8; Stream::TOKEN],
    /// The target's half of the secret.
    pub share: Share,
    /// Whether the target is willing to leave the stream clear.
    pub clear: bool,
}

/// What a source says of the stream that it has opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamAnswer {
    /// The source's half of the secret.
    pub share: Share,
    /// Whether the source is willing to leave the stream clear.
    pub clear: bool,
}

/// Half of a stream's secret: random bytes that stay where they are, and are overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Share(Box<[u8; Share::LEN]>);

impl Share {
    /// Length in bytes.
    pub const LEN: usize = Secret::LEN / 2;

    /// The share of these bytes. What the caller has of them is the caller's to overwrite.
    pub fn from_bytes(bytes: &[u8; Share::LEN]) -> Share {
        let mut share = Share::blank();
        share.0.copy_from_slice(bytes);
        share
    }

    fn blank() -> Share {
        Share(Box::new([0; Share::LEN]))
    }

    /// Draws one from the system's generator.
    pub(super) fn draw() -> Result<Share, Error> {
        let mut share = Share::blank();
        draw(&mut share.0[..])?;
        Ok(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Share")
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(Share::LEN)?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(decoder: D) -> Result<Share, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Share;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{} bytes", Share::LEN)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Share, A::Error> {
                let mut share = Share::blank();
                for byte in share.0.iter_mut() {
                    *byte = bytes.next_element()?.ok_or_else(|| A::Error::custom("a share is cut short"))?;
                }
                Ok(share)
            }
        }
        decoder.deserialize_tuple(Share::LEN, Bytes)
    }
}

fn draw(bytes: &mut [u8]) -> Result<(), Error> {
    let len = bytes.len();
    match getrandom(bytes, GetRandomFlags::empty()) {
        Ok(drawn) if drawn == len => Ok(()),
        Ok(_) => Err(Error::system("drawing random bytes", Errno::IO)),
        Err(error) => Err(Error::system("drawing random bytes", error)),
    }
}

/// The two halves of a stream's secret.
pub(super) struct Shares {
    pub(super) target: Share,
    pub(super) source: Share,
}

/// A stream that both ends of a link have, before a transport gets it.
pub(super) struct Joining {
    pub(super) descriptor: OwnedFd,
    pub(super) side: Side,
    pub(super) token: [u8; Stream::TOKEN],
    /// `None` where the stream is to be clear.
    pub(super) shares: Option<Shares>,
}

impl Joining {
    /// What a transport gets. The secret lies on the stack: overwrite that later.
    pub(super) fn into_stream(self) -> Stream {
        let secret = self.shares.map(|shares| {
            let mut bytes = [0; Secret::LEN];
            bytes[..Share::LEN].copy_from_slice(&shares.target.0[..]);
            bytes[Share::LEN..].copy_from_slice(&shares.source.0[..]);
            let secret = Secret::from_bytes(bytes);
            bytes.zeroize();
            secret
        });
        Stream { descriptor: self.descriptor, side: self.side, token: self.token, secret }
    }
}

/// A connection that has opened as a stream and named a token. Dropping it closes it.
#[derive(Debug)]
pub struct IncomingStream {
    /// Its socket is what is wanted of it.
    control: Control,
    token: [u8; Stream::TOKEN],
}

impl IncomingStream {
    /// The connection of `control`, of which exactly this opening was read.
    pub(super) fn new(control: Control, opening: &[u8; OPENING_LEN]) -> IncomingStream {
        let mut token = [0; Stream::TOKEN];
        token.copy_from_slice(&opening[TOKEN_AT..]);
        IncomingStream { control, token }
    }

    /// The process that connected.
    pub fn peer(&self) -> &PeerIdentity {
        self.control.peer()
    }
}

/// The stream that a target awaits of a source which it has welcomed.
pub(super) struct Awaited {
    token: [u8; Stream::TOKEN],
    share: Share,
    clear: bool,
    came: Option<OwnedFd>,
}

impl Awaited {
    pub(super) fn draw(clear: bool) -> Result<Awaited, Error> {
        let mut token = [0; Stream::TOKEN];
        draw(&mut token)?;
        Ok(Awaited { token, share: Share::draw()?, clear, came: None })
    }

    /// What the source is told.
    pub(super) fn offer(&self) -> StreamOffer {
        StreamOffer { token: self.token, share: self.share.clone(), clear: self.clear }
    }

    /// Whether `stream` is the one. A token is good for one stream.
    pub(super) fn is(&self, stream: &IncomingStream) -> bool {
        same(&self.token, &stream.token) & self.came.is_none()
    }

    pub(super) fn take(&mut self, stream: IncomingStream) -> Result<(), Error> {
        let descriptor = stream.control.into_stream();
        self.came = Some(descriptor.map_err(|error| Error::system("taking a stream over", error))?);
        Ok(())
    }

    pub(super) fn has_come(&self) -> bool {
        self.came.is_some()
    }

    /// The stream, if it has come. It is sealed where the control connection is, unless both sides are willing to leave it clear.
    pub(super) fn join(self, answer: StreamAnswer, is_sealed: bool) -> Option<Joining> {
        let sealed = is_sealed && !(self.clear && answer.clear);
        let shares = sealed.then_some(Shares { target: self.share, source: answer.share });
        Some(Joining { descriptor: self.came?, side: Side::Target, token: self.token, shares })
    }
}

/// Whether two tokens are the same. Takes the same time for all that are not.
fn same(one: &[u8; Stream::TOKEN], other: &[u8; Stream::TOKEN]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    std::hint::black_box(differ) == 0
}

/// Opens the stream that the target at the other end of `control` has offered: connects to where that goes.
pub(super) fn open(
    control: &Control,
    address: &PeerAddress,
    offer: StreamOffer,
    deadline: Instant,
) -> Result<(Joining, StreamAnswer), Error> {
    let descriptor = match (address, control.peer().address) {
        (PeerAddress::Unix(path), None) => {
            let socket = connect_unix(address, path, deadline)?;
            // Nothing is said to another user's process.
            let peer = PeerIdentity::of(socket.as_fd())?;
            check_owner(peer.uid, &peer)?;
            socket
        }
        // Not to `address`: of a name with several addresses another one would be another target.
        (_, Some(end)) => tcp::connect_any(address, &[end], deadline)?,
        (_, None) => return Err(Error::system("opening a stream", Errno::AFNOSUPPORT)),
    };
    let mut opening = [0; OPENING_LEN];
    opening[..PREFIX_LEN].copy_from_slice(&stream_prefix());
    opening[TOKEN_AT..].copy_from_slice(&offer.token);
    let failed = |error: io::Error| Error::system(format!("opening a stream to {}", control.peer()), error);
    // A connection on which nothing was sent yet takes all of it.
    match send(&descriptor, &opening, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(OPENING_LEN) => {}
        Ok(_) => return Err(failed(io::ErrorKind::WriteZero.into())),
        Err(error) => return Err(failed(error.into())),
    }
    let answer = StreamAnswer { share: Share::draw()?, clear: control.is_clear_willing() };
    let sealed = control.is_sealed() && !(offer.clear && answer.clear);
    let shares = sealed.then(|| Shares { target: offer.share, source: answer.share.clone() });
    Ok((Joining { descriptor, side: Side::Source, token: offer.token, shares }, answer))
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

    #[test]
    fn a_share_travels_as_its_bytes_and_shows_none_of_them() {
        let share = Share::from_bytes(&[0xab; Share::LEN]);
        let bytes = postcard::to_stdvec(&share).unwrap();
        assert_eq!(bytes, [0xab; Share::LEN]);
        assert_eq!(postcard::from_bytes::<Share>(&bytes).unwrap(), share);
        assert!(postcard::from_bytes::<Share>(&bytes[1..]).is_err());
        assert_eq!(format!("{share:?}"), "Share");
    }
}
