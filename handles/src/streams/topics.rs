//! The topics of a store, at its owner: the publishers, the entries that are kept, and the positions of the subscribers.
//!
//! A topic is one queue, in which the entries of all its publishers stand in the order of their arrival. So the order of
//! each publisher is kept. An entry leaves the queue when all subscribers have gone on past it. An object that the topic
//! owns is evicted when its entry has left the queue and no subscriber holds its item any more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::allocator::Block;
use crate::handle::Handle;
use crate::table::{NoMemory, Refusal, Source, Table};

use super::{
    DEFAULT_TOPIC_CAPACITY, MAX_MEMBERS, MAX_TOPIC_CAPACITY, MAX_TOPICS, Overflow, PublisherOptions,
    SubscriberOptions,
};

/// Most bytes of the handles in all topics together.
const MAX_BYTES: usize = 64 << 20;

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
enum Kind {
    Item { handle: Arc<[u8]>, object: Option<u64> },
    PublisherGone { published: u64 },
}

#[derive(Debug)]
struct Entry {
    number: u64,
    publisher: u64,
    kind: Kind,
}

/// An object that the topic owns.
#[derive(Debug)]
struct Owned {
    object: u64,
    /// Subscribers that hold its item, and 1 while its entry is in the queue.
    holders: u32,
}

#[derive(Debug)]
struct Publisher {
    topic: Arc<str>,
    source: Source,
    drops_oldest: bool,
    published: u64,
}

#[derive(Debug)]
struct Subscriber {
    source: Source,
    /// The number of the first entry that it has not gone past.
    next: u64,
    /// The entry that it was sent last, until it has gone past that.
    given: Option<u64>,
    /// Entries that it has lost.
    lost: u64,
    /// Entries whose owned objects it holds.
    held: HashSet<u64>,
    /// Publishers that had ended before it came.
    ended_before: u64,
    /// Publishers that must have opened the topic before it ends.
    publishers: u32,
    /// It takes no more entries, and holds items still.
    has_left: bool,
}

/// The choices of a topic's first publisher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Choices {
    capacity: u32,
    keep: u32,
}

#[derive(Debug)]
struct Topic {
    /// Two words, for subscribers and for publishers. Each counts changes.
    words: Block,
    choices: Option<Choices>,
    /// Subscribers for whom the first entries are kept.
    awaited: u32,
    /// Subscribers that have come.
    came: u32,
    entries: VecDeque<Entry>,
    /// Entries with an object.
    items: usize,
    /// The number of the next entry.
    next: u64,
    /// Publishers that have not ended.
    live: usize,
    /// Publishers that have opened the topic.
    opened: u64,
    owned: HashMap<u64, Owned>,
    subscribers: HashMap<u64, Subscriber>,
}

/// The words of a topic.
#[derive(Clone, Copy)]
enum Word {
    Subscribers = 0,
    Publishers = 4,
}

fn with_word<T>(table: &Table, words: Block, which: Word, then: impl FnOnce(&AtomicU32, u64) -> T) -> T {
    let offset = words.offset() + which as u64;
    let start = table.region().region.at(offset, 4).expect("blocks lie in the region");
    // SAFETY: the four bytes are in the region, which is mapped for writing as long as the table, in a block that the
    // allocator has given to the topic. Other processes change them by atomic operations if at all.
    then(unsafe { AtomicU32::from_ptr(start.as_ptr().cast()) }, offset)
}

/// Changes the word, and wakes the threads that sleep on it.
fn signal(table: &Table, words: Block, which: Word) {
    with_word(table, words, which, |word, _| {
        word.fetch_add(1, Ordering::Release);
        // An error of it concerns no waiter: each looks again after a time.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
    });
}

fn wait_for(table: &Table, words: Block, which: Word) -> Wait {
    with_word(table, words, which, |word, offset| Wait { offset, value: word.load(Ordering::Relaxed) })
}

