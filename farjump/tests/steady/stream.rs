//! The steady state over `tcp`: allocations of a message, and the system calls that move it.

use farjump::{Key, Library, Link, Target, WaitPolicy};
use farjump_fixtures::allocation;
use farjump_fixtures::helper_process::role;
use farjump_fixtures::this_test;

use crate::NEVER;
use crate::support::{Pair, Watchdog, library, serve, while_polling};
use crate::traced::{self, Traces, mark};

const TRANSPORT: &str = "tcp";
/// Calls that are counted, one by one.
const CALLS: u64 = 1000;
/// Batches that are counted, and calls in each.
const BATCHES: u64 = 50;
const TOGETHER: u64 = 64;

/// A link and a target in this thread that connect on loopback with a key, so that frames are encrypted.
fn sealed() -> Pair<'static> {
    let count: &'static mut u64 = Box::leak(Box::new(0));
    let key = || Key::from_bytes([7; Key::LEN]);
    let mut target = Target::listen("tcp:127.0.0.1:0")
        .transport(TRANSPORT)
        .key(key())
        .args(count)
        .control_interval(NEVER)
        .wait_policy(WaitPolicy::spin_only())
        .build()
        .unwrap();
    let link = Link::builder(&target.address())
        .transport(TRANSPORT)
        .key(key())
        .control_interval(NEVER)
        .wait_policy(WaitPolicy::spin_only());
    let link = while_polling(&mut target, || link.connect()).unwrap();
    let sealed = link.path().route.notes.iter().any(|note| note.starts_with("sealed by "));
    assert!(sealed, "{:?}", link.path().route);
    Pair { link, target }
}

/// Makes `count` calls. Each gets its reply before the next.
fn one_by_one(pair: &mut Pair<'_>, library: &Library, count: u64) {
    for round in 0..count {
        let mut call = pair.link.inject(library, &round.to_ne_bytes()).unwrap();
        while call.poll().unwrap().is_none() {
            pair.target.poll().unwrap();
        }
    }
}

/// Sends `count` batches, each of which has run before the next.
fn together(pair: &mut Pair<'_>, library: &Library, count: u64) {
    for _ in 0..count {
        let before = pair.target.stats().calls;
        let mut batch = pair.link.batch();
        (0..TOGETHER).for_each(|round| batch.send(library, &round.to_ne_bytes()).unwrap());
        batch.finish().unwrap();
        while pair.target.stats().calls != before + TOGETHER {
            pair.target.poll().unwrap();
        }
        pair.link.progress().unwrap();
    }
}

#[test]
fn a_sealed_message_allocates_nothing() {
    let _watchdog = Watchdog::new();
    let (mut pair, counter) = (sealed(), library("counter"));
    let mut run = |calls: u64, batches: u64| {
        one_by_one(&mut pair, &counter, calls);
        together(&mut pair, &counter, batches);
    };
    run(1000, 100);
    let before = allocation::allocations();
    run(10_000, 1000);
    assert_eq!(allocation::allocations() - before, 0);
}

/// The child's part: prints its thread id, waits, and then does the counted work.
fn play() {
    let (mut pair, counter) = (sealed(), library("counter"));
    one_by_one(&mut pair, &counter, 100);
    together(&mut pair, &counter, 10);
    traced::wait_for_tracer();
    mark();
    one_by_one(&mut pair, &counter, CALLS);
    mark();
    together(&mut pair, &counter, BATCHES);
    mark();
    serve(&mut pair.target);
}

#[test]
fn a_call_costs_each_process_two_system_calls_and_fewer_in_batches() {
    if !role().is_empty() {
        return play();
    }
    let Traces { phases, .. } = traced::run(this_test!());
    let [single, batched, _] = phases[..] else { panic!("{phases:?}") };
    println!("one by one {single:?}, in batches {batched:?}");
    // Both processes of the link are in one thread, which sends a call and a reply and receives both. Credit travels
    // with them, except once: the credit left from the batches before.
    let calls = 2 * CALLS..=2 * CALLS + 1;
    assert!(calls.contains(&single.sent) && calls.contains(&single.received), "{single:?}");
    let of_batches = (batched.sent + batched.received) as f64 / (BATCHES * TOGETHER) as f64;
    assert!(of_batches <= 2.0 * 0.05, "{of_batches} a call: {batched:?}");
    assert!(batched.sent >= BATCHES, "{batched:?}");
    assert_eq!(single.others + batched.others, 0, "{single:?} {batched:?}");
}
