//! Helper processes that play a target or a source.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use farjump::{Data, Link, Mode, Target, WaitPolicy};
pub(crate) use farjump_fixtures::helper_process::{HelperProcess, commands, role, say, test_in_role};
pub(crate) use farjump_fixtures::this_test;

use crate::support::{PATIENCE, library, words};

/// Starts a target at `address` with `data` as its functions' data, and libc to link against.
pub(crate) fn start_target(test: &str, address: &str, data: &str) -> HelperProcess {
    start_target_in(test, address, data, |_| {})
}

pub(crate) fn start_target_in(
    test: &str,
    address: &str,
    data: &str,
    surroundings: impl FnOnce(&mut Command),
) -> HelperProcess {
    let mut command = test_in_role(test, &["target", address, data]);
    surroundings(&mut command);
    let target = HelperProcess::start(command);
    assert_eq!(target.hear(), "ready");
    target
}

/// Starts a target at `address` that prints its statistics when it is ended, see [`statistics`].
pub(crate) fn start_counting_target(test: &str, address: &str) -> HelperProcess {
    let target = HelperProcess::of_test(test, &["counting-target", address]);
    assert_eq!(target.hear(), "ready");
    target
}

/// Ends a counting target, and returns its statistics.
pub(crate) fn statistics(mut target: HelperProcess) -> String {
    target.order("stop");
    let statistics = target.hear();
    target.end();
    statistics
}

/// Starts a source that is connected to `address` and takes no replies.
pub(crate) fn start_source(test: &str, address: &str) -> HelperProcess {
    let source = HelperProcess::of_test(test, &["source", address]);
    assert_eq!(source.hear(), "connected");
    source
}

/// The first number in a `schedstat` of proc(5): nanoseconds on a processor.
pub(crate) fn cpu_time(schedstat: &std::path::Path) -> Duration {
    let text = fs::read_to_string(schedstat).unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Plays a role if this process was started for one; the test then returns.
pub(crate) fn plays() -> bool {
    let role = role();
    let args: Vec<&str> = role.iter().map(String::as_str).collect();
    match args[..] {
        [] => return false,
        ["target", address, data] => play_target(address, data),
        ["counting-target", address] => play_counting_target(address),
        ["source", address] => play_source(address),
        _ => panic!("no such role: {args:?}"),
    }
    true
}

fn play_target(address: &str, data: &str) {
    let mut data = Data::open(data).unwrap();
    // SAFETY: it is the system's C library, which this program has loaded.
    let mut target = unsafe { Target::listen(address).args(&mut data).export_library("libc.so.6") }
        .wait_policy(WaitPolicy { spins: 100, pauses: 0, yields: 0 })
        .build()
        .unwrap();
    let stopper = target.stopper();
    thread::spawn(move || {
        for order in commands() {
            match order.split_once(' ') {
                // Only an empty folder remains of the file system.
                Some(("shut-in", folder)) => {
                    std::env::set_current_dir(folder).unwrap();
                    rustix::process::chroot(".").unwrap();
                }
                _ => panic!("no such order: {order}"),
            }
            say("done");
        }
        stopper.stop();
    });
    say("ready");
    target.run().unwrap();
}

fn play_counting_target(address: &str) {
    let mut target = Target::listen(address).mailbox_size(1 << 16).modes(&Mode::ALL).build().unwrap();
    let stopper = target.stopper();
    let stopped = thread::spawn(move || {
        // An end without a command means that the parent is gone.
        let ordered = commands().any(|order| order == "stop");
        stopper.stop();
        ordered
    });
    say("ready");
    target.run().unwrap();
    if stopped.join().unwrap() {
        let stats = target.stats();
        let (calls, images, links) = (stats.calls, stats.images_linked, stats.links);
        say(&format!("{calls} calls, {} refusals, {images} images, {links} links", stats.refusals()));
    }
}

fn play_source(address: &str) {
    let sequence = library("sequence");
    let echo = library("echo");
    let link = Link::builder(address).reply_mailbox_size(4096).send_timeout(PATIENCE).connect().unwrap();
    say("connected");
    let mut sent = 0_u64;
    for order in commands() {
        match order.split_once(' ') {
            Some(("send", count)) => {
                for _ in 0..count.parse().unwrap() {
                    link.send(&sequence, &words(&[sent])).unwrap();
                    sent += 1;
                }
            }
            // Nothing takes these replies.
            Some(("call", count)) => {
                for _ in 0..count.parse().unwrap() {
                    std::mem::forget(link.inject(&echo, &[7; 1000]).unwrap());
                }
            }
            _ => panic!("no such order: {order}"),
        }
        say("done");
    }
}
