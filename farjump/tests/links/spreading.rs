//! Functions that forward themselves to several targets, several times, and to their own target again. Tests the
//! gathered replies and the report of losses that the source receives, and the limits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farjump::core::mailbox::region_len;
use farjump::{CallError, Error, Link, Target, TargetBuilder, TargetThread};
use rustix::process::Signal;

use crate::forwarding::{Turned, address, member};
use crate::helper::start_target;
use crate::policy::price;
use crate::support::{PATIENCE, Place, library};

/// The payload of `spread`.
fn spread(depth: u8, width: u8, last: u8, places: &str) -> Vec<u8> {
    [&[depth, width, b'.', last], places.as_bytes()].concat()
}

/// Number of calls of a tree of this many generations after the first.
fn tree(depth: u32, children: u64) -> u64 {
    (0..=depth).map(|generation| children.pow(generation)).sum()
}

fn counter() -> &'static AtomicU64 {
    Box::leak(Box::default())
}

/// A target that counts the calls of `spread` in `counter`.
fn counting<'a>(builder: TargetBuilder<'a>, counter: &'static AtomicU64) -> TargetBuilder<'a> {
    // SAFETY: `spread` takes a word, which lives for ever, and changes it on the thread of this target alone.
    unsafe { builder.args_raw(counter.as_ptr().cast()) }
}

/// Targets that know each other and a `lost` one, each on a thread of its own.
fn crowd(
    place: &Place,
    count: usize,
    limited: impl Fn(TargetBuilder<'static>) -> TargetBuilder<'static>,
) -> (Vec<TargetThread>, Vec<&'static AtomicU64>) {
    let counters: Vec<_> = (0..count).map(|_| counter()).collect();
    let target = |number: usize| {
        let mut builder = limited(counting(member(place, number, count), counters[number]));
        for other in 0..count {
            builder = builder.destination(&other.to_string(), &address(place, other));
        }
        builder.build().unwrap().spawn().unwrap()
    };
    ((0..count).map(target).collect(), counters)
}

fn sum(counters: &[&AtomicU64]) -> u64 {
    counters.iter().map(|counter| counter.load(Ordering::SeqCst)).sum()
}

/// The lost replies of a call by number and reason, and the replies that came.
#[track_caller]
fn incomplete<T>(outcome: Result<T, Error>) -> (u64, String, String) {
    let Err(error) = outcome else { panic!("nothing was lost") };
    let text = error.to_string();
    let Error::Call(CallError::Incomplete(inner)) = error else { panic!("{text}") };
    assert_eq!(inner.ifunc, "spread");
    assert!(text.contains(&inner.text) && text.contains(&format!("{} in all", inner.lost)), "{text}");
    (inner.lost, inner.text, String::from_utf8(inner.replies).unwrap())
}

#[test]
fn a_call_spread_over_targets_completes_once_with_all_replies() {
    let place = Place::new();
    let (targets, counters) = crowd(&place, 3, |target| target);
    let link = Link::connect(&address(&place, 0)).unwrap();
    let library = library("spread");
    let mut calls = 0;
    for (depth, width, places) in
        [(0, 1, "1;"), (1, 1, "1;2;"), (4, 1, "0;1;2;"), (3, 4, "1;@;"), (6, 1, "@;2;")]
    {
        let children = u64::from(width) * places.matches(';').count() as u64;
        let expected = tree(u32::from(depth), children);
        for _ in 0..3 {
            let reply =
                link.inject(&library, &spread(depth, width, b'.', places)).unwrap().wait(PATIENCE).unwrap();
            assert_eq!(
                String::from_utf8_lossy(&reply),
                ".".repeat(expected as usize),
                "{depth} {width} {places}"
            );
            calls += expected;
        }
        assert_eq!(sum(&counters), calls, "each ran once");
    }
    for target in targets {
        let stats = target.stop().unwrap().stats().clone();
        assert_eq!((stats.images_linked, stats.refusals()), (1, 0), "the code came once");
    }
}

#[test]
fn many_trees_of_several_sources_at_once_are_not_mixed() {
    let place = Place::new();
    let (_targets, counters) = crowd(&place, 2, |target| target);
    let library = library("spread");
    let calls = std::thread::scope(|scope| {
        let sources: Vec<_> = (0..3_u8)
            .map(|source| {
                let (place, library) = (&place, &library);
                scope.spawn(move || {
                    let link = Link::connect(&address(place, usize::from(source % 2))).unwrap();
                    let mut payload = spread(3, 1, b'.', "0;1;@;");
                    payload[2] = b'a' + source;
                    let calls: Vec<_> = (0..10).map(|_| link.inject(library, &payload).unwrap()).collect();
                    for call in calls {
                        let reply = call.wait(PATIENCE).unwrap();
                        assert!(
                            reply.len() as u64 == tree(3, 3)
                                && reply.iter().all(|byte| *byte == b'a' + source)
                        );
                    }
                    10 * tree(3, 3)
                })
            })
            .collect();
        sources.into_iter().map(|source| source.join().unwrap()).sum::<u64>()
    });
    assert_eq!(sum(&counters), calls);
}

#[test]
fn one_way_calls_spread_over_several_targets() {
    let place = Place::new();
    let (_targets, counters) = crowd(&place, 2, |target| target);
    let link = Link::connect(&address(&place, 0)).unwrap();
    link.send(&library("spread"), &spread(4, 1, b'.', "1;0;@;")).unwrap();
    let expected = tree(4, 3);
    let start = Instant::now();
    while sum(&counters) != expected {
        assert!(start.elapsed() < PATIENCE, "{} of {expected}", sum(&counters));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn lost_forwards_are_counted_and_the_other_replies_arrive() {
    let place = Place::new();
    let (_targets, _counters) = crowd(&place, 2, |target| target);
    let link = Link::builder(&address(&place, 0)).reply_mailbox_size(4096).connect().unwrap();
    let library = library("spread");
    let call = |payload: &[u8]| link.inject(&library, payload).unwrap().wait(PATIENCE);
    // Four of the last generation panic, and reply nothing.
    let (lost, text, replies) = incomplete(call(&spread(2, 1, b'!', "1;@;")));
    assert_eq!((lost, &*replies), (4, "..."));
    assert_eq!(text, "the function panicked: on its way, it fell");
    // Two of four replies do not fit into this link's limit together.
    let (lost, text, replies) = incomplete(call(&spread(2, 1, b'~', "1;@;")));
    assert!(lost >= 2 && text.contains("the link takes"), "{lost}: {text}");
    assert!(replies.len() <= 4096 && replies.starts_with('.'));
    // The link works as before.
    assert_eq!(&*call(&spread(1, 1, b'.', "1;")).unwrap(), b"..");
}

#[test]
fn a_call_sends_no_more_messages_than_its_target_allows() {
    let place = Place::new();
    let (_targets, counters) = crowd(&place, 2, |target| target.max_forwards(5));
    let link = Link::connect(&address(&place, 0)).unwrap();
    let reply = link.inject(&library("spread"), &spread(1, 4, b'.', "1;@;")).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), ".444.....");
    assert_eq!(sum(&counters), 6);
}

#[test]
fn no_more_bytes_wait_than_the_target_allows() {
    let place = Place::new();
    let (_targets, _counters) = crowd(&place, 1, |target| target.max_forward_bytes(20));
    let link = Link::connect(&address(&place, 0)).unwrap();
    // Each payload has ten bytes.
    let reply =
        link.inject(&library("spread"), &spread(1, 3, b'.', "@;@;@;")).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), ".3333333..");
}

