//! Idle targets: they sleep until a descriptor wakes them, and cost nothing.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::thread;
use std::time::Duration;

use farjump::Link;

use crate::helper::{HelperProcess, this_test};
use crate::paths::on_every_path_at_once;
use crate::support::{PATIENCE, Place, library};

/// Length of an observation.
const WATCHED: Duration = Duration::from_secs(2);
/// Limit of the times that a process wakes while it is watched. A process that sleeps wakes once a second, for its
/// periodic check. One that naps for want of a doorbell wakes some thirty times.
const WAKES: u64 = 20;

/// Times that each thread of the process has gone to sleep (proc(5)).
fn sleeps(actor: &HelperProcess) -> HashMap<OsString, u64> {
    let of = |status: String| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse().unwrap()
    };
    let tasks = fs::read_dir(format!("/proc/{}/task", actor.pid().as_raw_nonzero())).unwrap();
    // A thread may end between the two reads: the one that closes descriptors ends when it has nothing to do.
    let status = |task: &DirEntry| fs::read_to_string(task.path().join("status")).ok();
    tasks.map(Result::unwrap).filter_map(|task| Some((task.file_name(), of(status(&task)?)))).collect()
}

#[test]
fn a_target_with_unused_links_sleeps_until_a_call_wakes_it() {
    on_every_path_at_once(this_test!(), |path| {
        let place = Place::new();
        let target = path.target(&place);
        let links = [path.link(&place).connect().unwrap(), path.link(&place).connect().unwrap()];
        let echo = library("echo");
        for link in &links {
            link.inject(&echo, &[1; 100_000]).unwrap().wait(PATIENCE).unwrap();
            link.inject(&echo, b"awake").unwrap().wait(PATIENCE).unwrap();
        }
        // Earlier work, and the spinning after it, is over by then.
        thread::sleep(Duration::from_millis(200));
        let (worked, slept) = (target.cpu_time(), sleeps(&target));
        thread::sleep(WATCHED);
        let worked = target.cpu_time() - worked;
        let before = |thread| slept.get(thread).copied().unwrap_or(0);
        let slept: u64 = sleeps(&target).iter().map(|(thread, now)| now - before(thread)).sum();
        assert!(slept <= WAKES, "it woke {slept} times in {WATCHED:?}");
        // Two ticks of the system's clock.
        assert!(worked <= Duration::from_millis(20), "it worked {worked:?} in {WATCHED:?}");
        for link in &links {
            assert_eq!(*link.inject(&echo, b"and again").unwrap().wait(PATIENCE).unwrap(), *b"and again");
        }
    });
}

#[test]
fn a_source_that_was_idle_among_many_is_heard_while_another_calls() {
    /// Calls after which the other links count as idle, and calls within which the target has to find one of them
    /// then.
    const CALLS: u32 = 10_000;
    on_every_path_at_once(this_test!(), |path| {
        let place = Place::new();
        let _target = path.target(&place);
        let echo = library("echo");
        let links: Vec<_> = (0..6).map(|_| path.link(&place).connect().unwrap()).collect();
        let call = |link: &Link| {
            assert_eq!(*link.inject(&echo, b"on").unwrap().wait(PATIENCE).unwrap(), *b"on");
        };
        links.iter().for_each(call);
        let (busy, idle) = (&links[0], &links[5]);
        (0..CALLS).for_each(|_| call(busy));
        let mut pending = idle.inject(&echo, b"heard").unwrap();
        let heard = (0..CALLS).find(|_| {
            call(busy);
            pending.poll().unwrap().is_some()
        });
        assert!(heard.is_some(), "it is not heard within {CALLS} calls of another source");
    });
}
