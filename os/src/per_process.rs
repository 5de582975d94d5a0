//! State that each process has of its own, also one that was forked.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value for each process. A forked child has its parent's memory, none of its threads, and perhaps its locks held: it makes a value of
/// its own.
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
    /// None yet: each process makes its own.
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value of this process, made when it is first asked for.
    pub fn get(&self) -> &'static T {
        let process = std::process::id();
        let mut found = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or of a box that was leaked below, which is never freed or changed.
            if let Some(owned) = unsafe { found.as_ref() }
                && owned.process == process
            {
                return &owned.value;
            }
            let new = Box::into_raw(Box::new(Owned { process, value: T::default() }));
            match self.0.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => found = new,
                Err(other) => {
                    // SAFETY: it was not published, so this is the only pointer to it.
                    drop(unsafe { Box::from_raw(new) });
                    found = other;
                }
            }
        }
    }
}
