//! One topic: a queue of entries, and the positions of the subscribers in it.
//!
//! An entry leaves the queue when all subscribers have advanced past it. The store evicts an object that the topic owns
//! when its entry has left the queue and no subscriber holds its item.
//!
//! Items leave the queue only at its front, whether all have advanced past them or they were dropped. So the place of
//! an item is the number of items before it, which follows from its number. The items that a subscriber lost are
//! counted at its next request. Nothing here walks through entries or subscribers: trees find them, and do not move
//! everything as they grow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::owner::allocator::Block;
use crate::owner::table::{Source, Table};
use crate::wire::refusal::{NoMemory, Refusal};

mod positions;
mod queue;

/// The reason why a request about a topic fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The publisher or subscriber is unknown, or another source's.
    Unknown,
    /// The store has the maximum number of topics.
    Topics,
    /// The topic has the maximum number of publishers or subscribers.
    Members,
    /// The capacity is 0 or too large, or more entries are to be kept than that.
    Capacity,
    /// An earlier publisher has made other choices: the capacity and the number of kept entries.
    Differs(u32, u32),
    /// The subscriber holds the maximum number of items.
    Holds(u32),
    /// The bytes are no handle.
    NoHandle,
    /// The topic cannot own an object of another store.
    Foreign,
    /// Publishers or subscribers use the topic.
    InUse,
    Object(Refusal),
    NoMemory(NoMemory),
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Refused::Object(refusal)
    }
}

impl From<NoMemory> for Refused {
    fn from(none: NoMemory) -> Self {
        Refused::NoMemory(none)
    }
}

/// A word in the store's memory and its value. The word changes when the request can succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    pub(crate) offset: u64,
    pub(crate) value: u32,
}

/// The result of publishing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Published {
    /// The number of the entry in the topic.
    As(u64),
    /// The topic is full.
    Full(Wait),
}

/// The next entry for a subscriber.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// An object.
    Item { number: u64, lost: u64, publisher: u64, is_owned: bool, handle: Arc<[u8]> },
    /// A publisher ended without finishing, after `published` entries.
    PublisherGone { number: u64, lost: u64, publisher: u64, published: u64 },
    /// All publishers have ended.
    End { lost: u64 },
    /// There is no entry yet.
    Empty(Wait),
}

/// Bytes that records take of the store's capacity. They are no less than the records take of the heap, in trees whose
/// nodes are half full.
pub(crate) mod record {
    /// A topic, beside its name, with the first node of each of its trees.
    pub(crate) const TOPIC: u64 = 3072;
    /// A source that has used a topic.
    pub(crate) const USER: u64 = 128;
    /// A publisher.
    pub(crate) const PUBLISHER: u64 = 256;
    /// The entry that a publisher may leave.
    pub(crate) const GONE: u64 = 128;
    /// A subscriber, with the first [`HELD_FREE`] objects that it holds.
    pub(crate) const SUBSCRIBER: u64 = 768;
    /// An entry, beside its handle.
    pub(crate) const ITEM: u64 = 288;
    /// A further object that a subscriber holds.
    pub(crate) const HELD: u64 = 64;
    /// Objects that a subscriber may hold without a record of their own, so that a subscriber can free space in a full
    /// store.
    pub(crate) const HELD_FREE: usize = 16;
}

/// An entry with an object.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) number: u64,
    pub(crate) publisher: u64,
    /// The publisher's source.
    pub(crate) source: Source,
    pub(crate) handle: Arc<[u8]>,
    pub(crate) object: Option<u64>,
}

impl Item {
    /// Bytes of the entry's record.
    pub(crate) fn record(&self) -> u64 {
        record::ITEM + self.handle.len() as u64
    }
}

/// The entry of a publisher that ended without finishing.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) publisher: u64,
    pub(crate) source: Source,
    pub(crate) published: u64,
    /// The number of such entries before it.
    pub(crate) place: u64,
}

/// An object that the topic owns.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) object: u64,
    /// Subscribers that hold its item, and 1 while its entry is in the queue.
    pub(crate) holders: u32,
}

