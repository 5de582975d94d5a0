//! Functions at the data: built from C and Rust, called on objects at their owner, and where it takes less time.

mod awaiting;
mod ended;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};
use farjump::placement::Place;
use farjump::{CallError, Library, Target, TargetThread, WaitError};
use farjump_fixtures::process::remove_at_end;
use farjump_handles::{Client, Error, Handle, Placement, Store};
use rustix::event::{PollFd, PollFlags};

/// A function of `tests/ifuncs`, built once.
fn library(name: &str) -> Library {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = farjump_fixtures::folder().keep();
        remove_at_end(&folder);
        for source in ["sum_at.c", "named.c", "reversed.rs"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ifuncs").join(source);
            let name = source.file_stem().unwrap().to_str().unwrap();
            let output: PathBuf = folder.join(format!("lib{name}.so"));
            build(&Options { inputs: vec![source.clone()], output, ..Options::default() }).unwrap();
        }
        folder
    });
    Library::open(folder.join(format!("lib{name}.so"))).unwrap()
}

struct Owner {
    store: Store,
    client: Client,
    address: String,
    _target: TargetThread,
    _folder: tempfile::TempDir,
}

fn owner() -> Owner {
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("owner.sock").display());
    let store = Store::options().capacity(64 << 20).build().unwrap();
    let target = Target::listen(&address).objects(store.service()).build().unwrap().spawn().unwrap();
    let client = Client::connect(&address).unwrap();
    Owner { store, client, address, _target: target, _folder: folder }
}

fn number(reply: &[u8]) -> u64 {
    u64::from_le_bytes(reply.try_into().unwrap())
}

fn panicked(error: Error) -> String {
    match error {
        Error::Link(farjump::Error::Call(CallError::Panicked { message, .. })) => message,
        error => panic!("{error}"),
    }
}

#[test]
fn a_function_runs_at_the_owner_and_the_object_stays_there() {
    let owned = owner();
    let Owner { store, client, .. } = &owned;
    let sum = library("sum_at");
    let handle = store.put(&[1; 1000]).unwrap();
    assert_eq!(number(&client.call(&sum, &handle, b"").unwrap()), 1000);
    assert_eq!(number(&client.call(&sum, &handle, &[3]).unwrap()), 3000);
    let empty = client.put(b"").unwrap();
    assert_eq!(number(&client.call(&sum, &empty, &[3]).unwrap()), 0);
    let handles: Vec<_> = (0..50_u8).map(|byte| client.put(&[byte; 10]).unwrap()).collect();
    let sums = client.map(&sum, &handles, b"");
    for (byte, outcome) in (0..50).zip(sums) {
        assert_eq!(number(&outcome.unwrap()), byte * 10);
    }
    // One call that is polled, and one whose outcome is not taken.
    drop(client.start_call(&sum, &handle, b"").unwrap());
    let mut polled = client.start_call(&sum, &handle, b"").unwrap();
    let reply = loop {
        if let Some(reply) = polled.poll().unwrap() {
            break reply;
        }
    };
    assert_eq!(number(&reply), 1000);
    assert!(polled.poll().unwrap_err().to_string().contains("taken before"));
    // More than a link can have under way.
    let many = client.map(&sum, (0..40_000).map(|_| &handle), b"");
    assert!(many.into_iter().all(|outcome| number(&outcome.unwrap()) == 1000));
    // Calls hold nothing once they ended.
    assert!(handles.iter().all(|handle| store.evict(handle).unwrap()));
    assert_eq!(store.list(99).objects.len(), 2);
}

#[test]
fn an_event_loop_sleeps_until_a_started_call_has_an_outcome() {
    let owned = owner();
    let sum = library("sum_at");
    let handle = owned.client.put(&[1; 1000]).unwrap();
    let mut calls: Vec<_> =
        (0..20_u8).map(|factor| owned.client.start_call(&sum, &handle, &[factor]).unwrap()).collect();
    let descriptor = owned.client.as_fd().unwrap();
    let mut sums = [None; 20];
    let end = Instant::now() + Duration::from_secs(120);
    while sums.contains(&None) {
        assert!(Instant::now() < end, "{sums:?}");
        if let Some(longest) = owned.client.arm().unwrap() {
            assert!(longest <= Duration::from_secs(1));
            let longest = Some(longest.try_into().unwrap());
            rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], longest.as_ref()).unwrap();
        }
        owned.client.disarm().unwrap();
        for (call, sum) in calls.iter_mut().zip(&mut sums).filter(|(_, sum)| sum.is_none()) {
            *sum = call.poll().unwrap().map(|reply| number(&reply));
        }
    }
    assert_eq!(sums, std::array::from_fn(|factor| Some(1000 * factor as u64)));
    // Other calls of the same client work while it is armed, and `arm` reports the owner's end.
    let _ = owned.client.arm().unwrap();
    assert_eq!(number(&owned.client.call(&sum, &handle, b"").unwrap()), 1000);
    owned.client.disarm().unwrap();
    let Owner { client, _target: target, .. } = owned;
    drop(target.stop().unwrap());
    let gone = loop {
        match client.arm() {
            Ok(_) => assert!(Instant::now() < end, "the owner's end is not noticed"),
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, Error::Link(farjump::Error::Wait(WaitError::PeerGone { .. }))), "{gone}");
}

