//! Processes that are killed and stopped in the middle of everything.

use std::thread;
use std::time::Duration;

use farjump::{Error, Link, WaitError, WaitPolicy};
use rustix::process::Signal;

use crate::helper::{start_source, start_target};
use crate::support::{FOREVER, PATIENCE, Place, Seen, eventually, library, peer_gone, ran, words};

#[test]
fn all_frames_of_a_killed_source_run_and_its_mailbox_is_freed() {
    let place = Place::new();
    let target = start_target(&place.address());
    let link = place.link().connect().unwrap();
    assert_eq!(ran(&link), 0);
    let (descriptors, regions) = (target.descriptors(), target.regions());

    let mut source = start_source(&place.address(), "shm");
    eventually(|| target.regions().len() > regions.len());
    assert!(target.descriptors() > descriptors);
    // While the target does not run, these frames lie in the mailbox and nearly fill it. It sees the end of the
    // source before it has run them all.
    target.signal(Signal::STOP);
    source.obey("send 58000");
    source.kill();
    target.signal(Signal::CONT);
    eventually(|| ran(&link) == 58_000);
    eventually(|| target.regions() == regions);
    eventually(|| target.descriptors() == descriptors);
}

#[test]
fn frames_of_a_killed_source_run_even_behind_unread_replies() {
    let place = Place::new();
    let target = start_target(&place.address());
    let link = place.link().connect().unwrap();
    let mut source = start_source(&place.address(), "shm");
    // Capacity of 4 KiB for 100 KiB of replies.
    source.obey("call 100");
    source.obey("send 10");
    assert_eq!(ran(&link), 0, "they wait behind the replies");
    source.kill();
    eventually(|| ran(&link) == 10);
    drop(target);
}

#[test]
fn a_killed_target_fails_every_wait_that_spins_or_sleeps() {
    let place = Place::new();
    for policy in [WaitPolicy::spin_only(), WaitPolicy::sleep_only()] {
        for act in [wait_for_a_reply, wait_for_credit, wait_for_a_flush, poll_for_a_reply] {
            let mut target = start_target(&place.address());
            let (reported, note_reported) = Seen::new();
            let link = place
                .link()
                .wait_policy(policy)
                .send_timeout(FOREVER)
                .on_peer_gone(move |why| note_reported(why.to_owned()))
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
            assert_eq!(reported.all().len(), 1, "the handler runs once");
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

fn wait_for_credit(link: &Link) -> Error {
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
fn a_stopped_source_delays_no_other_source() {
    let place = Place::new();
    let target = start_target(&place.address());
    let link = place.link().connect().unwrap();
    let mut source = start_source(&place.address(), "shm");
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
