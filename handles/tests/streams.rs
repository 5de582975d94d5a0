//! Streams of handles through topics: order, bounds, and the ends of publishers and subscribers.

use std::time::{Duration, Instant};

use farjump::{Key, Target, TargetThread};
use farjump_handles::{
    Client, Error, Handle, Item, MAX_MEMBERS, MAX_TOPIC_CAPACITY, MAX_TOPICS, Overflow, Patience, Publisher,
    PublisherOptions, Store, StreamFault, Subscriber, SubscriberOptions,
};

/// A store at a target of its own, and the way of its clients.
struct Owner {
    store: Store,
    address: String,
    key: Option<Key>,
    is_mapped: bool,
    _target: TargetThread,
    _folder: tempfile::TempDir,
}

impl Owner {
    fn new(way: &str, capacity: u64) -> Owner {
        let folder = tempfile::tempdir().unwrap();
        let (address, key) = match way {
            "tcp" => ("tcp:127.0.0.1:0".to_owned(), Some(Key::from_bytes([7; Key::LEN]))),
            _ => (format!("unix:{}", folder.path().join("owner.sock").display()), None),
        };
        let store = Store::options().capacity(capacity).build().unwrap();
        let mut builder = Target::listen(&address).objects(store.service());
        if let Some(key) = &key {
            builder = builder.key(key.clone());
        }
        let target = builder.build().unwrap();
        let (address, is_mapped) = (target.address(), way != "unmapped");
        Owner { store, address, key, is_mapped, _target: target.spawn().unwrap(), _folder: folder }
    }

    fn client(&self) -> Client {
        let mut builder = Client::builder(&self.address).mapped(self.is_mapped);
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        builder.connect().unwrap()
    }
}

/// Each way to an owner: mapped, through frames of shared memory, through a stream.
fn owners() -> [Owner; 3] {
    ["mapped", "unmapped", "tcp"].map(|way| Owner::new(way, 16 << 20))
}

/// A watchdog's time.
const LONG: Duration = Duration::from_secs(20);

/// A link whose requests are made by hand.
struct Raw {
    link: farjump::Link,
    library: farjump::Library,
}

impl Raw {
    fn new(owner: &Owner) -> Raw {
        let mut builder = farjump::Link::builder(&owner.address);
        if let Some(key) = &owner.key {
            builder = builder.key(key.clone());
        }
        let link = builder.connect().unwrap();
        link.set_mode(farjump::Mode::Local);
        Raw { link, library: farjump::Library::by_name(farjump::objects::NAME).unwrap() }
    }

    fn try_ask(&self, request: &[u8]) -> Result<Vec<u8>, farjump::Error> {
        Ok(self.link.inject(&self.library, request)?.wait(LONG)?.into_vec())
    }

    fn ask(&self, request: &[u8]) -> Vec<u8> {
        self.try_ask(request).unwrap()
    }
}

fn soon() -> Patience<'static> {
    Patience::of(LONG)
}

fn briefly() -> Patience<'static> {
    Patience::of(Duration::from_millis(30))
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn fault(error: Error) -> StreamFault {
    match error {
        Error::Stream { fault, .. } => fault,
        error => panic!("{error}"),
    }
}

fn publisher() -> PublisherOptions {
    PublisherOptions::default()
}

fn subscriber() -> SubscriberOptions {
    SubscriberOptions::default()
}

fn number_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn publish_number(publisher: &mut Publisher, number: u64) -> Result<u64, Error> {
    publisher.publish_bytes("number", &[&number.to_le_bytes()])
}

/// The numbers that come until the stream ends.
fn numbers(subscriber: &mut Subscriber, get: impl Fn(&Handle) -> Vec<u8>) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(item) = subscriber.next(&mut soon()).unwrap() {
        all.push(number_in(&get(item.handle())));
    }
    all
}

/// Bytes in use, but for the words of topics.
fn objects(store: &Store) -> usize {
    store.list(1000).objects.len()
}

