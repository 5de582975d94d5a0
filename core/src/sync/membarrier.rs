//! `membarrier(2)` as far as loom can follow it.
//!
//! The call makes each running thread of each registered process pass a full fence, somewhere between the call's begin and its
//! return. Linux interrupts the processors of these threads; a thread that is not running passes one when it is switched to.
//! Loom interrupts nobody, so a thread of a model has places at which the interrupt may be taken: [`interruptible`]. The caller
//! asks, and goes on when each thread has passed a fence at one of its places or is not running.
//!
//! Whether an interrupt that is asked for is taken at one place or at a later one is up to loom (the word that asks is read
//! relaxed, so that it may be read late), and all orders are tried. The places are before a frame is stored, between that and
//! the look at the peer's state (in [`compiler_fence`], where the fence would stand that `membarrier` replaces), and behind
//! the look. An interrupt between two stores of one frame adds nothing: the peer looks at the last of them only.
//!
//! Where the model promises too much: loom has a fence with sequential consistency synchronise with each earlier one, which the
//! language does not promise; x86-64 and the kernel's barriers (`smp_mb`) do. Where it promises too little: an interrupt is
//! taken at these places alone, and its fence comes without the order that entering the kernel brings.
#![cfg_attr(not(test), allow(dead_code, reason = "only models use it"))]

use std::cell::RefCell;
use std::sync::Arc;

use super::{AtomicU64, Ordering, fence};

/// Not running: it passes a fence before it runs again.
const NOT_RUNNING: u64 = u64::MAX;

/// A thread of a registered process.
#[derive(Debug)]
pub(crate) struct Thread {
    /// How many fences it was asked to pass, and the number of the last one that it passed.
    asked: AtomicU64,
    passed: AtomicU64,
    /// What the thread itself knows of `passed`: no word of the model.
    known: std::sync::atomic::AtomicU64,
}

loom::thread_local! {
    static THIS: RefCell<Option<Arc<Thread>>> = RefCell::new(None);
}

impl Thread {
    /// Says how many fences it has passed.
    fn say(&self, passed: u64) {
        self.known.store(passed, Ordering::Relaxed);
        self.passed.store(passed, Ordering::Relaxed);
    }

    /// One that is not running.
    pub(crate) fn new() -> Arc<Thread> {
        Arc::new(Thread {
            asked: AtomicU64::new(0),
            passed: AtomicU64::new(NOT_RUNNING),
            known: std::sync::atomic::AtomicU64::new(NOT_RUNNING),
        })
    }
}

/// The calling thread is `thread`, and runs.
pub(crate) fn run_as(thread: Arc<Thread>) {
    THIS.with(|this| *this.borrow_mut() = Some(thread));
    resume();
}

/// The calling thread stops running: it ends, or sleeps in a system call.
pub(crate) fn pause() {
    if let Some(thread) = this() {
        fence(Ordering::SeqCst);
        thread.say(NOT_RUNNING);
    }
}

/// The calling thread runs again.
pub(crate) fn resume() {
    if let Some(thread) = this() {
        thread.say(thread.asked.load(Ordering::Relaxed));
        fence(Ordering::SeqCst);
    }
}

/// A place at which the calling thread may be interrupted.
pub(crate) fn interruptible() {
    let Some(thread) = this() else { return };
    let asked = thread.asked.load(Ordering::Relaxed);
    if thread.known.load(Ordering::Relaxed) != asked {
        fence(Ordering::SeqCst);
        thread.say(asked);
    }
}

/// `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)`, where `thread` is the only other one of a registered process.
pub(crate) fn call(thread: &Thread) {
    fence(Ordering::SeqCst);
    let number = thread.asked.load(Ordering::Relaxed) + 1;
    thread.asked.store(number, Ordering::Relaxed);
    while thread.passed.load(Ordering::Relaxed) < number {
        // The other may be in such a call itself.
        interruptible();
        loom::thread::yield_now();
    }
    fence(Ordering::SeqCst);
}

/// Where the sender has no fence, and the compiler alone may not move what stands here.
pub(crate) fn compiler_fence(_: Ordering) {
    interruptible();
}

fn this() -> Option<Arc<Thread>> {
    THIS.with(|this| this.borrow().clone())
}
