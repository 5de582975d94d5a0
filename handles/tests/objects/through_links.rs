//! Objects of a store, used through links: from this process, and through TCP as from another machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farjump::objects::{ObjectState, Objects, Request};
use farjump::{Key, Target, TargetThread};
use farjump_handles::{Client, Error, GoneWhy, Handle, Patience, Service, Store};

use crate::support::Responding;

/// A store at a target of its own, with the address and the key for its clients.
struct Owner {
    store: Store,
    address: String,
    key: Option<Key>,
    _target: TargetThread,
    _folder: tempfile::TempDir,
}

impl Owner {
    fn over(transport: &str, capacity: u64) -> Owner {
        Owner::of(Store::options().capacity(capacity).build().unwrap(), transport)
    }

    fn of(store: Store, transport: &str) -> Owner {
        let folder = farjump_fixtures::folder();
        let (address, key) = match transport {
            "tcp" => ("tcp:127.0.0.1:0".to_owned(), Some(Key::from_bytes([7; Key::LEN]))),
            _ => (format!("unix:{}", folder.path().join("owner.sock").display()), None),
        };
        let mut builder = Target::listen(&address).objects(store.service());
        if let Some(key) = &key {
            builder = builder.key(key.clone());
        }
        if transport.starts_with("ucx") {
            builder = builder.transport(transport);
        }
        let target = builder.build().unwrap();
        let address = target.address();
        Owner { store, address, key, _target: target.spawn().unwrap(), _folder: folder }
    }

    fn client(&self) -> Client {
        let mut builder = Client::builder(&self.address);
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        builder.connect().unwrap()
    }
}

/// Every path of bytes: mapped, through frames of shared memory, through a stream.
fn all_paths() -> [(Owner, Client); 3] {
    let mapped = Owner::over("shm", 64 << 20);
    let through = Owner::over("shm", 64 << 20);
    let stream = Owner::over("tcp", 64 << 20);
    let clients = [
        mapped.client(),
        Client::builder(&through.address).mapped(false).connect().unwrap(),
        stream.client(),
    ];
    let [first, second, third] = clients;
    [(mapped, first), (through, second), (stream, third)]
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

fn soon() -> Patience<'static> {
    Patience::of(Duration::from_secs(20))
}

/// Waits until `is_so`, for things that happen at the target in its own time.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn objects_of_any_length_read_back_as_put_over_every_transport() {
    for (index, (owner, client)) in all_paths().into_iter().enumerate() {
        assert_eq!(client.mapping().is_ok(), index == 0, "{:?}", client.mapping());
        for len in [0, 1, 40, 1024, 1025, 4096, 300_000, 3 << 20] {
            let contents = bytes(len, len as u64);
            let put_there = owner.store.put_as("bytes", &contents).unwrap();
            let (head, tail) = contents.split_at(len / 3);
            let put_here = client.put_parts("bytes", &[head, tail], &mut soon()).unwrap();
            for handle in [&put_there, &put_here] {
                let handle = Handle::from_bytes(&handle.to_bytes()).unwrap();
                assert_eq!((handle.len(), handle.type_name()), (len as u64, "bytes"));
                let view = client.get(&handle).unwrap();
                assert_eq!(view.is_mapped(), index == 0);
                assert!(*view == contents[..], "{len} bytes, way {index}");
                assert!(*owner.store.get(&handle).unwrap() == contents[..], "{len} bytes, way {index}");
                assert!(client.exists(&handle).unwrap());
                assert!(client.evict(&handle).unwrap() && !client.evict(&handle).unwrap());
                assert!(!client.exists(&handle).unwrap());
                let gone = client.get(&handle).unwrap_err();
                assert!(matches!(gone, Error::Gone { why: GoneWhy::Evicted, .. }), "{gone}");
            }
        }
        eventually("all memory is free", || client.put(b"x").is_ok() && owner.store.list(100).used < 1 << 16);
    }
}

#[test]
fn an_evicted_object_keeps_its_memory_until_its_reader_is_done() {
    let owner = Owner::over("shm", 1 << 20);
    let client = owner.client();
    let contents = bytes(600_000, 1);
    let handle = owner.store.put(&contents).unwrap();
    let view = client.get(&handle).unwrap();
    assert!(owner.store.evict(&handle).unwrap());
    assert!(matches!(client.get(&handle), Err(Error::Gone { .. })));
    assert_eq!(owner.store.list(9).objects[0].state, ObjectState::Evicted);
    let full = client.put(&bytes(600_000, 2)).unwrap_err();
    let Error::Full { requested, used, capacity, largest, quarantined: 0, .. } = full else {
        panic!("{full}")
    };
    assert_eq!((requested, capacity), (600_000, 1 << 20));
    assert!(used >= 600_000 && largest < 600_000, "{used} {largest}");
    assert!(*view == contents[..]);
    drop(view);
    eventually("the reader is done", || client.put(&bytes(600_000, 2)).is_ok());
}

