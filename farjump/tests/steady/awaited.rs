//! Awaited calls: their polls, wake-ups, allocations and system calls.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use farjump::Pending;
use farjump_fixtures::allocation;
use farjump_fixtures::this_test;
use tokio::runtime::Builder;

use crate::system_calls::{NONE, end, forbid_system_calls, is_child, run};
use crate::{Pair, Place, Steady, serve};

/// Calls in flight.
const CALLS: usize = 200;
/// Polls and wake-ups of a round beyond those of its calls: the driver polls again, and hands over.
const MORE: u64 = 8;

/// Counts the wake-ups of one call, as if each had a task of its own.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn all(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Keeps [`CALLS`] calls in flight and awaits each by a waker of its own, in `warm_up` rounds and then in `rounds`
/// more. `begin` runs before these. `end` runs after them, with the most polls and wake-ups of one round.
fn await_calls(warm_up: u64, rounds: u64, begin: impl FnOnce(), end: impl FnOnce(u64, u64)) {
    let place = Place::new();
    let Steady { pair: Pair { link, mut target }, echo, .. } = Steady::new(&place);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let wakes: Vec<Arc<Wakes>> = (0..CALLS).map(|_| Arc::default()).collect();
    let wakers: Vec<Waker> = wakes.iter().map(|one| Waker::from(Arc::clone(one))).collect();
    let woken = || wakes.iter().map(|one| one.all()).sum::<u64>();
    let mut calls: Vec<Option<Pending<'_>>> = (0..CALLS).map(|_| None).collect();
    let mut seen = vec![0; CALLS];
    let mut round = || {
        let (mut polls, before) = (0, woken());
        for (number, call) in calls.iter_mut().enumerate() {
            *call = Some(link.inject(&echo, &number.to_ne_bytes()).unwrap());
            // All are polled for the first time.
            seen[number] = u64::MAX;
        }
        while calls.iter().any(Option::is_some) {
            let earlier = polls;
            for (number, pending) in calls.iter_mut().enumerate() {
                let Some(call) = pending.as_mut().filter(|_| wakes[number].all() != seen[number]) else {
                    continue;
                };
                (seen[number], polls) = (wakes[number].all(), polls + 1);
                let mut context = Context::from_waker(&wakers[number]);
                if let Poll::Ready(reply) = Pin::new(call).poll(&mut context) {
                    assert!(*reply.unwrap() == number.to_ne_bytes());
                    *pending = None;
                }
            }
            assert!(polls != earlier, "no call is awaited by a task that was woken");
            serve(&mut target);
        }
        (polls, woken() - before)
    };
    for _ in 0..warm_up {
        round();
    }
    begin();
    let (polls, wakes) =
        (0..rounds).map(|_| round()).fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
    end(polls, wakes);
}

#[test]
fn awaited_calls_allocate_nothing_and_each_is_polled_twice_and_woken_once() {
    let before = Cell::new(0);
    let begin = || before.set(allocation::allocations());
    await_calls(10, 50, begin, |polls, wakes| {
        assert_eq!(allocation::allocations() - before.get(), 0);
        let calls = CALLS as u64;
        assert!((2 * calls..=2 * calls + MORE).contains(&polls), "{polls} polls of {calls} calls");
        assert!((calls..=calls + MORE).contains(&wakes), "{wakes} wake-ups for {calls} calls");
    });
}

#[test]
fn awaited_calls_do_no_system_call_while_their_replies_come() {
    if is_child() {
        await_calls(10, 50, forbid_system_calls, |_, _| end(NONE));
    }
    let status = run(this_test!());
    assert_eq!(status.code(), Some(NONE), "{status}: signal 31 is a system call");
}
