//! Bounded work, budgets, and the remains of ended sources.

use std::sync::Arc;

use super::*;
use crate::owner::turn::MOST_VISITS;
use crate::region::OwnRegion;

const ONE: Source = Source::Link(0, 1);
const TWO: Source = Source::Link(0, 2);

/// Topics with their table, and the visits of all turns.
struct World {
    topics: Topics,
    table: Table,
    visited: u32,
    /// True if work is left.
    is_left: bool,
}

impl World {
    fn new(capacity: u64) -> World {
        let region = Arc::new(OwnRegion::create(capacity).unwrap());
        let table = Table::new(region, None, 7, [1; 32]);
        World { topics: Topics::default(), table, visited: 0, is_left: false }
    }

    /// Makes a request. The work that is left continues with the visits that the request has not made.
    fn exchange<T>(&mut self, exchange: impl FnOnce(&mut Topics, &mut Table) -> T) -> T {
        self.table.turn.begin(0);
        let answer = exchange(&mut self.topics, &mut self.table);
        self.is_left = self.topics.continue_work(&mut self.table) | self.table.continue_work();
        let visits = self.table.turn.take_most();
        assert!(visits <= MOST_VISITS, "{visits} visits");
        self.visited += visits;
        answer
    }

    /// Polls until no work is left. Returns the number of polls.
    fn finish(&mut self) -> u64 {
        let mut polls = 0;
        while self.is_left {
            self.exchange(|_, _| ());
            polls += 1;
            assert!(polls < 1 << 20);
        }
        polls
    }

    fn open(&mut self, source: Source, name: &str) -> Result<u64, Refused> {
        self.open_with(source, name, &PublisherConfig::default())
    }

    fn open_with(&mut self, source: Source, name: &str, options: &PublisherConfig) -> Result<u64, Refused> {
        self.exchange(|topics, table| topics.open(table, source, name, options))
    }

    fn subscribe(&mut self, source: Source, name: &str) -> Result<u64, Refused> {
        let options = SubscriberConfig::default();
        self.exchange(|topics, table| topics.subscribe(table, source, name, &options)).map(|(id, _)| id)
    }

    fn end(&mut self, source: Source) {
        self.exchange(|topics, table| topics.source_ended(table, source));
    }

    /// Returns an object, and its encoded handle.
    fn object(&mut self) -> (u64, Vec<u8>) {
        let (number, _) = self.table.allocate(Source::Owner, 1, "").unwrap();
        self.table.commit(Source::Owner, number).unwrap();
        let (epoch, key) = (self.table.epoch, self.table.key(number));
        let handle =
            Handle { epoch, number, len: 1, key, type_name: "".into(), addresses: Vec::new().into() };
        (number, handle.to_bytes())
    }

    fn publish(
        &mut self,
        source: Source,
        id: u64,
        is_owned: bool,
        handle: &[u8],
    ) -> Result<Published, Refused> {
        self.exchange(|topics, table| topics.publish(table, source, id, is_owned, handle))
    }

    fn next(&mut self, source: Source, id: u64, from: u64) -> Result<Next, Refused> {
        self.exchange(|topics, table| topics.next(table, source, id, from))
    }
}

#[test]
fn many_members_of_a_source_end_in_bounded_steps_beside_others() {
    let mut world = World::new(32 << 20);
    let (_, handle) = world.object();
    let before = world.table.used();
    let honest = world.open(TWO, "honest").unwrap();
    let listens = world.subscribe(TWO, "honest").unwrap();
    let own = world.table.used();
    let (topics, members) = (32, 64);
    for topic in 0..topics {
        for _ in 0..members {
            world.subscribe(ONE, &format!("topic {topic}")).unwrap();
            world.open(ONE, &format!("topic {topic}")).unwrap();
        }
    }
    // The end of a source without members and topics visits none.
    let visited = world.visited;
    world.end(Source::Link(0, 3));
    assert_eq!(world.visited - visited, 0);

    let mut from = 0;
    world.end(ONE);
    while world.is_left {
        // Each request does some of that work, and visits no more than others do.
        assert!(matches!(world.publish(TWO, honest, false, &handle), Ok(Published::As(_))));
        let Ok(Next::Item { number, lost: 0, .. }) = world.next(TWO, listens, from) else { panic!() };
        from = number + 1;
    }
    // Members, entries that publishers left, and uses of topics.
    let all = topics * members * 3 + topics;
    let visits = world.visited - visited;
    assert!((all..all + all / 2).contains(&visits), "{visits} visits for {all}");
    world.next(TWO, listens, from).unwrap();
    assert_eq!((world.topics.topics.len(), world.topics.used.len(), world.topics.bytes), (1, 1, 0));
    assert_eq!(world.table.used(), own, "what the honest source has");
    world.end(TWO);
    world.finish();
    assert_eq!(world.table.used(), before);
}

