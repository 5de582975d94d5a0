//! The handshake of [`mailbox::doze`](crate::mailbox) without a fence in the sender, because the sleeper
//! calls `membarrier`.

use super::{Mistake, Order, SendForm, Setting, check, finds, link};

/// One peer sends frames within its credit, the other takes them and sleeps in between.
fn handshake(order: Order, frames: u32) {
    let (mut left, right) = link(Setting { rings: [1, 4], longest: 1, order });
    let mut right = right.with(Mistake::None);
    let thread = loom::thread::spawn(move || {
        left.start();
        for token in 0..frames {
            left.send(SendForm::Line, token, 0, false);
        }
        left.stop();
        left
    });
    right.start();
    for token in 0..frames {
        right.take(token, 0);
    }
    right.stop();
    drop(thread.join());
}

#[test]
fn loom_a_fenceless_sender_never_misses_a_sleeper_with_a_barrier() {
    check(Some(3), None, || handshake(Order::Membarrier, 2));
}

/// The sender is not reached by the barrier, and looks once more when it has nothing to send.
#[test]
fn loom_an_idle_sender_wakes_a_sleeper_without_a_barrier() {
    check(Some(3), None, || {
        let (mut left, right) = link(Setting { rings: [1, 4], longest: 1, order: Order::Nothing });
        let mut right = right.with(Mistake::None);
        let thread = loom::thread::spawn(move || {
            left.start();
            left.send(SendForm::Line, 0, 0, false);
            left.channel.progress(true).expect("nothing fails in the model");
            left.stop();
            left
        });
        right.start();
        right.take(0, 0);
        right.stop();
        drop(thread.join());
    });
}

#[test]
fn loom_finds_the_wake_up_lost_without_the_barrier() {
    finds(&["deadlock"], Some(3), None, || handshake(Order::Nothing, 2));
}
