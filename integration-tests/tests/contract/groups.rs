//! The wake-ups that calls send to a target that sleeps in an event loop of its own.

use farjump::{Error, InjectError, Library, Link, Pending, Target};
use farjump_fixtures::watchdog::Watchdog;
use farjump_integration_tests::middleware::{Meter, Metered, Step};
use farjump_transports::shm::Shm;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{PATIENCE, alongside, echo};

const CALLS: u64 = 64;
/// Bytes of the mailbox, which some hundred calls fill.
const MAILBOX: usize = 1 << 14;
/// Longest payload that the target takes, in bytes.
const MAX_PAYLOAD: usize = 1000;

/// A target that sleeps in this thread, a link to it, and the link's counts.
struct Sleeper {
    target: Target<'static>,
    link: Link,
    meter: Meter,
    echo: Library,
    _folder: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Sleeper {
    fn new() -> Sleeper {
        let folder = farjump_fixtures::folder();
        let echo = echo(folder.path());
        let address = format!("unix:{}", folder.path().join("socket").display());
        let mut target =
            Target::listen(&address).mailbox_size(MAILBOX).max_payload(MAX_PAYLOAD).build().unwrap();
        let metered = Metered::new(Box::new(Shm::new()));
        let meter = metered.meter();
        let connect = || Link::builder(&address).with_transport(Box::new(metered)).connect().unwrap();
        let link = alongside(&mut target, connect);
        let mut sleeper = Sleeper { target, link, meter, echo, _folder: folder, _watchdog: Watchdog::new() };
        // The target has the code, and is asleep.
        let pending = sleeper.link.inject(&sleeper.echo, b"").unwrap().into_raw();
        sleeper.target.poll().unwrap();
        sleeper.turn();
        assert!(sleeper.pending(pending).poll().unwrap().is_some());
        sleeper
    }

    fn pending(&self, number: u32) -> Pending<'_> {
        self.link.pending_from_raw(number).unwrap()
    }

    /// Wake-ups so far.
    fn wakes(&self) -> u64 {
        self.meter.count(Step::Ring).done
    }

    /// Takes a turn of the target's event loop, which begins with the end of a sleep.
    fn turn(&mut self) {
        self.target.disarm();
        while self.target.poll().unwrap() != 0 {}
        // Remaining work of its own part of the handshake keeps the target awake for a few turns.
        let asleep = (0..1000).any(|_| {
            let longest = self.target.arm().unwrap();
            if longest.is_none() {
                self.target.disarm();
                while self.target.poll().unwrap() != 0 {}
            }
            longest.is_some()
        });
        assert!(asleep);
    }

    /// Takes a turn, if something woke the target.
    fn turn_if_woken(&mut self) {
        let mut watched = [PollFd::from_borrowed_fd(self.target.as_fd(), PollFlags::IN)];
        poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        if !watched[0].revents().is_empty() {
            self.turn();
        }
    }

    /// Takes the outcomes of calls that came with the numbers from 0.
    fn take_outcomes(&mut self, calls: &[u32]) {
        for (round, number) in (0_u64..).zip(calls) {
            let reply = (0..10_000).find_map(|_| {
                let mut call = self.pending(*number);
                let reply = call.poll().unwrap();
                if reply.is_none() {
                    call.into_raw();
                    // The target may also nap, for credit.
                    self.turn();
                }
                reply
            });
            assert_eq!(*reply.unwrap(), round.to_le_bytes());
        }
    }
}

#[test]
fn each_call_wakes_a_sleeping_target_and_a_group_once() {
    let mut sleeper = Sleeper::new();
    let before = sleeper.wakes();
    let mut calls = Vec::new();
    for round in 0..CALLS / 2 {
        calls.push(sleeper.link.inject(&sleeper.echo, &round.to_le_bytes()).unwrap().into_raw());
        sleeper.turn_if_woken();
    }
    assert_eq!(sleeper.wakes() - before, CALLS / 2);
    sleeper.take_outcomes(&calls);

    for ends_by_drop in [false, true] {
        let before = sleeper.wakes();
        calls.clear();
        for round in 0..CALLS {
            let mut group = sleeper.link.group();
            calls.push(group.inject(&sleeper.echo, &round.to_le_bytes()).unwrap().into_raw());
            match (round == CALLS - 1, ends_by_drop) {
                (false, _) => std::mem::forget(group),
                (true, false) => group.finish().unwrap(),
                (true, true) => drop(group),
            }
            if round < CALLS - 1 {
                sleeper.turn_if_woken();
                assert_eq!(sleeper.wakes(), before, "call {round}");
            }
        }
        assert_eq!(sleeper.wakes() - before, 1);
        sleeper.take_outcomes(&calls);
        // Calls after a group wake the target by themselves.
        let alone = sleeper.link.inject(&sleeper.echo, &0_u64.to_le_bytes()).unwrap().into_raw();
        assert_eq!(sleeper.wakes() - before, 2);
        sleeper.take_outcomes(&[alone]);
    }
}

