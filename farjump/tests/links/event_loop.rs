//! Links in a program's own event loop: their descriptor wakes it for each event, and only then.

use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use farjump::{Error, InjectError, Library, Link, RefusalCause, WaitPolicy};

use crate::support::{
    Pair, Place, Seen, library, panicked, peer_gone, readable, refused, serve, sleep_until, while_polling,
    words,
};

/// Puts a link without events to sleep: nothing wakes it.
fn put_to_sleep(link: &Link) {
    while link.arm().unwrap().is_none() {
        link.disarm();
    }
    assert!(!readable(link.as_fd().unwrap(), Duration::ZERO), "it is woken, and nothing has come");
}

/// Returns whether a link that was put to sleep has been woken. The link is awake then.
fn was_woken(link: &Link) -> bool {
    let woken = readable(link.as_fd().unwrap(), Duration::ZERO);
    link.disarm();
    woken
}

/// Outcome of a call whose source sleeps while it runs.
fn call_asleep(pair: &mut Pair<'_>, library: &Library, args: &[u8]) -> Result<Vec<u8>, Error> {
    let mut call = pair.link.inject(library, args)?;
    loop {
        if let Some(reply) = call.poll()? {
            return Ok(reply.into_vec());
        }
        put_to_sleep(&pair.link);
        pair.target.wait(Duration::ZERO).unwrap();
        serve(&mut pair.target);
        assert!(was_woken(&pair.link));
    }
}

#[test]
fn a_reply_a_refusal_and_a_panic_each_wake_a_sleeping_source() {
    let (_place, mut pair) = Pair::start();
    let echo = library("echo");
    assert_eq!(call_asleep(&mut pair, &echo, b"with code").unwrap(), b"with code");
    assert_eq!(call_asleep(&mut pair, &echo, b"in a line").unwrap(), b"in a line");
    assert_eq!(call_asleep(&mut pair, &echo, &[7; 5000]).unwrap(), [7; 5000]);
    let refusal = call_asleep(&mut pair, &library("lookup"), b"");
    refused(refusal, "lookup", RefusalCause::UnresolvedImport);
    panicked(call_asleep(&mut pair, &library("sum"), b"odd"), "sum");
    assert_eq!(call_asleep(&mut pair, &echo, b"and on").unwrap(), b"and on");
}

#[test]
fn a_request_for_code_wakes_a_sleeping_source() {
    let place = Place::new();
    let (asked, note_asked) = Seen::new();
    let link = place.link().on_code_missing(move |name| note_asked(name.to_owned()));
    let mut pair = Pair::of(place.target(), link);
    let echo = library("echo");
    call_asleep(&mut pair, &echo, b"").unwrap();
    let id = pair.target.images()[0].id;
    assert!(pair.target.drop_code(&id));
    assert_eq!(call_asleep(&mut pair, &echo, b"once more").unwrap(), b"once more");
    assert_eq!(asked.all(), ["echo"]);
}

#[test]
fn the_end_of_the_target_wakes_a_sleeping_source() {
    let (_place, Pair { link, target }) = Pair::start();
    let mut call = link.inject(&library("echo"), b"lost").unwrap();
    put_to_sleep(&link);
    drop(target);
    assert!(was_woken(&link));
    peer_gone(link.arm());
    peer_gone(call.poll());
    assert!(link.arm().is_err(), "it never sleeps again");
}

#[test]
fn a_reply_sent_before_the_target_ends_is_taken_afterwards() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let mut call = link.inject(&library("echo"), b"in time").unwrap();
    put_to_sleep(&link);
    serve(&mut target);
    drop(target);
    assert!(was_woken(&link));
    assert!(link.arm().is_err());
    assert_eq!(*call.poll().unwrap().unwrap(), *b"in time");
}

#[test]
fn a_reply_taken_by_another_calls_poll_keeps_the_source_awake_once() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let echo = library("echo");
    let mut first = link.inject(&echo, b"first").unwrap();
    let mut second = link.inject(&echo, b"second").unwrap();
    put_to_sleep(&link);
    link.disarm();
    assert!(first.poll().unwrap().is_none());
    serve(&mut target);
    // This poll takes both replies.
    assert_eq!(*second.poll().unwrap().unwrap(), *b"second");
    assert!(link.arm().unwrap().is_none(), "the first would be slept over");
    link.disarm();
    put_to_sleep(&link);
    link.disarm();
    assert_eq!(*first.poll().unwrap().unwrap(), *b"first");
}

