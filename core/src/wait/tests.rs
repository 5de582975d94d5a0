use std::thread;
use std::time::{Duration, Instant};
use std::vec::Vec;

use super::*;
use crate::sync::Ordering;

/// The action of a turn that waits for an event.
const EVENT: Turn = if cfg!(all(target_arch = "aarch64", not(miri))) { Turn::Event } else { Turn::Again };

#[test]
fn wait_phases_follow_in_order_with_the_policys_lengths() {
    let mut waiter = Waiter::new(WaitPolicy { spins: 3, pauses: 2, events: 0, yields: 4 });
    for _ in 0..2 {
        let turns: Vec<_> = (0..11).map(|_| waiter.turn()).collect();
        assert_eq!(&turns[..5], &[Turn::Again; 5]);
        assert_eq!(&turns[5..9], &[Turn::Yield; 4]);
        assert_eq!(&turns[9..], &[Turn::Sleep; 2]);
        waiter.reset();
    }
}

#[test]
fn events_are_waited_for_between_pauses_and_yields() {
    // It has the awaited value, so that nothing waits.
    let word = AtomicU64::new(7);
    let mut waiter = Waiter::new(WaitPolicy { spins: 1, pauses: 2, events: 3, yields: 1 });
    for _ in 0..2 {
        let mut asked = 0;
        let mut turn = || {
            waiter.turn_awaiting(|| {
                asked += 1;
                Some(AwaitedWord::new(&word, 7))
            })
        };
        let turns: Vec<_> = (0..8).map(|_| turn()).collect();
        assert_eq!(&turns[..3], &[Turn::Again; 3]);
        assert_eq!(&turns[3..6], &[EVENT; 3]);
        assert_eq!(&turns[6..], &[Turn::Yield, Turn::Sleep]);
        assert_eq!(asked, 3, "the word is needed in turns for events alone");
        waiter.reset();
    }
}

#[test]
fn a_loop_that_knows_no_word_pauses_in_turns_for_events() {
    let mut waiter = Waiter::new(WaitPolicy { spins: 0, pauses: 0, events: 4, yields: 1 });
    let turns: Vec<_> = (0..5).map(|_| waiter.turn()).collect();
    assert_eq!(&turns, &[Turn::Again, Turn::Again, Turn::Again, Turn::Again, Turn::Yield]);
}

#[test]
fn without_events_their_turns_pause() {
    let policy = WaitPolicy { spins: 1, pauses: 2, events: 3, yields: 4 };
    assert_eq!(policy.without_events(), WaitPolicy { spins: 1, pauses: 5, events: 0, yields: 4 });
    assert_eq!(WaitPolicy::events_only().without_events().pauses, u32::MAX);
}

/// Two threads take turns by one word, and each waits for the other's write. Each write is the only one that
/// the waiter can see. So a missed write would end the test by its patience, or, if only the timer's events
/// end a wait, make each wait take their period. QEMU's `wfe` waits for nothing, so there the test shows that
/// the loop is right, not that the core stops.
#[test]
fn no_write_is_missed() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
    const PATIENCE: Duration = Duration::from_secs(120);

    fn until(word: &AtomicU64, awaited: u64, begun: Instant) {
        let mut waiter = Waiter::new(WaitPolicy { spins: 0, pauses: 0, events: 200, yields: 1 });
        while word.load(Ordering::Acquire) != awaited {
            assert!(begun.elapsed() < PATIENCE, "the word never became {awaited}");
            if waiter.turn_awaiting(|| Some(AwaitedWord::new(word, awaited))) == Turn::Yield {
                thread::yield_now();
                waiter.reset();
            }
        }
    }

    let word = AtomicU64::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                until(&word, 2 * round + 1, begun);
                word.store(2 * round + 2, Ordering::Release);
            }
        });
        for round in 0..ROUNDS {
            word.store(2 * round + 1, Ordering::Release);
            until(&word, 2 * round + 2, begun);
        }
    });
    assert_eq!(word.load(Ordering::Relaxed), 2 * ROUNDS);
}

#[test]
fn more_pollers_than_cores_do_not_spin() {
    assert!(WaitPolicy::for_cores(2, 3).spins < WaitPolicy::for_cores(2, 2).spins);
}