#[test]
fn endless_forwards_fail_at_the_limits_of_hops_and_repeats() {
    let place = Place::new();
    let (_targets, counters) = crowd(&place, 2, |target| target.max_hops(10).max_again(7));
    let link = Link::connect(&address(&place, 0)).unwrap();
    let library = library("spread");
    let (lost, text, replies) =
        incomplete(link.inject(&library, &spread(255, 1, b'.', "next;")).unwrap().wait(PATIENCE));
    let expected = "from target to target 10 times, and that target's limit of hops is 10";
    assert!(lost == 1 && text.contains(expected), "{text}");
    assert_eq!(replies, "...........5");
    assert_eq!(sum(&counters), 11);

    let (lost, text, replies) =
        incomplete(link.inject(&library, &spread(255, 1, b'.', "@;")).unwrap().wait(PATIENCE));
    assert!(lost == 1 && text.contains("it has run again 7 times"), "{text}");
    assert_eq!(replies, "........5");

    // A call that leaves its reply to the last target.
    let onward = crate::support::library("onward");
    let steps = ">next;".repeat(20);
    let outcome = link.inject(&onward, steps.as_bytes()).unwrap().wait(PATIENCE);
    let Err(Error::Call(CallError::Incomplete(inner))) = outcome else { panic!("nothing was lost") };
    assert!(inner.lost == 1 && inner.text.contains(expected) && inner.replies == b"5", "{inner}");
    // A one-way call ends at the last target, too.
    link.send(&onward, steps.as_bytes()).unwrap();
    link.flush(PATIENCE).unwrap();
}

