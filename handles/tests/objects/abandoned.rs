//! Requests whose caller stops waiting before it gets the reply leave nothing with the owner.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farjump::Target;
use farjump::objects::{ObjectState, Objects, Request};
use farjump_handles::{
    Client, Error, Handle, Patience, PublisherConfig, Service, Store, StreamFault, SubscriberConfig,
};

use crate::support::Responding;

/// An owner whose target replies only while a test polls it.
struct Owner {
    store: Store,
    target: Target<'static>,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Owner {
    fn new(is_mapped: bool) -> Owner {
        Owner::serving(is_mapped, |service| service)
    }

    fn serving<O: Objects + 'static>(is_mapped: bool, wrap: impl FnOnce(Service) -> O) -> Owner {
        let folder = farjump_fixtures::folder();
        let address = format!("unix:{}", folder.path().join("owner.sock").display());
        let store = Store::options().capacity(1 << 20).build().unwrap();
        let mut target = Target::listen(&address).objects(wrap(store.service())).build().unwrap();
        let client = polled(&mut target, || {
            let client = Client::builder(&address).mapped(is_mapped).connect().unwrap();
            // Makes the mapping here, with a reply of the target.
            assert_eq!(client.mapping().is_ok(), is_mapped);
            client
        });
        Owner { store, target, client, _folder: folder }
    }

    /// Runs `act` on the client while the target is polled.
    fn polled<T: Send>(&mut self, act: impl FnOnce(&Client) -> T + Send) -> T {
        let client = &self.client;
        polled(&mut self.target, || act(client))
    }

    /// Makes the target take all requests that were sent.
    fn poll(&mut self) {
        while self.target.poll().unwrap() != 0 {}
    }

    /// Runs `act`, which waits for `requests` replies, and interrupts the wait for the last one when that reply is
    /// there. The target is polled in the patience's check alone, so each wait lasts until a check.
    fn interrupt_with_reply<T: Debug>(
        &mut self,
        requests: u32,
        act: impl FnOnce(&Client, &mut Patience<'_>) -> Result<T, Error>,
    ) {
        let target = &mut self.target;
        let mut waits = 0;
        let mut check = || {
            let (before, end) = (target.stats().frames, Instant::now() + Duration::from_secs(60));
            // The frames of shared memory are all there, and a poll that runs none leaves none.
            while target.poll().unwrap() != 0 || target.stats().frames == before {
                assert!(Instant::now() < end, "the request does not come");
            }
            waits += 1;
            waits < requests
        };
        let mut patience = Patience::of(Duration::from_secs(60)).checked_by(&mut check);
        let outcome = act(&self.client, &mut patience);
        assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
        assert_eq!(waits, requests);
    }

    /// The store's objects, as their claims and states, and its bytes in use.
    fn list(&self) -> (Vec<(u64, ObjectState)>, u64) {
        let list = self.store.list(99);
        (list.objects.iter().map(|object| (object.claims, object.state)).collect(), list.used)
    }
}

/// Runs `act` on a thread of its own, and polls the target until it returns. The client's time limits end it in any case.
fn polled<T: Send>(target: &mut Target<'_>, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        while !acting.is_finished() {
            target.poll().unwrap();
            std::thread::yield_now();
        }
        acting.join().unwrap()
    })
}