#[test]
fn topics_used_only_by_ended_sources_are_removed_though_unfinished() {
    let mut world = World::new(8 << 20);
    for topic in 0..MAX_TOPICS {
        world.open(ONE, &format!("{topic:0255}")).unwrap();
    }
    assert_eq!(world.open(TWO, "more"), Err(Refused::Topics));
    world.end(ONE);
    world.finish();
    let id = world.open(TWO, "more").unwrap();
    world.exchange(|topics, table| topics.finish(table, TWO, id, true)).unwrap();
    world.finish();
    assert_eq!((world.table.used(), world.topics.topics.len()), (0, 0));
}

#[test]
fn a_gone_publishers_entries_stay_until_the_topics_last_source_ends() {
    let mut world = World::new(1 << 20);
    let dies = world.open(ONE, "topic").unwrap();
    let ends = world.open(TWO, "topic").unwrap();
    world.exchange(|topics, table| topics.finish(table, TWO, ends, true)).unwrap();
    world.end(ONE);
    world.finish();
    let id = world.subscribe(TWO, "topic").unwrap();
    let gone = world.next(TWO, id, 0).unwrap();
    assert_eq!(gone, Next::PublisherGone { number: 0, lost: 0, publisher: dies, published: 0 });
    world.end(TWO);
    world.finish();
    assert_eq!((world.table.used(), world.topics.topics.len()), (0, 0));
}

#[test]
fn items_that_ended_sources_left_stay_until_their_place_is_wanted() {
    let mut world = World::new(8 << 20);
    for topic in 0..MAX_TOPICS {
        let id = world.open(ONE, &format!("topic {topic}")).unwrap();
        let (_, handle) = world.object();
        world.publish(ONE, id, true, &handle).unwrap();
        world.exchange(|topics, table| topics.finish(table, ONE, id, true)).unwrap();
    }
    assert_eq!(world.open(TWO, "more"), Err(Refused::Topics));
    world.end(ONE);
    world.finish();
    // A topic that is used again has users again.
    let id = world.subscribe(TWO, "topic 0").unwrap();
    assert!(matches!(world.next(TWO, id, 0), Ok(Next::Item { number: 0, .. })));
    world.open(TWO, "more").unwrap();
    world.open(TWO, "and more").unwrap();
    world.finish();
    let names = &world.topics.names;
    assert_eq!(names.len(), MAX_TOPICS);
    assert!(names.contains_key("topic 0") && names.contains_key("topic 3"));
    assert!(!names.contains_key("topic 1") && !names.contains_key("topic 2"));
    for name in names.keys().cloned().collect::<Vec<_>>() {
        let _ = world.exchange(|topics, table| topics.discard(table, &name));
    }
    world.end(TWO);
    world.finish();
    for name in ["topic 0", "more"] {
        let _ = world.exchange(|topics, table| topics.discard(table, name));
    }
    world.finish();
    assert_eq!((world.table.used(), world.topics.topics.len(), world.topics.bytes), (0, 0, 0));
}

#[test]
fn a_discarded_topic_frees_its_name_at_once_and_entries_gradually() {
    let mut world = World::new(64 << 20);
    let options = PublisherConfig::default().capacity(MAX_TOPIC_CAPACITY);
    let id = world.open_with(ONE, "full", &options).unwrap();
    let (number, handle) = world.object();
    for _ in 0..20_000 {
        world.publish(ONE, id, false, &handle).unwrap();
    }
    let (owned, handle) = world.object();
    world.publish(ONE, id, true, &handle).unwrap();
    world.exchange(|topics, table| topics.finish(table, ONE, id, true)).unwrap();
    assert_eq!(world.exchange(|topics, table| topics.discard(table, "full")), Ok(true));
    assert_eq!(world.exchange(|topics, table| topics.discard(table, "full")), Ok(false));
    let again = world.subscribe(ONE, "full").unwrap();
    assert!(matches!(world.next(ONE, again, 0), Ok(Next::Empty(_))));
    let polls = world.finish();
    assert!((300..400).contains(&polls), "{polls}");
    assert!(world.table.has(number) && !world.table.has(owned));
    assert_eq!(world.topics.bytes, 0);
}

