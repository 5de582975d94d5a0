//! The topics of a store, at its owner: the publishers, the kept entries, and the positions of the subscribers.
//!
//! A topic is one queue of the entries of all its publishers, in the order of their arrival. So it keeps the order of
//! each publisher.
//!
//! Each request visits a bounded number of entries, members and topics ([`Turn`](crate::owner::turn::Turn)), and leaves the rest to
//! [`Topics::continue_work`]. Users of a topic see no difference while work is left: entries that only wait to be removed
//! affect no user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::owner::table::{Source, Table};
use crate::wire::handle::Handle;
use crate::wire::refusal::NoMemory;

use crate::owner::topic::{
    Choices, Next, Published, Refused, Topic, Word, record, signal, wait_for, with_word,
};
use crate::streams::{
    DEFAULT_TOPIC_CAPACITY, MAX_MEMBERS, MAX_STREAM_HANDLE, MAX_TOPIC_CAPACITY, MAX_TOPICS,
};
use crate::{Overflow, PublisherConfig, SubscriberConfig};

mod ends;
#[cfg(test)]
mod tests;

/// Most bytes of the handles in all topics together.
const MAX_BYTES: usize = 64 << 20;

#[derive(Debug)]
struct Publisher {
    topic: u64,
    source: Source,
    drops_oldest: bool,
    published: u64,
}

/// The topics of a store.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    /// The topics that can be found by name.
    names: BTreeMap<Arc<str>, u64>,
    /// All topics, including those that are discarded and not yet taken apart.
    topics: BTreeMap<u64, Topic>,
    publishers: BTreeMap<u64, Publisher>,
    /// The topics of the subscribers.
    subscribers: BTreeMap<u64, u64>,
    /// Publishers and subscribers by their sources.
    members: BTreeSet<(Source, u64)>,
    /// The topics that sources have used, by the sources.
    used: BTreeSet<(Source, u64)>,
    /// Ended sources that still have members or topics.
    ended: BTreeSet<Source>,
    /// Topics in which entries wait to be removed.
    due: BTreeSet<u64>,
    /// Topics with items whose users have all ended, in the order in which the last user ended.
    orphans: BTreeMap<u64, u64>,
    /// The number of the last publisher, subscriber, topic or orphan.
    last: u64,
    /// Bytes of the handles in all topics.
    bytes: usize,
}

impl Topics {
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns the number of the topic of this name, for use by `source`. Makes the topic if it does not exist.
    fn topic(&mut self, table: &mut Table, source: Source, name: &str) -> Result<u64, Refused> {
        let id = match self.names.get(name) {
            Some(id) => *id,
            None => self.make(table, source, name)?,
        };
        let Some(topic) = self.topics.get_mut(&id) else { return Err(Refused::Unknown) };
        if !topic.users.contains(&source) {
            if let Err(none) = table.charge(source, record::USER) {
                self.detach_unused(id);
                return Err(none.into());
            }
            topic.users.insert(source);
            self.used.insert((source, id));
            if let Some(orphan) = topic.orphaned.take() {
                self.orphans.remove(&orphan);
            }
        }
        Ok(id)
    }

    fn make(&mut self, table: &mut Table, source: Source, name: &str) -> Result<u64, Refused> {
        if self.names.len() == MAX_TOPICS {
            // A topic without users makes way.
            let Some((_, orphan)) = self.orphans.pop_first() else { return Err(Refused::Topics) };
            self.detach(orphan);
        }
        let bytes = record::TOPIC + name.len() as u64;
        table.charge(source, bytes)?;
        let words = match table.take(8) {
            Ok(words) => words,
            Err(none) => {
                table.refund(source, bytes);
                return Err(none.into());
            }
        };
        for word in [Word::Subscribers, Word::Publishers] {
            with_word(table, words, word, |word, _| word.store(0, Ordering::Relaxed));
        }
        let (id, name) = (self.next_number(), Arc::from(name));
        self.topics.insert(id, Topic::new(words, Arc::clone(&name), (source, bytes)));
        self.names.insert(name, id);
        Ok(id)
    }

