//! The topics of a store, at its owner: the publishers, the entries that are kept, and the positions of the subscribers.
//!
//! A topic is one queue, in which the entries of all its publishers stand in the order of their arrival. So the order of
//! each publisher is kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::handle::Handle;
use crate::table::{Source, Table};

use crate::streams::{
    DEFAULT_TOPIC_CAPACITY, MAX_MEMBERS, MAX_STREAM_HANDLE, MAX_TOPIC_CAPACITY, MAX_TOPICS, Overflow,
    PublisherOptions, SubscriberOptions,
};
use crate::topic::{
    Choices, Entry, Kind, Next, Owned, Published, Refused, Subscriber, Topic, Word, signal, wait_for,
    with_word,
};

/// Most bytes of the handles in all topics together.
const MAX_BYTES: usize = 64 << 20;

#[derive(Debug)]
struct Publisher {
    topic: Arc<str>,
    source: Source,
    drops_oldest: bool,
    published: u64,
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
        if handle.len() > MAX_STREAM_HANDLE {
            return Err(Refused::NoHandle);
        }
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

    /// The next entry for a subscriber ([`Topic::next_for`]).
    pub(crate) fn next(
        &mut self,
        table: &mut Table,
        source: Source,
        id: u64,
        from: u64,
    ) -> Result<Next, Refused> {
        let (_, topic) = self.subscriber(source, id)?;
        let next = topic.next_for(table, id, from)?;
        let bytes = topic.trim(table);
        self.bytes -= bytes;
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