impl Topic {
    fn new(words: Block) -> Topic {
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
    fn floor(&self) -> u64 {
        if self.came < self.awaited {
            return 0;
        }
        let staying = self.subscribers.values().filter(|subscriber| !subscriber.has_left);
        staying.map(|subscriber| subscriber.next).min().unwrap_or(u64::MAX)
    }

    /// One holder less of an owned object.
    fn unhold(&mut self, table: &mut Table, number: u64) {
        let Some(owned) = self.owned.get_mut(&number) else { return };
        owned.holders -= 1;
        if owned.holders == 0 {
            let object = owned.object;
            self.owned.remove(&number);
            table.end(object);
        }
    }

    /// Takes the entry at this place out of the queue. Returns the bytes of its handle.
    fn take_out(&mut self, table: &mut Table, place: usize) -> usize {
        let Some(entry) = self.entries.remove(place) else { return 0 };
        let Kind::Item { handle, .. } = entry.kind else { return 0 };
        self.items -= 1;
        self.unhold(table, entry.number);
        handle.len()
    }

    /// Takes the entries out that all subscribers have gone past, but for those that are kept. Returns the bytes of their
    /// handles.
    fn trim(&mut self, table: &mut Table) -> usize {
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

    fn is_unused(&self) -> bool {
        self.live == 0 && self.subscribers.is_empty() && self.entries.is_empty()
    }
}

/// The topics of a store.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    topics: HashMap<Arc<str>, Topic>,
    publishers: HashMap<u64, Publisher>,
    /// The topics of the subscribers.
    subscribers: HashMap<u64, Arc<str>>,
    /// The number of the last publisher or subscriber.
    last: u64,
    /// Bytes of the handles in all topics.
    bytes: usize,
}

impl Topics {
    /// The topic of this name, made if it is not there.
    fn topic(&mut self, table: &mut Table, name: &str) -> Result<(Arc<str>, &mut Topic), Refused> {
        if !self.topics.contains_key(name) {
            if self.topics.len() == MAX_TOPICS {
                return Err(Refused::Topics);
            }
            let topic = Topic::new(table.take(8)?);
            for word in [Word::Subscribers, Word::Publishers] {
                with_word(table, topic.words, word, |word, _| word.store(0, Ordering::Relaxed));
            }
            self.topics.insert(name.into(), topic);
        }
        let name = self.topics.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let name = name.ok_or(Refused::Unknown)?;
        let topic = self.topics.get_mut(&name).ok_or(Refused::Unknown)?;
        Ok((name, topic))
    }

    /// Adds a publisher. Returns its number.
    pub(crate) fn open(
        &mut self,
        table: &mut Table,
        source: Source,
        name: &str,
        options: &PublisherOptions,
    ) -> Result<u64, Refused> {
        let choices = match (options.capacity, options.keep) {
            (None, 0) => None,
            (capacity, keep) => {
                Some(Choices { capacity: capacity.unwrap_or(DEFAULT_TOPIC_CAPACITY.max(keep)), keep })
            }
        };
        let is_wrong = |choices: Choices| {
            choices.capacity == 0 || choices.capacity > MAX_TOPIC_CAPACITY || choices.keep > choices.capacity
        };
        if choices.is_some_and(is_wrong) {
            return Err(Refused::Capacity);
        }
        let (name, topic) = self.topic(table, name)?;
        match (topic.choices, choices) {
            (Some(made), Some(asked)) if made != asked => {
                return Err(Refused::Differs(made.capacity, made.keep));
            }
            (Some(_), _) => {}
            (None, asked) => {
                let standard = Choices { capacity: DEFAULT_TOPIC_CAPACITY, keep: 0 };
                (topic.choices, topic.awaited) = (Some(asked.unwrap_or(standard)), options.awaited);
            }
        }
        // Each publisher may leave an entry that says that it is gone.
        if topic.live + topic.entries.len() - topic.items >= MAX_MEMBERS {
            return Err(Refused::Members);
        }
        (topic.live, topic.opened) = (topic.live + 1, topic.opened + 1);
        self.last += 1;
        let drops_oldest = matches!(options.overflow, Overflow::DropOldest);
        let publisher = Publisher { topic: name, source, drops_oldest, published: 0 };
        self.publishers.insert(self.last, publisher);
        Ok(self.last)
    }

    /// Appends an entry.
    pub(crate) fn publish(
        &mut self,
        table: &mut Table,
        source: Source,
        id: u64,
        is_owned: bool,
        handle: &[u8],
    ) -> Result<Published, Refused> {
        let publisher = self.publishers.get_mut(&id).filter(|publisher| publisher.source == source);
        let publisher = publisher.ok_or(Refused::Unknown)?;
        let topic = self.topics.get_mut(&publisher.topic).ok_or(Refused::Unknown)?;
        let named = Handle::from_bytes(handle).map_err(|_| Refused::NoHandle)?;
        let is_here = named.epoch == table.epoch;
        if is_here {
            table.check(named.number, named.key)?;
        } else if is_owned {
            return Err(Refused::Foreign);
        }
        let (floor, capacity) = (topic.floor(), topic.choices.map_or(0, |choices| choices.capacity) as usize);
        // Where the bytes are those of other topics, no word changes: the publisher asks again after a time.
        while topic.items >= capacity || self.bytes + handle.len() > MAX_BYTES {
            let oldest = topic.entries.iter().position(|entry| matches!(entry.kind, Kind::Item { .. }));
            let oldest = oldest.map(|place| (place, topic.entries[place].number));
            match oldest {
                Some((place, number)) if publisher.drops_oldest || number < floor => {
                    for subscriber in topic.subscribers.values_mut() {
                        if subscriber.next <= number
                            && subscriber.given != Some(number)
                            && !subscriber.has_left
                        {
                            subscriber.lost += 1;
                        }
                    }
                    self.bytes -= topic.take_out(table, place);
                }
                _ => return Ok(Published::Full(wait_for(table, topic.words, Word::Publishers))),
            }
        }
        let number = topic.next;
        topic.next += 1;
        if is_owned {
            topic.owned.insert(number, Owned { object: named.number, holders: 1 });
        }
        let kind = Kind::Item { handle: handle.into(), object: is_owned.then_some(named.number) };
        topic.entries.push_back(Entry { number, publisher: id, kind });
        topic.items += 1;
        self.bytes += handle.len();
        publisher.published += 1;
        // With no subscriber left nothing is held back.
        self.bytes -= topic.trim(table);
        signal(table, topic.words, Word::Subscribers);
        Ok(Published::As(number))
    }

