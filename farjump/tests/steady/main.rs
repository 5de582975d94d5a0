//! The steady state: a message allocates nothing, takes no contended lock, and makes no system call.

mod armed;
mod awaited;
mod closed;
mod idle;
mod mailboxes;
mod peers;
mod refused;
mod released;
mod reporting;
mod strangers;
mod stream;
#[path = "../support/mod.rs"]
mod support;
mod system_calls;
mod traced;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farjump::{Library, Mode, Target, WaitPolicy};
use farjump_fixtures::allocation;
use support::{PATIENCE, Pair, Place, library, serve};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

/// Messages in a run.
const MESSAGES: u64 = 100_000;
/// Messages in one of its rounds.
const EACH: u64 = 8;
/// Longer than any run: a check for messages of other processes is a system call.
const NEVER: Duration = Duration::from_secs(100_000);

/// Number of calls between threads, each of which waits for the other. It is smaller if both share a processor: the
/// thread that spins keeps the other from it for milliseconds.
fn handovers() -> u64 {
    let is_shared = farjump_os::resources::processors() == 1;
    if is_shared { 500 } else { 5_000 }
}

/// A link and a target in this thread, and their messages.
struct Steady {
    pair: Pair<'static>,
    counter: Library,
    echo: Library,
    long: Vec<u8>,
}

impl Steady {
    /// A fixture in which everything has been done once, on whole laps of both rings.
    fn new(place: &Place) -> Steady {
        let count: &'static mut u64 = Box::leak(Box::new(0));
        let target = place
            .target()
            .args(count)
            .mailbox_size(1 << 16)
            .control_interval(NEVER)
            .wait_policy(WaitPolicy::spin_only());
        let link = place
            .link()
            .reply_mailbox_size(1 << 16)
            .control_interval(NEVER)
            .wait_policy(WaitPolicy::spin_only());
        let (counter, echo) = (library("counter"), library("echo"));
        let pair = Pair::of(target.modes(Mode::ALL).local(&counter).local(&echo), link);
        let mut steady = Steady { pair, counter, echo, long: vec![3; 1000] };
        steady.run(1000);
        steady
    }

    /// Sends each kind of message `rounds` times: cached, with and without a reply, of one line and of many. Some
    /// replies are waited for and some polled for, with one message in flight and with several.
    fn run(&mut self, rounds: u64) {
        let Pair { link, target } = &mut self.pair;
        for round in 0..rounds {
            let message = round.to_ne_bytes();
            let call = link.inject(&self.echo, &message).unwrap();
            target.poll().unwrap();
            assert!(*call.wait(PATIENCE).unwrap() == message);

            link.send(&self.counter, &message).unwrap();
            link.try_send(&self.echo, &self.long).unwrap();
            let mut batch = link.batch();
            (0..3).for_each(|_| batch.send(&self.counter, &message).unwrap());
            batch.finish().unwrap();
            let first = link.try_inject(&self.counter, b"").unwrap();
            let mut second = link.inject(&self.echo, &message).unwrap();
            target.poll().unwrap();
            assert!(*second.poll().unwrap().unwrap() == message);
            assert!(first.wait(PATIENCE).unwrap().is_empty());

            // A poll without frames by both processes.
            target.poll().unwrap();
            link.progress().unwrap();
        }
        assert!(serve(target) == 0);
    }
}

#[test]
fn a_message_allocates_nothing_in_any_mode() {
    const ROUNDS: u64 = 10_000;
    let place = Place::new();
    let mut steady = Steady::new(&place);
    for mode in Mode::ALL {
        steady.pair.link.set_mode(mode);
        steady.run(1000);
        let before = (allocation::allocations(), steady.pair.target.stats().calls);
        steady.run(ROUNDS);
        let after = (allocation::allocations(), steady.pair.target.stats().calls);
        assert_eq!((after.0 - before.0, after.1 - before.1), (0, ROUNDS * EACH), "{mode}");
    }
    let before = allocation::allocations();
    drop(vec![0_u8; 100]);
    assert_eq!(allocation::allocations() - before, 1, "the count counts");
}

#[test]
fn a_large_payload_allocates_nothing_once_the_large_mailbox_exists() {
    let place = Place::new();
    let Steady { pair: Pair { link, mut target }, counter, .. } = Steady::new(&place);
    let payload = vec![5; 1 << 20];
    while let Err(error) = link.try_send(&counter, &payload) {
        assert!(matches!(error, farjump::Error::Inject(farjump::InjectError::Full)), "{error}");
        target.poll().unwrap();
        link.progress().unwrap();
    }
    let mut run = |rounds: usize| {
        for _ in 0..rounds {
            while target.poll().unwrap() != 0 {}
            link.send(&counter, &payload).unwrap();
        }
    };
    run(100);
    let before = allocation::allocations();
    run(1000);
    assert_eq!(allocation::allocations() - before, 0);
}

#[test]
fn calls_between_threads_allocate_nothing_whatever_the_length_of_their_replies() {
    let place = Place::new();
    let Steady { pair: Pair { link, mut target }, echo, .. } = Steady::new(&place);
    let done = AtomicBool::new(false);
    let handovers = handovers();
    let warm_up = handovers / 10;
    let (source, served) = thread::scope(|scope| {
        let source = scope.spawn(|| {
            let link = link;
            let mut into = Vec::new();
            let mut run = |rounds: u64| {
                for round in 0..rounds {
                    // The longest first: both processes allocate buffers for it.
                    let message = &[round as u8; 1000][round as usize % 1000..];
                    into.clear();
                    link.call_into(&echo, message, PATIENCE, &mut into).unwrap();
                    assert!(into == message);
                }
            };
            run(warm_up);
            let before = allocation::allocations();
            run(handovers);
            let allocations = allocation::allocations() - before;
            done.store(true, Ordering::Relaxed);
            allocations
        });
        // The source may be waiting for this thread's processor.
        let poll = |target: &mut Target<'_>| {
            if target.poll().unwrap() == 0 {
                thread::yield_now();
            }
        };
        let warm = target.stats().calls + warm_up;
        while target.stats().calls < warm {
            poll(&mut target);
        }
        let before = allocation::allocations();
        let calls = target.stats().calls;
        while !done.load(Ordering::Relaxed) {
            poll(&mut target);
        }
        let allocations = allocation::allocations() - before;
        assert!(target.stats().calls - calls > handovers / 2);
        (source.join().unwrap(), allocations)
    });
    assert_eq!((source, served), (0, 0));
}
