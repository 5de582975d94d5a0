//! `membarrier(2)`, as far as loom can model it.
//!
//! The call makes each running thread of each registered process pass a full fence between its start and its
//! return. Linux interrupts the processors of these threads; a thread that is not running passes a fence when
//! it is switched to. Loom has no interrupts, so a thread of a model has places at which an interrupt may be
//! taken: [`interruptible`].
//!
//! The model is too strong in one point: a loom fence with sequential consistency synchronises with each
//! earlier one. Rust does not guarantee that; the fences of x86-64, aarch64 (`dmb ish`) and riscv64 (`fence rw,rw`) and
//! the kernel's barriers (`smp_mb`) do. It is too weak
//! in another: an interrupt's fence comes without the order of entering the kernel.
#![cfg_attr(not(test), allow(dead_code, reason = "only models use it"))]

use std::cell::RefCell;
use std::sync::Arc;

use super::{AtomicU64, Ordering, fence};

/// The thread is not running: it passes a fence before it runs again.
const NOT_RUNNING: u64 = u64::MAX;

/// A thread of a registered process.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Number of fences requested, and number of the last fence passed.
    requested: AtomicU64,
    passed: AtomicU64,
    /// The thread's own copy of `passed`: not a word of the model.
    known: std::sync::atomic::AtomicU64,
}

loom::thread_local! {
    static THIS: RefCell<Option<Arc<Thread>>> = RefCell::new(None);
}

impl Thread {
    /// Publishes the number of fences passed.
    fn say(&self, passed: u64) {
        self.known.store(passed, Ordering::Relaxed);
        self.passed.store(passed, Ordering::Relaxed);
    }

    /// Makes a thread that is not running.
    pub(crate) fn new() -> Arc<Thread> {
        Arc::new(Thread {
            requested: AtomicU64::new(0),
            passed: AtomicU64::new(NOT_RUNNING),
            known: std::sync::atomic::AtomicU64::new(NOT_RUNNING),
        })
    }
}

/// Makes the calling thread run as `thread`.
pub(crate) fn run_as(thread: Arc<Thread>) {
    THIS.with(|this| *this.borrow_mut() = Some(thread));
    resume();
}

/// Marks the calling thread as not running: it ends, or sleeps in a system call.
pub(crate) fn pause() {
    if let Some(thread) = this() {
        fence(Ordering::SeqCst);
        thread.say(NOT_RUNNING);
    }
}

/// Marks the calling thread as running again.
pub(crate) fn resume() {
    if let Some(thread) = this() {
        thread.say(thread.requested.load(Ordering::Relaxed));
        fence(Ordering::SeqCst);
    }
}

/// A place at which the calling thread may be interrupted.
///
/// The places are before a frame is stored, after the check of the peer's state, and between the two (in
/// [`compiler_fence`], in place of the fence that `membarrier` replaces). An interrupt between two stores of
/// one frame adds nothing: the peer polls only the last of them. Loom tries all orders in which a requested
/// interrupt is taken here or later: the word that requests it is read relaxed, so possibly late.
pub(crate) fn interruptible() {
    let Some(thread) = this() else { return };
    let requested = thread.requested.load(Ordering::Relaxed);
    if thread.known.load(Ordering::Relaxed) != requested {
        fence(Ordering::SeqCst);
        thread.say(requested);
    }
}

/// `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)`, with `thread` as the only other thread of a registered
/// process. Requests a fence, and returns when the thread has passed it at one of its places or is not
/// running.
pub(crate) fn call(thread: &Thread) {
    fence(Ordering::SeqCst);
    let number = thread.requested.load(Ordering::Relaxed) + 1;
    thread.requested.store(number, Ordering::Relaxed);
    while thread.passed.load(Ordering::Relaxed) < number {
        // The other thread may be in this call itself.
        interruptible();
        loom::thread::yield_now();
    }
    fence(Ordering::SeqCst);
}

/// The place without a sender's fence, where only the compiler must not reorder.
pub(crate) fn compiler_fence(_: Ordering) {
    interruptible();
}

fn this() -> Option<Arc<Thread>> {
    THIS.with(|this| this.borrow().clone())
}