#[test]
fn each_publishers_order_is_kept_for_each_subscriber_over_every_way() {
    const PUBLISHERS: u64 = 3;
    const COUNT: u64 = 300;
    for owner in owners() {
        let begun = Instant::now();
        let options = SubscriberOptions::default().publishers(PUBLISHERS as u32 + 1);
        std::thread::scope(|scope| {
            let subscribers: Vec<_> = (0..3)
                .map(|_| {
                    let client = owner.client();
                    let mut subscriber = client.subscribe("numbers", options.clone()).unwrap();
                    scope.spawn(move || {
                        let get = |handle: &Handle| client.get(handle).unwrap().to_vec();
                        numbers(&mut subscriber, get)
                    })
                })
                .collect();
            let mut here = owner.store.subscribe("numbers", options.clone()).unwrap();
            let store = &owner.store;
            let here = scope.spawn(move || numbers(&mut here, |handle| store.get(handle).unwrap().to_vec()));
            for index in 0..PUBLISHERS {
                let client = owner.client();
                scope.spawn(move || {
                    let mut publisher = client.publisher("numbers", publisher().capacity(8)).unwrap();
                    for number in 0..COUNT {
                        publish_number(&mut publisher, index << 32 | number).unwrap();
                    }
                    publisher.finish().unwrap();
                });
            }
            scope.spawn(move || {
                let mut publisher = store.publisher("numbers", publisher()).unwrap();
                for number in 0..COUNT {
                    publish_number(&mut publisher, PUBLISHERS << 32 | number).unwrap();
                }
                publisher.finish().unwrap();
            });
            for got in subscribers.into_iter().chain([here]) {
                let got = got.join().unwrap();
                assert_eq!(got.len() as u64, (PUBLISHERS + 1) * COUNT);
                for index in 0..=PUBLISHERS {
                    let of_one: Vec<_> =
                        got.iter().filter(|number| **number >> 32 == index).map(|n| n & 0xffff).collect();
                    assert!(of_one.iter().copied().eq(0..COUNT), "publisher {index}: {of_one:?}");
                }
            }
        });
        eprintln!("took {:?}", begun.elapsed());
        eventually("objects and topic are gone", || owner.store.list(1).used == 0);
    }
}

#[test]
fn publishers_wait_for_the_slowest_subscriber_and_for_the_first() {
    for owner in owners() {
        let client = owner.client();
        let mut publisher = client.publisher("slow", publisher().capacity(2)).unwrap();
        publish_number(&mut publisher, 0).unwrap();
        publish_number(&mut publisher, 1).unwrap();
        // No subscriber has come.
        let parts: [&[u8]; 1] = [b"number 2"];
        let full = publisher.publish_bytes_with("", &parts, &mut briefly()).unwrap_err();
        assert_eq!(fault(full), StreamFault::Full);
        assert_eq!(objects(&owner.store), 2);
        let mut fast = client.subscribe("slow", subscriber()).unwrap();
        let mut slow = owner.store.subscribe("slow", subscriber()).unwrap();
        for _ in 0..2 {
            fast.next(&mut soon()).unwrap().unwrap();
        }
        let none = fast.next(&mut briefly()).unwrap_err();
        assert!(matches!(fault(none), StreamFault::NoEntry(_)));
        let full = publisher.publish_bytes_with("", &parts, &mut briefly()).unwrap_err();
        assert_eq!(fault(full), StreamFault::Full);
        std::thread::scope(|scope| {
            let publishes = scope.spawn(|| publish_number(&mut publisher, 2).unwrap());
            std::thread::sleep(Duration::from_millis(5));
            // It has taken the first item when it asks for the second.
            assert_eq!(
                number_in(&owner.store.get(slow.next(&mut soon()).unwrap().unwrap().handle()).unwrap()),
                0
            );
            slow.next(&mut soon()).unwrap().unwrap();
            publishes.join().unwrap();
        });
        // A subscriber that is gone holds nothing back.
        drop(slow);
        publish_number(&mut publisher, 3).unwrap();
        assert!(fast.next(&mut soon()).unwrap().is_some());
        assert_eq!(fast.lost(), 0);
    }
}

