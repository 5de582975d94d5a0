//! Reading memory that the target lends, where the transport does that without the target.

#[cfg(doc)]
use farjump_core::transport::Cause;
use farjump_core::transport::{ReadBytes, TransportError};

use super::Link;
use crate::Error;

/// The state of a read of the target's memory ([`Link::poll_read`]).
#[derive(Debug)]
pub enum MemoryRead {
    /// It is under way, or there is none.
    InFlight,
    /// Its bytes.
    Done(ReadBytes),
    /// The transport does not read this memory natively. The link stays usable.
    Refused(TransportError),
}

impl Link {
    /// Returns whether the transport reads memory that the target lends, without the target taking part: verbs, and UCX
    /// over devices alone.
    pub fn reads_memory(&self) -> bool {
        self.inner.borrow_mut().reads_memory()
    }

    /// Starts to read the first `len` bytes, at least one, of memory that the target lent to this link by `key`
    /// ([`Objects::source_began`](crate::objects::Objects::source_began)). One read may be under way at a time. It
    /// continues until its bytes are there, even if no call polls for it.
    ///
    /// # Errors
    /// [`Cause::Full`] while another is under way; otherwise the reason why the memory cannot be read. The link stays
    /// usable, or the next call on it fails.
    pub fn start_read(&self, key: &[u8], len: usize) -> Result<(), TransportError> {
        self.inner.borrow_mut().start_read(key, len)
    }

    /// Polls once for the bytes of the read under way, for outcomes, and for control messages, without waiting.
    ///
    /// # Errors
    /// When the target is gone, or the read failed: the link ends with it.
    pub fn poll_read(&self) -> Result<MemoryRead, Error> {
        self.inner.borrow_mut().poll_read()
    }
}
