//! Both endpoints of a link in one process, on one mapping, each with its own thread. The tests cover frames of all
//! lengths and forms of sending, replies, batches, full rings, sleeping and waking by the real doorbell, notices, and
//! frames in a large mailbox.
//!
//! `cargo xtask test tsan` runs this under ThreadSanitizer: once unchanged, and once for each race that can be
//! planted (`FARJUMP_PLANTED`), which it must find. Only the channels and atomics connect the threads.

mod endpoints;
mod peer;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use endpoints::Endpoints;
use peer::{Peer, Step};

/// Frames of one run. ThreadSanitizer takes some twenty times as long for each.
const FRAMES: u32 = if cfg!(farjump_planted) { 20_000 } else { 200_000 };
/// Bytes of the right endpoint's ring, of the left one's, and of the large mailbox.
const RING: usize = 8192;
const REPLIES: usize = 4096;
const LARGE: usize = 65_536;

/// Stands for the content of the control connection. Only notices order the two threads' accesses.
struct Control(UnsafeCell<u64>);

// SAFETY: the left thread writes it and gives notice; the right thread then reads it and replies; only then
// does the left thread write again. The test examines whether that suffices.
unsafe impl Sync for Control {}

/// Plants the race that the environment names, if this build can.
fn plant() {
    #[cfg(farjump_planted)]
    if let Ok(what) = std::env::var("FARJUMP_PLANTED") {
        assert!(farjump_core::planted::plant(&what), "{what} is no race that can be planted");
    }
}

/// Runs both threads. The channels outlive both.
fn run(left: impl FnOnce() + Send, right: impl FnOnce() + Send, failed: &AtomicBool) {
    // Otherwise the other thread would wait for frames that never come.
    let noting = |side: Box<dyn FnOnce() + Send + '_>| {
        struct Noting<'f>(&'f AtomicBool);
        impl Drop for Noting<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }
        let _noting = Noting(failed);
        side();
    };
    thread::scope(|scope| {
        let left = scope.spawn(move || noting(Box::new(left)));
        let right = scope.spawn(move || noting(Box::new(right)));
        // ThreadSanitizer knows that code after `join` follows the thread. It does not know this for the wait of
        // `scope`.
        let ended = [left.join(), right.join()];
        assert!(ended.iter().all(Result::is_ok), "a side failed");
    });
}

/// Runs both threads. The left thread sends frames; some want a reply, and some of these are sent alone. Now and then
/// it gives notice, except with a large mailbox, where notices serve its credit.
fn converse(has_large: bool) {
    plant();
    let step = move |token| Step::drawn(token, has_large);
    let mut ends = Endpoints::new([REPLIES, RING]);
    let mut second = has_large.then(|| Endpoints::new([REPLIES, LARGE]));
    let (left_large, right_large) = match &mut second {
        Some(ends) => (Some(&mut ends.left), Some(&mut ends.right)),
        None => (None, None),
    };
    let control = &Control(UnsafeCell::new(0));
    let failed = &AtomicBool::new(false);
    let mut left = Peer::new(&mut ends.left, left_large, failed);
    let mut right = Peer::new(&mut ends.right, right_large, failed);
    let sending = move || {
        let (mut due, mut calls) = (0, Vec::new());
        for token in 0..FRAMES {
            let step = step(token);
            left.send(token, &step);
            due += u32::from(step.wants_reply);
            while step.alone && left.replies < due {
                left.take_reply_or_rest();
            }
            if !has_large && token % 64 == 63 {
                calls.push(u64::from(token));
                // SAFETY: the right thread has replied to the last notice and reads this only after the next
                // one.
                unsafe { *control.0.get() = u64::from(token) };
                left.channel.notify().unwrap();
                while left.heard.len() < calls.len() {
                    left.take_reply_or_rest();
                }
            }
        }
        while left.replies < due {
            left.take_reply_or_rest();
        }
        assert_eq!(left.heard, calls);
    };
    let taking = move || {
        let mut token = 0;
        let mut due = if has_large { 0 } else { FRAMES / 64 };
        while token < FRAMES || due > 0 {
            if token < FRAMES && right.take(token, &step(token)) {
                token += 1;
                continue;
            }
            if let Some(second) = &mut right.second {
                // A skip in the large mailbox has no `Large`.
                second.poll().unwrap();
                second.progress(true).unwrap();
            }
            if right.channel.progress(true).unwrap() && !has_large {
                // SAFETY: the notice states that the left thread has written it and waits for a reply.
                right.hear(unsafe { *control.0.get() });
                due -= 1;
            } else {
                right.rest();
            }
        }
    };
    run(sending, taking, failed);
}

#[test]
fn frames_replies_and_notices_arrive_whole_between_two_threads() {
    converse(false);
}

#[test]
fn frames_in_a_large_mailbox_arrive_whole_between_two_threads() {
    converse(true);
}