/// Makes a request with a client whose owner is not polled, and stops waiting.
fn give_up<T>(act: impl FnOnce(&mut Patience<'_>) -> Result<T, Error>) {
    let mut stop = || false;
    let mut patience = Patience::of(Duration::from_secs(60)).checked_by(&mut stop);
    assert!(matches!(act(&mut patience), Err(Error::Interrupted)));
}

#[test]
fn the_next_request_releases_a_claim_with_a_late_reply() {
    for is_mapped in [true, false] {
        let mut owner = Owner::new(is_mapped);
        let handle = owner.store.put(&[1; 5000]).unwrap();
        let other = owner.store.put(b"other").unwrap();
        let client = owner.client.clone();
        give_up(|patience| client.get_with(&handle, patience));
        give_up(|patience| client.wait(&handle, patience));
        let late = client.get_with(&handle, &mut Patience::of(Duration::ZERO)).unwrap_err();
        assert!(matches!(late, Error::TimedOut { .. }), "{late}");
        owner.poll();
        assert!(owner.store.evict(&handle).unwrap());
        let (objects, used) = owner.list();
        assert!(objects.contains(&(3, ObjectState::Evicted)) && used > 5000, "{objects:?}, {used} bytes");
        // The reply to this request is its own, whatever came before.
        assert_eq!(*owner.polled(|client| client.get(&other).unwrap().to_vec()), *b"other");
        owner.polled(|client| client.exists(&other).unwrap());
        let (objects, used) = owner.list();
        assert_eq!(objects, [(0, ObjectState::Present)], "{used} bytes");
        assert!(used < 5000, "{used} bytes");
    }
}

#[test]
fn a_view_that_is_dropped_releases_the_claims_of_abandoned_requests() {
    let mut owner = Owner::new(true);
    let (handle, other) = (owner.store.put(&[1; 5000]).unwrap(), owner.store.put(b"other").unwrap());
    let view = owner.polled(|client| client.get(&other).unwrap());
    give_up(|patience| owner.client.get_with(&handle, patience));
    owner.poll();
    assert!(owner.store.evict(&handle).unwrap());
    assert!(owner.list().0.contains(&(1, ObjectState::Evicted)));
    drop(view);
    owner.poll();
    assert_eq!(owner.list().0, [(0, ObjectState::Present)]);
}

#[test]
fn the_next_request_removes_objects_of_abandoned_requests() {
    for is_mapped in [true, false] {
        let mut owner = Owner::new(is_mapped);
        let client = owner.client.clone();
        // In one request, and in several. Of several requests, the first is abandoned.
        for len in [10, 5000] {
            give_up(|patience| client.put_parts("", &[&vec![7; len]], patience));
        }
        owner.poll();
        let (mut objects, _) = owner.list();
        objects.sort_by_key(|(_, state)| *state == ObjectState::Present);
        assert_eq!(objects, [(0, ObjectState::Unfinished), (0, ObjectState::Present)]);
        let kept = owner.polled(|client| client.put(b"kept").unwrap());
        assert_eq!(owner.list().0, [(0, ObjectState::Present)], "mapped: {is_mapped}");
        assert_eq!(*owner.store.get(&kept).unwrap(), *b"kept");
    }
}

#[test]
fn a_put_given_up_at_commit_is_removed_but_sets_complete() {
    let (is_committing, has_given_up) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    // The owner replies to a commit after its caller has stopped waiting.
    let (committing, given_up) = (Arc::clone(&is_committing), Arc::clone(&has_given_up));
    let respond = move |service: &mut Service, source, request: Request<'_>, reply: &mut Vec<u8>, limit| {
        const COMMIT: u8 = 4;
        let mut op = [0];
        request.copy_to(0, &mut op);
        if op == [COMMIT] {
            committing.store(true, Ordering::Release);
            let end = Instant::now() + Duration::from_secs(60);
            while !given_up.load(Ordering::Acquire) {
                assert!(Instant::now() < end, "the client does not give up");
                std::thread::yield_now();
            }
        }
        service.request(source, request, reply, limit)
    };
    let mut owner = Owner::serving(true, |service| Responding { service, respond });
    let give_up_at_commit =
        |owner: &mut Owner, act: fn(&Client, &Handle, &mut Patience<'_>) -> Result<(), Error>| {
            let reserved = owner.polled(|client| client.reserve("").unwrap());
            is_committing.store(false, Ordering::Release);
            has_given_up.store(false, Ordering::Release);
            owner.polled(|client| {
                let mut goes_on = || !is_committing.load(Ordering::Acquire);
                let mut patience = Patience::of(Duration::from_secs(60)).checked_by(&mut goes_on);
                let outcome = act(client, &reserved, &mut patience);
                has_given_up.store(true, Ordering::Release);
                assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
                // The reply comes behind the replies to all earlier requests.
                assert!(client.exists(&reserved).unwrap());
            });
            reserved
        };
    give_up_at_commit(&mut owner, |client, _, patience| {
        client.put_parts("", &[&[8; 5000]], patience).map(drop)
    });
    assert_eq!(owner.list().0, [(0, ObjectState::Reserved)]);
    assert!(owner.list().1 < 5000, "{:?}", owner.list());
    let set = give_up_at_commit(&mut owner, |client, reserved, patience| {
        client.set(reserved, &[&[9; 5000]], patience)
    });
    assert_eq!(*owner.store.get(&set).unwrap(), [9; 5000]);
}