#[test]
fn an_evicted_object_is_freed_when_its_readers_link_ends() {
    let owner = Owner::over("shm", 1 << 20);
    let handle = owner.store.put(&bytes(600_000, 1)).unwrap();
    let client = owner.client();
    let view = client.get(&handle).unwrap();
    owner.store.evict(&handle).unwrap();
    // The view goes with its client, whose link ends without another request.
    drop(view);
    drop(client);
    eventually("the link has ended", || owner.store.list(9).objects.is_empty());
    assert_eq!(owner.store.list(9).used, 0);
}

#[test]
fn a_view_outlives_its_client_handle_and_its_owner() {
    let owner = Owner::over("shm", 1 << 20);
    let contents = bytes(100_000, 5);
    let handle = owner.store.put(&contents).unwrap();
    let client = owner.client();
    let view = client.get(&handle).unwrap();
    drop(client);
    drop(owner);
    assert!(*view == contents[..]);
}

#[test]
fn wrong_keys_and_foreign_handles_have_different_errors() {
    let (owner, other) = (Owner::over("shm", 1 << 20), Owner::over("shm", 1 << 20));
    let client = owner.client();
    let handle = owner.store.put(b"mine").unwrap();
    let mut forged = handle.to_bytes();
    forged[28] ^= 1;
    let forged = Handle::from_bytes(&forged).unwrap();
    for error in [client.get(&forged).unwrap_err(), owner.store.get(&forged).unwrap_err()] {
        assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    }
    assert!(matches!(client.evict(&forged), Err(Error::WrongKey { .. })));
    let foreign = other.store.put(b"other").unwrap();
    for error in [client.get(&foreign).unwrap_err(), owner.store.get(&foreign).unwrap_err()] {
        assert!(matches!(error, Error::Gone { why: GoneWhy::Restarted { .. }, .. }), "{error}");
    }
    assert!(!client.exists(&foreign).unwrap() && !client.evict(&foreign).unwrap());
    // Numbers that were never given, with the key of another object.
    let mut unknown = handle.to_bytes();
    unknown[12] = 99;
    let unknown = client.get(&Handle::from_bytes(&unknown).unwrap()).unwrap_err();
    assert!(matches!(unknown, Error::WrongKey { .. }), "{unknown}");
    assert_eq!(&*client.get(&handle).unwrap(), b"mine");
}

#[test]
fn a_reserved_object_is_waited_for_set_and_set_again() {
    for (owner, client) in all_paths() {
        let handle = client.reserve("later").unwrap();
        assert!(client.exists(&handle).unwrap());
        assert!(matches!(client.get(&handle), Err(Error::Unset { .. })));
        let late = client.wait(&handle, &mut Patience::of(Duration::from_millis(30))).unwrap_err();
        assert!(matches!(late, Error::TimedOut { .. }), "{late}");
        let mut stop = || false;
        let stopped = client
            .wait(&handle, &mut Patience::of(Duration::from_secs(20)).checked_by(&mut stop))
            .unwrap_err();
        assert!(matches!(stopped, Error::Interrupted), "{stopped}");

        let (waiter, given) = (owner.client(), handle.clone());
        let waits = std::thread::spawn(move || waiter.wait(&given, &mut soon()).unwrap().to_vec());
        client.set(&handle, &[b"first"], &mut soon()).unwrap();
        assert_eq!(waits.join().unwrap(), b"first");
        let first = client.get(&handle).unwrap();
        let second = bytes(5000, 3);
        client.set(&handle, &[&second], &mut soon()).unwrap();
        assert_eq!((&*first, &*client.get(&handle).unwrap()), (&b"first"[..], &second[..]));
        owner.store.set(&handle, b"third").unwrap();
        assert_eq!(&*client.get(&handle).unwrap(), b"third");

        let plain = client.put(b"plain").unwrap();
        for error in [
            client.set(&plain, &[b"x"], &mut soon()).unwrap_err(),
            client.set(&plain, &[&second], &mut soon()).unwrap_err(),
            owner.store.set(&plain, b"x").unwrap_err(),
        ] {
            assert!(matches!(error, Error::NotReserved { .. }), "{error}");
        }
        assert_eq!(&*client.get(&plain).unwrap(), b"plain");
        drop(first);
        assert!(client.evict(&handle).unwrap() && client.evict(&plain).unwrap());
        eventually("nothing is left", || {
            client.put(b"").is_ok_and(|last| client.evict(&last).unwrap())
                && owner.store.list(9).objects.is_empty()
        });
    }
}

