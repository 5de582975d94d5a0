//! The ends of topics and of sources, and the work that requests have left.

use crate::owner::table::{Source, Table};
use crate::owner::topic::{Topic, record};

use super::Topics;

impl Topics {
    /// Ends a source: its publishers have not finished, and its subscribers hold nothing.
    pub(crate) fn source_ended(&mut self, table: &mut Table, source: Source) {
        self.ended.insert(source);
        self.continue_work(table);
    }

    /// Does the work that requests and ended sources have left, as far as the turn allows. Returns whether there is
    /// more.
    pub(crate) fn continue_work(&mut self, table: &mut Table) -> bool {
        while let Some(source) = self.ended.first().copied() {
            if !self.end_some(table, source) {
                return true;
            }
            self.ended.remove(&source);
        }
        while let Some(id) = self.due.first().copied() {
            if table.turn.is_over() {
                return true;
            }
            self.tend(table, id);
        }
        false
    }

    /// Ends members of a source that has ended, then its use of topics. Returns whether none is left.
    fn end_some(&mut self, table: &mut Table, source: Source) -> bool {
        while let Some((_, id)) = self.members.range((source, 0)..=(source, u64::MAX)).next().copied() {
            if !table.turn.take() {
                return false;
            }
            if self.publishers.contains_key(&id) {
                let _ = self.finish(table, source, id, false);
            } else if !self.end_subscriber(table, source, id) {
                return false;
            }
        }
        while let Some(used) = self.used.range((source, 0)..=(source, u64::MAX)).next().copied() {
            if !table.turn.take() {
                return false;
            }
            self.used.remove(&used);
            table.refund(source, record::USER);
            self.lost_user(table, source, used.1);
        }
        true
    }

    /// Ends a subscriber, and its holds. Returns whether nothing is left.
    fn end_subscriber(&mut self, table: &mut Table, source: Source, id: u64) -> bool {
        let Ok((topic_id, topic)) = self.subscriber(source, id) else {
            self.members.remove(&(source, id));
            return true;
        };
        // It also holds the object of the last entry that was sent to it.
        topic.leave(table, id, u64::MAX);
        while let Some(number) = topic.subscribers.get_mut(&id).and_then(|one| one.drop_first_hold(table)) {
            topic.unhold(table, number);
            if !table.turn.take() {
                break;
            }
        }
        let is_done = topic.subscribers.get(&id).is_none_or(|one| one.holds_nothing());
        if is_done {
            self.remove_subscriber(table, source, id, topic_id);
        }
        self.tend(table, topic_id);
        is_done
    }

    /// Ends the use of the topic by a source that has ended. A topic without users is removed, unless it has items.
    /// Such a topic stays until it is discarded, or a new topic needs its place.
    fn lost_user(&mut self, table: &mut Table, source: Source, id: u64) {
        let order = self.next_number();
        let Some(topic) = self.topics.get_mut(&id) else { return };
        topic.users.remove(&source);
        if !topic.users.is_empty() || topic.name.is_none() {
            return;
        }
        if topic.items.is_empty() {
            self.detach(id);
            self.tend(table, id);
        } else {
            topic.orphaned = Some(order);
            self.orphans.insert(order, id);
        }
    }

    /// Takes the topic's name away: the topic can no longer be found, and its entries go.
    pub(super) fn detach(&mut self, id: u64) {
        let Some(topic) = self.topics.get_mut(&id) else { return };
        if let Some(orphan) = topic.orphaned.take() {
            self.orphans.remove(&orphan);
        }
        if let Some(name) = topic.name.take() {
            self.names.remove(&name);
        }
        self.due.insert(id);
    }

    /// Removes a topic that was made for a member which was then refused.
    pub(super) fn detach_unused(&mut self, id: u64) {
        if self.topics.get(&id).is_some_and(Topic::is_unused) {
            self.detach(id);
        }
    }

    /// Removes entries that wait to be removed, as far as the turn allows. Removes a topic of which nothing is left.
    pub(super) fn tend(&mut self, table: &mut Table, id: u64) {
        let Some(topic) = self.topics.get_mut(&id) else {
            self.due.remove(&id);
            return;
        };
        let (bytes, is_left) = topic.trim(table);
        self.bytes -= bytes;
        if is_left {
            self.due.insert(id);
            return;
        }
        self.due.remove(&id);
        if !self.topics.get(&id).is_some_and(Topic::is_unused) {
            return;
        }
        self.detach(id);
        while let Some(topic) = self.topics.get_mut(&id)
            && let Some(user) = topic.users.first().copied()
        {
            if !table.turn.take() {
                return;
            }
            topic.users.remove(&user);
            self.used.remove(&(user, id));
            table.refund(user, record::USER);
        }
        self.due.remove(&id);
        if let Some(topic) = self.topics.remove(&id) {
            table.give_back(topic.words);
            table.refund(topic.record.0, topic.record.1);
        }
    }
}
