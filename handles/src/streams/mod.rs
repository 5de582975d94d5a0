//! Streams of handles: publishers name objects in a topic at a store, and subscribers get their handles in order.
//!
//! Only handles pass through the topic. The bytes stay at the owner of each object until a subscriber uses them.

pub(crate) mod path;
pub(crate) mod publisher;
pub(crate) mod subscriber;
pub(crate) mod wire;

/// Entries that a topic holds unless its first publisher chooses.
pub const DEFAULT_TOPIC_CAPACITY: u32 = 64;
/// Most entries that a topic can hold.
pub const MAX_TOPIC_CAPACITY: u32 = 1 << 16;
/// Most bytes of a topic's name.
pub const MAX_TOPIC_NAME: usize = u8::MAX as usize;
/// Most topics of a store.
pub const MAX_TOPICS: usize = 1024;
/// Most publishers of a topic, and most subscribers.
pub const MAX_MEMBERS: usize = 1024;
/// Most bytes of an encoded handle in a stream.
pub const MAX_STREAM_HANDLE: usize = 1024;

/// A fault of a stream.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamFault {
    /// The name of the topic is empty or too long.
    #[error("its name has {len} bytes: give it 1 to {MAX_TOPIC_NAME}")]
    Name {
        /// The name's length in bytes.
        len: usize,
    },
    /// The topic is full, and no subscriber has advanced in time.
    #[error(
        "it is full, because its slowest subscriber has not gone on or none has come: wait longer, or choose a larger capacity \
         or to drop the oldest entries (PublisherConfig::overflow)"
    )]
    Full,
    /// A publisher ended without finishing. All its entries came before.
    #[error(
        "publisher {publisher} ended without finishing, after {published} entries: what it would have published is missing"
    )]
    PublisherGone {
        /// The publisher's number ([`Item::publisher`](crate::Item::publisher)).
        publisher: u64,
        /// Number of entries that it published.
        published: u64,
    },
    /// No entry came in time.
    #[error("no entry came within {0:?}")]
    NoEntry(std::time::Duration),
    /// The owner does not know this publisher or subscriber.
    #[error("the owner does not know this publisher or subscriber: open the topic again")]
    Unknown,
    /// The store has as many topics as it can have.
    #[error("the store has {MAX_TOPICS} topics, and allows no more: finish or discard others")]
    Topics,
    /// The topic has too many publishers or subscribers.
    #[error("it has {MAX_MEMBERS} publishers or subscribers, and allows no more")]
    Members,
    /// The capacity is impossible.
    #[error(
        "its capacity must be 1 to {MAX_TOPIC_CAPACITY} entries, and no more entries can be kept than that"
    )]
    Capacity,
    /// An earlier publisher has made other choices.
    #[error(
        "its first publisher chose a capacity of {capacity} entries, of which {keep} are kept: choose the same, or nothing"
    )]
    Differs {
        /// The capacity.
        capacity: u32,
        /// Number of kept entries.
        keep: u32,
    },
    /// The subscriber holds too many items.
    #[error(
        "the subscriber holds {most} items whose objects the topic owns, and may hold no more: drop some of them"
    )]
    Holds {
        /// The maximum number of items.
        most: u32,
    },
    /// The owner cannot decode the handle.
    #[error("the owner cannot decode the handle: update the older of the two programs")]
    NoHandle,
    /// The encoded handle is too long.
    #[error(
        "the handle has {len} bytes, and {MAX_STREAM_HANDLE} are allowed: give its owner fewer or shorter addresses"
    )]
    LongHandle {
        /// The handle's length in bytes.
        len: usize,
    },
    /// The topic cannot own an object of another store.
    #[error(
        "the object is another store's, and a topic owns objects of its own store alone: publish the handle instead"
    )]
    Foreign,
    /// The topic cannot be discarded.
    #[error("it has publishers or subscribers: let them end before it is discarded")]
    InUse,
}
