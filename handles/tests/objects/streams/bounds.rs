//! Bounds, full stores, and requests and handles that are wrong.

use std::time::Duration;

use farjump_handles::{
    Error, Handle, Item, MAX_MEMBERS, MAX_TOPIC_CAPACITY, MAX_TOPICS, Overflow, Patience, Publisher, Store,
    StreamFault, Subscriber,
};

use super::support::{
    Owner, Raw, eventually, fault, number_in, objects, publish_number, publisher, soon, subscriber,
};

#[test]
fn a_subscriber_keeping_all_items_is_refused_until_it_drops_one() {
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
fn names_capacities_and_numbers_are_bounded() {
    let owner = Owner::new("mapped", 16 << 20);
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
    // Each gone publisher takes a place until its subscribers have received its entry.
    for _ in 0..MAX_MEMBERS {
        drop(owner.store.publisher("one", publisher()).unwrap());
    }
    assert_eq!(fault(client.publisher("one", publisher()).unwrap_err()), StreamFault::Members);
    drop(members);
    // Their entries wait to be removed, and affect no other publisher.
    client.publisher("one", publisher()).unwrap().finish().unwrap();
    eventually("nothing is left", || owner.store.list(1).used == 0);
}

#[test]
fn a_full_store_refuses_entries_and_topics_until_space_is_free() {
    let owner = Owner::new("mapped", 1 << 20);
    let client = owner.client();
    let mut publisher_here = client.publisher("full", publisher()).unwrap();
    let mut subscriber_here = client.subscribe("full", subscriber()).unwrap();
    let large = vec![1; 400_000];
    publisher_here.publish_bytes("", &[&large]).unwrap();
    publisher_here.publish_bytes("", &[&large]).unwrap();
    let full = publisher_here.publish_bytes("", &[&large]).unwrap_err();
    assert!(matches!(full, Error::Full { requested: 400_000, .. }), "{full}");
    let mut small = Vec::new();
    while let Ok(handle) = owner.store.put(&[0; 64]) {
        small.push(handle);
    }
    // The space left is less than an object takes, and enough for a few topics.
    let mut others = Vec::new();
    let full = loop {
        match client.subscribe(&format!("other {}", others.len()), subscriber()) {
            Ok(other) => others.push(other),
            Err(full) => break full,
        }
    };
    assert!(matches!(full, Error::Full { .. }) && others.len() < 10, "{full}: {}", others.len());
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
    // Subscribers skip an object that its publisher gave and evicted nevertheless.
    let given = client.put(b"given").unwrap();
    publisher_here.give(&given).unwrap();
    client.evict(&given).unwrap();
    publish_number(&mut publisher_here, 1).unwrap();
    let item = subscriber_here.next(&mut soon()).unwrap().unwrap();
    assert_eq!((number_in(&client.get(item.handle()).unwrap()), item.lost()), (1, 0));
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
        match raw.try_exchange(&request) {
            Ok(reply) => assert!(!reply.is_empty()),
            Err(error) => assert!(error.to_string().contains("malformed"), "{error}"),
        }
    }
    // A request that is too long to be valid.
    let long = [vec![65; 10], vec![0; 5000]].concat();
    let error = raw.try_exchange(&long).unwrap_err();
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

/// A subscriber, and the last number that it got of each publisher.
struct Reader {
    subscriber: Subscriber,
    last: std::collections::HashMap<u64, u64>,
}

#[test]
fn after_any_sequence_of_calls_order_is_kept_and_nothing_is_left() {
    let mut random = fastrand::Rng::with_seed(3);
    let store = Store::options().capacity(1 << 20).build().unwrap();
    for round in 0..200 {
        let overflow = if random.bool() { Overflow::Refuse } else { Overflow::DropOldest };
        let capacity = random.u32(1..6);
        let options = publisher()
            .capacity(capacity)
            .keep(random.u32(0..=capacity))
            .await_subscribers(random.u32(0..3))
            .overflow(overflow);
        let mut publishers: Vec<Publisher> = Vec::new();
        let mut readers: Vec<Reader> = Vec::new();
        let mut items: Vec<(Item, u64)> = Vec::new();
        let mut count = 0_u64;
        for _ in 0..120 {
            match random.u8(0..12) {
                0 if publishers.len() < 3 => {
                    publishers.extend(store.publisher("any", options.clone()));
                }
                1 if readers.len() < 3 => {
                    let from = if random.bool() { subscriber() } else { subscriber().from_now(true) };
                    let subscriber = store.subscribe("any", from).unwrap();
                    readers.push(Reader { subscriber, last: Default::default() });
                }
                2 if !publishers.is_empty() => {
                    let ended = publishers.swap_remove(random.usize(..publishers.len()));
                    if random.bool() {
                        ended.finish().unwrap();
                    }
                }
                3 if !readers.is_empty() => drop(readers.swap_remove(random.usize(..readers.len()))),
                4..=6 if !items.is_empty() => {
                    let (item, number) = items.swap_remove(random.usize(..items.len()));
                    assert_eq!(number_in(&store.get(item.handle()).unwrap()), number, "round {round}");
                }
                7..=8 if !publishers.is_empty() => {
                    let index = random.usize(..publishers.len());
                    count += 1;
                    match publish_number(&mut publishers[index], count) {
                        Ok(_) => {}
                        Err(error) => assert_eq!(fault(error), StreamFault::Full),
                    }
                }
                _ if !readers.is_empty() => {
                    let index = random.usize(..readers.len());
                    let Reader { subscriber, last } = &mut readers[index];
                    match subscriber.next(&mut Patience::of(Duration::ZERO)) {
                        Ok(None) => {}
                        Ok(Some(item)) => {
                            let number = number_in(&store.get(item.handle()).unwrap());
                            let before = last.insert(item.publisher(), number);
                            assert!(before.is_none_or(|before| before < number), "round {round}");
                            items.push((item, number));
                        }
                        Err(error) => match fault(error) {
                            StreamFault::NoEntry(_) | StreamFault::Holds { .. } => {}
                            StreamFault::PublisherGone { publisher, .. } => {
                                last.insert(publisher, u64::MAX);
                            }
                            fault => panic!("round {round}: {fault}"),
                        },
                    }
                }
                _ => {}
            }
        }
        drop((publishers, readers, items));
        store.discard_topic("any").unwrap();
        assert_eq!(store.list(1).used, 0, "round {round}");
    }
}