#[test]
fn a_source_with_nothing_pending_is_not_woken_by_its_own_sends() {
    let (_place, mut pair) = Pair::start();
    let echo = library("echo");
    for _ in 0..100 {
        pair.link.send(&echo, b"no reply").unwrap();
        assert_eq!(pair.link.arm().unwrap(), Some(Duration::from_secs(1)));
        pair.serve();
        assert!(!was_woken(&pair.link));
    }
}

#[test]
fn a_source_without_credit_naps_briefly_and_stays_awake_with_credit() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().mailbox_size(4096), place.link());
    let echo = library("echo");
    let mut sent = 0;
    while pair.link.try_send(&echo, &[1; 500]).is_ok() {
        sent += 1;
    }
    // Credit shows in memory only: the link naps, or returns at once.
    assert!(pair.link.arm().unwrap().is_none_or(|longest| longest <= Duration::from_millis(64)));
    pair.link.disarm();
    assert_eq!(pair.serve(), sent);
    assert!(pair.link.arm().unwrap().is_none(), "there is space");
    pair.link.disarm();
    pair.link.try_send(&echo, &[1; 500]).unwrap();
}

#[test]
fn the_offer_of_a_large_mailbox_wakes_a_sleeping_source() {
    let place = Place::new();
    let Pair { link, mut target } = Pair::of(place.target().mailbox_size(4096), place.link());
    let (echo, payload) = (library("echo"), vec![9; 100_000]);
    let mut slept = 0;
    while let Err(error) = link.try_send(&echo, &payload) {
        assert!(matches!(error, Error::Inject(InjectError::Full)), "{error}");
        if link.arm().unwrap().is_none() {
            link.disarm();
            continue;
        }
        target.wait(Duration::ZERO).unwrap();
        serve(&mut target);
        assert!(was_woken(&link));
        slept += 1;
    }
    assert_ne!(slept, 0, "the mailbox was too small");
    assert_eq!(serve(&mut target), 1);
}

#[test]
fn the_descriptor_stays_the_same_when_the_link_is_made_anew() {
    let (_place, mut pair) = Pair::start();
    let descriptor = pair.link.as_fd().unwrap().as_raw_fd();
    let echo = library("echo");
    call_asleep(&mut pair, &echo, b"the first link").unwrap();
    let Pair { link, target } = &mut pair;
    while_polling(target, || link.reconnect()).unwrap();
    assert_eq!(call_asleep(&mut pair, &echo, b"the second").unwrap(), b"the second");
    assert_eq!(pair.link.as_fd().unwrap().as_raw_fd(), descriptor);
    drop(pair.target);
    assert!(pair.link.reconnect().is_err());
    assert!(was_woken(&pair.link), "what is watched is what it was: the link that ended");
}

#[test]
fn an_event_loop_sleeps_through_no_reply_in_thousands_of_turns() {
    const ROUNDS: u64 = 6000;
    let place = Place::new();
    let policy = WaitPolicy::sleep_only();
    let target = place.target().wait_policy(policy).build().unwrap().spawn().unwrap();
    thread::scope(|scope| {
        for seed in 0..2_u64 {
            let link = place.link().connect().unwrap();
            scope.spawn(move || {
                let echo = library("echo");
                for round in 0..ROUNDS {
                    let message = words(&[seed, round]);
                    let mut calls: Vec<_> =
                        (0..=round % 3).map(|_| link.inject(&echo, &message).unwrap()).collect();
                    sleep_until(&link, || {
                        calls.retain_mut(|call| {
                            call.poll().unwrap().is_none_or(|reply| {
                                assert_eq!(*reply, *message);
                                false
                            })
                        });
                        calls.is_empty().then_some(())
                    });
                }
            });
        }
    });
    // One, two and three calls in turn.
    assert_eq!(target.stop().unwrap().stats().calls, 2 * 2 * ROUNDS);
}