#[test]
fn a_function_without_its_object_gets_the_reason() {
    let (one, other) = (owner(), owner());
    let sum = library("sum_at");
    let handle = one.client.put(b"x").unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = handle.to_bytes();
        bytes[at] = byte;
        Handle::from_bytes(&bytes).unwrap()
    };
    let reserved = one.client.reserve("").unwrap();
    let (wrong_key, text) = (with(28, handle.to_bytes()[28] ^ 1), "no object: -");
    assert_eq!(panicked(one.client.call(&sum, &wrong_key, b"").unwrap_err()), format!("{text}5"));
    assert_eq!(panicked(one.client.call(&sum, &reserved, b"").unwrap_err()), format!("{text}7"));
    one.store.evict(&handle).unwrap();
    assert_eq!(panicked(one.client.call(&sum, &handle, b"").unwrap_err()), format!("{text}4"));
    let foreign = other.client.put(b"y").unwrap();
    let gone = one.client.call(&sum, &foreign, b"").unwrap_err();
    assert!(matches!(gone, Error::Gone { .. }), "{gone}");

    // A target without a store, and payloads that no client makes.
    let link = farjump::Link::connect(&other.address).unwrap();
    for payload in [&b""[..], &[0; 8], &[255; 64], &[0, 0, 0, 0, 8, 0, 0, 0]] {
        let error = link.inject(&sum, payload).unwrap().wait(Duration::from_secs(20)).unwrap_err();
        assert_eq!(panicked(error.into()), format!("{text}2"), "{payload:?}");
    }
}

#[test]
fn an_object_is_made_of_another_one_where_that_lies() {
    let owned = owner();
    let Owner { store, client, .. } = &owned;
    let reversed = library("reversed");
    let handle = client.put(b"some bytes").unwrap();
    let made = client.derive(&reversed, &handle, b"").unwrap();
    assert_eq!(&*client.get(&made).unwrap(), b"setyb emos");
    assert_eq!((made.len(), made.addresses()), (10, handle.addresses()));
    let again = client.derive(&reversed, &made, b"").unwrap();
    assert_eq!(&*store.get(&again).unwrap(), b"some bytes");
    let count = store.list(99).objects.len();
    assert_eq!(panicked(client.derive(&reversed, &handle, b"f").unwrap_err()), "made one and failed");
    assert_eq!(store.list(99).objects.len(), count, "what a failed function made is gone");
    let two = client.derive(&reversed, &handle, b"2").unwrap_err();
    assert!(matches!(two, Error::Protocol { .. }) && two.to_string().contains("reversed"), "{two}");
    let none = client.derive(&library("sum_at"), &handle, b"").unwrap_err();
    assert!(none.to_string().contains("has not made one object"), "{none}");
}

#[test]
fn a_function_runs_here_or_there_with_the_same_outcome() {
    let owned = owner();
    let Owner { client, .. } = &owned;
    let sum = library("sum_at");
    let (small, large) = (client.put(&[1; 64]).unwrap(), client.put(&vec![1; 4 << 20]).unwrap());
    let mut placement = Placement::new();
    let mut places = Vec::new();
    for _ in 0..40 {
        for (handle, len) in [(&small, 64), (&large, 4 << 20)] {
            // SAFETY: the function is that of this test, and takes any arguments.
            let placed = unsafe { client.call_auto(&mut placement, &sum, handle, &[2]) }.unwrap();
            assert_eq!(number(&placed.reply), 2 * len);
            assert!(placed.choice.here_us >= 0.0 && placed.choice.there_us >= 0.0, "{:?}", placed.choice);
            assert_eq!((placed.work.len, placed.work.args), (len, 1));
            let place = if placed.choice.place == Place::Here { "ran here, " } else { "ran at the data, " };
            let why = placed.to_string();
            assert!(why.contains(place) && why.contains(&format!("has {len} bytes")), "{why}");
            places.push(placed.choice.place);
        }
    }
    assert!(places.contains(&Place::AtData) || places.contains(&Place::Here));
    let wire = placement.wire(client.address()).unwrap();
    assert!(wire.latency_us >= 0.0 && wire.bytes_per_us > 0.0, "{wire:?}");

    // Over a slow wire all calls go to the data. With a slow processor there, all calls run here.
    let slow = farjump::placement::Wire { latency_us: 1e5, bytes_per_us: 1e-3 };
    let mut far = Placement::new();
    far.set_wire(client.address(), slow);
    // SAFETY: as above.
    let placed = unsafe { client.call_auto(&mut far, &sum, &large, &[1]) }.unwrap();
    assert_eq!((placed.choice.place, number(&placed.reply)), (Place::AtData, 4 << 20));
    assert_eq!(placed.wire, slow);
    assert!(placed.to_string().ends_with("takes 100000.0 us, and moves 0.0 bytes in 1 us"), "{placed}");
}

