//! Order, and what slow and late subscribers get.

use std::time::Duration;

use farjump_handles::{Handle, Overflow, StreamFault, SubscriberConfig};

use super::support::{
    Owner, briefly, eventually, fault, number_in, numbers, objects, owners, publish_number, publisher, soon,
    subscriber,
};

#[test]
fn each_publishers_order_is_kept_for_each_subscriber_over_every_transport() {
    const PUBLISHERS: u64 = 3;
    for owner in owners() {
        let count = if owner.key.is_none() { 200 } else { 40 };
        let options = SubscriberConfig::default().publishers(PUBLISHERS as u32 + 1);
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
                    for number in 0..count {
                        publish_number(&mut publisher, index << 32 | number).unwrap();
                    }
                    publisher.finish().unwrap();
                });
            }
            scope.spawn(move || {
                let mut publisher = store.publisher("numbers", publisher()).unwrap();
                for number in 0..count {
                    publish_number(&mut publisher, PUBLISHERS << 32 | number).unwrap();
                }
                publisher.finish().unwrap();
            });
            for got in subscribers.into_iter().chain([here]) {
                let got = got.join().unwrap();
                assert_eq!(got.len() as u64, (PUBLISHERS + 1) * count);
                for index in 0..=PUBLISHERS {
                    let of_one: Vec<_> =
                        got.iter().filter(|number| **number >> 32 == index).map(|n| n & 0xffff).collect();
                    assert!(of_one.iter().copied().eq(0..count), "publisher {index}: {of_one:?}");
                }
            }
        });
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
        eventually("the object that was not published is gone", || objects(&owner.store) == 2);
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
            // The subscriber has taken the first item when it requests the second.
            assert_eq!(
                number_in(&owner.store.get(slow.next(&mut soon()).unwrap().unwrap().handle()).unwrap()),
                0
            );
            slow.next(&mut soon()).unwrap().unwrap();
            publishes.join().unwrap();
        });
        // A gone subscriber delays no publisher.
        drop(slow);
        publish_number(&mut publisher, 3).unwrap();
        assert!(fast.next(&mut soon()).unwrap().is_some());
        assert_eq!(fast.lost(), 0);
    }
}

#[test]
fn a_full_topic_refuses_or_drops_entries_and_subscribers_count_losses() {
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
        // This subscriber still has the dropped entry. Of the next entries, four are lost.
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
    let mut now = client.subscribe("late", subscriber().from_now(true)).unwrap();
    // New entries replace kept ones.
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
    let mut never = owner.store.subscribe("late", subscriber().from_now(true)).unwrap();
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