#[test]
fn entries_kept_for_a_leaving_subscriber_are_removed_in_bounded_steps() {
    let mut world = World::new(64 << 20);
    let options = PublisherConfig::default().capacity(1000).keep(10);
    let publisher = world.open_with(ONE, "slow", &options).unwrap();
    let slow = world.subscribe(TWO, "slow").unwrap();
    let (_, handle) = world.object();
    for _ in 0..1000 {
        assert!(matches!(world.publish(ONE, publisher, false, &handle), Ok(Published::As(_))));
    }
    assert!(matches!(world.publish(ONE, publisher, false, &handle), Ok(Published::Full(_))));
    world.exchange(|topics, table| topics.unsubscribe(table, TWO, slow, 0)).unwrap();
    assert!(world.is_left);
    // Entries that wait to be removed affect neither a publisher nor a late subscriber.
    assert!(matches!(world.publish(ONE, publisher, false, &handle), Ok(Published::As(1000))));
    let late = world.subscribe(TWO, "slow").unwrap();
    assert!(matches!(world.next(TWO, late, 0), Ok(Next::Item { number: 991, lost: 0, .. })));
    world.finish();
    assert_eq!(world.topics.names.get("slow").map(|id| world.topics.topics[id].items.len()), Some(10));
}

#[test]
fn members_and_names_use_store_capacity_until_their_source_ends() {
    let mut world = World::new(1 << 20);
    let mut members = 0;
    let full = loop {
        match world.subscribe(ONE, &format!("topic {}", members % 100)) {
            Ok(_) => members += 1,
            Err(full) => break full,
        }
    };
    assert!(matches!(full, Refused::NoMemory(NoMemory { capacity: 1_048_576, .. })), "{full:?}");
    assert!((800..1000).contains(&members), "{members}");
    // A topic that was made for a refused member does not stay.
    let topics = world.topics.topics.len();
    assert!(matches!(world.subscribe(TWO, "new"), Err(Refused::NoMemory(_))));
    world.finish();
    assert_eq!(world.topics.topics.len(), topics);
    world.end(ONE);
    world.finish();
    assert_eq!((world.table.used(), world.topics.members.len(), world.topics.used.len()), (0, 0, 0));
}

/// The expectations of a subscriber: the entries in order, and the number of those that it lost.
struct Reader {
    id: u64,
    /// The next entry that it has not passed, and the one that was sent to it.
    next: usize,
    given: Option<usize>,
    lost: u64,
}

#[test]
fn entries_and_losses_equal_those_of_a_simple_list_model() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..100 {
        let mut world = World::new(1 << 20);
        let capacity = random.u32(1..6);
        let options = PublisherConfig::default().capacity(capacity).overflow(Overflow::DropOldest);
        let (_, handle) = world.object();
        // For each entry, whether it is an item, and whether it was dropped.
        let mut entries: Vec<(bool, bool)> = Vec::new();
        let mut readers: Vec<Reader> = Vec::new();
        let mut publisher = world.open_with(ONE, "topic", &options).unwrap();
        for _ in 0..3 {
            readers.push(Reader {
                id: world.subscribe(TWO, "topic").unwrap(),
                next: 0,
                given: None,
                lost: 0,
            });
        }
        for _ in 0..200 {
            match random.u8(0..10) {
                0 => {
                    let _ = world.exchange(|topics, table| topics.finish(table, ONE, publisher, false));
                    entries.push((false, false));
                    publisher = world.open_with(ONE, "topic", &options).unwrap();
                }
                1..=4 => {
                    let floor = readers.iter().map(|reader| reader.next).min().unwrap_or(0);
                    let present: Vec<usize> =
                        (floor..entries.len()).filter(|at| entries[*at] == (true, false)).collect();
                    if present.len() >= capacity as usize {
                        let oldest = present[0];
                        entries[oldest].1 = true;
                        for reader in &mut readers {
                            reader.lost += u64::from(reader.next <= oldest && reader.given != Some(oldest));
                        }
                    }
                    let published = world.publish(ONE, publisher, false, &handle);
                    assert_eq!(published, Ok(Published::As(entries.len() as u64)), "round {round}");
                    entries.push((true, false));
                }
                _ => {
                    let reader = &mut readers[random.usize(0..3)];
                    // After a lost reply, the subscriber requests the entry again.
                    let from = match reader.given.take() {
                        Some(given) if random.u8(0..4) != 0 => given + 1,
                        Some(given) => {
                            reader.lost += u64::from(entries[given].1);
                            reader.next
                        }
                        None => reader.next,
                    };
                    reader.next = reader.next.max(from);
                    let found = (reader.next..entries.len()).find(|at| !entries[*at].1);
                    let got = world.next(TWO, reader.id, from as u64).unwrap();
                    let (number, lost) = match got {
                        Next::Item { number, lost, .. } => {
                            assert!(entries[number as usize].0, "round {round}");
                            (Some(number as usize), lost)
                        }
                        Next::PublisherGone { number, lost, .. } => {
                            assert!(!entries[number as usize].0, "round {round}");
                            (Some(number as usize), lost)
                        }
                        _ => (None, reader.lost),
                    };
                    assert_eq!((number, lost), (found, reader.lost), "round {round}");
                    reader.given = number;
                }
            }
        }
        world.finish();
    }
}
