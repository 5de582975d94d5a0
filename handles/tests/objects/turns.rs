//! Requests that take long at a target, and its service of other sources meanwhile.

#[path = "../support/polled.rs"]
mod polled;

use std::time::Duration;

use farjump::admin::Admin;
use farjump::objects::ObjectState;
use farjump::{Library, Target};
use farjump_handles::{Client, Error, Handle, Patience, Store};

use polled::PolledOwner;

const CAPACITY: u64 = 4 << 20;
/// Small objects, of which most have to go to the file for a large one.
const SMALL: usize = 3000;

fn own(transport: &str) -> PolledOwner {
    PolledOwner::new(transport, CAPACITY, 8 * CAPACITY)
}

/// Fills the store with small objects. Returns one of them, and a request for memory that most of them have to leave.
fn filled(owner: &PolledOwner) -> (Handle, Vec<u8>) {
    let handles: Vec<_> = (0..SMALL).map(|_| owner.store.put(b"s").unwrap()).collect();
    let used = owner.store.list(0).used;
    // Allocate: the length, and no name. Each object that goes to the file makes space of 64 bytes.
    let mut request = vec![2];
    request.extend((CAPACITY - used + SMALL as u64 / 2 * 64).to_le_bytes());
    request.push(0);
    (handles[SMALL - 1].clone(), request)
}

fn spilled(owner: &PolledOwner) -> usize {
    let objects = owner.store.list(usize::MAX).objects;
    objects.iter().filter(|object| object.state == ObjectState::Spilled).count()
}

/// Returns a request that checks whether an object exists.
fn exists(handle: &Handle) -> Vec<u8> {
    let bytes = handle.to_bytes();
    // The number, and the key behind number and length.
    let mut request = vec![9];
    request.extend(&bytes[12..20]);
    request.extend(&bytes[28..44]);
    request
}

#[test]
fn a_request_that_spills_many_objects_delays_only_its_own_source() {
    let library = Library::by_name(farjump::objects::NAME).unwrap();
    for transport in ["shm", "tcp"] {
        let mut owner = own(transport);
        let (handle, allocate) = filled(&owner);
        let (flood, honest) = (owner.link(), owner.link());
        // After this first request, nothing of the target's own is new to it.
        let mut first = honest.inject(&library, &exists(&handle)).unwrap();
        assert_eq!(owner.reply(&mut first).0, [0, 1]);
        let before = owner.target.stats().frames;
        let mut large = flood.inject(&library, &allocate).unwrap();
        let mut behind = flood.inject(&library, &exists(&handle)).unwrap();
        for _ in 0..5 {
            let mut asked = honest.inject(&library, &exists(&handle)).unwrap();
            let (reply, polls) = owner.reply(&mut asked);
            assert_eq!(reply, [0, 1]);
            if transport == "shm" {
                assert!(polls < 10, "{polls} polls for one reply");
                assert!(large.poll().unwrap().is_none() && behind.poll().unwrap().is_none());
            }
        }
        let (reply, polls) = owner.reply(&mut large);
        assert_eq!((reply[0], reply.len()), (0, 33));
        assert!(polls > 50, "{polls}");
        assert_eq!(owner.reply(&mut behind).0, [0, 1], "the next one of the same source comes after it");
        assert_eq!(owner.target.stats().frames - before, 7, "each request counts once");
        assert!(spilled(&owner) >= SMALL / 2);
    }
}

#[test]
fn a_pending_request_of_an_ended_source_leaves_no_unfinished_object() {
    let library = Library::by_name(farjump::objects::NAME).unwrap();
    let mut owner = own("shm");
    let (handle, allocate) = filled(&owner);
    let (flood, honest) = (owner.link(), owner.link());
    let pending = flood.inject(&library, &allocate).unwrap();
    let mut asked = honest.inject(&library, &exists(&handle)).unwrap();
    owner.reply(&mut asked);
    drop(pending);
    drop(flood);
    owner.poll_until("the end of a source", |target| target.sources() == 1);
    let unfinished = owner.store.list(usize::MAX).objects;
    assert!(unfinished.iter().all(|object| object.state != ObjectState::Unfinished));
    let mut asked = honest.inject(&library, &exists(&handle)).unwrap();
    assert_eq!(owner.reply(&mut asked).0, [0, 1]);
}

#[test]
fn an_admin_request_lists_all_objects_while_other_sources_are_served() {
    let mut owner = own("shm");
    let (handle, _) = filled(&owner);
    let address = owner.target.address();
    let listing = owner.polled(move || {
        let client = Client::connect(&address).unwrap();
        std::thread::scope(|scope| {
            let listing = scope.spawn(|| Admin::new(&address).unwrap().objects().unwrap());
            while !listing.is_finished() {
                assert!(client.exists(&handle).unwrap());
            }
            listing.join().unwrap()
        })
    });
    assert_eq!((listing.objects.len(), listing.left_out), (SMALL, 0));
    assert!(listing.objects.windows(2).all(|pair| pair[0].number > pair[1].number), "the latest use first");
}

#[test]
fn records_and_claims_count_in_the_memory_of_a_source() {
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("owner.sock").display());
    let store = Store::options().capacity(64 << 20).build().unwrap();
    let target = Target::listen(&address).objects(store.service());
    let target = target.mailbox_size(1 << 16).max_source_memory(1 << 20);
    let _target = target.build().unwrap().spawn().unwrap();
    let name = "t".repeat(255);
    let fill = |client: &Client| {
        let mut put = Vec::new();
        loop {
            match client.put_parts(&name, &[b"s"], &mut Patience::of(Duration::from_secs(20))) {
                Ok(handle) => put.push(handle),
                Err(error) => break (put, error),
            }
        }
    };
    let (first, second) = (Client::connect(&address).unwrap(), Client::connect(&address).unwrap());
    let (put, full) = fill(&first);
    assert!(matches!(full, Error::SourceFull { .. }), "{full}");
    assert!(full.to_string().contains("max_source_memory"), "{full}");
    assert!((100..3000).contains(&put.len()), "{}", put.len());
    // The bytes of the first client's objects do not count for the second client.
    assert_eq!(fill(&second).0.len(), put.len(), "each has its own");
    assert!(second.evict(&put[0]).unwrap());
    first.put_parts(&name, &[&[7; 1 << 20]], &mut Patience::of(Duration::from_secs(20))).unwrap();
}