#[test]
fn a_wait_for_an_object_fails_when_it_is_evicted() {
    for (owner, client) in all_paths() {
        let handle = owner.store.reserve("").unwrap();
        let given = handle.clone();
        let waits = std::thread::spawn(move || client.wait(&given, &mut soon()).map(drop));
        std::thread::sleep(Duration::from_millis(20));
        owner.store.evict(&handle).unwrap();
        let gone = waits.join().unwrap().unwrap_err();
        assert!(matches!(gone, Error::Gone { .. }), "{gone}");
    }
}

#[test]
fn leases_end_and_counted_objects_go_with_their_last_reference() {
    let owner = Owner::over("shm", 1 << 20);
    let client = owner.client();
    let handle = owner.store.put(b"leased").unwrap();
    client.lease(&handle, Some(Duration::from_secs(1000))).unwrap();
    assert!(owner.store.list(1).objects[0].lease_ns.is_some_and(|left| left > 900_000_000_000));
    client.lease(&handle, None).unwrap();
    assert_eq!(owner.store.list(1).objects[0].lease_ns, None);
    client.lease(&handle, Some(Duration::from_millis(1))).unwrap();
    eventually("the lease ends", || !client.exists(&handle).unwrap());

    let counted = client.put(b"counted").unwrap();
    assert_eq!((client.count(&counted, 1).unwrap(), client.count(&counted, 2).unwrap()), (1, 3));
    assert_eq!(client.count(&counted, -2).unwrap(), 1);
    assert!(client.exists(&counted).unwrap());
    assert_eq!(client.count(&counted, -1).unwrap(), 0);
    assert!(!client.exists(&counted).unwrap());
}

#[test]
fn a_full_store_spills_objects_without_readers_and_reads_them_back() {
    let folder = farjump_fixtures::folder();
    let options = Store::options().capacity(1 << 20).spill(folder.path(), 8 << 20);
    let owner = Owner::of(options.build().unwrap(), "shm");
    let client = owner.client();
    let all: Vec<_> = (0..16).map(|seed| bytes(200_000, seed)).collect();
    let handles: Vec<_> = all.iter().map(|contents| client.put(contents).unwrap()).collect();
    let states: Vec<_> = owner.store.list(99).objects.iter().map(|object| object.state).collect();
    assert!(states.contains(&ObjectState::Spilled) && states.contains(&ObjectState::Present), "{states:?}");
    for (handle, contents) in handles.iter().zip(&all) {
        assert!(*client.get(handle).unwrap() == contents[..]);
    }
    // Objects that are read are not written to the file: there is no memory for more.
    let held: Vec<_> = handles.iter().map_while(|handle| client.get(handle).ok()).collect();
    assert!((3..=5).contains(&held.len()), "{}", held.len());
    let full = client.get(&handles[15]).unwrap_err();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    for (view, contents) in held.iter().zip(&all) {
        assert!(**view == contents[..]);
    }
    drop(held);
    for handle in &handles {
        assert!(client.evict(handle).unwrap());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has a name");
}

#[test]
fn files_are_copied_and_what_is_no_file_is_refused() {
    let folder = farjump_fixtures::folder();
    let path = folder.path().join("data");
    std::fs::write(&path, b"of a file").unwrap();
    let store = Store::new().unwrap();
    let handle = store.put_file(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    assert_eq!(&*store.get(&handle).unwrap(), b"of a file");
    for (path, why) in
        [(folder.path().join("none"), "No such file"), (folder.path().to_owned(), "regular file")]
    {
        let error = store.put_file(&path).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
    }
    assert_eq!(store.list(9).objects.len(), 1);
}

#[test]
fn a_hundred_thousand_objects_are_all_there() {
    const COUNT: u64 = 100_000;
    let owner = Owner::over("shm", 64 << 20);
    let client = owner.client();
    let handles: Vec<_> = (0..COUNT).map(|number| client.put(&number.to_le_bytes()).unwrap()).collect();
    for (number, handle) in (0..COUNT).zip(&handles).step_by(97) {
        assert_eq!(*client.get(handle).unwrap(), number.to_le_bytes());
    }
    let listing = owner.store.list(10);
    assert_eq!((listing.objects.len() as u64, listing.left_out), (10, COUNT - 10));
    assert!(handles.iter().all(|handle| owner.store.evict(handle).unwrap()));
}

#[test]
fn many_threads_use_one_client_and_each_gets_its_own_object() {
    let owner = Owner::over("shm", 16 << 20);
    let client = owner.client();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let client = client.clone();
            scope.spawn(move || {
                for round in 0..300 {
                    let contents = bytes(fastrand::usize(..5000), thread * 1000 + round);
                    let handle = client.put(&contents).unwrap();
                    assert!(*client.get(&handle).unwrap() == contents[..]);
                    assert!(client.evict(&handle).unwrap());
                }
            });
        }
    });
}

