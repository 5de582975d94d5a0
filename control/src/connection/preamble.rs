//! The preamble of each direction of a control connection: 12 bytes that show farjump, its version, and
//! whether there is a key, before anything else is read.

use crate::peer_identity::PeerIdentity;
use crate::{HandshakeError, MessageFault, ReservedBytes};

/// The first bytes of each direction.
pub const MAGIC: [u8; 8] = *b"FARJUMP\0";
/// Version of the protocol. Processes of different versions do not connect.
pub const VERSION: u16 = 8;
/// Length of the preamble in bytes.
pub const PREFIX_LEN: usize = 12;

/// The encryption of a connection, as the preamble states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Security {
    /// Messages in the clear.
    Plain = 0,
    /// A handshake by a key that both processes have, then encrypted packets.
    Key = 1,
}

/// Marks the stream of a link ([`StreamOffer`](crate::StreamOffer)), instead of a [`Security`].
const STREAM: u8 = 2;

/// Returns this version's preamble of a control connection.
pub(crate) const fn prefix(security: Security) -> [u8; PREFIX_LEN] {
    prefix_of(security as u8)
}

/// Returns this version's preamble of a stream.
pub(crate) const fn stream_prefix() -> [u8; PREFIX_LEN] {
    prefix_of(STREAM)
}

const fn prefix_of(kind: u8) -> [u8; PREFIX_LEN] {
    let [a, b, c, d, e, f, g, h] = MAGIC;
    let [low, high] = VERSION.to_le_bytes();
    [a, b, c, d, e, f, g, h, low, high, kind, 0]
}

/// Parses the preamble at the start of `bytes`; `None` if it is not whole. Fails at the first wrong byte.
pub(crate) fn read_prefix(bytes: &[u8], peer: &PeerIdentity) -> Result<Option<Security>, HandshakeError> {
    let have = bytes.len().min(MAGIC.len());
    if bytes[..have] != MAGIC[..have] {
        return Err(HandshakeError::NotFarjump { peer: peer.to_string() });
    }
    let Some(prefix) = bytes.first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    let theirs = u16::from_le_bytes([prefix[8], prefix[9]]);
    if theirs != VERSION {
        return Err(HandshakeError::Version { peer: peer.to_string(), theirs, ours: VERSION });
    }
    match [prefix[10], prefix[11]] {
        [0, 0] => Ok(Some(Security::Plain)),
        [1, 0] => Ok(Some(Security::Key)),
        other => {
            let fault = match other {
                [STREAM, 0] => MessageFault::Stream,
                _ => MessageFault::Reserved(ReservedBytes::Preamble),
            };
            Err(HandshakeError::Garbled { peer: peer.to_string(), fault })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_reads_as_written_and_any_changed_byte_is_refused() {
        let peer = PeerIdentity::at("127.0.0.1:1".parse().unwrap(), "a process");
        for security in [Security::Plain, Security::Key] {
            let bytes = prefix(security);
            assert_eq!(read_prefix(&bytes, &peer).unwrap(), Some(security));
            for len in 0..PREFIX_LEN {
                assert_eq!(read_prefix(&bytes[..len], &peer).unwrap(), None);
            }
            for at in 0..PREFIX_LEN {
                let mut wrong = bytes;
                wrong[at] ^= 0x40;
                let error = read_prefix(&wrong, &peer).unwrap_err();
                let right = match at {
                    0..8 => matches!(error, HandshakeError::NotFarjump { .. }),
                    8 | 9 => matches!(error, HandshakeError::Version { ours: VERSION, .. }),
                    _ => matches!(error, HandshakeError::Garbled { .. }),
                };
                assert!(right, "byte {at}: {error}");
            }
        }
    }
}