/// An operation on the link of a call.
type Look = fn(&Sleeper, u32);

#[test]
fn any_look_for_outcomes_wakes_the_target_for_unfinished_groups() {
    let looks: [(&str, Look); 5] = [
        ("poll", |sleeper, call| {
            let mut call = sleeper.pending(call);
            assert!(call.poll().unwrap().is_none());
            call.into_raw();
        }),
        ("progress", |sleeper, _| sleeper.link.progress().unwrap()),
        ("arm", |sleeper, _| {
            sleeper.link.arm().unwrap();
            sleeper.link.disarm();
        }),
        ("flush", |sleeper, _| assert!(sleeper.link.flush(std::time::Duration::ZERO).is_err())),
        ("another call", |sleeper, _| drop(sleeper.link.inject(&sleeper.echo, b"").unwrap())),
    ];
    for (name, look) in looks {
        let mut sleeper = Sleeper::new();
        let before = sleeper.wakes();
        let mut group = sleeper.link.group();
        let call = group.inject(&sleeper.echo, &0_u64.to_le_bytes()).unwrap().into_raw();
        std::mem::forget(group);
        assert_eq!(sleeper.wakes(), before);
        look(&sleeper, call);
        assert_eq!(sleeper.wakes() - before, 1, "{name}");
        sleeper.take_outcomes(&[call]);
    }
}

#[test]
fn a_group_without_credit_or_failing_wakes_the_target_at_once() {
    let mut sleeper = Sleeper::new();
    let before = sleeper.wakes();
    let mut group = sleeper.link.group();
    let mut calls = Vec::new();
    let full = loop {
        let round = calls.len() as u64;
        match group.try_inject(&sleeper.echo, &round.to_le_bytes()) {
            Ok(call) => calls.push(call.into_raw()),
            Err(error) => break error,
        }
        assert_eq!(sleeper.wakes(), before);
    };
    assert!(matches!(full, Error::Inject(InjectError::Full)), "{full}");
    assert!(calls.len() > 100, "{} calls fill the mailbox", calls.len());
    assert_eq!(sleeper.wakes() - before, 1);
    group.finish().unwrap();
    assert_eq!(sleeper.wakes() - before, 1);
    sleeper.take_outcomes(&calls);

    // Injects a call that cannot be sent.
    let before = sleeper.wakes();
    let mut group = sleeper.link.group();
    let call = group.inject(&sleeper.echo, &0_u64.to_le_bytes()).unwrap().into_raw();
    assert_eq!(sleeper.wakes(), before);
    let error = group.inject(&sleeper.echo, &[0; MAX_PAYLOAD + 1]).unwrap_err();
    assert!(matches!(error, Error::Inject(InjectError::OverLimit { .. })), "{error}");
    assert_eq!(sleeper.wakes() - before, 1);
    drop(group);
    assert_eq!(sleeper.wakes() - before, 1);
    sleeper.take_outcomes(&[call]);
}

#[test]
fn every_call_of_a_group_larger_than_the_mailbox_runs() {
    let Sleeper { mut target, link, echo, _folder, _watchdog, .. } = Sleeper::new();
    target.disarm();
    let thread = target.spawn().unwrap();
    // Several times as many calls as the mailbox has space for.
    let mut group = link.group();
    let calls: Vec<_> =
        (0..1000_u64).map(|round| group.inject(&echo, &round.to_le_bytes()).unwrap()).collect();
    group.finish().unwrap();
    for (round, call) in (0_u64..).zip(calls) {
        assert_eq!(*call.wait(PATIENCE).unwrap(), round.to_le_bytes());
    }
    drop(link);
    assert_eq!(thread.stop().unwrap().stats().calls, 1001);
}

#[test]
fn groups_over_transports_that_wake_for_each_frame_are_calls_like_others() {
    let _watchdog = Watchdog::new();
    let folder = farjump_fixtures::folder();
    let echo = echo(folder.path());
    let address = format!("unix:{}", folder.path().join("socket").display());
    let thread = Target::listen(&address).transport("tcp").build().unwrap().spawn().unwrap();
    let link = Link::builder(&address).transport("tcp").connect().unwrap();
    let mut group = link.group();
    let calls: Vec<_> = (0..CALLS).map(|round| group.inject(&echo, &round.to_le_bytes()).unwrap()).collect();
    group.send(&echo, b"").unwrap();
    group.finish().unwrap();
    for (round, call) in (0_u64..).zip(calls) {
        assert_eq!(*call.wait(PATIENCE).unwrap(), round.to_le_bytes());
    }
    link.flush(PATIENCE).unwrap();
    assert_eq!(thread.stop().unwrap().stats().calls, CALLS + 1);
}