    /// Charges for the record of a new publisher or subscriber of this topic. If that is refused, a topic that was made
    /// only for it is removed.
    fn admit(&mut self, table: &mut Table, source: Source, id: u64, bytes: u64) -> Result<(), NoMemory> {
        table.charge(source, bytes).inspect_err(|_| self.detach_unused(id))
    }

    /// Adds a publisher. Returns its number.
    pub(crate) fn open(
        &mut self,
        table: &mut Table,
        source: Source,
        name: &str,
        options: &PublisherConfig,
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
        let topic_id = self.topic(table, source, name)?;
        let topic = self.topics.get_mut(&topic_id).ok_or(Refused::Unknown)?;
        if let (Some(made), Some(asked)) = (topic.choices, choices)
            && made != asked
        {
            return Err(Refused::Differs(made.capacity, made.keep));
        }
        // Each publisher may leave an entry that reports that it is gone.
        if topic.places_of_publishers() >= MAX_MEMBERS {
            return Err(Refused::Members);
        }
        self.admit(table, source, topic_id, record::PUBLISHER + record::GONE)?;
        let id = self.next_number();
        let topic = self.topics.get_mut(&topic_id).ok_or(Refused::Unknown)?;
        if topic.choices.is_none() {
            let standard = Choices { capacity: DEFAULT_TOPIC_CAPACITY, keep: 0 };
            (topic.choices, topic.awaited) = (Some(choices.unwrap_or(standard)), options.await_subscribers);
        }
        topic.open();
        let drops_oldest = matches!(options.overflow, Overflow::DropOldest);
        self.publishers.insert(id, Publisher { topic: topic_id, source, drops_oldest, published: 0 });
        self.members.insert((source, id));
        Ok(id)
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
        let topic_id = publisher.topic;
        let topic = self.topics.get_mut(&topic_id).ok_or(Refused::Unknown)?;
        if handle.len() > MAX_STREAM_HANDLE {
            return Err(Refused::NoHandle);
        }
        let named = Handle::from_bytes(handle).map_err(|_| Refused::NoHandle)?;
        if named.epoch == table.epoch {
            table.check(named.number, named.key)?;
        } else if is_owned {
            return Err(Refused::Foreign);
        }
        let bytes = record::ITEM + handle.len() as u64;
        // If other topics use up the bytes, no word changes: the publisher requests again after a time.
        loop {
            let charged = match topic.items.len() >= topic.capacity() || self.bytes + handle.len() > MAX_BYTES
            {
                true => None,
                false => Some(table.charge(source, bytes)),
            };
            if let Some(Ok(())) = charged {
                break;
            }
            let makes_way = publisher.drops_oldest && !topic.items.is_empty() || topic.oldest_is_past();
            if makes_way && table.turn.take() {
                self.bytes -= topic.take_oldest(table);
                continue;
            }
            return match charged {
                Some(Err(none)) => Err(none.into()),
                _ => Ok(Published::Full(wait_for(table, topic.words, Word::Publishers))),
            };
        }
        let number = topic.push(id, source, handle, is_owned.then_some(named.number));
        self.bytes += handle.len();
        publisher.published += 1;
        signal(table, topic.words, Word::Subscribers);
        // Without subscribers, no entry has to stay.
        self.tend(table, topic_id);
        Ok(Published::As(number))
    }