#[test]
fn a_targets_own_hop_limit_stops_forwards_that_other_targets_allow() {
    let place = Place::new();
    let (one, two) = (counter(), counter());
    let turned = Turned::new(
        &place,
        [counting(member(&place, 0, 2), one), counting(member(&place, 1, 2), two).max_hops(3)],
    );
    let call = turned.link.inject(&library("spread"), &spread(9, 1, b'.', "next;")).unwrap();
    let (lost, text, replies) = incomplete(turned.reply_text(call));
    assert!(lost == 1 && text.contains("limit of hops is 3"), "{text}");
    assert_eq!(replies, "....5", "the second target sends nothing on after three hops");
    assert_eq!((one.load(Ordering::SeqCst), two.load(Ordering::SeqCst)), (2, 2));
}

#[test]
fn a_source_gets_all_replies_except_those_of_a_killed_destination() {
    let place = Place::new();
    let (mut targets, counters) = crowd(&place, 3, |target| target);
    let mut mortal = start_target(&place.address_of("mortal.sock"));
    let first = targets.remove(0).stop().unwrap();
    drop(first);
    let mut first = counting(member(&place, 0, 3), counters[0])
        .destination("1", &address(&place, 1))
        .destination("mortal", &place.address_of("mortal.sock"))
        .build()
        .unwrap();
    let link = crate::support::alongside(
        || Link::connect(&address(&place, 0)).unwrap(),
        || {
            first.wait(Duration::from_millis(1)).unwrap();
            first.poll().unwrap();
        },
    );
    let library = library("spread");
    let mut answer = |payload: &[u8], during: &mut dyn FnMut(u64)| {
        let mut call = link.inject(&library, payload).unwrap();
        let start = Instant::now();
        loop {
            first.poll().unwrap();
            during(first.stats().forwarded);
            match call.poll() {
                Ok(None) => assert!(start.elapsed() < PATIENCE, "no outcome"),
                Ok(Some(reply)) => return Ok(String::from_utf8_lossy(&reply).into_owned()),
                Err(error) => return Err(error),
            }
        }
    };
    assert_eq!(answer(&spread(1, 2, b'n', "1;mortal;"), &mut |_| ()).unwrap(), ".....");
    // The destination is stopped when the calls come, and is killed when they are there.
    mortal.signal(Signal::STOP);
    let mut killed = false;
    let outcome = answer(&spread(1, 2, b'n', "1;mortal;"), &mut |forwarded| {
        if forwarded == 8 && !killed {
            mortal.kill();
            killed = true;
        }
    });
    let (lost, text, replies) = incomplete(outcome);
    assert_eq!((lost, &*replies), (2, "..."));
    assert!(text.contains("its destination `mortal`"), "{text}");
    // The destination does not exist any more.
    let (lost, _, replies) = incomplete(answer(&spread(1, 2, b'n', "1;mortal;"), &mut |_| ()));
    assert_eq!((lost, &*replies), (2, "..."));
    assert_eq!(answer(&spread(1, 2, b'n', "1;"), &mut |_| ()).unwrap(), "...");
}

/// More calls than may be pending at a time: the target does not accept many messages, and their functions reply `3`.
fn flood() -> Vec<u8> {
    spread(15, 2, b'.', "next;")
}

/// Checks the reply of a [`flood`], beside which `beside` other calls were made.
#[track_caller]
fn assert_flooded(reply: &[u8], counters: &[&AtomicU64], beside: u64) {
    let count = |wanted: u8| reply.iter().filter(|byte| **byte == wanted).count() as u64;
    assert_eq!(count(b'.') + count(b'3'), reply.len() as u64);
    assert_eq!(sum(counters), count(b'.') + beside);
    assert!(count(b'3') > 100, "{} were not accepted", count(b'3'));
}

#[test]
fn two_peers_that_flood_each_other_come_to_an_end() {
    let place = Place::new();
    let (targets, counters) = crowd(&place, 2, |target| target);
    let (link, other) =
        (Link::connect(&address(&place, 0)).unwrap(), Link::connect(&address(&place, 1)).unwrap());
    let library = library("spread");
    let mut pending = Some(link.inject(&library, &flood()).unwrap());
    let mut beside = 0;
    let reply = loop {
        assert_eq!(&*other.inject(&library, &spread(0, 0, b'.', "")).unwrap().wait(PATIENCE).unwrap(), b".");
        beside += 1;
        if let Some(reply) = pending.as_mut().and_then(|flood| flood.poll().unwrap()) {
            pending = None;
            break reply;
        }
    };
    drop(pending);
    assert_flooded(&reply, &counters, beside);
    for target in targets {
        assert_eq!(target.stop().unwrap().stats().refusals(), 0);
    }
}

