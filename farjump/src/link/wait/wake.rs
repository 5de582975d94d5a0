//! What wakes the sleepers on a shared link: a descriptor for each, and the lead among threads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::error::system;
use crate::{Error, SystemOperation};

/// The descriptor that wakes one sleeper.
#[derive(Debug)]
pub(super) struct Wake {
    descriptor: OwnedFd,
    /// True while the sleeper may sleep. Changes under the link's lock, and when the sleeper ends.
    pub(super) asleep: AtomicBool,
}

impl Wake {
    pub(super) fn new() -> Result<Arc<Wake>, Error> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system(SystemOperation::MakeDescriptor))?;
        Ok(Arc::new(Wake { descriptor, asleep: AtomicBool::new(false) }))
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Ends the sleep, or the next one.
    pub(super) fn ring(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        // The write fails only when the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Empties the descriptor. Returns whether it was readable.
    pub(super) fn quiet(&self) -> bool {
        rustix::io::read(&self.descriptor, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The lead: one waiting thread sleeps on the link, and the others until it has looked.
#[derive(Debug, Default)]
pub(super) struct Lead {
    taken: Mutex<bool>,
    ended: Condvar,
    /// Number of leads that have ended.
    rounds: AtomicUsize,
}

impl Lead {
    /// The number of leads that have ended. Read it before a look for an outcome.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.load(Ordering::Acquire)
    }

    /// Takes the lead, until the result is dropped. If another thread has it, waits until that ends, for `longest` at
    /// most, and returns `None`. Does not wait if a lead has ended since the caller read that `seen` had: that thread
    /// may have taken the caller's outcome.
    pub(super) fn take(&self, seen: usize, longest: Duration) -> Option<Leads<'_>> {
        let mut taken = self.lock();
        if *taken {
            if self.rounds() == seen {
                drop(self.ended.wait_timeout(taken, longest));
            }
            return None;
        }
        *taken = true;
        Some(Leads(self))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lead of this thread.
pub(super) struct Leads<'l>(&'l Lead);

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        let mut taken = self.0.lock();
        *taken = false;
        self.0.rounds.fetch_add(1, Ordering::Release);
        drop(taken);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_that_ended_since_a_look_is_not_awaited() {
        let (lead, long) = (Lead::default(), Duration::from_secs(3600));
        let seen = lead.rounds();
        drop(lead.take(seen, long).unwrap());
        let _leads = lead.take(seen, long).unwrap();
        // It would wait for an hour otherwise.
        assert!(lead.take(seen, long).is_none());
        assert!(lead.take(lead.rounds(), Duration::from_millis(1)).is_none());
    }
}
