//! Going to sleep: every event sends one wake-up, and no sleeper misses one that has happened.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use farjump_core::channel::{Armed, Channel, SendError};
use farjump_core::frame::Kind;
use farjump_core::mailbox::CONTROL_LEN;
use farjump_core::transport::ArrivalRules;

use super::peers::{Pair, RULES, pattern, plan};

const SOUNDLY: Armed = Armed::Sleep;
/// Offset of the peer's state in a region (docs/reference/protocol.md, mailboxes), in bytes.
const STATE_AT: usize = 8;

#[test]
fn a_sleeper_is_woken_once_and_never_while_awake() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        for round in 0..3 {
            pair.left.send(0, &[]).unwrap();
            pair.settle();
            assert_eq!(pair.right.rings(), 0, "{rule:?}: rung while awake");
            assert!(pair.right.take().is_some());
            assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}, round {round}");
            pair.settle();
            for token in 0..3 {
                pair.left.send(token, &[]).unwrap();
                pair.settle();
                assert_eq!(pair.right.rings(), 1, "{rule:?}: frame {token}");
            }
            pair.right.channel.disarm().unwrap();
            pair.settle();
            assert_eq!(pair.right.rings(), 0, "{rule:?}: the descriptor was emptied");
            for token in 0..3 {
                assert_eq!(pair.right.take(), Some((token, vec![])));
            }
            pair.right.channel.progress(true).unwrap();
            pair.settle();
        }
    }
}

/// The order of both peers' stores that `membarrier` prevents where it reaches the sender: each misses the other's.
#[test]
fn an_idle_sender_rings_once_for_a_sleep_that_it_missed() {
    type Rest = fn(&mut Channel);
    let rests: [Rest; 2] = [
        |channel| _ = channel.progress(true).unwrap(),
        |channel| assert_eq!(channel.arm().unwrap(), SOUNDLY),
    ];
    for rest in rests {
        let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
        assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY);
        pair.right.channel.disarm().unwrap();
        let awake = pair.left.word(STATE_AT);
        pair.left.send(0, &[]).unwrap();
        // The receiver's store of "asleep", which comes after the sender's load.
        pair.left.pages.write(STATE_AT, &(awake + 1).to_le_bytes());
        pair.left.channel.progress(false).unwrap();
        assert_eq!(pair.right.rings(), 0, "a sender that is busy has no time for this");
        for _ in 0..2 {
            rest(&mut pair.left.channel);
            pair.left.channel.disarm().unwrap();
            assert_eq!(pair.right.rings(), 1);
        }
        assert_eq!(pair.right.take(), Some((0, vec![])));
    }
}

#[test]
fn frames_of_a_group_ring_a_sleeper_once_at_the_end() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        for round in 0..3 {
            assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}, round {round}");
            pair.settle();
            pair.left.channel.begin_group();
            for token in 0..3 {
                pair.left.send(token, &[]).unwrap();
                pair.settle();
                pair.left.channel.progress(true).unwrap();
                assert_eq!(pair.right.rings(), 0, "{rule:?}: frame {token}");
            }
            assert!(pair.left.channel.owes_wake(), "{rule:?}");
            pair.left.channel.end_group();
            for _ in 0..2 {
                pair.left.channel.wake_for_group().unwrap();
                pair.settle();
                assert_eq!(pair.right.rings(), 1, "{rule:?}");
                assert!(!pair.left.channel.owes_wake(), "{rule:?}");
            }
            pair.right.channel.disarm().unwrap();
            for token in 0..3 {
                assert_eq!(pair.right.take(), Some((token, vec![])));
            }
            pair.right.channel.progress(true).unwrap();
            pair.settle();
        }
    }
}

#[test]
fn a_group_wakes_for_untaken_frames_and_later_frames_wake_again() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}");
        pair.settle();
        pair.left.channel.begin_group();
        pair.left.send(0, &[]).unwrap();
        pair.settle();
        // Another event wakes it, and it sleeps again.
        pair.right.channel.disarm().unwrap();
        assert_eq!(pair.right.take(), Some((0, vec![])));
        assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}");
        pair.settle();
        pair.left.channel.end_group();
        pair.left.channel.wake_for_group().unwrap();
        assert_eq!(pair.right.rings(), 0, "{rule:?}: rung for nothing");
        pair.left.send(1, &[]).unwrap();
        pair.settle();
        assert_eq!(pair.right.rings(), 1, "{rule:?}: not rung for a frame after the group");
        pair.right.channel.disarm().unwrap();
        assert_eq!(pair.right.take(), Some((1, vec![])));
        // A frame behind a group wakes for the group, too, and no wake-up is due after that.
        pair.right.channel.progress(true).unwrap();
        assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}");
        pair.settle();
        pair.left.channel.begin_group();
        pair.left.send(2, &[]).unwrap();
        pair.left.channel.end_group();
        pair.left.send(3, &[]).unwrap();
        pair.settle();
        assert_eq!(pair.right.rings(), 1, "{rule:?}");
        assert!(!pair.left.channel.owes_wake(), "{rule:?}");
    }
}