#[test]
fn an_interruption_that_comes_with_a_reply_leaves_no_object() {
    for is_mapped in [true, false] {
        let mut owner = Owner::new(is_mapped);
        let kept = owner.store.put(b"kept").unwrap();
        let before = owner.list();
        // In one request, and in those to allocate and to commit, of which the last is interrupted.
        for (len, requests) in [(10, 1), (5000, 2)] {
            owner.interrupt_with_reply(requests, |client, patience| {
                client.put_parts("", &[&vec![7; len]], patience)
            });
            assert_eq!(owner.list().0, [(0, ObjectState::Present); 2], "the owner has made it");
            // The reply had come, so the eviction is sent before this request.
            assert!(owner.polled(|client| client.exists(&kept).unwrap()));
            assert_eq!(owner.list(), before, "{len} bytes, mapped: {is_mapped}");
        }
    }
}

#[test]
fn an_interruption_that_comes_with_a_reply_loses_no_entry() {
    for is_mapped in [true, false] {
        let mut owner = Owner::new(is_mapped);
        let mut subscriber =
            owner.polled(|client| client.subscribe("topic", SubscriberConfig::default()).unwrap());
        let mut publisher = owner.store.publisher("topic", PublisherConfig::default()).unwrap();
        let contents = [b"entry 0", b"entry 1"];
        let entries = contents.map(|bytes| publisher.publish_bytes("", &[bytes]).unwrap());
        for (bytes, entry) in contents.iter().zip(entries) {
            owner.interrupt_with_reply(1, |_, patience| subscriber.next(patience));
            let next = owner.polled(|_| subscriber.next(&mut Patience::of(Duration::from_secs(60))));
            let item = next.unwrap().unwrap();
            assert_eq!((item.number(), item.lost()), (entry, 0), "mapped: {is_mapped}");
            assert_eq!(&*owner.store.get(item.handle()).unwrap(), *bytes);
        }
    }
}

#[test]
fn publishers_and_subscribers_that_were_given_up_leave_their_topic() {
    let mut owner = Owner::new(false);
    let address = owner.client.address().to_owned();
    let end = Instant::now() + Duration::from_secs(60);
    // The time limit of a client is that of its connection, too: a machine may be too slow for it at first.
    let hasty = loop {
        let hasty = owner.polled(|_| Client::builder(&address).timeout(Duration::from_millis(50)).connect());
        match hasty {
            Ok(hasty) => break hasty,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
    let subscriber = hasty.subscribe("topic", SubscriberConfig::default()).map(drop);
    assert!(matches!(subscriber, Err(Error::TimedOut { .. })), "{subscriber:?}");
    let publisher = hasty.publisher("topic", PublisherConfig::default()).map(drop);
    assert!(matches!(publisher, Err(Error::TimedOut { .. })), "{publisher:?}");
    owner.poll();
    let in_use = owner.store.discard_topic("topic").unwrap_err();
    assert!(matches!(in_use, Error::Stream { fault: StreamFault::InUse, .. }), "{in_use}");
    // Its next request removes them, even if its own reply comes too late.
    let object = owner.store.put(b"").unwrap();
    let _ = owner.polled(|_| hasty.exists(&object));
    owner.poll();
    // A topic without members and entries is forgotten.
    assert!(!owner.store.discard_topic("topic").unwrap());
}

#[test]
fn many_threads_give_up_and_the_others_get_their_own_objects() {
    let mut owner = Owner::new(false);
    let handles: Vec<_> = (0..8_u8).map(|byte| owner.store.put(&[byte; 2000]).unwrap()).collect();
    for handle in &handles {
        give_up(|patience| owner.client.get_with(handle, patience));
    }
    owner.polled(|client| {
        std::thread::scope(|scope| {
            for (byte, handle) in (0..8_u8).zip(&handles) {
                scope.spawn(move || {
                    for _ in 0..50 {
                        // With no time at all, the request is abandoned at once, unless the reply is there.
                        if let Ok(view) = client.get_with(handle, &mut Patience::of(Duration::ZERO)) {
                            assert_eq!(*view, [byte; 2000]);
                        }
                        assert_eq!(*client.get(handle).unwrap(), [byte; 2000]);
                    }
                });
            }
        });
    });
    // All replies have come when a further one has, and are settled with the request after it.
    for _ in 0..2 {
        owner.polled(|client| client.exists(&handles[0]).unwrap());
    }
    owner.poll();
    assert!(owner.list().0.iter().all(|object| *object == (0, ObjectState::Present)), "{:?}", owner.list());
}