    /// Ends a publisher. If it has not finished, its subscribers are told.
    pub(crate) fn finish(
        &mut self,
        table: &mut Table,
        source: Source,
        id: u64,
        has_finished: bool,
    ) -> Result<(), Refused> {
        if self.publishers.get(&id).is_none_or(|publisher| publisher.source != source) {
            return Err(Refused::Unknown);
        }
        let publisher = self.publishers.remove(&id).ok_or(Refused::Unknown)?;
        let topic = self.topics.get_mut(&publisher.topic).ok_or(Refused::Unknown)?;
        topic.live -= 1;
        if !has_finished {
            let kind = Kind::PublisherGone { published: publisher.published };
            topic.entries.push_back(Entry { number: topic.next, publisher: id, kind });
            topic.next += 1;
            self.bytes -= topic.trim(table);
        }
        signal(table, topic.words, Word::Subscribers);
        self.forget_unused(table, &publisher.topic);
        Ok(())
    }

    /// Adds a subscriber. Returns its number, and that of the first entry which it can get.
    pub(crate) fn subscribe(
        &mut self,
        table: &mut Table,
        source: Source,
        name: &str,
        options: &SubscriberOptions,
    ) -> Result<(u64, u64), Refused> {
        let id = self.last + 1;
        let (name, topic) = self.topic(table, name)?;
        if topic.subscribers.len() >= MAX_MEMBERS {
            return Err(Refused::Members);
        }
        let (next, ended_before) = match (options.from_oldest, topic.entries.front()) {
            (true, Some(first)) => (first.number, 0),
            _ => (topic.next, topic.opened - topic.live as u64),
        };
        topic.came = topic.came.saturating_add(1);
        let subscriber = Subscriber {
            source,
            next,
            given: None,
            lost: 0,
            held: HashSet::new(),
            ended_before,
            publishers: options.publishers,
            has_left: false,
        };
        topic.subscribers.insert(id, subscriber);
        let bytes = topic.trim(table);
        self.bytes -= bytes;
        self.last = id;
        self.subscribers.insert(id, name);
        Ok((id, next))
    }

    /// A subscriber of this source, and its topic.
    fn subscriber(&mut self, source: Source, id: u64) -> Result<(&Arc<str>, &mut Topic), Refused> {
        let name = self.subscribers.get(&id).ok_or(Refused::Unknown)?;
        let topic = self.topics.get_mut(name).ok_or(Refused::Unknown)?;
        match topic.subscribers.get(&id) {
            Some(subscriber) if subscriber.source == source => Ok((name, topic)),
            _ => Err(Refused::Unknown),
        }
    }

    /// Moves the subscriber to `from`, and returns the next entry from there. Asked again with the same number, as after a
    /// reply that was lost, it returns the same entry.
    pub(crate) fn next(
        &mut self,
        table: &mut Table,
        source: Source,
        id: u64,
        from: u64,
    ) -> Result<Next, Refused> {
        let (_, topic) = self.subscriber(source, id)?;
        let (end, queue) = (topic.next, &topic.entries);
        let subscriber = topic.subscribers.get_mut(&id).ok_or(Refused::Unknown)?;
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
            topic.unhold(table, dropped);
        }
        let next = loop {
            let Some(subscriber) = topic.subscribers.get_mut(&id) else { return Err(Refused::Unknown) };
            let place = topic.entries.partition_point(|entry| entry.number < subscriber.next);
            let Some(entry) = topic.entries.get(place) else {
                let opened = topic.opened - subscriber.ended_before;
                break match topic.live == 0 && opened >= u64::from(subscriber.publishers) {
                    true => Next::End { lost: subscriber.lost },
                    false => Next::Empty(wait_for(table, topic.words, Word::Subscribers)),
                };
            };
            let (number, publisher, lost) = (entry.number, entry.publisher, subscriber.lost);
            match &entry.kind {
                Kind::PublisherGone { published } => {
                    subscriber.given = Some(number);
                    break Next::PublisherGone { number, lost, publisher, published: *published };
                }
                // Evicted by its publisher, whose call failed.
                Kind::Item { object: Some(object), .. } if !table.has(*object) => {
                    subscriber.next = number + 1;
                }
                Kind::Item { handle, object } => {
                    let most = topic.choices.map_or(0, |choices| choices.capacity) + 1;
                    if object.is_some() && !subscriber.held.contains(&number) {
                        if subscriber.held.len() >= most as usize {
                            return Err(Refused::Holds(most));
                        }
                        subscriber.held.insert(number);
                        if let Some(owned) = topic.owned.get_mut(&number) {
                            owned.holders += 1;
                        }
                    }
                    subscriber.given = Some(number);
                    let (handle, is_owned) = (Arc::clone(handle), object.is_some());
                    break Next::Item { number, lost, publisher, is_owned, handle };
                }
            }
        };
        self.bytes -= {
            let (_, topic) = self.subscriber(source, id)?;
            topic.trim(table)
        };
        Ok(next)
    }

