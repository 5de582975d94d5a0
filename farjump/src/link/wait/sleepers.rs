//! Sleepers on a shared link: event loops, and one thread for all threads that wait.
//!
//! Any look at the link may take the event that would end a sleep. So each sleeper has a descriptor of its own beside
//! the link's, by which the caller of such a look wakes it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::shared::{HeldLink, Shared, Sleeper};
use super::wake::Wake;
use crate::error::system;
use crate::link::Link;
use crate::{Error, SystemOperation};

impl HeldLink {
    /// Makes a sleeper on the link.
    ///
    /// # Errors
    /// [`WaitError::Closed`](crate::WaitError::Closed); [`SystemError`](crate::SystemError) when the system has no
    /// descriptor left.
    pub fn add_sleeper(&mut self) -> Result<Sleeper, Error> {
        let wake = Wake::new()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system(SystemOperation::MakeDescriptor))?;
        for watched in [self.open()?.as_fd()?, wake.as_fd()] {
            epoll::add(&epoll, watched, EventData::new_u64(0), EventFlags::IN)
                .map_err(system(SystemOperation::Watch))?;
        }
        // Only this list refers to sleepers that ended while the lock was taken.
        self.sleepers.retain(|other| Arc::strong_count(other) > 1);
        self.sleepers.push(Arc::clone(&wake));
        Ok(Sleeper { shared: Weak::clone(&self.shared), wake, epoll })
    }

    /// Prepares to sleep. Call it under the same lock as the look before: an outcome that another look takes in between
    /// does not end the sleep.
    ///
    /// Returns the longest time to sleep, or `None` if an event may have come already. Also returns `None` on an error
    /// of the link, which the next look reports.
    pub fn begin_sleep(&self, own: &Sleeper) -> Option<Duration> {
        // It may take outcomes of others.
        let longest = self.look(Some(own), Link::arm).ok()?;
        let longest = longest.ok().flatten();
        own.wake.asleep.store(longest.is_some(), Ordering::Relaxed);
        if longest.is_none() {
            self.disarm();
        }
        longest
    }

    /// Ends the sleep, if there is one. Returns whether another user of the link woke the sleeper. If not, and its
    /// descriptor was readable, the sleeper has taken the event: it wakes the others. A sleeper that was woken does
    /// not, or two would wake each other for ever.
    pub fn end_sleep(&self, own: &Sleeper) -> bool {
        // A caller that wakes the sleeper clears this under the lock: without one there is nothing to empty.
        let slept_on = own.wake.asleep.swap(false, Ordering::Relaxed);
        self.disarm();
        !slept_on && own.wake.quiet()
    }
}

impl Shared {
    /// The sleeper of the thread that has the lead.
    pub(super) fn sleeper(&self) -> Result<&Sleeper, Error> {
        if let Some(sleeper) = self.sleeper.get() {
            return Ok(sleeper);
        }
        let made = self.hold(HeldLink::add_sleeper)??;
        Ok(self.sleeper.get_or_init(|| made))
    }
}
