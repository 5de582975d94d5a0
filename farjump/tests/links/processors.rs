//! Source and target on one processor: each yields it to the other.

use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::support::{PATIENCE, Place, library, words};

/// Polls without result after which a target yields.
const POLLS: u64 = 64;
const CALLS: u64 = 300;

/// Processors that this process may use.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}

#[test]
fn source_and_target_detect_a_shared_processor_and_the_target_yields() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let cpus = allowed();
    let shared = cpus[0];
    let serving = thread::spawn(move || {
        pin(shared);
        let (mut idle, mut yields) = (0_u64, 0_u64);
        while target.stats().links_ended == 0 {
            idle = if target.poll().unwrap() == 0 { idle + 1 } else { 0 };
            if idle % POLLS == POLLS - 1 && target.may_share_processor() {
                yields += 1;
                thread::yield_now();
            }
        }
        yields
    });
    pin(shared);
    let link = place.link().connect().unwrap();
    let echo = library("echo");
    for number in 0..CALLS {
        let reply = link.inject(&echo, &words(&[number])).unwrap().wait(PATIENCE).unwrap();
        assert_eq!(&reply[..], words(&[number]));
    }
    assert!(link.may_share_processor(), "the target said where it runs");
    if let Some(other) = cpus.get(1) {
        pin(*other);
        assert!(!link.may_share_processor(), "this thread has moved");
    }
    drop(link);
    // A target that is interrupted right after its reply need not yield.
    let yields = serving.join().unwrap();
    assert!(yields > CALLS / 2, "{yields} yields in {CALLS} calls");
}

#[test]
fn a_target_that_sleeps_in_an_event_loop_has_said_where() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let shared = allowed()[0];
    let serving = thread::spawn(move || {
        pin(shared);
        // The target never checks whether a source waits for its processor.
        while target.stats().links_ended == 0 {
            while target.poll().unwrap() != 0 {}
            if target.arm().unwrap().is_some() {
                let longest = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                poll(&mut [PollFd::from_borrowed_fd(target.as_fd(), PollFlags::IN)], Some(&longest)).unwrap();
            }
            target.disarm();
        }
    });
    pin(shared);
    let link = place.link().connect().unwrap();
    let echo = library("echo");
    for number in 0..CALLS {
        let reply = link.inject(&echo, &words(&[number])).unwrap().wait(PATIENCE).unwrap();
        assert_eq!(&reply[..], words(&[number]));
    }
    assert!(link.may_share_processor(), "the target said where it fell asleep");
    drop(link);
    serving.join().unwrap();
}