#[test]
fn a_publisher_that_does_not_wait_is_refused_or_drops_the_oldest_and_slow_subscribers_are_told() {
    for owner in owners() {
        let client = owner.client();
        let refuse = publisher().capacity(3).overflow(Overflow::Refuse);
        let mut refused = client.publisher("topic", refuse).unwrap();
        let mut slow = client.subscribe("topic", subscriber()).unwrap();
        for number in 0..3 {
            publish_number(&mut refused, number).unwrap();
        }
        assert_eq!(fault(publish_number(&mut refused, 3).unwrap_err()), StreamFault::Full);
        let mut drops = client.publisher("topic", publisher().overflow(Overflow::DropOldest)).unwrap();
        let first = slow.next(&mut soon()).unwrap().unwrap();
        for number in 3..10 {
            publish_number(&mut drops, number).unwrap();
        }
        // The entry that was dropped is this subscriber's still; of the next ones four are lost.
        assert_eq!((number_in(&client.get(first.handle()).unwrap()), first.lost()), (0, 0));
        drop(first);
        let next = slow.next(&mut soon()).unwrap().unwrap();
        assert_eq!((number_in(&client.get(next.handle()).unwrap()), next.lost(), slow.lost()), (7, 6, 6));
        drop(next);
        refused.finish().unwrap();
        drops.finish().unwrap();
        let rest = numbers(&mut slow, |handle| client.get(handle).unwrap().to_vec());
        assert_eq!((rest, slow.lost()), (vec![8, 9], 6));
        drop(slow);
        eventually("nothing is left", || owner.store.list(1).used == 0);
    }
}