#[test]
fn a_target_without_a_store_says_how_to_give_it_one() {
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("plain.sock").display());
    let _target = Target::listen(&address).build().unwrap().spawn().unwrap();
    let error = Client::connect(&address).unwrap_err().to_string();
    assert!(error.contains("no store of objects") && error.contains("TargetBuilder::objects"), "{error}");
}

#[test]
fn bytes_that_no_client_sends_are_refused_and_hurt_no_other() {
    let owner = Owner::over("shm", 1 << 20);
    let client = owner.client();
    let kept = client.put(b"kept").unwrap();
    let link = farjump::Link::connect(&owner.address).unwrap();
    link.set_mode(farjump::Mode::Local);
    let library = farjump::Library::by_name(farjump::objects::NAME).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..4000 {
        let mut request: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..)).collect();
        if let Some(op) = request.first_mut() {
            *op %= 15;
        }
        if round % 2 == 0 && request.len() > 9 {
            // Numbers of objects that exist.
            request[1..9].copy_from_slice(&1_u64.to_le_bytes());
        }
        match link.inject(&library, &request).unwrap().wait(Duration::from_secs(20)) {
            Ok(reply) => assert!(!reply.is_empty() || request.first() == Some(&6)),
            Err(error) => assert!(error.to_string().contains("malformed"), "{error}"),
        }
    }
    drop(link);
    assert_eq!(&*client.get(&kept).unwrap(), b"kept");
    eventually("what it allocated is free", || {
        owner.store.list(1000).objects.iter().all(|object| object.state != ObjectState::Unfinished)
    });
}

#[test]
fn objects_come_through_the_frames_of_ucx() {
    for transport in ["ucx-put", "ucx-am"] {
        let folder = farjump_fixtures::folder();
        let address = format!("unix:{}", folder.path().join("try.sock").display());
        if let Err(error) = Target::listen(&address).transport(transport).build() {
            println!("SKIP: {transport}: {error}");
            continue;
        }
        let owner = Owner::over(transport, 32 << 20);
        let client = Client::builder(&owner.address).transport(transport).mapped(false).connect().unwrap();
        for len in [0, 1000, 100_000, 5 << 20] {
            let contents = bytes(len, len as u64);
            let put_there = owner.store.put(&contents).unwrap();
            let put_here = client.put(&contents).unwrap();
            for handle in [&put_there, &put_here] {
                let view = client.get(handle).unwrap();
                assert!(!view.is_mapped() && *view == contents[..], "{len} bytes over {transport}");
                assert!(client.evict(handle).unwrap());
            }
        }
    }
}

#[test]
fn a_client_follows_no_false_offset_outside_the_owners_memory() {
    let folder = farjump_fixtures::folder();
    for (number, offset) in [1, 2, (1 << 20) - 2, 1 << 20, u64::MAX - 3, u64::MAX].into_iter().enumerate() {
        let address = format!("unix:{}", folder.path().join(format!("{number}.sock")).display());
        let store = Store::options().capacity(1 << 20).build().unwrap();
        let claims = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&claims);
        // The offset of each claim's reply is changed: of an object, or of the word to wait for.
        let respond =
            move |service: &mut Service, source, request: Request<'_>, reply: &mut Vec<u8>, limit| {
                const CLAIM: u8 = 5;
                let mut op = [0];
                request.copy_to(0, &mut op);
                counted.fetch_add(usize::from(op[0] == CLAIM), Ordering::Relaxed);
                let answered = service.request(source, request, reply, limit)?;
                let at = match (op[0], reply.first()) {
                    (CLAIM, Some(0)) => 9,
                    (CLAIM, Some(3)) => 1,
                    _ => return Ok(answered),
                };
                reply[at..at + 8].copy_from_slice(&offset.to_le_bytes());
                Ok(answered)
            };
        let liar = Responding { service: store.service(), respond };
        let _target = Target::listen(&address).objects(liar).build().unwrap().spawn().unwrap();
        let client = Client::connect(&address).unwrap();
        let reserved = client.reserve("").unwrap();
        let late = client.wait(&reserved, &mut Patience::of(Duration::from_millis(200))).unwrap_err();
        assert!(matches!(late, Error::TimedOut { .. }), "{offset}: {late}");
        // The client sleeps between two requests, each time for longer: no futex waits on a word that cannot exist.
        assert!(claims.load(Ordering::Relaxed) < 60, "{offset}: {claims:?}");
        let handle = client.put(&[7; 4096]).unwrap();
        match client.get(&handle) {
            Err(error) => assert!(matches!(error, Error::Protocol { .. }), "{offset}: {error}"),
            // Inside its memory: other bytes of the owner's, which are read as they are.
            Ok(view) => assert!(offset + view.len() as u64 <= 1 << 20),
        }
    }
}
