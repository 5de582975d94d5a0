//! Opening a channel on endpoints that a handshake has connected.

use farjump_control::{Joined, PeerIdentity};
use farjump_core::channel::Channel;
use farjump_core::frame::MAX_FRAME;
use farjump_core::mailbox;

use crate::{ConnectError, Error, Mailbox};

/// Bytes of a mailbox that have memory when a link is made, unless all of it gets memory then. Calls that come alone
/// keep to the first 8 KiB, and some hundreds in flight to this much (`docs/design/shm.md`).
pub(crate) const AT_ONCE: usize = 256 << 10;

/// Returns the length of the ring for a request of `len` bytes: the next power of two.
pub(crate) fn ring_len(mailbox: Mailbox, len: usize) -> Result<usize, Error> {
    match mailbox::region_len(len).checked_sub(mailbox::CONTROL_LEN) {
        Some(ring) if ring <= MAX_FRAME => Ok(ring),
        _ => Err(Error::Connect(ConnectError::MailboxSize { mailbox, len, max: MAX_FRAME })),
    }
}

/// A channel over two endpoints that `peer` and this process have connected.
pub(crate) fn joined_channel(joined: Joined, peer: &PeerIdentity) -> Result<Channel, Error> {
    Ok(joined.into_channel().map_err(|error| error.with_peer(peer.to_string()))?)
}