#[test]
fn two_peers_that_flood_each_other_serve_others_in_each_turn() {
    let place = Place::new();
    let counters = [counter(), counter()];
    let member = |number: usize| counting(member(&place, number, 2), counters[number]);
    let turned = Turned::new(&place, [member(0), member(1)]);
    // The replies of a flood are more than the link of `turned` takes.
    let [link, other] = [0, 1].map(|number| {
        crate::support::alongside(
            || Link::connect(&address(&place, number)).unwrap(),
            || {
                turned.target(number).wait(Duration::from_millis(1)).unwrap();
                turned.target(number).poll().unwrap();
            },
        )
    });
    let library = library("spread");
    turned.reply_text(link.inject(&library, &spread(1, 1, b'.', "next;")).unwrap()).unwrap();
    let calls = sum(&counters);
    let mut pending = Some(link.inject(&library, &flood()).unwrap());
    let mut turns = Vec::new();
    let reply = loop {
        let mut call = other.inject(&library, &spread(0, 0, b'.', "")).unwrap();
        let mut passed = 0;
        let answer = loop {
            turned.turn();
            passed += 1;
            if let Some(answer) = call.poll().unwrap() {
                break answer;
            }
        };
        assert_eq!(&*answer, b".");
        turns.push(passed);
        if let Some(reply) = pending.as_mut().and_then(|flood| flood.poll().unwrap()) {
            pending = None;
            break reply;
        }
    };
    drop(pending);
    assert_flooded(&reply, &counters, turns.len() as u64 + calls);
    // The first call brings its code.
    let (most, beside) = (turns.iter().skip(1).max().unwrap(), turns.len());
    println!("{beside} calls beside the flood, each within {most} turns");
    assert!(*most <= 2 && beside > 100, "{beside} {turns:?}");
}

#[test]
fn calls_that_run_again_end_with_their_source() {
    let place = Place::new();
    let counter = counter();
    let mut target = counting(Target::listen(&address(&place, 0)), counter).build().unwrap();
    let connect = |target: &mut Target<'_>| {
        crate::support::alongside(
            || Link::connect(&address(&place, 0)).unwrap(),
            || {
                target.wait(Duration::from_millis(1)).unwrap();
                target.poll().unwrap();
            },
        )
    };
    let link = connect(&mut target);
    let pending = link.inject(&library("spread"), &spread(255, 1, b'.', "@;")).unwrap();
    while counter.load(Ordering::SeqCst) < 10 {
        target.poll().unwrap();
    }
    drop(pending);
    drop(link);
    let start = Instant::now();
    while target.stats().links_ended != target.stats().links {
        assert!(start.elapsed() < PATIENCE);
        target.poll().unwrap();
    }
    let ran = counter.load(Ordering::SeqCst);
    for _ in 0..100 {
        target.poll().unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), ran);
    // The target sleeps again.
    assert!(target.arm().unwrap().is_some_and(|longest| longest > Duration::from_millis(100)));
    target.disarm();
}

#[test]
fn replies_that_are_gathered_count_in_the_memory_of_their_source() {
    let (place, library) = (Place::new(), library("spread"));
    let mailbox = 1 << 16;
    let memory = region_len(mailbox) + price(&library) + 10_000;
    let first = member(&place, 0, 2).mailbox_size(mailbox).max_source_memory(memory);
    let first = first.destination("late", &address(&place, 2));
    let targets = [first, member(&place, 1, 2), member(&place, 2, 3)];
    let turned = Turned::with_link(
        targets.map(|target| counting(target, counter())),
        Link::builder(&address(&place, 0)),
    );
    for round in 1..=3 {
        // The replies are the call's own byte, and eight times 4001 bytes, before one that the target waits for.
        let call = turned.link.inject(&library, &spread(1, 8, b'~', "next;late;")).unwrap();
        while turned.target(1).stats().calls < 10 * round - 2 {
            turned.target(0).poll().unwrap();
            turned.target(1).poll().unwrap();
        }
        for _ in 0..100 {
            turned.target(0).poll().unwrap();
        }
        let (lost, why, replies) = incomplete(turned.reply_bytes(call));
        // Of the first nine replies the target keeps at most two of these and the call's own.
        assert!(lost >= 6, "{lost} lost, and {} bytes", replies.len());
        assert!(why.contains("max_source_memory"), "{why}");
        let few = turned.link.inject(&library, &spread(1, 2, b'~', "next;")).unwrap();
        assert_eq!(turned.reply_bytes(few).unwrap().len(), 1 + 2 * 4001, "all of it can be taken again");
    }
}
