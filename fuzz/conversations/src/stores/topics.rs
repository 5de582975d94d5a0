//! Topics of the store: publishers and subscribers come, pass entries, and end with their links or before.

use super::requests::{self, DONE, FULL, GONE, ITEM, PUBLISHER_GONE, REFUSED, Reply, WAIT};
use super::{Conversation, Leaving, PEERS, Peer};

/// Most entries that a subscriber takes in one step.
const ENTRIES: usize = 4;

/// Most topics of a crowd, and most subscribers of one.
const CROWD: usize = 80;

/// The name of a topic: one of a few, of which some are long.
fn topic(how: u8) -> String {
    format!("{:1$}", how % 3, [1, 30, 255][usize::from(how % 3)])
}

impl Conversation {
    /// Sends a request about a topic. Returns the reply, if the request succeeded.
    fn topic_request(&mut self, peer: usize, request: &[u8]) -> Option<Vec<u8>> {
        let reply = self.request(peer, request)?;
        match reply[0] {
            DONE => Some(reply),
            // The topic already has other choices, or the store or the source has no more memory.
            WAIT | REFUSED | GONE | FULL => None,
            status => panic!("a request about a topic is answered by {status}"),
        }
    }

    fn peer(&mut self, peer: usize) -> &mut Peer {
        self.peers[peer].as_mut().expect("it got a reply")
    }

    /// Makes a source publish some objects to another one.
    pub(super) fn pass(&mut self, peer: usize, which: usize) {
        let (how, other) = (which as u8, (peer + 1) % PEERS);
        self.open(peer, how);
        self.subscribe(other, how);
        let last = |members: usize| members.wrapping_sub(1);
        let publisher = self.peers[peer].as_ref().map_or(0, |peer| last(peer.publishers.len()));
        for at in 0..ENTRIES {
            self.publish_of(peer, publisher, which + at, at % 2 == 1);
        }
        let subscriber = self.peers[other].as_ref().map_or(0, |other| last(other.subscribers.len()));
        self.next(other, subscriber);
    }

    pub(super) fn open(&mut self, peer: usize, how: u8) {
        // The first publisher of a topic chooses; 0 stands for its choice.
        let capacity = if how.is_multiple_of(2) { 0 } else { 3 };
        self.open_topic(peer, topic(how), &[capacity, 0, u32::from(how % 2)], how / 9 % 2);
    }

    /// Opens a topic with these choices. Returns whether that succeeded.
    fn open_topic(&mut self, peer: usize, topic: String, choices: &[u32; 3], overflow: u8) -> bool {
        let opened = requests::open(&topic, choices, overflow);
        self.topics.entry(topic.clone()).or_insert(false);
        let Some(reply) = self.topic_request(peer, &opened) else { return false };
        let publisher = Reply(&reply[1..]).u64();
        self.peer(peer).publishers.push((publisher, topic));
        true
    }

    /// Makes a source subscribe to a topic many times and open many others, as far as there is memory for it, and
    /// leave.
    pub(super) fn crowd(&mut self, peer: usize, how: Leaving) {
        let name = |number: usize| format!("crowd {number}");
        if self.open_topic(peer, name(CROWD), &[0, 0, 0], 0) {
            (0..CROWD).all(|_| self.subscribe_to(peer, &name(CROWD), 0));
        }
        (0..CROWD).all(|number| self.open_topic(peer, name(number), &[0, 0, 0], 0));
        self.leave(peer, how);
    }

    /// A publisher of a source.
    fn publisher(&self, peer: usize, which: usize) -> Option<(usize, u64, String)> {
        let publishers = &self.peers[peer].as_ref()?.publishers;
        let at = which.checked_rem(publishers.len())?;
        Some((at, publishers[at].0, publishers[at].1.clone()))
    }

    pub(super) fn publish(&mut self, peer: usize, which: usize, is_owned: bool) {
        self.publish_of(peer, which, which, is_owned);
    }

    fn publish_of(&mut self, peer: usize, publisher: usize, object: usize, is_owned: bool) {
        let Some((_, publisher, topic)) = self.publisher(peer, publisher) else { return };
        let Some((at, handle)) = self.handle(object) else { return };
        self.topics.insert(topic, true);
        // An object that a topic owns ends with its entry, which a refusal may cause, too.
        self.objects[at].is_leased |= is_owned;
        self.topic_request(peer, &requests::publish(publisher, is_owned, &handle.to_bytes()));
    }

    pub(super) fn finish(&mut self, peer: usize, which: usize) {
        let Some((at, publisher, _)) = self.publisher(peer, which) else { return };
        if self.topic_request(peer, &requests::finish(publisher)).is_some() {
            self.peer(peer).publishers.swap_remove(at);
        }
    }

    pub(super) fn subscribe(&mut self, peer: usize, how: u8) {
        self.topics.entry(topic(how)).or_insert(false);
        self.subscribe_to(peer, &topic(how), u32::from(how % 2));
    }

    /// Returns whether the source could subscribe.
    fn subscribe_to(&mut self, peer: usize, topic: &str, publishers: u32) -> bool {
        let Some(reply) = self.topic_request(peer, &requests::subscribe(topic, publishers)) else {
            return false;
        };
        let mut fields = Reply(&reply[1..]);
        let (subscriber, next) = (fields.u64(), fields.u64());
        self.peer(peer).subscribers.push((subscriber, next));
        true
    }

    /// A subscriber of a source.
    fn subscriber(&self, peer: usize, which: usize) -> Option<(usize, u64, u64)> {
        let subscribers = &self.peers[peer].as_ref()?.subscribers;
        let at = which.checked_rem(subscribers.len())?;
        Some((at, subscribers[at].0, subscribers[at].1))
    }

    pub(super) fn next(&mut self, peer: usize, which: usize) {
        for _ in 0..ENTRIES {
            let Some((at, subscriber, from)) = self.subscriber(peer, which) else { return };
            let Some(reply) = self.topic_request(peer, &requests::next(subscriber, from)) else { return };
            let mut fields = Reply(&reply[1..]);
            if !matches!(fields.u8(), ITEM | PUBLISHER_GONE) {
                return;
            }
            let (_lost, number) = (fields.u64(), fields.u64());
            assert!(number >= from, "an entry comes twice");
            self.peer(peer).subscribers[at].1 = number + 1;
            self.outcome.entries += 1;
        }
    }

    pub(super) fn unsubscribe(&mut self, peer: usize, which: usize) {
        let Some((at, subscriber, _)) = self.subscriber(peer, which) else { return };
        if self.topic_request(peer, &requests::unsubscribe(subscriber)).is_some() {
            self.peer(peer).subscribers.swap_remove(at);
        }
    }

    /// Discards all topics after all sources have ended. Only topics with entries may still exist; the others are
    /// gone.
    pub(super) fn discard_topics(&mut self) {
        for (topic, has_entries) in std::mem::take(&mut self.topics) {
            let Some(reply) = self.request(0, &requests::discard(&topic)) else { return };
            assert_eq!(reply[0], DONE, "no source is left, and a topic is in use: {reply:?}");
            assert!(
                reply[1] == 0 || has_entries,
                "no source is left, and a topic stays where nothing was published"
            );
        }
    }
}
