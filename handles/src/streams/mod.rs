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

/// The action of a publisher when the topic is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// It waits until the slowest subscriber has advanced.
    #[default]
    Wait,
    /// It fails at once with [`StreamFault::Full`].
    Refuse,
    /// It drops the oldest entry. Subscribers that have not received the entry learn how many they lost
    /// ([`Item::lost`](crate::Item::lost)).
    DropOldest,
}

/// Options of a [`Publisher`](crate::Publisher).
#[derive(Clone, Debug)]
#[must_use]
pub struct PublisherOptions {
    pub(crate) capacity: Option<u32>,
    pub(crate) keep: u32,
    pub(crate) awaited: u32,
    pub(crate) overflow: Overflow,
}

impl Default for PublisherOptions {
    fn default() -> PublisherOptions {
        PublisherOptions { capacity: None, keep: 0, awaited: 1, overflow: Overflow::Wait }
    }
}

impl PublisherOptions {
    /// Most entries of the topic that some subscriber has not passed yet. The first publisher of a topic decides: the
    /// owner refuses a later one that requests another capacity. [`DEFAULT_TOPIC_CAPACITY`] unless set.
    pub fn capacity(mut self, entries: u32) -> Self {
        self.capacity = Some(entries);
        self
    }

    /// Number of latest entries that stay for late subscribers, though all others have passed them. The first publisher
    /// of a topic decides. None unless set.
    pub fn keep(mut self, entries: u32) -> Self {
        self.keep = entries;
        self
    }

    /// Number of subscribers for which the topic waits. Until that many have come, entries leave the topic only by
    /// [`Overflow::DropOldest`]. The first publisher of a topic decides. 1 unless set.
    pub fn await_subscribers(mut self, count: u32) -> Self {
        self.awaited = count;
        self
    }

    /// The action of this publisher when the topic is full. [`Overflow::Wait`] unless set.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }
}

/// Options of a [`Subscriber`](crate::Subscriber).
#[derive(Clone, Debug)]
#[must_use]
pub struct SubscriberOptions {
    pub(crate) from_oldest: bool,
    pub(crate) publishers: u32,
}

impl Default for SubscriberOptions {
    fn default() -> SubscriberOptions {
        SubscriberOptions { from_oldest: true, publishers: 1 }
    }
}

impl SubscriberOptions {
    /// Begins with the next entry that is published, and not with the oldest in the topic.
    pub fn from_now(mut self) -> Self {
        self.from_oldest = false;
        self
    }

    /// Number of publishers that must have opened the topic before the stream can end. With 0, the stream ends whenever
    /// no publisher is open and the subscriber has received all entries. 1 unless set.
    pub fn publishers(mut self, count: u32) -> Self {
        self.publishers = count;
        self
    }
}

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
         or to drop the oldest entries (PublisherOptions)"
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
