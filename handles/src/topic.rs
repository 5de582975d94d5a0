//! One topic: a queue of entries, and the positions of the subscribers in it.
//!
//! An entry leaves the queue when all subscribers have gone on past it. An object that the topic owns is evicted when its
//! entry has left the queue and no subscriber holds its item any more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::allocator::Block;
use crate::refusal::{NoMemory, Refusal};
use crate::table::{Source, Table};

/// Why a request about a topic fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The publisher or subscriber is unknown, or another source's.
    Unknown,
    /// There are as many topics as there can be.
    Topics,
    /// The topic has as many publishers or subscribers as it can have.
    Members,
    /// The capacity is 0 or too large, or more entries are to be kept than that.
    Capacity,
    /// An earlier publisher has made other choices: the capacity and the number of kept entries.
    Differs(u32, u32),
    /// The subscriber holds so many items.
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

/// A word in the store's memory and its value: what the request waits for changes it.
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
    /// A publisher ended without finishing, after so many entries.
    PublisherGone { number: u64, lost: u64, publisher: u64, published: u64 },
    /// All publishers have ended.
    End { lost: u64 },
    /// There is none yet.
    Empty(Wait),
}

#[derive(Debug)]
pub(crate) enum Kind {
    Item { handle: Arc<[u8]>, object: Option<u64> },
    PublisherGone { published: u64 },
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) publisher: u64,
    pub(crate) kind: Kind,
}

/// An object that the topic owns.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) object: u64,
    /// Subscribers that hold its item, and 1 while its entry is in the queue.
    pub(crate) holders: u32,
}

#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) source: Source,
    /// The number of the first entry that it has not gone past.
    pub(crate) next: u64,
    /// The entry that it was sent last, until it has gone past that.
    pub(crate) given: Option<u64>,
    /// Entries that it has lost.
    pub(crate) lost: u64,
    /// Entries whose owned objects it holds.
    pub(crate) held: HashSet<u64>,
    /// Publishers that had ended before it came.
    pub(crate) ended_before: u64,
    /// Publishers that must have opened the topic before it ends.
    pub(crate) publishers: u32,
    /// It takes no more entries, and holds items still.
    pub(crate) has_left: bool,
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
    pub(crate) choices: Option<Choices>,
    /// Subscribers for whom the first entries are kept.
    pub(crate) awaited: u32,
    /// Subscribers that have come.
    pub(crate) came: u32,
    pub(crate) entries: VecDeque<Entry>,
    /// Entries with an object.
    pub(crate) items: usize,
    /// The number of the next entry.
    pub(crate) next: u64,
    /// Publishers that have not ended.
    pub(crate) live: usize,
    /// Publishers that have opened the topic.
    pub(crate) opened: u64,
    pub(crate) owned: HashMap<u64, Owned>,
    pub(crate) subscribers: HashMap<u64, Subscriber>,
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
    // allocator has given to the topic. Other processes change them by atomic operations if at all.
    then(unsafe { AtomicU32::from_ptr(start.as_ptr().cast()) }, offset)
}

/// Changes the word, and wakes the threads that sleep on it.
pub(crate) fn signal(table: &Table, words: Block, which: Word) {
    with_word(table, words, which, |word, _| {
        word.fetch_add(1, Ordering::Release);
        // An error of it concerns no waiter: each looks again after a time.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
    });
}

pub(crate) fn wait_for(table: &Table, words: Block, which: Word) -> Wait {
    with_word(table, words, which, |word, offset| Wait { offset, value: word.load(Ordering::Relaxed) })
}

impl Topic {
    pub(crate) fn new(words: Block) -> Topic {
        Topic {
            words,
            choices: None,
            awaited: 1,
            came: 0,
            entries: VecDeque::new(),
            items: 0,
            next: 0,
            live: 0,
            opened: 0,
            owned: HashMap::new(),
            subscribers: HashMap::new(),
        }
    }

    /// Entries before this number are held back for no subscriber.
    pub(crate) fn floor(&self) -> u64 {
        if self.came < self.awaited {
            return 0;
        }
        let staying = self.subscribers.values().filter(|subscriber| !subscriber.has_left);
        staying.map(|subscriber| subscriber.next).min().unwrap_or(u64::MAX)
    }

