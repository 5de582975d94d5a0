//! Frames in the large mailbox, and the `Large` in the first one that stands for each.

use super::super::{Channel, Polled, SendError};
use super::{
    Bell, ModelEndpoint, Order, SendForm, Setting, barrier, check, fill, finds, link_of, plan, take_held,
    try_send,
};
use crate::frame::Kind;
use crate::sync::Handover;

/// A frame: whether it goes through the large mailbox, and its words.
type Sent = (bool, usize);

/// The order of a large frame and its `Large`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Frame,
    /// A mistake.
    Switch,
}

fn send(
    left: &mut ModelEndpoint,
    large: &mut Channel,
    first: First,
    token: u32,
    words: usize,
) -> Result<(), SendError> {
    let frame = |large: &mut Channel| try_send(large, SendForm::Reserve, token, words, false);
    if first == First::Frame {
        return left.channel.send_large_frame(large, token, frame);
    }
    let plan = plan(Kind::Call, token, false);
    let space = large.reserve(&plan, words * 8)?;
    left.channel.send_bytes(&super::plan(Kind::Large, token, false), &[])?;
    fill(space.payload(), token, words);
    space.commit(&plan, words * 8)
}

/// One peer sends these frames, the other takes them in order, as `take_large` and `tend_large` of a
/// target do. The large mailbox has neither doorbell nor barrier of its own.
fn switched([ring, longest]: [usize; 2], frames: &'static [Sent], first: First) {
    let setting = FIRST;
    let threads = [barrier::Thread::new(), barrier::Thread::new()];
    let (mut left, mut right) = link_of(setting, &threads, &[Bell::new(), Bell::new()]);
    let large = Setting { rings: [1, ring], longest, order: setting.order };
    let (mut left_large, mut right_large) = link_of(large, &threads, &[Bell::new(), Bell::new()]);
    let thread = loom::thread::spawn(move || {
        left.start();
        for (token, (is_big, words)) in frames.iter().enumerate() {
            let token = token as u32;
            if !is_big {
                left.send(SendForm::Line, token, *words, false);
                continue;
            }
            loop {
                barrier::interruptible();
                match send(&mut left, &mut left_large.channel, first, token, *words) {
                    Ok(()) => break,
                    Err(SendError::Full) => {
                        // A skip may fill the large mailbox, and nothing wakes the sender then: same steps as
                        // `send_large`.
                        left.channel.notify().expect("sending a notice is a store");
                        left_large.channel.progress(true).expect("nothing fails in the model");
                        barrier::interruptible();
                        loom::thread::yield_now();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            barrier::interruptible();
        }
        left.stop();
        (left, left_large)
    });
    right.start();
    for (token, (is_big, words)) in frames.iter().enumerate() {
        while !take(&mut right, &mut right_large.channel, token as u32, *is_big, *words) {
            right.channel.progress(true).expect("nothing fails in the model");
            right_large.channel.poll().expect("nobody breaks the protocol");
            right_large.channel.progress(true).expect("nothing fails in the model");
            right.rest();
        }
    }
    right.stop();
    drop(thread.join());
}

/// Takes the next frame if it has arrived.
fn take(right: &mut ModelEndpoint, large: &mut Channel, token: u32, is_big: bool, words: usize) -> bool {
    if !is_big {
        return right.try_take(token, words);
    }
    barrier::interruptible();
    let switch = match right.channel.poll().expect("nobody breaks the protocol") {
        Polled::Frame(frame) => frame.take(),
        Polled::Nothing => return false,
        Polled::Partial => panic!("stores are never partial"),
    };
    assert_eq!((switch.header().kind, switch.header().token), (Kind::Large, token), "order");
    // The frame and its `Large` are plain stores in this order: the frame is there.
    let frame = take_held(large, token, words).expect("a Large without its frame");
    large.release(frame).expect("returning credit is a store");
    large.progress(true).expect("nothing fails in the model");
    right.channel.release(switch).expect("returning credit is a store");
    true
}

/// A ring for each frame alone, and a small frame between two in the large mailbox.
const FIRST: Setting = Setting { rings: [1, 2], longest: 1, order: Order::Fences };
const MIXED: &[Sent] = &[(true, 6), (false, 1), (true, 7)];
/// Two lines in a ring of two, then the same again: credit of both rings has to be returned.
const FULL: &[Sent] = &[(true, 6), (true, 7), (true, 8)];
/// Three lines in a ring of four: the second frame needs a skip, which has no `Large`.
const SKIPPED: &[Sent] = &[(true, 9), (true, 16)];

#[test]
fn loom_a_switch_always_has_its_frame_and_order_is_kept() {
    check(Some(3), None, || switched([4, 2], MIXED, First::Frame));
}

#[test]
fn loom_credit_of_both_mailboxes_is_returned() {
    check(Some(3), None, || switched([2, 2], FULL, First::Frame));
}

#[test]
fn loom_a_skip_in_the_large_mailbox_is_passed_without_a_switch() {
    check(Some(3), None, || switched([4, 3], SKIPPED, First::Frame));
}

#[test]
fn loom_finds_the_switch_that_goes_before_its_frame() {
    finds(&["a Large without its frame"], Some(2), None, || switched([4, 2], MIXED, First::Switch));
}

#[test]
fn loom_finds_the_switch_that_is_signalled_before_its_frame_is_written() {
    finds(
        &["a Large without its frame", "Causality violation", "order"],
        Some(2),
        Some(Handover::Frame),
        || switched([4, 2], MIXED, First::Frame),
    );
}
