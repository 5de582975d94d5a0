//! Frames in both directions through rings that fill up, between peers that sleep.

use super::{Mistake, ModelEndpoint, Order, SendForm, Setting, check, finds, link};
use crate::sync::Handover;

/// One peer sends these frames (form of sending, words of payload), the other takes them. Both sleep when they
/// have nothing to do.
fn stream(setting: Setting, frames: &'static [(SendForm, usize)], sender: Mistake, receiver: Mistake) {
    let (left, right) = link(setting);
    let (mut left, mut right): (ModelEndpoint, ModelEndpoint) = (left.with(sender), right.with(receiver));
    let thread = loom::thread::spawn(move || {
        left.start();
        for (token, (form, words)) in frames.iter().enumerate() {
            left.send(*form, token as u32, *words, false);
        }
        left.stop();
        left
    });
    right.start();
    for (token, (_, words)) in frames.iter().enumerate() {
        right.take(token as u32, *words);
    }
    right.stop();
    drop(thread.join());
}

/// One peer calls, the other replies, in turn.
fn ping_pong(setting: Setting, rounds: u32) {
    let (mut left, mut right) = link(setting);
    let thread = loom::thread::spawn(move || {
        left.start();
        for round in 0..rounds {
            left.send(SendForm::Line, round, 1, true);
            left.take(round, 2);
        }
        left.stop();
        left
    });
    right.start();
    for round in 0..rounds {
        right.take(round, 1);
        right.send(SendForm::Line, round, 2, true);
    }
    right.stop();
    drop(thread.join());
}

const ONE_LINE: Setting = Setting { rings: [1, 1], longest: 1, order: Order::Fences };
const LINES: &[(SendForm, usize)] = &[(SendForm::Line, 1), (SendForm::Line, 5)];

/// The ring is full after each frame, so both peers wait for each other. No doorbell reports credit to the
/// sender: `starved` does.
#[test]
fn loom_a_sender_without_credit_and_a_waiting_receiver_never_deadlock() {
    check(Some(3), None, || stream(ONE_LINE, LINES, Mistake::None, Mistake::None));
}

#[test]
fn loom_calls_and_replies_in_turn_arrive_with_fences_and_with_barriers() {
    check(Some(3), None, || ping_pong(ONE_LINE, 2));
    check(Some(3), None, || ping_pong(Setting { order: Order::Membarrier, ..ONE_LINE }, 1));
}

/// A ring of four lines: a frame of one line, then two of two. The second of those needs a skip first.
#[test]
fn loom_multi_line_frames_and_a_skip_arrive_and_wake_sleepers() {
    const FRAMES: &[(SendForm, usize)] =
        &[(SendForm::Reserve, 2), (SendForm::Lines, 6), (SendForm::Reserve, 8)];
    check(Some(2), None, || {
        let setting = Setting { rings: [1, 4], longest: 2, order: Order::Fences };
        stream(setting, FRAMES, Mistake::None, Mistake::None);
    });
}

/// The ring holds a skip and the frame behind it. A sleeper that passes the skip has used up its wake-up, and
/// must not sleep on.
#[test]
fn loom_a_sleeper_woken_for_a_skip_sees_the_next_frame() {
    const FRAMES: &[(SendForm, usize)] = &[(SendForm::Reserve, 0), (SendForm::Reserve, 6)];
    check(Some(3), None, || {
        let setting = Setting { rings: [1, 2], longest: 2, order: Order::Fences };
        stream(setting, FRAMES, Mistake::None, Mistake::None);
    });
}

/// Without `starved` the sender would sleep for good.
#[test]
fn loom_finds_the_starved_sender_that_sleeps_instead_of_napping() {
    finds(&["deadlock"], Some(3), None, || stream(ONE_LINE, LINES, Mistake::SleepsForNap, Mistake::None));
}

/// A sleeper discards earlier wake-ups before it polls, not after.
#[test]
fn loom_finds_the_ring_that_is_taken_back_too_late() {
    finds(&["deadlock"], Some(3), None, || stream(ONE_LINE, LINES, Mistake::None, Mistake::SilencesLate));
}

#[test]
fn loom_finds_the_frame_that_is_signalled_before_it_is_written() {
    finds(&["Causality violation", "order"], Some(3), Some(Handover::Frame), || {
        stream(ONE_LINE, LINES, Mistake::None, Mistake::None)
    });
}

#[test]
fn loom_finds_credit_that_is_returned_before_the_frame_is_read() {
    finds(&["Causality violation"], Some(3), Some(Handover::Credit), || {
        stream(ONE_LINE, LINES, Mistake::None, Mistake::None)
    });
}