/// The last entry that was sent to a subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) number: u64,
    /// The place of an item.
    place: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) source: Source,
    /// The number of the first entry that it has not passed.
    next: u64,
    /// The last entry that was sent to it, until it has passed that.
    given: Option<Given>,
    /// Items that it has lost, of those before the place `counted`.
    lost: u64,
    counted: u64,
    /// Entries whose owned objects it holds.
    held: BTreeSet<u64>,
    /// Number of publishers that had ended before it came.
    ended_before: u64,
    /// Number of publishers that must have opened the topic before its stream ends.
    publishers: u32,
    /// True if it takes no more entries, but still holds items.
    pub(crate) has_left: bool,
}

impl Subscriber {
    /// Returns whether the subscriber holds no object.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds the object of this entry.
    fn hold(&mut self, table: &mut Table, number: u64) -> Result<(), NoMemory> {
        if self.held.len() >= record::HELD_FREE {
            table.charge(self.source, record::HELD)?;
        }
        self.held.insert(number);
        Ok(())
    }

    /// Stops holding the object of this entry. Returns `false` if the subscriber did not hold it.
    pub(crate) fn drop_hold(&mut self, table: &mut Table, number: u64) -> bool {
        let did = self.held.remove(&number);
        if did && self.held.len() >= record::HELD_FREE {
            table.refund(self.source, record::HELD);
        }
        did
    }

    /// Stops holding one object, and returns the number of its entry.
    pub(crate) fn drop_first_hold(&mut self, table: &mut Table) -> Option<u64> {
        let number = self.held.first().copied()?;
        self.drop_hold(table, number).then_some(number)
    }
}

/// The choices of a topic's first publisher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choices {
    pub(crate) capacity: u32,
    pub(crate) keep: u32,
}

#[derive(Debug)]
pub(crate) struct Topic {
    /// Two words, for subscribers and for publishers. Each counts changes.
    pub(crate) words: Block,
    /// The topic's name. `None` once the topic is discarded: it cannot be found, and its entries go.
    pub(crate) name: Option<Arc<str>>,
    /// The source that made the topic, and the bytes of the topic's record.
    pub(crate) record: (Source, u64),
    pub(crate) choices: Option<Choices>,
    /// Number of subscribers for which the first entries are kept.
    pub(crate) awaited: u32,
    /// Number of subscribers that have come.
    came: u32,
    /// Entries with an object, by their places.
    pub(crate) items: BTreeMap<u64, Item>,
    /// Number of items so far.
    items_ever: u64,
    /// The entries of gone publishers, by their numbers.
    pub(crate) gone: BTreeMap<u64, Gone>,
    gone_ever: u64,
    /// Number of publishers that have not ended.
    pub(crate) live: usize,
    /// Number of publishers that have opened the topic.
    opened: u64,
    pub(crate) owned: BTreeMap<u64, Owned>,
    pub(crate) subscribers: BTreeMap<u64, Box<Subscriber>>,
    /// The positions and numbers of the subscribers that have not left.
    positions: BTreeSet<(u64, u64)>,
    /// The sources that have used the topic and have not ended.
    pub(crate) users: BTreeSet<Source>,
    /// Its place among the topics whose users have all ended.
    pub(crate) orphaned: Option<u64>,
}

/// The words of a topic.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    Subscribers = 0,
    Publishers = 4,
}

pub(crate) fn with_word<T>(
    table: &Table,
    words: Block,
    which: Word,
    then: impl FnOnce(&AtomicU32, u64) -> T,
) -> T {
    let offset = words.offset() + which as u64;
    let start = table.region().region.at(offset, 4).expect("blocks lie in the region");
    // SAFETY: the four bytes are in the region, which is mapped for writing as long as the table, in a block that the
    // allocator has given to the topic. If other processes change them, they do so by atomic operations.
    then(unsafe { AtomicU32::from_ptr(start.as_ptr().cast()) }, offset)
}

/// Changes the word, and wakes the threads that sleep on it.
pub(crate) fn signal(table: &Table, words: Block, which: Word) {
    with_word(table, words, which, |word, _| {
        word.fetch_add(1, Ordering::Release);
        // Its errors concern no waiter: each looks again after a time.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
    });
}

pub(crate) fn wait_for(table: &Table, words: Block, which: Word) -> Wait {
    with_word(table, words, which, |word, offset| Wait { offset, value: word.load(Ordering::Relaxed) })
}
