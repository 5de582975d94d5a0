//! Orders of arrival in which a frame can be lost, each by itself.

use farjump_core::channel::SendError;
use farjump_core::mailbox::CONTROL_LEN;
use farjump_core::transport::ArrivalRules;

use super::peers::{Pair, RULES, largest, pattern};

fn newest(ways: usize) -> usize {
    ways - 1
}

#[test]
fn a_skip_delayed_by_a_full_backend_precedes_the_next_frame() {
    for (rule, line_whole) in RULES.into_iter().filter(|(rule, _)| *rule != ArrivalRules::STORES) {
        let mut pair = Pair::new(rule, line_whole, 4096);
        pair.left.send(0, &pattern(0, 2_900)).unwrap();
        pair.settle();
        assert!(pair.right.take().is_some());
        pair.right.channel.progress(true).unwrap();
        pair.settle();
        // About 1000 bytes are left to the end, and the frame fits only at the start: a skip is due. The ring has
        // space for both, but the queue has none.
        let payload = pattern(1, 1_500);
        pair.left.wire.lock().unwrap().set_capacity(0);
        for _ in 0..2 {
            assert!(matches!(pair.left.send(1, &payload), Err(SendError::Full)), "{rule:?}");
        }
        pair.left.wire.lock().unwrap().set_capacity(usize::MAX);
        pair.left.send(1, &payload).unwrap();
        pair.settle();
        assert_eq!(pair.right.take(), Some((1, payload)), "{rule:?}");
    }
}

#[test]
fn an_older_credit_that_arrives_late_does_not_stay() {
    for (rule, line_whole) in RULES.into_iter().filter(|(rule, _)| *rule != ArrivalRules::STORES) {
        let mut pair = Pair::new(rule, line_whole, 4096);
        for token in 0..2 {
            pair.left.send(token, &[]).unwrap();
            pair.left.wire.lock().unwrap().deliver_all();
            assert!(pair.right.take().is_some());
            pair.right.channel.progress(true).unwrap();
        }
        while pair.right.wire.lock().unwrap().deliver(&mut newest) {}
        assert_eq!(pair.left.channel.in_flight(), Some(0), "{rule:?}");
    }
}

#[test]
fn late_bytes_of_a_checked_frame_leave_the_next_lap_intact() {
    let mut pair = Pair::new(ArrivalRules::CHECKED, false, 4096);
    let len = largest(ArrivalRules::CHECKED, 4096);
    // Zeroes into zeroed memory: the frame reads whole as soon as header and trailer have arrived.
    pair.left.send(0, &vec![0; len]).unwrap();
    let mut pieces = 0;
    let frame = loop {
        // Small pieces from both ends.
        pieces += 1;
        let mut way = 0;
        assert!(pair.left.wire.lock().unwrap().deliver(&mut |ways| {
            way += 1;
            match (way, pieces % 2) {
                (1, _) => 0,
                (2, 0) => ways - 1,
                (2, _) => 0,
                (_, 0) => ways - 1,
                _ => 0,
            }
        }));
        if let Some(frame) = pair.right.take() {
            break frame;
        }
    };
    assert_eq!(frame, (0, vec![0; len]));
    assert!(!pair.left.wire.lock().unwrap().is_idle(), "the test is about what is still under way");
    pair.right.channel.progress(true).unwrap();
    pair.right.wire.lock().unwrap().deliver_all();
    pair.left.send(1, &pattern(1, len)).unwrap();
    while pair.left.wire.lock().unwrap().deliver(&mut newest) {}
    assert_eq!(pair.right.take(), Some((1, pattern(1, len))));
}

#[test]
fn a_signal_without_its_whole_frame_is_partial_never_a_frame() {
    for (rule, line_whole) in RULES {
        if matches!(rule, ArrivalRules::STORES | ArrivalRules::FENCED) {
            // Here the signal cannot come first.
            continue;
        }
        let mut pair = Pair::new(rule, line_whole, 4096);
        for token in 0..20 {
            let payload = pattern(token, 300);
            pair.left.send(token, &payload).unwrap();
            let mut partial = 0;
            while !pair.left.wire.lock().unwrap().is_idle() {
                // The smallest possible piece, from the front.
                pair.left.wire.lock().unwrap().deliver(&mut |_| 0);
                partial += u32::from(pair.right.is_partial());
                if let Some(frame) = pair.right.look() {
                    assert_eq!(frame, (token, payload.clone()), "{rule:?}");
                }
            }
            assert!(partial > 0, "{rule:?}: the signal never came first, so the test shows nothing");
            assert_eq!(pair.right.take(), Some((token, payload)), "{rule:?}");
            pair.right.channel.progress(true).unwrap();
            pair.settle();
        }
    }
}

#[test]
fn the_end_of_a_frame_that_never_comes_keeps_it_partial() {
    let mut pair = Pair::new(ArrivalRules::IN_ORDER, true, 4096);
    pair.left.send(0, &pattern(0, 100)).unwrap();
    pair.left.wire.lock().unwrap().deliver(&mut |_| 0);
    for _ in 0..1_000 {
        assert!(pair.right.is_partial());
        pair.right.channel.progress(true).unwrap();
    }
    pair.settle();
    assert_eq!(pair.left.channel.in_flight(), Some(192), "what is partial gives no space back");
    assert_eq!(pair.right.take(), Some((0, pattern(0, 100))));
}

#[test]
fn a_completion_that_never_comes_keeps_a_frame_partial() {
    let mut pair = Pair::new(ArrivalRules::WRITE_IMM, false, 4096);
    pair.left.send(0, &pattern(0, 30)).unwrap();
    pair.left.send(1, &pattern(1, 30)).unwrap();
    // All of the second write and all but one byte of the first, which is payload.
    let payload_at = CONTROL_LEN + 24;
    let before = pair.right.pages.read(payload_at, 30);
    while !pair.left.wire.lock().unwrap().is_idle() {
        let seen = pair.right.look();
        if pair.right.pages.read(payload_at, 30) == before {
            assert_eq!(seen, None);
        }
        pair.left.wire.lock().unwrap().deliver(&mut newest);
        let landed = pair.left.wire.lock().unwrap().is_idle();
        assert_eq!(pair.right.look().is_some(), landed, "a frame before its completion");
    }
    assert_eq!(pair.right.take(), Some((0, pattern(0, 30))));
    assert_eq!(pair.right.take(), Some((1, pattern(1, 30))));
}

#[test]
fn one_bit_that_arrives_wrong_keeps_a_checked_frame_from_passing() {
    let mut pair = Pair::new(ArrivalRules::CHECKED, false, 4096);
    let payload = pattern(0, 100);
    pair.left.send(0, &payload).unwrap();
    pair.settle();
    let frame = pair.right.pages.read(CONTROL_LEN, 192);
    for bit in 0..192 * 8 {
        let mut spoilt = frame.clone();
        spoilt[bit / 8] ^= 1 << (bit % 8);
        pair.right.scribble(0, &spoilt);
        assert_eq!(pair.right.look(), None, "bit {bit}");
    }
    pair.right.scribble(0, &frame);
    assert_eq!(pair.right.take(), Some((0, payload)));
}