    /// Ends a publisher. If it has not finished, its subscribers get an entry that reports this.
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
        self.members.remove(&(source, id));
        table.refund(source, record::PUBLISHER);
        let topic = self.topics.get_mut(&publisher.topic).ok_or(Refused::Unknown)?;
        topic.live -= 1;
        if has_finished {
            table.refund(source, record::GONE);
        } else {
            topic.push_gone(id, source, publisher.published);
        }
        signal(table, topic.words, Word::Subscribers);
        self.tend(table, publisher.topic);
        Ok(())
    }

    /// Adds a subscriber. Returns its number, and the number of the first entry that it can get.
    pub(crate) fn subscribe(
        &mut self,
        table: &mut Table,
        source: Source,
        name: &str,
        options: &SubscriberConfig,
    ) -> Result<(u64, u64), Refused> {
        let topic_id = self.topic(table, source, name)?;
        let topic = self.topics.get_mut(&topic_id).ok_or(Refused::Unknown)?;
        if topic.subscribers.len() >= MAX_MEMBERS {
            return Err(Refused::Members);
        }
        self.admit(table, source, topic_id, record::SUBSCRIBER)?;
        let id = self.next_number();
        let topic = self.topics.get_mut(&topic_id).ok_or(Refused::Unknown)?;
        let next = topic.add(id, source, options.publishers, !options.from_now);
        self.subscribers.insert(id, topic_id);
        self.members.insert((source, id));
        self.tend(table, topic_id);
        Ok((id, next))
    }

    /// Returns the topic of a subscriber, which must be of this source.
    fn subscriber(&mut self, source: Source, id: u64) -> Result<(u64, &mut Topic), Refused> {
        let topic_id = *self.subscribers.get(&id).ok_or(Refused::Unknown)?;
        let topic = self.topics.get_mut(&topic_id).ok_or(Refused::Unknown)?;
        match topic.subscribers.get(&id) {
            Some(subscriber) if subscriber.source == source => Ok((topic_id, topic)),
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
        let (topic_id, topic) = self.subscriber(source, id)?;
        let next = topic.next_for(table, id, from)?;
        self.tend(table, topic_id);
        Ok(next)
    }

    /// Ends the subscriber's hold of the object of an entry. Does nothing if it holds none.
    pub(crate) fn release(&mut self, table: &mut Table, source: Source, id: u64, number: u64) {
        table.turn.visit(1);
        let Ok((topic_id, topic)) = self.subscriber(source, id) else { return };
        let Some(subscriber) = topic.subscribers.get_mut(&id) else { return };
        if !subscriber.drop_hold(table, number) {
            return;
        }
        let is_done = subscriber.has_left && subscriber.holds_nothing();
        topic.unhold(table, number);
        if is_done {
            self.remove_subscriber(table, source, id, topic_id);
            self.tend(table, topic_id);
        }
    }

    /// Ends the delivery of entries to a subscriber, which stays known while it holds items. If the last entry that was
    /// sent has a number from `from` on, it did not arrive.
    pub(crate) fn unsubscribe(
        &mut self,
        table: &mut Table,
        source: Source,
        id: u64,
        from: u64,
    ) -> Result<(), Refused> {
        let (topic_id, topic) = self.subscriber(source, id)?;
        topic.leave(table, id, from);
        if topic.subscribers.get(&id).is_some_and(|subscriber| subscriber.holds_nothing()) {
            self.remove_subscriber(table, source, id, topic_id);
        }
        self.tend(table, topic_id);
        Ok(())
    }

    /// Removes a subscriber that has left and holds nothing.
    fn remove_subscriber(&mut self, table: &mut Table, source: Source, id: u64, topic_id: u64) {
        if let Some(topic) = self.topics.get_mut(&topic_id) {
            topic.subscribers.remove(&id);
        }
        self.subscribers.remove(&id);
        self.members.remove(&(source, id));
        table.refund(source, record::SUBSCRIBER);
    }

    /// Discards a topic that has neither publishers nor subscribers, and evicts the objects that it owns. Returns
    /// `false` if there is none.
    pub(crate) fn discard(&mut self, table: &mut Table, name: &str) -> Result<bool, Refused> {
        let Some(id) = self.names.get(name).copied() else { return Ok(false) };
        if self.topics.get(&id).is_some_and(|topic| topic.live != 0 || !topic.subscribers.is_empty()) {
            return Err(Refused::InUse);
        }
        self.detach(id);
        self.tend(table, id);
        Ok(true)
    }
}
