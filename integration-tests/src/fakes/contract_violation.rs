//! Violations of the transport contract by its user, as a backend notices them.

/// A violation of the contract by core.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A put outside the peer's region: core must check before it calls.
    #[error("put of {len} bytes at {offset}, outside the peer's region of {region} bytes")]
    PutOutside {
        /// Its offset.
        offset: usize,
        /// Its length in bytes.
        len: usize,
        /// Length of the region.
        region: usize,
    },
    /// A put longer than the path's largest operation.
    #[error("put of {len} bytes at {offset}, over the path's limit of {max}")]
    PutTooLong {
        /// Its offset.
        offset: usize,
        /// Its length in bytes.
        len: usize,
        /// [`farjump_core::transport::Capabilities::max_frame`].
        max: usize,
    },
    /// A word that is not aligned to 8 bytes.
    #[error("word put at {offset}, which is not a multiple of 8")]
    WordUnaligned {
        /// Its offset.
        offset: usize,
    },
    /// A write with completion on a path that does not list the rule.
    #[error("put with completion at {offset}, on a path that does not offer write-imm")]
    CompletionNotOffered {
        /// Its offset.
        offset: usize,
    },
    /// The bytes of a put were changed or freed while the backend still had to read them.
    #[error(
        "bytes put at {offset} changed before they were moved (frame at {frame}): no credit was returned for them"
    )]
    BytesChanged {
        /// Their offset in the region.
        offset: usize,
        /// Their frame.
        frame: u64,
    },
    /// A put after this endpoint's own region was dropped: half an endpoint was kept.
    #[error("put at {offset} after this end was closed")]
    PutAfterClose {
        /// Its offset.
        offset: usize,
    },
    /// A message was sent without a reserved buffer.
    #[error("message {frame} committed without a reserved space")]
    CommitWithoutReserve {
        /// Its running number.
        frame: u64,
    },
    /// A message is longer than its reservation.
    #[error("message {frame} of {len} bytes committed in a space of {reserved}")]
    CommitTooLong {
        /// Its running number.
        frame: u64,
        /// Its length.
        len: usize,
        /// Bytes reserved.
        reserved: usize,
    },
    /// A message that is no frame.
    #[error("message {frame} of {len} bytes committed, which is less than a frame's header")]
    CommitTooShort {
        /// Its running number.
        frame: u64,
        /// Its length.
        len: usize,
    },
    /// The buffer was written after its commit.
    #[error("message {frame} was written to after it was committed")]
    WrittenAfterCommit {
        /// Its running number.
        frame: u64,
    },
    /// The endpoint was used for sending after a final error.
    #[error("used for sending after an error that ended the link")]
    UsedAfterError,
}
