//! Notices: a peer writes to the control connection and says so in its state word.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

use super::{Mistake, Order, SendForm, Setting, check, finds, link};
use crate::sync::{Handover, Ordering, membarrier as barrier};

/// The control connection. A message may be read early, but not after the call that announces it.
struct Control {
    messages: [AtomicU64; 2],
    /// Stored beside the first message by plain accesses.
    first: UnsafeCell<()>,
}

// SAFETY: loom checks each access to the cell.
unsafe impl Sync for Control {}
// SAFETY: loom checks each access to the cell.
unsafe impl Send for Control {}

/// One peer sends a frame, then two notices. The other takes the frame and reads both messages, and sleeps in
/// between.
fn calls(order: Order, frame: bool, receiver: Mistake) {
    let (mut left, right) = link(Setting { rings: [1, 1], longest: 1, order });
    let mut right = right.with(receiver);
    let control = Arc::new(Control { messages: [0, 0].map(AtomicU64::new), first: UnsafeCell::new(()) });
    let theirs = control.clone();
    let thread = loom::thread::spawn(move || {
        left.start();
        for (number, message) in control.messages.iter().enumerate() {
            if number == 0 {
                control.first.with_mut(|_| ());
            }
            message.store(1, Ordering::Relaxed);
            barrier::interruptible();
            left.channel.notify().expect("sending a notice is a store");
            if frame && number == 0 {
                left.send(SendForm::Line, 0, 1, false);
            }
        }
        left.stop();
        (left, control)
    });
    right.start();
    let (mut read, mut taken) = (0, !frame);
    while read < 2 || !taken {
        barrier::interruptible();
        if right.channel.progress(true).expect("nothing fails in the model") {
            theirs.first.with(|_| ());
            while read < 2 && theirs.messages[read].load(Ordering::Relaxed) != 0 {
                read += 1;
            }
            assert!(read > 0, "called for nothing");
        } else if !taken && right.try_take(0, 1) {
            taken = true;
        } else {
            right.rest();
        }
    }
    right.stop();
    drop(thread.join());
}

#[test]
fn loom_a_notified_peer_finds_every_control_message() {
    check(Some(3), None, || calls(Order::Fences, false, Mistake::None));
}

#[test]
fn loom_attention_and_a_frame_do_not_hide_each_other() {
    check(Some(3), None, || calls(Order::Membarrier, true, Mistake::None));
}

#[test]
fn loom_finds_attention_that_is_called_before_the_message_is_there() {
    finds(
        &["Causality violation", "called for nothing", "deadlock"],
        Some(3),
        Some(Handover::Notice),
        || calls(Order::Fences, false, Mistake::None),
    );
}

#[test]
fn loom_finds_the_call_for_attention_that_is_taken_back_unseen() {
    finds(&["deadlock"], Some(3), None, || calls(Order::Fences, false, Mistake::SilencesLate));
}
