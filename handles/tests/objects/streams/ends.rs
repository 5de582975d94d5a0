//! The ends of publishers, subscribers, items and owners.

use std::time::Duration;

use farjump_handles::{Error, Item, Patience, StreamFault, Subscriber};

use super::support::{
    LONG, Owner, Raw, briefly, eventually, fault, number_in, objects, owners, publish_number, publisher,
    soon, subscriber,
};

#[test]
fn a_gone_publisher_is_reported_to_subscribers_after_all_its_entries() {
    for owner in owners() {
        let mut here = owner.store.subscribe("dead", subscriber()).unwrap();
        let reader = owner.client();
        let mut there = reader.subscribe("dead", subscriber()).unwrap();
        let mut alive = owner.store.publisher("dead", publisher()).unwrap();
        let dead = Raw::new(&owner);
        let opened = [&[64, 4][..], b"dead", &[0; 8], &[1, 0, 0, 0, 0]].concat();
        let dead_number = number_in(&dead.exchange(&opened)[1..]);
        let handle = owner.store.put(b"object").unwrap();
        for _ in 0..2 {
            let publish = [&[65][..], &dead_number.to_le_bytes(), &[0], &handle.to_bytes()].concat();
            assert_eq!(dead.exchange(&publish)[0], 0);
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
        // Subscribers also learn of a dropped publisher, and the others continue.
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
fn an_ended_subscriber_blocks_no_publisher_and_items_keep_their_objects() {
    for owner in owners() {
        let mut publisher = owner.store.publisher("gone", publisher().capacity(2)).unwrap();
        let client = owner.client();
        let mut leaves = client.subscribe("gone", subscriber()).unwrap();
        let dies = Raw::new(&owner);
        let subscribed = [&[67, 4][..], b"gone", &[1], &[1, 0, 0, 0]].concat();
        let id = number_in(&dies.exchange(&subscribed)[1..]);
        publish_number(&mut publisher, 0).unwrap();
        publish_number(&mut publisher, 1).unwrap();
        let item = leaves.next(&mut soon()).unwrap().unwrap();
        assert!(item.is_owned());
        for from in 0..2_u64 {
            let next = [&[68][..], &id.to_le_bytes(), &[0, 0], &from.to_le_bytes()].concat();
            let entry = dies.exchange(&next);
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
fn an_idle_target_ends_a_gone_sources_members_and_topics() {
    for owner in owners() {
        let dies = Raw::new(&owner);
        for topic in 0..20 {
            let name = format!("topic {topic:02}");
            let name = [&[name.len() as u8], name.as_bytes()].concat();
            for _ in 0..10 {
                // Subscribe, and open to publish.
                assert_eq!(dies.exchange(&[&[67][..], &name, &[1], &[1, 0, 0, 0]].concat())[0], 0);
                assert_eq!(dies.exchange(&[&[64][..], &name, &[0; 8], &[1, 0, 0, 0, 0]].concat())[0], 0);
            }
        }
        assert!(owner.store.list(1).used > 20 * 10 * 1000);
        drop(dies);
        eventually("nothing is left", || owner.store.list(1).used == 0);
    }
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
        // Even with no time at all, an entry that exists comes.
        let item = subscriber.next(&mut Patience::of(Duration::ZERO)).unwrap().unwrap();
        assert_eq!(number_in(&client.get(item.handle()).unwrap()), 0);
        assert!(subscriber.next(&mut Patience::of(Duration::ZERO)).is_err());
        assert_eq!(objects(&owner.store), 1);
    }
}

#[test]
fn a_waiting_subscriber_fails_when_the_owner_ends() {
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
