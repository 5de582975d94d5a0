//! State that a forked child does not share with its parent.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value of one process. A forked child makes a new one: it has its parent's memory, perhaps with locks
/// held, but none of its parent's threads.
pub struct PerProcess<T>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    process: u32,
    value: T,
}

impl<T: Default + Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// Holds no value yet.
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process, and makes it at the first call.
    pub fn get(&self) -> &T {
        let process = std::process::id();
        let mut found = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or comes from `Box::into_raw` below. Only the exchange publishes a
            // box, and a published one is never changed, and is freed in `drop` alone, behind the life of
            // `self`.
            if let Some(owned) = unsafe { found.as_ref() }
                && owned.process == process
            {
                return &owned.value;
            }
            let new = Box::into_raw(Box::new(Owned { process, value: T::default() }));
            match self.0.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => found = new,
                Err(other) => {
                    // SAFETY: the exchange failed, so the box was not published: `new` is its only pointer.
                    drop(unsafe { Box::from_raw(new) });
                    found = other;
                }
            }
        }
    }
}

/// Drops the value of this process. A child leaves its parent's value alone.
impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let found = *self.0.get_mut();
        // SAFETY: the pointer is null or comes from `Box::into_raw` (`get`), and nothing else refers to the box: the borrows that
        // `get` gave have ended.
        unsafe {
            if found.as_ref().is_some_and(|owned| owned.process == std::process::id()) {
                drop(Box::from_raw(found));
            }
        }
    }
}
