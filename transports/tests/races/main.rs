//! Both ends of a link in one process, on one mapping, each with a thread of its own: frames of all lengths and ways of sending,
//! answers, batches, rings that get full, sleeping and waking by the real doorbell, attention, and frames in a bigger mailbox.
//!
//! `cargo xtask test tsan` runs this under ThreadSanitizer, once as it is and once for each race that can be planted
//! (`FARJUMP_PLANTED`), which must be found. Between the threads there are the channels and atomics alone.

mod ends;
mod side;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ends::Ends;
use side::{Side, Step};

/// Frames of one run. ThreadSanitizer takes some twenty times as long for each.
const FRAMES: u32 = if cfg!(farjump_planted) { 20_000 } else { 200_000 };
/// Bytes of the ring to the right, to the left, and of the bigger mailbox.
const RING: usize = 8192;
const ANSWERS: usize = 4096;
const BIGGER: usize = 65_536;

/// What lies on the control connection: nothing but attention orders the two threads' accesses.
struct Control(UnsafeCell<u64>);

// SAFETY: the left side writes it and calls for attention, the right one reads it then and answers, and only then the left one writes
// again. Whether that suffices is what is tested.
unsafe impl Sync for Control {}

/// Plants the race that the environment names, where this build can.
fn plant() {
    #[cfg(farjump_planted)]
    if let Ok(what) = std::env::var("FARJUMP_PLANTED") {
        assert!(farjump_core::planted::plant(&what), "{what} is no race that can be planted");
    }
}

/// Runs both sides, each in a thread; the channels outlive both.
fn run(left: impl FnOnce() + Send, right: impl FnOnce() + Send, failed: &AtomicBool) {
    // The other one would wait for what does not come.
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
        // ThreadSanitizer knows that what comes after `join` comes after the thread; it does not know how `scope` waits.
        let ended = [left.join(), right.join()];
        assert!(ended.iter().all(Result::is_ok), "a side failed");
    });
}

/// The left side sends frames, of which some want an answer and some of these come alone. Now and then it calls for attention, unless
/// there is a bigger mailbox, for whose room it does that.
fn converse(has_bigger: bool) {
    plant();
    let step = move |token| Step::drawn(token, has_bigger);
    let mut ends = Ends::new([ANSWERS, RING]);
    let mut bigger = has_bigger.then(|| Ends::new([ANSWERS, BIGGER]));
    let (left_bigger, right_bigger) = match &mut bigger {
        Some(ends) => (Some(&mut ends.left), Some(&mut ends.right)),
        None => (None, None),
    };
    let control = &Control(UnsafeCell::new(0));
    let failed = &AtomicBool::new(false);
    let mut left = Side::new(&mut ends.left, left_bigger, failed);
    let mut right = Side::new(&mut ends.right, right_bigger, failed);
    let sending = move || {
        let (mut due, mut calls) = (0, Vec::new());
        for token in 0..FRAMES {
            let step = step(token);
            left.send(token, &step);
            due += u32::from(step.answer);
            while step.alone && left.answers < due {
                left.take_answer_or_rest();
            }
            if !has_bigger && token % 64 == 63 {
                calls.push(u64::from(token));
                // SAFETY: the right side has answered the last call, and reads this when it is called again.
                unsafe { *control.0.get() = u64::from(token) };
                left.channel.call_attention().unwrap();
                while left.heard.len() < calls.len() {
                    left.take_answer_or_rest();
                }
            }
        }
        while left.answers < due {
            left.take_answer_or_rest();
        }
        assert_eq!(left.heard, calls);
    };
    let taking = move || {
        let mut token = 0;
        let mut due = if has_bigger { 0 } else { FRAMES / 64 };
        while token < FRAMES || due > 0 {
            if token < FRAMES && right.take(token, &step(token)) {
                token += 1;
                continue;
            }
            if let Some(bigger) = &mut right.bigger {
                // A skip there has no `Switch`.
                bigger.poll().unwrap();
                bigger.progress(true).unwrap();
            }
            if right.channel.progress(true).unwrap() && !has_bigger {
                // SAFETY: attention says that the left side has written it and waits for an answer.
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
fn frames_answers_and_attention_between_two_threads() {
    converse(false);
}

#[test]
fn frames_in_a_bigger_mailbox_between_two_threads() {
    converse(true);
}
