//! A byte stream that farjump connects for backends that ask for one ([`Capabilities::stream`](crate::transport::Capabilities)).

use alloc::boxed::Box;
use core::fmt;

use zeroize::Zeroize;

use crate::descriptor::OwnedFd;

/// A connected stream socket (TCP, or Unix) between the two ends of a link, and what only those two know.
///
/// Nothing has been read from it or written to it but farjump's own opening of 64 bytes. It does not block, is closed on exec, and is
/// the backend's from then on: it sets the options that it wants, and closes it.
#[derive(Debug)]
pub struct Stream {
    /// The socket.
    pub descriptor: OwnedFd,
    /// Which end this is: both must not use one key for the same direction.
    pub side: Side,
    /// The number by which the target knew the stream for the link's. Another for each stream. It travels on the stream in the clear.
    pub token: [u8; Stream::TOKEN],
    /// What keys are derived from; `None` where the stream is to be clear. Both ends have the same.
    pub secret: Option<Secret>,
}

impl Stream {
    /// Length of a token in bytes.
    pub const TOKEN: usize = 32;
}

/// The two ends of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Side {
    /// The end that connected it: the source's.
    Source,
    /// The end that accepted it: the target's.
    Target,
}

/// 64 random bytes, half of them drawn by each side and told the other over a sealed control connection. They stay in one place, and
/// are overwritten when dropped.
pub struct Secret(Box<[u8; Secret::LEN]>);

impl Secret {
    /// Length in bytes.
    pub const LEN: usize = 64;

    /// The secret of these bytes. Those that were given are the caller's to overwrite.
    pub fn from_bytes(bytes: [u8; Secret::LEN]) -> Secret {
        Secret(Box::new(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; Secret::LEN] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}