#[test]
fn a_forked_or_failed_function_here_reports_as_one_there_does() {
    let owned = owner();
    let Owner { client, store, .. } = &owned;
    let reversed = library("reversed");
    let handle = client.put(b"bytes").unwrap();
    let mut placement = Placement::new();
    let mut failed = Vec::new();
    for _ in 0..6 {
        // SAFETY: the function is that of this test, and takes any arguments.
        let outcome = unsafe { client.call_auto(&mut placement, &reversed, &handle, b"f") };
        failed.push(panicked(outcome.unwrap_err()));
    }
    assert!(
        failed.iter().all(|message| message == "made one and failed" || message == "no memory"),
        "{failed:?}"
    );
    assert_eq!(store.list(9).objects.len(), 1);
}

/// A function cannot wait until its object has come from the file.
#[test]
fn a_spilled_object_is_read_back_before_its_function_starts() {
    const LEN: usize = 300_000;
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("owner.sock").display());
    let options = Store::options().capacity(1 << 20).spill(folder.path(), 8 << 20);
    let store = options.build().unwrap();
    let _target = Target::listen(&address).objects(store.service()).build().unwrap().spawn().unwrap();
    let client = Client::connect(&address).unwrap();
    let sum = library("sum_at");
    let handles: Vec<_> = (1..=9).map(|byte| store.put(&[byte; LEN]).unwrap()).collect();
    for _ in 0..3 {
        for (byte, handle) in (1..).zip(&handles) {
            assert_eq!(number(&client.call(&sum, handle, b"").unwrap()), byte * LEN as u64);
        }
    }
    // Many calls under way, and a call by a task.
    for (byte, outcome) in (1..).zip(client.map(&sum, &handles, b"")) {
        assert_eq!(number(&outcome.unwrap()), byte * LEN as u64);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcomes = runtime.block_on(client.map_async(&sum, &handles, b""));
    for (byte, outcome) in (1..).zip(outcomes) {
        assert_eq!(number(&outcome.unwrap()), byte * LEN as u64);
    }
    let claims = |store: &Store| store.list(99).objects.iter().map(|object| object.claims).sum::<u64>();
    assert_eq!(claims(&store), 0, "each call has ended its hold");

    // An object that the function names in addition. The thread of the file may be as fast as the function.
    let named = library("named");
    let exchange = || number(&client.call(&named, &handles[8], &handles[0].to_bytes()).unwrap()) as i64;
    let last = std::iter::repeat_with(exchange).find(|number| *number != -8);
    assert_eq!(last, Some(LEN as i64));
    assert_eq!(claims(&store), 0);
}

/// Otherwise the first `derive` in a full store would fail, and so would others while the file is written.
#[test]
fn derive_succeeds_in_a_full_store_by_spilling_other_objects() {
    const LEN: usize = 300_000;
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("owner.sock").display());
    let options = Store::options().capacity(1 << 20).spill(folder.path(), 32 << 20);
    let store = options.build().unwrap();
    let _target = Target::listen(&address).objects(store.service()).build().unwrap().spawn().unwrap();
    let client = Client::connect(&address).unwrap();
    let reversed = library("reversed");
    let handles: Vec<_> = (1..=9).map(|byte| store.put(&[byte; LEN]).unwrap()).collect();
    for _ in 0..3 {
        for (byte, handle) in (1..).zip(&handles) {
            let made = client.derive(&reversed, handle, b"").unwrap();
            assert!(store.get(&made).unwrap().iter().all(|one| *one == byte));
        }
    }
    assert_eq!(store.list(99).objects.len(), 36);
}
