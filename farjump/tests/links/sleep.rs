//! Sleep: idle processes cost nothing, and wake without losing a frame.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use farjump::{CodeId, WaitPolicy};
use farjump_fixtures::raw_source::{RawSource, call, call_id};
use rustix::process::Signal;

use crate::helper::{start_source, start_target};
use crate::support::{PATIENCE, Place, library, peer_gone, words};

/// Length of an observation.
const WATCHED: Duration = Duration::from_secs(2);

/// The share of a processor that a sleeping process stays below.
const ASLEEP: f64 = 0.01;

/// The share of a processor that `used` grows by over [`WATCHED`], once earlier work is over.
fn share(used: impl Fn() -> Duration) -> f64 {
    // On a busy machine earlier work is interrupted for longer than any pause that would show its end. So the
    // observation is repeated. A process that never sleeps fails in the end.
    let patience = Instant::now() + PATIENCE;
    loop {
        let (start, before) = (Instant::now(), used());
        thread::sleep(WATCHED);
        let share = (used() - before).as_secs_f64() / start.elapsed().as_secs_f64();
        if share < ASLEEP || Instant::now() > patience {
            return share;
        }
    }
}

#[test]
fn a_target_sleeps_while_a_source_takes_no_replies() {
    let place = Place::new();
    let target = start_target(&place.address());
    let mut source = start_source(&place.address(), "shm");
    source.obey("call 100");
    source.signal(Signal::STOP);
    let idle = share(|| target.cpu_time());
    assert!(idle < ASLEEP, "a target whose replies have no space worked {idle} of the time");
}

#[test]
fn a_target_sleeps_while_code_is_missing_or_refusals_are_unread() {
    let place = Place::new();
    let target = start_target(&place.address());
    let mut owing = RawSource::connect(&place.address());
    let plan = call_id("tally", CodeId([1; 16]), owing.epoch);
    owing.send_plan(&plan, b"");
    owing.requested_code();
    owing.send_plan(&call(), b"behind it");
    let mut deaf = RawSource::connect(&place.address());
    for _ in 0..20_000 {
        deaf.send_plan(&call(), b"");
    }
    while deaf.consumed() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let idle = share(|| target.cpu_time());
    assert!(idle < ASLEEP, "a target that waits for code worked {idle} of the time");
}

#[test]
fn a_target_without_free_descriptors_sleeps_serves_and_later_accepts_again() {
    let place = Place::new();
    let target = start_target(&place.address());
    let (link, echo) = (place.link().connect().unwrap(), library("echo"));
    let call = || *link.inject(&echo, b"served").unwrap().wait(PATIENCE).unwrap() == *b"served";
    assert!(call());
    target.limit_descriptors(target.next_descriptor());
    let error = place.link().connect_timeout(Duration::from_millis(300)).connect().unwrap_err();
    assert!(error.to_string().contains("it has no file descriptors left for one more source"), "{error}");
    let waiting = UnixStream::connect(place.path("t.sock")).unwrap();
    let idle = share(|| target.cpu_time());
    assert!(idle < ASLEEP, "a target that can take no connection worked {idle} of the time");
    assert!(call());
    target.limit_descriptors(1024);
    let other = place.link().connect().unwrap();
    assert_eq!(*other.inject(&echo, b"too").unwrap().wait(PATIENCE).unwrap(), *b"too");
    drop(waiting);
}

#[test]
fn a_source_that_waits_long_sleeps() {
    let place = Place::new();
    let target = start_target(&place.address());
    let mut source = start_source(&place.address(), "shm");
    target.signal(Signal::STOP);
    source.order("wait");
    let idle = share(|| source.cpu_time());
    assert!(idle < ASLEEP, "a source that waits worked {idle} of the time");
    target.signal(Signal::CONT);
    assert_eq!(source.hear(), "done");
}

/// Pauses for no time, for some turns, or long enough for both processes to fall asleep.
fn pause(random: &mut fastrand::Rng) {
    match random.u8(..8) {
        0 | 1 => {}
        7 => thread::sleep(Duration::from_micros(random.u64(..256))),
        _ => (0..random.u16(..4096)).for_each(|_| std::hint::spin_loop()),
    }
}

#[test]
fn no_frame_is_lost_over_thousands_of_falling_asleep_and_waking() {
    const CYCLES: u64 = 10_000;
    let place = Place::new();
    let policy = WaitPolicy::sleep_only();
    let target = place.target().wait_policy(policy).build().unwrap().spawn().unwrap();
    thread::scope(|scope| {
        for seed in [1, 2] {
            let link = place.link().wait_policy(policy).connect().unwrap();
            scope.spawn(move || {
                let echo = library("echo");
                let mut random = fastrand::Rng::with_seed(seed);
                for cycle in 0..CYCLES {
                    let message = words(&[seed, cycle]);
                    if cycle % 3 == 0 {
                        link.send(&echo, &message).unwrap();
                        pause(&mut random);
                    }
                    let call = link.inject(&echo, &message).unwrap();
                    pause(&mut random);
                    // A periodic poll would find a lost wake a second later: then this takes hours and fails.
                    assert_eq!(*call.wait(PATIENCE).unwrap(), *message);
                    pause(&mut random);
                }
            });
        }
    });
    let target = target.stop().unwrap();
    assert_eq!(target.stats().calls, 2 * (CYCLES + CYCLES.div_ceil(3)));
}

#[test]
fn peers_asleep_for_lack_of_credit_wake_when_it_returns() {
    let place = Place::new();
    let policy = WaitPolicy::sleep_only();
    let target = place.target().mailbox_size(4096).wait_policy(policy).build().unwrap().spawn().unwrap();
    let link = place.link().reply_mailbox_size(4096).wait_policy(policy).connect().unwrap();
    let echo = library("echo");
    for round in 0..300_u64 {
        // Each frame is half of the mailbox and its reply a quarter of the reply ring: both processes wait all the
        // time.
        let calls: Vec<_> = (0..3).map(|_| link.inject(&echo, &[round as u8; 1000]).unwrap()).collect();
        for call in calls {
            assert_eq!(*call.wait(PATIENCE).unwrap(), [round as u8; 1000]);
        }
    }
    drop(link);
    assert_eq!(target.stop().unwrap().stats().calls, 900);
}

#[test]
fn dropping_a_target_thread_wakes_it_from_its_sleep_and_ends_it() {
    let place = Place::new();
    let target = place.target().wait_policy(WaitPolicy::sleep_only()).build().unwrap().spawn().unwrap();
    let link = place.link().connect().unwrap();
    thread::sleep(Duration::from_millis(20));
    drop(target);
    peer_gone(link.flush(PATIENCE));
    assert!(!place.path("t.sock").exists(), "its socket is gone");
}
