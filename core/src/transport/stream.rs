//! A byte stream that farjump connects for backends with
//! [`Capabilities::stream`](crate::transport::Capabilities).

use alloc::boxed::Box;
use core::fmt;

use zeroize::Zeroize;

use crate::descriptor::OwnedFd;

/// A connected stream socket (TCP or Unix) between the two endpoints of a link, and the secrets that only
/// those two have.
///
/// Only farjump's own opening of 64 bytes has been read from it or written to it. It is non-blocking and
/// closed on exec. The backend then owns the socket: it sets its own options, and closes it.
#[derive(Debug)]
pub struct Stream {
    /// The socket.
    pub descriptor: OwnedFd,
    /// The role of this process: source and target must not use one key for the same direction.
    pub role: StreamRole,
    /// The number by which the target matched the stream to the link, different for each stream. It travels
    /// on the stream unencrypted.
    pub token: [u8; Stream::TOKEN],
    /// The secret from which keys are derived; `None` for an unencrypted stream. Both processes have the same
    /// secret.
    pub secret: Option<Secret>,
}

impl Stream {
    /// Length of a token in bytes.
    pub const TOKEN: usize = 32;
}

/// The two endpoints of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum StreamRole {
    /// The source's endpoint, which connected.
    Source,
    /// The target's endpoint, which accepted.
    Target,
}

/// 64 random bytes, half drawn by each process and sent to the other over an encrypted control connection.
/// They stay in one place in memory, and are overwritten when dropped.
pub struct Secret(Box<[u8; Secret::LEN]>);

impl Secret {
    /// Length in bytes.
    pub const LEN: usize = 64;

    /// Makes a secret of these bytes. The caller must overwrite its own copy.
    pub fn from_bytes(bytes: [u8; Secret::LEN]) -> Secret {
        Secret(Box::new(bytes))
    }

    /// The bytes of the secret.
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
