//! Processes that are killed and stopped in the middle of everything.

use std::thread;
use std::time::Duration;

use farjump::{Error, Link, WaitError, WaitPolicy};
use rustix::process::Signal;

use crate::helper::{plays, start_source, start_target, this_test};
use crate::support::{FOREVER, PATIENCE, Place, Seen, library, peer_gone, timed_out, to_words, words};

/// Number of frames of the source's sequence that the target has run, none of which may have come out of
/// order.
fn ran(link: &Link) -> u64 {
    let seen = link.inject(&library("sequence"), b"").unwrap().wait(PATIENCE).unwrap();
    let [calls, wrong] = to_words(&seen)[..] else { panic!("{seen:?}") };
    assert_eq!(wrong, 0, "frames ran out of order");
    calls
}

fn data() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")
}

/// Waits for a condition; the watchdog bounds the wait.
fn eventually(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_killed_source_frees_its_mailbox_and_all_that_it_had_sent_runs() {
    if plays() {
        return;
    }
    let place = Place::new();
    let target = start_target(this_test!(), &place.address(), data());
    let link = place.link().connect().unwrap();
    assert_eq!(ran(&link), 0);
    let (descriptors, regions) = (target.descriptors(), target.regions());

    let mut source = start_source(this_test!(), &place.address());
    eventually(|| target.regions().len() > regions.len());
    assert!(target.descriptors() > descriptors);
    // While the target does not run, these lie in the mailbox and nearly fill it: it learns of the end before
    // it has run all.
    target.signal(Signal::STOP);
    source.obey("send 58000");
    source.kill();
    target.signal(Signal::CONT);
    eventually(|| ran(&link) == 58_000);
    eventually(|| target.regions() == regions);
    eventually(|| target.descriptors() == descriptors);
}

#[test]
fn what_a_killed_source_had_sent_runs_even_behind_replies_that_nobody_took() {
    if plays() {
        return;
    }
    let place = Place::new();
    let target = start_target(this_test!(), &place.address(), data());
    let link = place.link().connect().unwrap();
    let mut source = start_source(this_test!(), &place.address());
    // Capacity of 4 KiB for 100 KiB of replies.
    source.obey("call 100");
    source.obey("send 10");
    assert_eq!(ran(&link), 0, "they wait behind the replies");
    source.kill();
    eventually(|| ran(&link) == 10);
    drop(target);
}

#[test]
fn sources_killed_again_and_again_leave_nothing_in_the_target() {
    if plays() {
        return;
    }
    let place = Place::new();
    let target = start_target(this_test!(), &place.address(), data());
    let link = place.link().connect().unwrap();
    ran(&link);
    let (descriptors, regions) = (target.descriptors(), target.regions());
    let mut sent = 0;
    for round in 0..10_u64 {
        let mut source = start_source(this_test!(), &place.address());
        // Every source counts from 0, so only the first round's frames are in order: all are counted
        // nevertheless.
        source.order("send 100000000");
        eventually(|| calls(&link) > sent + 100 * round);
        source.kill();
        eventually(|| target.regions() == regions && target.descriptors() == descriptors);
        sent = calls(&link);
    }
    assert!(sent > 1000);
}

fn calls(link: &Link) -> u64 {
    to_words(&link.inject(&library("sequence"), b"").unwrap().wait(PATIENCE).unwrap())[0]
}

#[test]
fn a_killed_target_fails_every_wait_for_it_whether_it_spins_or_sleeps() {
    if plays() {
        return;
    }
    let place = Place::new();
    for policy in [WaitPolicy::spin_only(), WaitPolicy::sleep_only()] {
        for act in [wait_for_a_reply, wait_for_room, wait_for_a_flush, poll_for_a_reply] {
            let mut target = start_target(this_test!(), &place.address(), data());
            let told = Seen::default();
            let told_to = told.clone();
            let link = place
                .link()
                .wait_policy(policy)
                .send_timeout(FOREVER)
                .on_peer_gone(move |why| told_to.push(why.to_owned()))
                .connect()
                .unwrap();
            ran(&link);
            target.signal(Signal::STOP);
            let waiting = thread::spawn(move || {
                let error = act(&link);
                peer_gone(link.inject(&library("echo"), b""));
                error
            });
            // Long enough for the wait to have begun in most runs; the outcome is the same in either case.
            thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished(), "it waits");
            target.kill();
            let error = waiting.join().unwrap();
            assert!(
                matches!(&error, Error::Wait(WaitError::PeerGone { peer, .. }) if *peer == place.address()),
                "{error}"
            );
            assert_eq!(told.all().len(), 1, "the handler runs once");
        }
    }
}

fn wait_for_a_reply(link: &Link) -> Error {
    link.inject(&library("echo"), b"").unwrap().wait(FOREVER).unwrap_err()
}

fn poll_for_a_reply(link: &Link) -> Error {
    let mut call = link.inject(&library("echo"), b"").unwrap();
    loop {
        match call.poll() {
            Ok(None) => thread::yield_now(),
            Ok(Some(reply)) => panic!("{reply:?}"),
            Err(error) => return error,
        }
    }
}

fn wait_for_room(link: &Link) -> Error {
    let echo = library("echo");
    loop {
        if let Err(error) = link.send(&echo, &[0; 100_000]) {
            return error;
        }
    }
}

fn wait_for_a_flush(link: &Link) -> Error {
    link.flush(FOREVER).unwrap_err()
}

#[test]
fn a_stopped_target_costs_its_sources_their_deadline_and_no_more() {
    if plays() {
        return;
    }
    let place = Place::new();
    let target = start_target(this_test!(), &place.address(), data());
    let link = place.link().send_timeout(Duration::from_millis(20)).connect().unwrap();
    let echo = library("echo");
    ran(&link);
    target.signal(Signal::STOP);
    timed_out(link.inject(&echo, b"late").unwrap().wait(Duration::from_millis(20)));
    timed_out(link.flush(Duration::from_millis(20)));
    let full = (0..1000).find_map(|_| link.send(&echo, &[0; 100_000]).err()).expect("the mailbox fills");
    timed_out(Err::<(), _>(full));
    // A process that wants to connect meanwhile gets an error too.
    let error = place.link().connect_timeout(Duration::from_millis(50)).connect().unwrap_err();
    assert!(error.to_string().contains("took too long"), "{error}");
    target.signal(Signal::CONT);
    assert_eq!(*link.inject(&echo, b"in time").unwrap().wait(PATIENCE).unwrap(), *b"in time");
}

#[test]
fn a_stopped_source_holds_up_nobody_else() {
    if plays() {
        return;
    }
    let place = Place::new();
    let target = start_target(this_test!(), &place.address(), data());
    let link = place.link().connect().unwrap();
    let mut source = start_source(this_test!(), &place.address());
    source.obey("send 3");
    source.obey("call 100");
    source.signal(Signal::STOP);
    let echo = library("echo");
    for round in 0..1000_u64 {
        let reply = link.inject(&echo, &words(&[round])).unwrap().wait(PATIENCE).unwrap();
        assert_eq!(*reply, *words(&[round]));
    }
    assert_eq!(ran(&link), 3);
    source.signal(Signal::CONT);
    source.obey("send 4");
    drop(target);
}
