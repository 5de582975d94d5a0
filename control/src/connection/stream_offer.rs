//! Fields of control messages for the stream of a link.

use std::fmt;

use farjump_core::transport::{Secret, Stream};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroize;

use crate::error::system;
use crate::{ControlOperation, ControlSystemError};

/// Length of a stream's opening in bytes: a preamble, zeros, and the token.
pub const OPENING_LEN: usize = 64;
/// A target's description of the stream that it awaits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamOffer {
    /// The token that the stream's opening must contain. A new one for each handshake.
    pub token: [u8; Stream::TOKEN],
    /// The target's half of the secret.
    pub share: Share,
    /// Whether the target permits a clear stream.
    pub clear: bool,
}

/// A source's description of the stream that it has opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamAccept {
    /// The source's half of the secret.
    pub share: Share,
    /// Whether the source permits a clear stream.
    pub clear: bool,
}

/// Half of a stream's secret: random bytes that never move, and are overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Share(Box<[u8; Share::LEN]>);

impl Share {
    /// Length in bytes.
    pub const LEN: usize = Secret::LEN / 2;

    /// Makes a share of these bytes. Callers overwrite their own copies.
    pub fn from_bytes(bytes: &[u8; Share::LEN]) -> Share {
        let mut share = Share::blank();
        share.0.copy_from_slice(bytes);
        share
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8; Share::LEN] {
        &self.0
    }

    fn blank() -> Share {
        Share(Box::new([0; Share::LEN]))
    }

    /// Draws a share from the system's generator.
    pub(crate) fn draw() -> Result<Share, ControlSystemError> {
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

/// Fills `bytes` from the system's generator.
pub(crate) fn draw(bytes: &mut [u8]) -> Result<(), ControlSystemError> {
    let len = bytes.len();
    match getrandom(bytes, GetRandomFlags::empty()) {
        Ok(drawn) if drawn == len => Ok(()),
        Ok(_) => Err(system(ControlOperation::Random, "", Errno::IO)),
        Err(error) => Err(system(ControlOperation::Random, "", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