    /// One holder less of an owned object.
    pub(crate) fn unhold(&mut self, table: &mut Table, number: u64) {
        let Some(owned) = self.owned.get_mut(&number) else { return };
        owned.holders -= 1;
        if owned.holders == 0 {
            let object = owned.object;
            self.owned.remove(&number);
            table.end(object);
        }
    }

    /// Takes the entry at this place out of the queue. Returns the bytes of its handle.
    pub(crate) fn take_out(&mut self, table: &mut Table, place: usize) -> usize {
        let Some(entry) = self.entries.remove(place) else { return 0 };
        let Kind::Item { handle, .. } = entry.kind else { return 0 };
        self.items -= 1;
        self.unhold(table, entry.number);
        handle.len()
    }

    /// Takes the entries out that all subscribers have gone past, but for those that are kept. Returns the bytes of their
    /// handles.
    pub(crate) fn trim(&mut self, table: &mut Table) -> usize {
        let keep = self.choices.map_or(0, |choices| choices.keep) as usize;
        let (floor, before, mut bytes) = (self.floor(), self.entries.len(), 0);
        while let Some(first) = self.entries.front()
            && first.number < floor
            && (matches!(first.kind, Kind::PublisherGone { .. }) || self.items > keep)
        {
            bytes += self.take_out(table, 0);
        }
        if self.entries.len() != before {
            signal(table, self.words, Word::Publishers);
        }
        bytes
    }

    /// Moves the subscriber to `from`, and returns the next entry from there. Asked again with the same number, as after a
    /// reply that was lost, it returns the same entry.
    pub(crate) fn next_for(&mut self, table: &mut Table, id: u64, from: u64) -> Result<Next, Refused> {
        let (end, queue) = (self.next, &self.entries);
        let subscriber = self.subscribers.get_mut(&id).ok_or(Refused::Unknown)?;
        let mut dropped = None;
        if let Some(given) = subscriber.given.take()
            && from <= given
            && queue.binary_search_by_key(&given, |entry| entry.number).is_err()
        {
            // The reply was lost, and the entry has left the queue since.
            subscriber.lost += 1;
            dropped = subscriber.held.remove(&given).then_some(given);
        }
        subscriber.next = from.clamp(subscriber.next, end);
        if let Some(dropped) = dropped {
            self.unhold(table, dropped);
        }
        loop {
            let Some(subscriber) = self.subscribers.get_mut(&id) else { return Err(Refused::Unknown) };
            let place = self.entries.partition_point(|entry| entry.number < subscriber.next);
            let Some(entry) = self.entries.get(place) else {
                let opened = self.opened - subscriber.ended_before;
                return Ok(match self.live == 0 && opened >= u64::from(subscriber.publishers) {
                    true => Next::End { lost: subscriber.lost },
                    false => Next::Empty(wait_for(table, self.words, Word::Subscribers)),
                });
            };
            let (number, publisher, lost) = (entry.number, entry.publisher, subscriber.lost);
            match &entry.kind {
                Kind::PublisherGone { published } => {
                    subscriber.given = Some(number);
                    return Ok(Next::PublisherGone { number, lost, publisher, published: *published });
                }
                // Evicted by its publisher, whose call failed.
                Kind::Item { object: Some(object), .. } if !table.has(*object) => {
                    subscriber.next = number + 1;
                }
                Kind::Item { handle, object } => {
                    let most = self.choices.map_or(0, |choices| choices.capacity) + 1;
                    if object.is_some() && !subscriber.held.contains(&number) {
                        if subscriber.held.len() >= most as usize {
                            return Err(Refused::Holds(most));
                        }
                        subscriber.held.insert(number);
                        if let Some(owned) = self.owned.get_mut(&number) {
                            owned.holders += 1;
                        }
                    }
                    subscriber.given = Some(number);
                    let (handle, is_owned) = (Arc::clone(handle), object.is_some());
                    return Ok(Next::Item { number, lost, publisher, is_owned, handle });
                }
            }
        }
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.live == 0 && self.subscribers.is_empty() && self.entries.is_empty()
    }
}
