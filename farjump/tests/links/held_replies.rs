//! Replies that a program holds until it releases them.

use std::time::Duration;

use farjump::{Link, Target, hold_reply, reply};

use crate::support::{Pair, Place, library, panicked};

extern "C" fn lend() -> u32 {
    u32::from(hold_reply())
}

fn holding<'a>(place: &Place) -> Pair<'a> {
    Pair::of(place.target().export("lend", lend as extern "C" fn() -> _), place.link())
}

fn turn(target: &mut Target<'_>) {
    for _ in 0..200 {
        target.poll().unwrap();
    }
}

#[test]
fn a_held_reply_leaves_when_it_is_released_and_others_pass_it() {
    let place = Place::new();
    let mut pair = holding(&place);
    let lending = library("lending");
    assert_eq!(*pair.call(&lending, b"n").unwrap(), *b"lent", "it holds nothing");
    let Pair { target, link, .. } = &mut pair;
    assert!(!target.holds_replies());
    let mut held = link.inject(&lending, b"r").unwrap();
    let mut other = link.inject(&lending, b"n").unwrap();
    turn(target);
    assert!(target.holds_replies());
    assert_eq!(&*other.poll().unwrap().unwrap(), b"lent");
    assert!(held.poll().unwrap().is_none());
    target.release_replies();
    assert!(!target.holds_replies());
    assert_eq!(&*held.poll().unwrap().unwrap(), b"lent");
    assert!(!hold_reply() && !reply(b"lost"), "no call runs here");
}

#[test]
fn a_flush_waits_for_calls_that_are_held_also_without_a_reply() {
    let place = Place::new();
    let mut pair = holding(&place);
    let lending = library("lending");
    pair.call(&lending, b"n").unwrap();
    let Pair { mut target, link, .. } = pair;
    link.send(&lending, b"r").unwrap();
    turn(&mut target);
    let mut flush = |link: Link, patience: Duration, releases: bool| {
        std::thread::scope(|scope| {
            let flushed = scope.spawn(move || (link.flush(patience), link));
            while !flushed.is_finished() {
                target.poll().unwrap();
                if releases {
                    target.release_replies();
                }
            }
            flushed.join().unwrap()
        })
    };
    let (ended, link) = flush(link, Duration::from_millis(200), false);
    assert!(ended.is_err(), "the flush has not come back");
    flush(link, Duration::from_secs(60), true).0.unwrap();
}

#[test]
fn panics_are_not_held() {
    let place = Place::new();
    let mut pair = holding(&place);
    assert_eq!(panicked(pair.call(&library("lending"), b"p"), "lending"), "lent");
    pair.target.release_replies();
}

#[test]
fn too_many_held_replies_stop_their_source_until_a_release() {
    let place = Place::new();
    let mut pair = holding(&place);
    let lending = library("lending");
    pair.call(&lending, b"n").unwrap();
    let Pair { target, link, .. } = &mut pair;
    let mut calls: Vec<_> = (0..700).map(|_| link.inject(&lending, b"r").unwrap()).collect();
    turn(target);
    let ran = |target: &Target<'_>| target.stats().frames;
    let before = ran(target);
    turn(target);
    assert_eq!(ran(target), before, "the source waits");
    let mut releases = 0;
    let mut done = vec![false; calls.len()];
    while !done.iter().all(|done| *done) {
        target.release_replies();
        releases += 1;
        assert!(releases < 100, "replies are lost");
        turn(target);
        for (call, done) in calls.iter_mut().zip(&mut done) {
            if !*done && let Some(reply) = call.poll().unwrap() {
                assert_eq!(&*reply, b"lent");
                *done = true;
            }
        }
    }
    assert!(releases >= 3, "{releases} releases for 700 replies");
}

#[test]
fn a_source_that_leaves_with_replies_held_leaves_nothing() {
    let place = Place::new();
    let mut pair = holding(&place);
    let lending = library("lending");
    pair.call(&lending, b"n").unwrap();
    let Pair { mut target, link, .. } = pair;
    let pending: Vec<_> = (0..300).map(|_| link.inject(&lending, b"r").unwrap().into_raw()).collect();
    turn(&mut target);
    assert_eq!(pending.len(), 300);
    drop::<Link>(link);
    let mut polls = 0;
    while target.sources() != 0 {
        target.poll().unwrap();
        target.wait(Duration::from_millis(1)).unwrap();
        polls += 1;
        assert!(polls < 10_000, "the link does not end");
    }
    assert_eq!((target.stats().frames, target.stats().refusals()), (301, 0), "all that it had sent has run");
    target.release_replies();
}
