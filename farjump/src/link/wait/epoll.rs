//! A descriptor for programs with their own event loop: one epoll instance for a link's doorbell and its control
//! connection.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::error::system;
use crate::wait::{LONGEST_SLEEP, NAPS};
use crate::{Error, SystemOperation};

/// The way in which a link sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::link) enum Rest {
    /// Until one of its descriptors is readable.
    Sound,
    /// Napping: an event may come that no descriptor shows.
    Light,
}

/// Counters of a link since it was made. Each only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::link) struct Traffic {
    /// Bytes of frames that were taken.
    pub(in crate::link) taken: u64,
    /// Frames that were sent.
    pub(in crate::link) sent: u64,
}

/// A link's descriptors as one, made on the first request.
#[derive(Debug)]
pub(in crate::link) struct Watch {
    epoll: OwnedFd,
    /// Whether the control connection is watched for writability.
    watches_write: Cell<bool>,
    /// The doorbell's events that are watched. A doorbell may be readable without an event.
    doorbell_events: Cell<EventFlags>,
    /// The counters when the link was last armed.
    seen: Cell<Traffic>,
    nap: Cell<Duration>,
}

impl Watch {
    /// An instance that watches nothing yet.
    pub(in crate::link) fn new(traffic: Traffic) -> Result<Watch, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system(SystemOperation::MakeDescriptor))?;
        Ok(Watch {
            epoll,
            watches_write: Cell::new(false),
            doorbell_events: Cell::new(EventFlags::IN),
            seen: Cell::new(traffic),
            nap: Cell::new(NAPS.0),
        })
    }

    /// Watches a link's descriptors: all or none.
    pub(in crate::link) fn add(
        &self,
        control: BorrowedFd<'_>,
        doorbell: Option<BorrowedFd<'_>>,
    ) -> Result<(), Error> {
        let add = |fd: BorrowedFd<'_>| {
            epoll::add(&self.epoll, fd, EventData::new_u64(0), EventFlags::IN)
                .map_err(system(SystemOperation::Watch))
        };
        add(control)?;
        self.watches_write.set(false);
        self.doorbell_events.set(EventFlags::IN);
        if let Some(doorbell) = doorbell {
            add(doorbell).inspect_err(|_| {
                let _ = epoll::delete(&self.epoll, control);
            })?;
        }
        Ok(())
    }

    /// Stops watching a link's descriptors. Closing them would not do: a copy in another process keeps them
    /// watched, and the target has one of the doorbell.
    pub(in crate::link) fn remove(&self, control: BorrowedFd<'_>, doorbell: Option<BorrowedFd<'_>>) {
        if let Some(doorbell) = doorbell {
            let _ = epoll::delete(&self.epoll, doorbell);
        }
        let _ = epoll::delete(&self.epoll, control);
    }

    /// Sets whether `control`, which is watched, is also watched for writability.
    pub(in crate::link) fn wants_write(&self, control: BorrowedFd<'_>, wants: bool) -> Result<(), Error> {
        if self.watches_write.get() != wants {
            self.modify(control, if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN })?;
            self.watches_write.set(wants);
        }
        Ok(())
    }

    /// Sets whether a signal of `doorbell`, which is watched, wakes the sleeper, and whether its writability
    /// does.
    pub(in crate::link) fn watch_doorbell(
        &self,
        doorbell: BorrowedFd<'_>,
        rings: bool,
        writable: bool,
    ) -> Result<(), Error> {
        let mut doorbell_events = EventFlags::empty();
        doorbell_events.set(EventFlags::IN, rings);
        doorbell_events.set(EventFlags::OUT, writable);
        if self.doorbell_events.get() != doorbell_events {
            self.modify(doorbell, doorbell_events)?;
            self.doorbell_events.set(doorbell_events);
        }
        Ok(())
    }

    /// Stops watching `control`, which has ended.
    pub(in crate::link) fn unwatch(&self, control: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, control);
    }

    fn modify(&self, fd: BorrowedFd<'_>, flags: EventFlags) -> Result<(), Error> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(0), flags).map_err(system(SystemOperation::Watch))
    }

    /// Returns whether frames were taken since the last such query. If so, outcomes may wait that the program has not
    /// polled.
    pub(in crate::link) fn has_news(&self, traffic: Traffic) -> bool {
        let seen = self.seen.replace(traffic);
        if seen != traffic {
            self.nap.set(NAPS.0);
        }
        seen.taken != traffic.taken
    }

    /// Longest time to sleep.
    pub(in crate::link) fn longest(&self, rest: Rest) -> Duration {
        match rest {
            Rest::Sound => LONGEST_SLEEP,
            Rest::Light => {
                let nap = self.nap.get();
                self.nap.set((nap * 2).min(NAPS.1));
                nap
            }
        }
    }

    pub(in crate::link) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_until_something_is_sent_or_taken() {
        let idle = Traffic { taken: 64, sent: 1 };
        let watch = Watch::new(idle).unwrap();
        let naps = |watch: &Watch| [(); 9].map(|()| watch.longest(Rest::Light).as_millis());
        assert_eq!(naps(&watch), [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(!watch.has_news(idle));
        assert_eq!(watch.longest(Rest::Light), NAPS.1);
        assert!(!watch.has_news(Traffic { sent: 2, ..idle }), "what was sent is no news");
        assert_eq!(naps(&watch)[0], 1);
        assert!(watch.has_news(Traffic { taken: 128, sent: 2 }));
        assert_eq!(naps(&watch)[0], 1);
        assert_eq!(watch.longest(Rest::Sound), LONGEST_SLEEP);
    }
}