#[test]
fn a_frame_that_is_there_keeps_from_sleeping() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        pair.left.send(0, &pattern(0, 99)).unwrap();
        pair.settle();
        assert_eq!(pair.right.channel.arm().unwrap(), Armed::Ready);
        pair.settle();
        // The receiver is awake again: later frames send no wake-up.
        pair.left.send(1, &[]).unwrap();
        pair.settle();
        assert_eq!(pair.right.rings(), 0, "{rule:?}");
        assert_eq!(pair.right.take(), Some((0, pattern(0, 99))));
    }
}

#[test]
fn a_frame_that_comes_between_saying_asleep_and_looking_keeps_from_sleeping() {
    let mut pair = Pair::new(ArrivalRules::FENCED, false, 4096);
    pair.left.send(0, &[1; 20]).unwrap();
    let wire = pair.left.wire.clone();
    *pair.right.bell.before_sleep.lock().unwrap() =
        Some(Box::new(move || wire.lock().unwrap().deliver_all()));
    assert_eq!(pair.right.channel.arm().unwrap(), Armed::Ready);
    assert_eq!(pair.right.take(), Some((0, vec![1; 20])));
}

#[test]
fn a_sleeper_that_passes_a_skip_does_not_sleep_on() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    pair.left.send(0, &pattern(0, 3900)).unwrap();
    assert!(pair.right.take().is_some());
    pair.right.channel.progress(true).unwrap();
    let Pair { left, mut right } = pair;
    let left = Arc::new(Mutex::new(left));
    let (sender, bell) = (left.clone(), right.bell.clone());
    *right.bell.before_sleep.lock().unwrap() = Some(Box::new(move || {
        // The payload is too long for the rest of the ring: a skip is sent, and wakes the sleeper. The sleeper
        // discards this wake-up.
        let _ = sender.lock().unwrap().channel.reserve(&plan(Kind::Call, 1), 300).unwrap();
        assert_eq!(bell.rings.swap(0, Ordering::Relaxed), 1);
    }));
    assert_eq!(right.channel.arm().unwrap(), Armed::Ready, "the frame behind the skip rings nobody");
    assert_eq!(right.channel.arm().unwrap(), SOUNDLY);
    left.lock().unwrap().send(1, &[1; 300]).unwrap();
    assert_eq!(right.rings(), 1);
    assert_eq!(right.take(), Some((1, vec![1; 300])));
}

#[test]
fn a_sleeper_is_woken_by_the_next_frame_and_not_before() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        pair.left.send(0, &[]).unwrap();
        pair.settle();
        assert!(pair.right.take().is_some());
        assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}");
        pair.right.wire.lock().unwrap().deliver_all();
        // The sleeper could discard a wake-up sent now before it polls, and this sleep would count as woken.
        pair.left.channel.progress(true).unwrap();
        assert_eq!(pair.right.rings(), 0, "{rule:?}: rung for nothing");
        pair.left.send(1, &[]).unwrap();
        pair.settle();
        assert_eq!(pair.right.rings(), 1, "{rule:?}: not rung for a frame");
    }
}

#[test]
fn sender_progress_wakes_a_sleeper_that_missed_a_frame_in_flight() {
    for (rule, line_whole) in RULES.into_iter().filter(|(rule, _)| *rule != ArrivalRules::STORES) {
        let mut pair = Pair::new(rule, line_whole, 4096);
        pair.left.send(0, &[]).unwrap();
        assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}");
        pair.settle();
        pair.left.channel.progress(true).unwrap();
        assert_eq!(pair.right.rings(), 1, "{rule:?}");
        pair.right.channel.disarm().unwrap();
        assert!(pair.right.take().is_some(), "{rule:?}");
    }
}

#[test]
fn an_endpoint_that_nothing_can_wake_naps() {
    // A frame of which only the beginning has arrived.
    let mut pair = Pair::new(ArrivalRules::IN_ORDER, true, 4096);
    pair.left.send(0, &[1; 100]).unwrap();
    pair.left.wire.lock().unwrap().deliver(&mut |_| 0);
    assert_eq!(pair.right.channel.arm().unwrap(), Armed::Nap);
    pair.right.channel.disarm().unwrap();

    // An order that is not guaranteed.
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    pair.right.bell.cannot_promise.store(true, Ordering::Relaxed);
    assert_eq!(pair.right.channel.arm().unwrap(), Armed::Nap);
    pair.right.channel.disarm().unwrap();

    // A frame of its own that the backend has not taken, and a peer that could not be notified.
    let mut pair = Pair::new(ArrivalRules::FENCED, false, 4096);
    pair.right.wire.lock().unwrap().set_capacity(0);
    assert_eq!(pair.right.channel.arm().unwrap(), Armed::Nap, "the peer does not know that we sleep");
    pair.right.wire.lock().unwrap().set_capacity(usize::MAX);
    pair.right.channel.disarm().unwrap();
    pair.right.wire.lock().unwrap().set_capacity(0);
    pair.right.send(0, &[]).unwrap();
    assert_eq!(pair.right.channel.arm().unwrap(), Armed::Nap, "a frame is under way");
}

