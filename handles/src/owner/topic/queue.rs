//! The queue of a topic: entries that arrive, entries that leave, and the subscribers that keep them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Gone, Item, Owned, Subscriber, Topic, Word, record, signal};
use crate::owner::allocator::Block;
use crate::owner::table::{Source, Table};

impl Topic {
    pub(crate) fn new(words: Block, name: Arc<str>, record: (Source, u64)) -> Topic {
        Topic {
            words,
            name: Some(name),
            record,
            choices: None,
            awaited: 1,
            came: 0,
            items: BTreeMap::new(),
            items_ever: 0,
            gone: BTreeMap::new(),
            gone_ever: 0,
            live: 0,
            opened: 0,
            owned: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            positions: BTreeSet::new(),
            users: BTreeSet::new(),
            orphaned: None,
        }
    }

    /// Returns the number of the next entry.
    pub(super) fn next(&self) -> u64 {
        self.items_ever + self.gone_ever
    }

    /// Returns the number of items before the entry `number`, including those that have left the queue.
    ///
    /// Correct for a number from which on no entry of a gone publisher has left the queue, such as a subscriber's
    /// position.
    pub(super) fn place(&self, number: u64) -> u64 {
        let gone = self.gone.range(number..).next().map_or(self.gone_ever, |(_, gone)| gone.place);
        number.saturating_sub(gone)
    }

    /// Returns the place of the first item in the queue.
    pub(super) fn first_place(&self) -> u64 {
        self.items.first_key_value().map_or(self.items_ever, |(place, _)| *place)
    }

    /// Returns the number before which no entry stays for a subscriber.
    fn floor(&self) -> u64 {
        if self.name.is_none() {
            return u64::MAX;
        }
        if self.came < self.awaited {
            return 0;
        }
        self.positions.first().map_or(u64::MAX, |(next, _)| *next)
    }

    /// Number of items that stay though all subscribers have passed them.
    fn keep(&self) -> usize {
        self.choices.filter(|_| self.name.is_some()).map_or(0, |choices| choices.keep as usize)
    }

    /// Maximum number of items.
    pub(crate) fn capacity(&self) -> usize {
        self.choices.map_or(0, |choices| choices.capacity as usize)
    }

    /// Number of publishers, and of entries of gone ones that not all subscribers have passed.
    pub(crate) fn places_of_publishers(&self) -> usize {
        let floor = self.floor().min(self.next());
        let told = self.gone.range(floor..).next().map_or(self.gone_ever, |(_, gone)| gone.place);
        self.live + (self.gone_ever - told) as usize
    }

    /// Counts a publisher that has opened the topic.
    pub(crate) fn open(&mut self) {
        (self.live, self.opened) = (self.live + 1, self.opened + 1);
    }

    /// Appends an item. Returns its number.
    pub(crate) fn push(&mut self, publisher: u64, source: Source, handle: &[u8], object: Option<u64>) -> u64 {
        let (number, place) = (self.next(), self.items_ever);
        if let Some(object) = object {
            self.owned.insert(number, Owned { object, holders: 1 });
        }
        self.items.insert(place, Item { number, publisher, source, handle: handle.into(), object });
        self.items_ever += 1;
        number
    }

    /// Appends the entry of a gone publisher.
    pub(crate) fn push_gone(&mut self, publisher: u64, source: Source, published: u64) {
        let number = self.next();
        self.gone.insert(number, Gone { publisher, source, published, place: self.gone_ever });
        self.gone_ever += 1;
    }

    /// Returns whether a new item may replace the oldest one: all subscribers have passed it.
    pub(crate) fn oldest_is_past(&self) -> bool {
        self.items.first_key_value().is_some_and(|(_, item)| item.number < self.floor())
    }

    /// Adds a subscriber. Returns the number of the first entry that it can get.
    pub(crate) fn add(&mut self, id: u64, source: Source, publishers: u32, from_oldest: bool) -> u64 {
        let next = if from_oldest { self.oldest() } else { self.next() };
        // A subscriber that can get earlier entries also counts publishers that have ended.
        let ended_before = if next == self.next() { self.opened - self.live as u64 } else { 0 };
        self.came = self.came.saturating_add(1);
        let subscriber = Subscriber {
            source,
            next,
            given: None,
            lost: 0,
            counted: self.place(next),
            held: BTreeSet::new(),
            ended_before,
            publishers,
            has_left: false,
        };
        self.positions.insert((next, id));
        self.subscribers.insert(id, Box::new(subscriber));
        next
    }

    /// Returns the number of the oldest entry that a subscriber can get. Entries that only wait to be removed do not
    /// count.
    fn oldest(&self) -> u64 {
        let floor = self.floor().min(self.next());
        let first = self.first_place();
        let past = self.place(floor).saturating_sub(first);
        let leaving = past.min(self.items.len().saturating_sub(self.keep()) as u64);
        let item = self.items.range(first + leaving..).next().map_or(self.next(), |(_, item)| item.number);
        // No other entry that stays is in front of a kept item.
        let from = if item < floor { item } else { floor };
        let gone = self.gone.range(from..).next().map_or(item, |(number, _)| *number);
        item.min(gone)
    }

    /// Ends the delivery of entries to the subscriber. If the last entry that was sent has a number from `from` on, it
    /// did not arrive.
    pub(crate) fn leave(&mut self, table: &mut Table, id: u64, from: u64) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        subscriber.has_left = true;
        self.positions.remove(&(subscriber.next, id));
        let missed = subscriber.given.take().filter(|given| given.number >= from);
        if let Some(missed) = missed
            && subscriber.drop_hold(table, missed.number)
        {
            self.unhold(table, missed.number);
        }
    }

    /// Removes one holder of an owned object.
    pub(crate) fn unhold(&mut self, table: &mut Table, number: u64) {
        let Some(owned) = self.owned.get_mut(&number) else { return };
        owned.holders -= 1;
        if owned.holders == 0 {
            let object = owned.object;
            self.owned.remove(&number);
            table.end(object);
        }
    }

    /// Removes the oldest item from the queue. Returns the bytes of its handle.
    pub(crate) fn take_oldest(&mut self, table: &mut Table) -> usize {
        let Some((_, item)) = self.items.pop_first() else { return 0 };
        table.refund(item.source, item.record());
        self.unhold(table, item.number);
        item.handle.len()
    }

    /// Removes the entries that all subscribers have passed, except for kept ones, as far as the turn allows. Returns
    /// the bytes of their handles, and whether some are left.
    pub(crate) fn trim(&mut self, table: &mut Table) -> (usize, bool) {
        let (keep, floor) = (self.keep(), self.floor());
        let (mut bytes, mut has_taken) = (0, false);
        let is_left = loop {
            let gone = self.gone.first_key_value().map(|(number, _)| *number);
            let item = self.items.first_key_value().map(|(_, item)| item.number);
            let is_gone = match (gone, item) {
                (None, None) => break false,
                (Some(gone), item) if gone < floor && item.is_none_or(|item| gone < item) => true,
                (_, Some(item)) if item < floor && self.items.len() > keep => false,
                _ => break false,
            };
            if !table.turn.take() {
                break true;
            }
            has_taken = true;
            if is_gone {
                if let Some((_, gone)) = self.gone.pop_first() {
                    table.refund(gone.source, record::GONE);
                }
            } else {
                bytes += self.take_oldest(table);
            }
        };
        if has_taken {
            signal(table, self.words, Word::Publishers);
        }
        (bytes, is_left)
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.live == 0 && self.subscribers.is_empty() && self.items.is_empty() && self.gone.is_empty()
    }
}