    /// The subscriber no longer holds the object of an entry. One that it does not hold is none.
    pub(crate) fn release(&mut self, table: &mut Table, source: Source, id: u64, number: u64) {
        let Ok((name, topic)) = self.subscriber(source, id) else { return };
        let name = Arc::clone(name);
        let Some(subscriber) = topic.subscribers.get_mut(&id) else { return };
        if !subscriber.held.remove(&number) {
            return;
        }
        let is_done = subscriber.has_left && subscriber.held.is_empty();
        topic.unhold(table, number);
        if is_done {
            topic.subscribers.remove(&id);
            self.subscribers.remove(&id);
            self.forget_unused(table, &name);
        }
    }

    /// The subscriber takes no more entries. It stays known while it holds items.
    /// An entry from `from` on that it was sent did not arrive.
    pub(crate) fn unsubscribe(
        &mut self,
        table: &mut Table,
        source: Source,
        id: u64,
        from: u64,
    ) -> Result<(), Refused> {
        let (name, topic) = self.subscriber(source, id)?;
        let name = Arc::clone(name);
        let subscriber = topic.subscribers.get_mut(&id).ok_or(Refused::Unknown)?;
        subscriber.has_left = true;
        let missed = subscriber.given.take().filter(|given| *given >= from);
        let missed = missed.filter(|given| subscriber.held.remove(given));
        let is_done = subscriber.held.is_empty();
        if let Some(missed) = missed {
            topic.unhold(table, missed);
        }
        let bytes = topic.trim(table);
        if is_done {
            topic.subscribers.remove(&id);
            self.subscribers.remove(&id);
        }
        self.bytes -= bytes;
        self.forget_unused(table, &name);
        Ok(())
    }

    /// Forgets a topic that has neither publishers nor subscribers, and evicts the objects that it owns. `false` if there
    /// is none.
    pub(crate) fn discard(&mut self, table: &mut Table, name: &str) -> Result<bool, Refused> {
        let Some((name, topic)) = self.topics.get_key_value(name) else { return Ok(false) };
        if topic.live != 0 || !topic.subscribers.is_empty() {
            return Err(Refused::InUse);
        }
        let name = Arc::clone(name);
        if let Some(topic) = self.topics.get_mut(&name) {
            while !topic.entries.is_empty() {
                self.bytes -= topic.take_out(table, 0);
            }
        }
        self.forget_unused(table, &name);
        Ok(true)
    }

    /// The source is gone: its publishers have not finished, and its subscribers hold nothing.
    pub(crate) fn source_ended(&mut self, table: &mut Table, source: Source) {
        let of_source = |publisher: &Publisher| publisher.source == source;
        let publishers: Vec<u64> =
            self.publishers.iter().filter(|(_, publisher)| of_source(publisher)).map(|(id, _)| *id).collect();
        for id in publishers {
            let _ = self.finish(table, source, id, false);
        }
        let subscribers: Vec<u64> = self.subscribers.keys().copied().collect();
        for id in subscribers {
            let Ok((name, topic)) = self.subscriber(source, id) else { continue };
            let name = Arc::clone(name);
            let held = topic.subscribers.remove(&id).map(|subscriber| subscriber.held).unwrap_or_default();
            for number in held {
                topic.unhold(table, number);
            }
            let bytes = topic.trim(table);
            self.bytes -= bytes;
            self.subscribers.remove(&id);
            self.forget_unused(table, &name);
        }
    }

    fn forget_unused(&mut self, table: &mut Table, name: &Arc<str>) {
        if self.topics.get(name).is_some_and(Topic::is_unused)
            && let Some(topic) = self.topics.remove(name)
        {
            table.give_back(topic.words);
        }
    }
}