#[test]
fn late_subscribers_get_what_is_kept_or_what_comes_by_choice() {
    let owner = Owner::new("mapped", 1 << 20);
    let client = owner.client();
    let mut publisher = client.publisher("late", publisher().capacity(8).keep(3)).unwrap();
    let mut first = client.subscribe("late", subscriber()).unwrap();
    for number in 0..8 {
        publish_number(&mut publisher, number).unwrap();
    }
    for _ in 0..8 {
        first.next(&mut soon()).unwrap().unwrap();
    }
    assert!(matches!(fault(first.next(&mut briefly()).unwrap_err()), StreamFault::NoEntry(_)));
    assert_eq!(objects(&owner.store), 3);
    let mut oldest = client.subscribe("late", subscriber()).unwrap();
    let mut now = client.subscribe("late", subscriber().from_now()).unwrap();
    // Kept entries make room for new ones.
    for number in 8..13 {
        publish_number(&mut publisher, number).unwrap();
    }
    publisher.finish().unwrap();
    let get = |handle: &Handle| client.get(handle).unwrap().to_vec();
    assert_eq!(numbers(&mut oldest, get), [5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(numbers(&mut now, get), [8, 9, 10, 11, 12]);
    assert_eq!(numbers(&mut first, get), [8, 9, 10, 11, 12]);
    // After all publishers have finished, kept entries and the end come.
    drop((first, oldest, now));
    let mut later = owner.store.subscribe("late", subscriber()).unwrap();
    assert_eq!(numbers(&mut later, get), [10, 11, 12]);
    let mut never = owner.store.subscribe("late", subscriber().from_now()).unwrap();
    assert!(matches!(fault(never.next(&mut briefly()).unwrap_err()), StreamFault::NoEntry(_)));
    assert_eq!(fault(client.discard_topic("late").unwrap_err()), StreamFault::InUse);
    drop((later, never));
    assert!(client.discard_topic("late").unwrap() && !client.discard_topic("late").unwrap());
    assert_eq!(owner.store.list(1).used, 0);
}

#[test]
fn subscribers_of_several_are_awaited_and_each_gets_all() {
    let owner = Owner::new("mapped", 1 << 20);
    let mut publisher =
        owner.store.publisher("awaited", publisher().capacity(4).await_subscribers(2)).unwrap();
    publish_number(&mut publisher, 0).unwrap();
    let get = |handle: &Handle| owner.store.get(handle).unwrap().to_vec();
    let mut first = owner.store.subscribe("awaited", subscriber()).unwrap();
    publisher.finish().unwrap();
    assert_eq!(numbers(&mut first, get), [0]);
    drop(first);
    let mut second = owner.store.subscribe("awaited", subscriber()).unwrap();
    assert_eq!(numbers(&mut second, get), [0]);
    drop(second);
    assert_eq!(owner.store.list(1).used, 0);
}

#[test]
fn subscribers_are_told_of_a_publisher_that_ended_without_finishing_after_all_that_it_published() {
    for owner in owners() {
        let mut here = owner.store.subscribe("dead", subscriber()).unwrap();
        let reader = owner.client();
        let mut there = reader.subscribe("dead", subscriber()).unwrap();
        let mut alive = owner.store.publisher("dead", publisher()).unwrap();
        let dead = Raw::new(&owner);
        let opened = [&[64, 4][..], b"dead", &[0; 8], &[1, 0, 0, 0, 0]].concat();
        let dead_number = number_in(&dead.ask(&opened)[1..]);
        let handle = owner.store.put(b"object").unwrap();
        for _ in 0..2 {
            let publish = [&[65][..], &dead_number.to_le_bytes(), &[0], &handle.to_bytes()].concat();
            assert_eq!(dead.ask(&publish)[0], 0);
        }
        // Nothing but the end of the link shows the owner that the publisher is gone.
        drop(dead);
        let gone = StreamFault::PublisherGone { publisher: dead_number, published: 2 };
        for subscriber in [&mut here, &mut there] {
            for _ in 0..2 {
                assert_eq!(subscriber.next(&mut soon()).unwrap().unwrap().publisher(), dead_number);
            }
            assert_eq!(fault(subscriber.next(&mut soon()).unwrap_err()), gone);
        }
        // A publisher that is dropped is told, too, and the others go on.
        drop(reader.publisher("dead", publisher()).unwrap());
        for subscriber in [&mut here, &mut there] {
            let dropped = fault(subscriber.next(&mut soon()).unwrap_err());
            assert!(matches!(dropped, StreamFault::PublisherGone { published: 0, .. }), "{dropped}");
        }
        publish_number(&mut alive, 2).unwrap();
        for subscriber in [&mut here, &mut there] {
            assert!(subscriber.next(&mut soon()).unwrap().is_some());
        }
        alive.finish().unwrap();
        assert!(here.next(&mut soon()).unwrap().is_none() && there.next(&mut soon()).unwrap().is_none());
        drop((here, there));
        owner.store.evict(&handle).unwrap();
        eventually("nothing is left", || owner.store.list(1).used == 0);
    }
}

#[test]
fn a_subscriber_that_leaves_or_dies_holds_no_publisher_back_and_items_keep_their_objects() {
    for owner in owners() {
        let mut publisher = owner.store.publisher("gone", publisher().capacity(2)).unwrap();
        let client = owner.client();
        let mut leaves = client.subscribe("gone", subscriber()).unwrap();
        let dies = Raw::new(&owner);
        let subscribed = [&[67, 4][..], b"gone", &[1], &[1, 0, 0, 0]].concat();
        let id = number_in(&dies.ask(&subscribed)[1..]);
        publish_number(&mut publisher, 0).unwrap();
        publish_number(&mut publisher, 1).unwrap();
        let item = leaves.next(&mut soon()).unwrap().unwrap();
        assert!(item.is_owned());
        for from in 0..2_u64 {
            let next = [&[68][..], &id.to_le_bytes(), &[0, 0], &from.to_le_bytes()].concat();
            let entry = dies.ask(&next);
            assert_eq!((entry[0], number_in(&entry[10..])), (0, from));
        }
        drop((client, leaves));
        publish_number(&mut publisher, 2).unwrap();
        assert!(publisher.publish_bytes_with("", &[b"number 3"], &mut briefly()).is_err());
        assert_eq!(objects(&owner.store), 3);
        drop(dies);
        eventually("its objects are gone", || objects(&owner.store) == 1);
        publish_number(&mut publisher, 3).unwrap();
        assert_eq!(number_in(&owner.store.get(item.handle()).unwrap()), 0);
        drop(item);
        publisher.finish().unwrap();
        eventually("nothing is left", || owner.store.list(1).used == 0);
    }
}

#[test]
fn owned_objects_go_with_the_last_item_and_others_stay() {
    let owner = Owner::new("mapped", 1 << 20);
    let other = Owner::new("mapped", 1 << 20);
    let client = owner.client();
    let mut publisher = client.publisher("both", publisher()).unwrap();
    let mut one = client.subscribe("both", subscriber()).unwrap();
    let mut two = client.subscribe("both", subscriber()).unwrap();
    let mine = client.put(b"mine").unwrap();
    let given = client.put(b"given").unwrap();
    let foreign = other.store.put(b"elsewhere").unwrap();
    publisher.publish(&mine).unwrap();
    publisher.give(&given).unwrap();
    publisher.publish(&foreign).unwrap();
    assert_eq!(fault(publisher.give(&foreign).unwrap_err()), StreamFault::Foreign);
    let take = |subscriber: &mut Subscriber| -> [Item; 3] {
        [(); 3].map(|()| subscriber.next(&mut soon()).unwrap().unwrap())
    };
    let (first, second) = (take(&mut one), take(&mut two));
    for items in [&first, &second] {
        assert_eq!([items[0].is_owned(), items[1].is_owned(), items[2].is_owned()], [false, true, false]);
        assert_eq!([items[0].handle(), items[1].handle(), items[2].handle()], [&mine, &given, &foreign]);
        assert_eq!(&*other.client().get(items[2].handle()).unwrap(), b"elsewhere");
    }
    publisher.finish().unwrap();
    assert!(one.next(&mut soon()).unwrap().is_none());
    drop((first, one));
    assert!(two.next(&mut soon()).unwrap().is_none());
    assert!(client.exists(&given).unwrap());
    let view = client.get(&given).unwrap();
    drop((second, two));
    eventually("the object is evicted", || !client.exists(&given).unwrap());
    assert_eq!(&*view, b"given");
    assert!(client.exists(&mine).unwrap() && other.store.exists(&foreign).unwrap());
}

#[test]
fn a_subscriber_that_keeps_all_items_is_stopped_and_goes_on_when_it_has_dropped_one() {
    let owner = Owner::new("mapped", 1 << 20);
    let mut publisher = owner.store.publisher("held", publisher().capacity(2)).unwrap();
    let client = owner.client();
    let mut subscriber = client.subscribe("held", subscriber()).unwrap();
    let mut held = Vec::new();
    for number in 0..3 {
        publish_number(&mut publisher, number).unwrap();
        held.push(subscriber.next(&mut soon()).unwrap().unwrap());
    }
    publish_number(&mut publisher, 3).unwrap();
    assert_eq!(fault(subscriber.next(&mut soon()).unwrap_err()), StreamFault::Holds { most: 3 });
    assert_eq!(objects(&owner.store), 4);
    held.remove(1);
    let next = subscriber.next(&mut soon()).unwrap().unwrap();
    assert_eq!((next.lost(), number_in(&client.get(next.handle()).unwrap())), (0, 3));
}

#[test]
fn an_interrupted_wait_loses_nothing() {
    for owner in owners() {
        let client = owner.client();
        let mut subscriber = client.subscribe("interrupted", subscriber()).unwrap();
        let mut stop = || false;
        let stopped = subscriber.next(&mut Patience::of(LONG).checked_by(&mut stop)).unwrap_err();
        assert!(matches!(stopped, Error::Interrupted), "{stopped}");
        let mut publisher = owner.store.publisher("interrupted", publisher().capacity(1)).unwrap();
        publish_number(&mut publisher, 0).unwrap();
        let mut stop = || false;
        let mut patience = Patience::of(LONG).checked_by(&mut stop);
        let stopped = publisher.publish_bytes_with("", &[b"number 1"], &mut patience).unwrap_err();
        assert!(matches!(stopped, Error::Interrupted), "{stopped}");
        // With no time at all an entry that is there comes.
        let item = subscriber.next(&mut Patience::of(Duration::ZERO)).unwrap().unwrap();
        assert_eq!(number_in(&client.get(item.handle()).unwrap()), 0);
        assert!(subscriber.next(&mut Patience::of(Duration::ZERO)).is_err());
        assert_eq!(objects(&owner.store), 1);
    }
}

#[test]
fn names_capacities_and_numbers_are_bounded() {
    let owner = Owner::new("mapped", 1 << 20);
    let client = owner.client();
    let long = "é".repeat(128);
    for (name, len) in [("", 0), (long.as_str(), 256)] {
        let error = client.publisher(name, publisher()).unwrap_err();
        assert_eq!(fault(error), StreamFault::Name { len });
        assert_eq!(fault(owner.store.subscribe(name, subscriber()).unwrap_err()), StreamFault::Name { len });
        assert_eq!(fault(client.discard_topic(name).unwrap_err()), StreamFault::Name { len });
    }
    for options in [
        publisher().capacity(0),
        publisher().capacity(MAX_TOPIC_CAPACITY + 1),
        publisher().capacity(4).keep(5),
        publisher().keep(u32::MAX),
    ] {
        assert_eq!(fault(client.publisher("bounds", options).unwrap_err()), StreamFault::Capacity);
    }
    let largest = client.publisher("bounds", publisher().capacity(MAX_TOPIC_CAPACITY)).unwrap();
    let differs = StreamFault::Differs { capacity: MAX_TOPIC_CAPACITY, keep: 0 };
    let error = owner.store.publisher("bounds", publisher().capacity(7)).unwrap_err();
    assert_eq!(fault(error), differs);
    owner.store.publisher("bounds", publisher()).unwrap().finish().unwrap();
    largest.finish().unwrap();

    let mut all: Vec<_> = (0..MAX_TOPICS)
        .map(|number| owner.store.subscribe(&format!("topic {number}"), subscriber()).unwrap())
        .collect();
    assert_eq!(fault(client.subscribe("more", subscriber()).unwrap_err()), StreamFault::Topics);
    assert_eq!(fault(client.publisher("more", publisher()).unwrap_err()), StreamFault::Topics);
    all.clear();
    let members: Vec<_> =
        (0..MAX_MEMBERS).map(|_| owner.store.subscribe("one", subscriber()).unwrap()).collect();
    assert_eq!(fault(client.subscribe("one", subscriber()).unwrap_err()), StreamFault::Members);
    // Each publisher that is gone takes a place until its subscribers have been told.
    for _ in 0..MAX_MEMBERS {
        drop(owner.store.publisher("one", publisher()).unwrap());
    }
    assert_eq!(fault(client.publisher("one", publisher()).unwrap_err()), StreamFault::Members);
    drop(members);
    client.publisher("one", publisher()).unwrap().finish().unwrap();
    assert_eq!(owner.store.list(1).used, 0);
}

#[test]
fn a_full_store_refuses_what_is_published_and_topics_and_goes_on_when_there_is_room() {
    let owner = Owner::new("mapped", 1 << 20);
    let client = owner.client();
    let mut publisher_here = client.publisher("full", publisher()).unwrap();
    let mut subscriber_here = client.subscribe("full", subscriber()).unwrap();
    let large = vec![1; 400_000];
    publisher_here.publish_bytes("", &[&large]).unwrap();
    publisher_here.publish_bytes("", &[&large]).unwrap();
    let full = publisher_here.publish_bytes("", &[&large]).unwrap_err();
    assert!(matches!(full, Error::Full { asked: 400_000, .. }), "{full}");
    let mut small = Vec::new();
    while let Ok(handle) = owner.store.put(&[0; 64]) {
        small.push(handle);
    }
    let full = client.subscribe("another", subscriber()).unwrap_err();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    for _ in 0..2 {
        subscriber_here.next(&mut soon()).unwrap().unwrap();
    }
    eventually("there is room", || publisher_here.publish_bytes("", &[&large]).is_ok());
}

#[test]
fn handles_that_are_forged_gone_or_too_long_are_not_published() {
    let owner = Owner::new("mapped", 1 << 20);
    let client = owner.client();
    let mut publisher_here = client.publisher("bad", publisher()).unwrap();
    let mut subscriber_here = client.subscribe("bad", subscriber()).unwrap();
    let handle = client.put(b"object").unwrap();
    let mut forged = handle.to_bytes();
    forged[28] ^= 1;
    let forged = Handle::from_bytes(&forged).unwrap();
    let wrong = publisher_here.publish(&forged).unwrap_err();
    assert!(matches!(wrong, Error::WrongKey { number } if number == handle.number()), "{wrong}");
    client.evict(&handle).unwrap();
    for error in [publisher_here.publish(&handle).unwrap_err(), publisher_here.give(&handle).unwrap_err()] {
        assert!(matches!(error, Error::Gone { .. }), "{error}");
    }
    let far = Store::options().address(format!("unix:/{}", "x".repeat(1000))).build().unwrap();
    let long = publisher_here.publish(&far.put(b"").unwrap()).unwrap_err();
    assert!(matches!(fault(long), StreamFault::LongHandle { len: 1024.. }));
    // An object that its publisher gave and evicted all the same is passed over.
    let given = client.put(b"given").unwrap();
    publisher_here.give(&given).unwrap();
    client.evict(&given).unwrap();
    publish_number(&mut publisher_here, 1).unwrap();
    let item = subscriber_here.next(&mut soon()).unwrap().unwrap();
    assert_eq!((number_in(&client.get(item.handle()).unwrap()), item.lost()), (1, 0));
}

#[test]
fn the_end_of_the_owner_is_told_to_one_that_waits() {
    for owner in owners() {
        let client = owner.client();
        let mut subscriber = client.subscribe("orphan", subscriber()).unwrap();
        let waits = std::thread::spawn(move || subscriber.next(&mut soon()).map(drop));
        std::thread::sleep(Duration::from_millis(20));
        drop(owner);
        let gone = waits.join().unwrap().unwrap_err();
        assert!(matches!(gone, Error::Link(_)), "{gone}");
    }
}

#[test]
fn requests_that_no_client_sends_are_refused_and_hurt_no_other() {
    let owner = Owner::new("mapped", 1 << 20);
    let mut publisher_here = owner.store.publisher("kept", publisher().keep(9)).unwrap();
    let mut subscriber_here = owner.store.subscribe("kept", subscriber()).unwrap();
    publish_number(&mut publisher_here, 7).unwrap();
    let raw = Raw::new(&owner);
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..4000 {
        let mut request: Vec<u8> = (0..random.usize(1..60)).map(|_| random.u8(..)).collect();
        request[0] = 64 + request[0] % 10;
        if round % 2 == 0 && request.len() > 9 {
            // Numbers of publishers and subscribers that exist, of others and of its own.
            request[1..9].copy_from_slice(&random.u64(1..40).to_le_bytes());
        } else if request.len() > 6 {
            request[1..6].copy_from_slice(b"\x04kept");
        }
        match raw.try_ask(&request) {
            Ok(reply) => assert!(!reply.is_empty()),
            Err(error) => assert!(error.to_string().contains("malformed"), "{error}"),
        }
    }
    // One that is too long to be any.
    let long = [vec![65; 10], vec![0; 5000]].concat();
    let error = raw.try_ask(&long).unwrap_err();
    assert!(error.to_string().contains("malformed"), "{error}");
    drop(raw);
    let item = subscriber_here.next(&mut soon()).unwrap().unwrap();
    assert_eq!(number_in(&owner.store.get(item.handle()).unwrap()), 7);
    publish_number(&mut publisher_here, 8).unwrap();
    drop(item);
    eventually("the other's publishers are gone, and the stream goes on", || {
        match subscriber_here.next(&mut soon()) {
            Ok(item) => number_in(&owner.store.get(item.unwrap().handle()).unwrap()) == 8,
            Err(error) => {
                assert!(matches!(fault(error), StreamFault::PublisherGone { .. }));
                false
            }
        }
    });
}