#[test]
fn a_sleep_state_refused_by_the_backend_is_sent_later() {
    let mut pair = Pair::new(ArrivalRules::FENCED, false, 4096);
    pair.right.wire.lock().unwrap().set_capacity(0);
    assert_eq!(pair.right.channel.arm().unwrap(), Armed::Nap);
    pair.right.wire.lock().unwrap().set_capacity(usize::MAX);
    // The state is sent now and says "asleep", and the next frame sends a wake-up.
    pair.settle();
    pair.left.send(0, &[]).unwrap();
    pair.settle();
    assert_eq!(pair.right.rings(), 1);
}

#[test]
fn a_sender_without_credit_naps_until_credit_returns() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        let mut sent = 0;
        while pair.left.send(sent, &[]).is_ok() {
            pair.settle();
            sent += 1;
            assert!(sent < 100, "{rule:?}: the ring is never full");
        }
        assert!(matches!(pair.left.send(sent, &[]), Err(SendError::Full)));
        assert_eq!(pair.left.channel.arm().unwrap(), Armed::Nap, "{rule:?}: nobody rings for space");
        pair.left.channel.disarm().unwrap();
        while pair.right.take().is_some() {}
        pair.right.channel.progress(true).unwrap();
        pair.settle();
        assert_eq!(pair.left.channel.arm().unwrap(), Armed::Ready, "{rule:?}: there is space");
        assert!(pair.left.send(sent, &[]).is_ok());
        pair.settle();
        assert!(pair.right.take().is_some());
        assert_eq!(pair.left.channel.arm().unwrap(), SOUNDLY, "{rule:?}");
    }
}

#[test]
fn falling_asleep_first_returns_the_credit_of_a_passed_skip() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    pair.left.send(0, &[]).unwrap();
    assert!(pair.right.take().is_some());
    pair.right.channel.progress(true).unwrap();
    // As long as the ring: needs a skip, and the credit of that skip.
    let payload = pattern(1, 4032);
    assert!(matches!(pair.left.send(1, &payload), Err(SendError::Full)));
    assert_eq!(pair.right.channel.arm().unwrap(), Armed::Ready);
    assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY);
    pair.left.send(1, &payload).unwrap();
    assert_eq!(pair.right.rings(), 1);
    pair.right.channel.disarm().unwrap();
    assert_eq!(pair.right.take(), Some((1, payload)));
}

#[test]
fn a_notice_is_seen_once_awake_or_when_falling_asleep() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        assert!(!pair.right.channel.progress(true).unwrap());
        pair.left.channel.notify().unwrap();
        pair.left.wire.lock().unwrap().deliver_all();
        // Arming neither loses the notice nor sleeps despite it, although it discards the wake-up.
        assert_eq!(pair.right.channel.arm().unwrap(), Armed::Ready, "{rule:?}");
        assert!(pair.right.channel.progress(false).unwrap(), "{rule:?}: the call was swallowed");
        assert!(!pair.right.channel.progress(true).unwrap(), "{rule:?}: heard twice");
        assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY, "{rule:?}");
        pair.left.channel.notify().unwrap();
        assert_eq!(pair.right.rings(), 1, "{rule:?}");
        pair.left.wire.lock().unwrap().deliver_all();
        pair.right.channel.disarm().unwrap();
        assert!(pair.right.channel.progress(false).unwrap(), "{rule:?}");
    }
}

#[test]
fn a_notice_delayed_by_a_full_backend_wakes_on_arrival() {
    let mut pair = Pair::new(ArrivalRules::FENCED, false, 4096);
    assert_eq!(pair.right.channel.arm().unwrap(), SOUNDLY);
    pair.right.wire.lock().unwrap().deliver_all();
    pair.left.wire.lock().unwrap().set_capacity(0);
    pair.left.channel.notify().unwrap();
    assert_eq!(pair.right.rings(), 0, "a ring before the word would be in vain");
    pair.left.wire.lock().unwrap().set_capacity(usize::MAX);
    pair.left.channel.progress(false).unwrap();
    assert_ne!(pair.right.rings(), 0);
    pair.left.wire.lock().unwrap().deliver_all();
    pair.right.channel.disarm().unwrap();
    assert!(pair.right.channel.progress(false).unwrap());
}

#[test]
fn disarming_an_awake_endpoint_does_nothing() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    let before = pair.left.pages.read(0, CONTROL_LEN);
    pair.right.channel.disarm().unwrap();
    assert_eq!(pair.left.pages.read(0, CONTROL_LEN), before);
    let space = pair.left.channel.reserve(&plan(Kind::Flush, 0), 0).unwrap();
    space.commit(&plan(Kind::Flush, 0), 0).unwrap();
    assert_eq!(pair.right.rings(), 0);
}
