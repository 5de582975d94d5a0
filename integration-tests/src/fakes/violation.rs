//! Ways in which a user of a transport can break the contract, as a backend notices them.

/// Something that core did and the contract forbids.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A put that is not inside the peer's region: core has to check before it calls.
    #[error("put of {len} bytes at {offset}, outside the peer's region of {region} bytes")]
    PutOutside {
        /// Where.
        offset: usize,
        /// How many bytes.
        len: usize,
        /// Length of the region.
        region: usize,
    },
    /// A put of more than the path can move in one operation.
    #[error("put of {len} bytes at {offset}, over the path's limit of {max}")]
    PutTooLong {
        /// Where.
        offset: usize,
        /// How many bytes.
        len: usize,
        /// [`farjump_core::transport::Capabilities::max_frame`].
        max: usize,
    },
    /// A word that is not aligned to 8 bytes.
    #[error("word put at {offset}, which is not a multiple of 8")]
    WordUnaligned {
        /// Where.
        offset: usize,
    },
    /// A write with completion on a path that does not list the rule.
    #[error("put with completion at {offset}, on a path that does not offer write-imm")]
    CompletionNotOffered {
        /// Where.
        offset: usize,
    },
    /// The bytes of a put were changed or freed while the backend still had to read them.
    #[error(
        "bytes put at {offset} changed before they were moved (frame at {frame}): no credit was returned for them"
    )]
    BytesChanged {
        /// Where in the region.
        offset: usize,
        /// The frame that they belong to.
        frame: u64,
    },
    /// A put after this end's own region was dropped: half an endpoint was kept.
    #[error("put at {offset} after this end was closed")]
    PutAfterClose {
        /// Where.
        offset: usize,
    },
    /// A message was sent for which no room was reserved.
    #[error("message {frame} committed without a reserved room")]
    CommitWithoutReserve {
        /// Its running number.
        frame: u64,
    },
    /// More was sent than reserved.
    #[error("message {frame} of {len} bytes committed in a room of {reserved}")]
    CommitTooLong {
        /// Its running number.
        frame: u64,
        /// Its length.
        len: usize,
        /// Room reserved.
        reserved: usize,
    },
    /// A message that is not whole lines.
    #[error("message {frame} of {len} bytes committed, which is not a multiple of 64, or nothing")]
    CommitNotLines {
        /// Its running number.
        frame: u64,
        /// Its length.
        len: usize,
    },
    /// The room was written after it had been given back by committing it.
    #[error("message {frame} was written to after it was committed")]
    WrittenAfterCommit {
        /// Its running number.
        frame: u64,
    },
    /// The end was used for sending after it had failed for good.
    #[error("used for sending after an error that ended the link")]
    UsedAfterError,
}
