//! The movement of a subscriber through a topic's queue.

use std::sync::Arc;

use super::{Given, Next, Refused, Topic, Wait, Word, wait_for};
use crate::owner::table::Table;

impl Topic {
    /// Moves the subscriber to `from`, and returns the next entry from there. A repeated request with the same number,
    /// as after a lost reply, returns the same entry.
    pub(crate) fn next_for(&mut self, table: &mut Table, id: u64, from: u64) -> Result<Next, Refused> {
        let (end, first) = (self.next(), self.first_place());
        let subscriber = self.subscribers.get_mut(&id).ok_or(Refused::Unknown)?;
        let (before, mut next) = (subscriber.next, subscriber.next);
        let mut dropped = None;
        if let Some(given) = subscriber.given.take() {
            if from > given.number {
                // The subscriber has received that entry.
                next = next.max(given.number + 1);
                subscriber.counted = subscriber.counted.max(given.place.map_or(0, |place| place + 1));
            } else if given.place.is_some_and(|place| place < first) {
                // The reply was lost, and the entry has left the queue since.
                dropped = subscriber.drop_hold(table, given.number).then_some(given.number);
            }
        }
        if let Some(dropped) = dropped {
            self.unhold(table, dropped);
        }
        self.count_lost(id, next);
        next = from.clamp(next, end.max(next));
        let found = self.find(table, id, &mut next);
        if next != before {
            self.positions.remove(&(before, id));
            self.positions.insert((next, id));
        }
        if let Some(subscriber) = self.subscribers.get_mut(&id) {
            subscriber.next = next;
        }
        found
    }

    /// Counts as lost the items from the position `next` on that have left the queue. Any other item stays in the queue
    /// for the subscriber.
    fn count_lost(&mut self, id: u64, next: u64) {
        let (place, first) = (self.place(next), self.first_place());
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let known = subscriber.counted.max(place);
        if first > known {
            subscriber.lost += first - known;
            subscriber.counted = first;
        }
    }

    /// Returns the first entry from `next` on that the subscriber can get. Advances `next` past others.
    fn find(&mut self, table: &mut Table, id: u64, next: &mut u64) -> Result<Next, Refused> {
        let most = self.capacity() + 1;
        loop {
            let Some(subscriber) = self.subscribers.get_mut(&id) else { return Err(Refused::Unknown) };
            let lost = subscriber.lost;
            let gone = self.gone.range(*next..).next();
            let place = *next - gone.map_or(self.gone_ever, |(_, gone)| gone.place).min(*next);
            let item = self.items.range(place..).next();
            let is_gone = match (&gone, &item) {
                (Some((gone, _)), Some((_, item))) => **gone < item.number,
                (gone, _) => gone.is_some(),
            };
            if is_gone && let Some((number, gone)) = gone {
                subscriber.given = Some(Given { number: *number, place: None });
                let (number, publisher, published) = (*number, gone.publisher, gone.published);
                return Ok(Next::PublisherGone { number, lost, publisher, published });
            }
            let Some((place, item)) = item else {
                let opened = self.opened - subscriber.ended_before;
                return Ok(match self.live == 0 && opened >= u64::from(subscriber.publishers) {
                    true => Next::End { lost },
                    false => Next::Empty(wait_for(table, self.words, Word::Subscribers)),
                });
            };
            if !table.turn.take() {
                // A value that the word does not have, so that the subscriber requests again at once.
                let wait = wait_for(table, self.words, Word::Subscribers);
                return Ok(Next::Empty(Wait { value: wait.value.wrapping_sub(1), ..wait }));
            }
            let number = item.number;
            if item.object.is_some_and(|object| !table.has(object)) {
                // The publisher evicted it after its call failed.
                *next = number + 1;
                continue;
            }
            if item.object.is_some() && !subscriber.held.contains(&number) {
                if subscriber.held.len() >= most {
                    return Err(Refused::Holds(most as u32));
                }
                subscriber.hold(table, number)?;
                if let Some(owned) = self.owned.get_mut(&number) {
                    owned.holders += 1;
                }
            }
            subscriber.given = Some(Given { number, place: Some(*place) });
            let (publisher, is_owned) = (item.publisher, item.object.is_some());
            return Ok(Next::Item { number, lost, publisher, is_owned, handle: Arc::clone(&item.handle) });
        }
    }
}
