//! The number of forks between this process and its ancestors: a child has its parent's links and keys, and
//! must use neither. Unlike a process id, it needs no system call.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) static FORKS: AtomicU64 = AtomicU64::new(0);

/// Counts forks from now on, in this process and its children.
pub fn watch() {
    static WATCH: Once = Once::new();
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    WATCH.call_once(|| {
        // SAFETY: the function only adds to a number, which is safe in a forked child, and stays as long as
        // this library.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        if failed != 0 {
            log::warn!("no memory for a fork handler: a forked child must not use its parent's links");
        }
    });
}

/// Number of forks between this process and the first that called [`watch`].
#[inline]
pub fn count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}
