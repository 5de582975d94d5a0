//! The target's epoll instance: its listener, its sources' control connections and doorbells.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::error::system;
use crate::wait::timespec;
use crate::{Error, SystemOperation};

/// An event and its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A process connects.
    Listener,
    /// A [`super::Stopper`] was used.
    Stop,
    /// A process in the handshake.
    Arrival(u64),
    /// A source's control connection.
    Control(u64),
    /// A source's doorbell.
    Doorbell(u64),
    /// A link to a destination was made, or could not be.
    Handshake,
    /// A destination's doorbell or control connection.
    Peer(u64),
    /// The compiler of bitcode has a result.
    Compiler,
    /// The store's bell has rung.
    Store,
}

impl Event {
    fn to_data(self) -> u64 {
        match self {
            Event::Listener => 0,
            Event::Stop => 1,
            Event::Arrival(id) => id << 2 | 2,
            // Ids count up from 0; 2^61 sources do not connect to one target.
            Event::Control(id) => id << 3 | 3,
            Event::Doorbell(id) => id << 3 | 7,
            Event::Handshake => 4,
            Event::Compiler => 12,
            Event::Store => 20,
            Event::Peer(number) => number << 3 | 5,
        }
    }

    fn from_data(data: u64) -> Event {
        match (data & 3, data & 7) {
            (_, 4) if data == 12 => Event::Compiler,
            (_, 4) if data == 20 => Event::Store,
            (_, 4) => Event::Handshake,
            (_, 5) => Event::Peer(data >> 3),
            (0, _) => Event::Listener,
            (1, _) => Event::Stop,
            (2, _) => Event::Arrival(data >> 2),
            (_, 3) => Event::Control(data >> 3),
            _ => Event::Doorbell(data >> 3),
        }
    }
}

/// Most events of one wait: the system reports the others the next time.
const MOST_EVENTS: usize = 64;

/// Events of a wait.
pub(super) struct Events {
    all: [epoll::Event; MOST_EVENTS],
    count: usize,
}

impl Events {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.all[..self.count].iter().map(|event| Event::from_data(event.data.u64()))
    }
}

#[derive(Debug)]
pub(super) struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    pub(super) fn new() -> Result<Watch, Error> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system(SystemOperation::MakeDescriptor))?;
        Ok(Watch { epoll })
    }

    pub(super) fn add(&self, fd: BorrowedFd<'_>, event: Event, write: bool) -> Result<(), Error> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(event.to_data()), flags(write))
            .map_err(system(SystemOperation::Watch))
    }

    /// Adds the descriptors of a link, each with its event: all or none. A doorbell that is reported `once` is reported
    /// again only after its next signal, even if nothing has silenced it.
    pub(super) fn add_link(
        &self,
        doorbell: Option<(BorrowedFd<'_>, Event)>,
        once: bool,
        control: (BorrowedFd<'_>, Event),
    ) -> Result<(), Error> {
        self.add(control.0, control.1, false)?;
        match doorbell {
            Some((fd, event)) if once => {
                let flags = flags(false) | epoll::EventFlags::ET;
                epoll::add(&self.epoll, fd, epoll::EventData::new_u64(event.to_data()), flags)
                    .map_err(system(SystemOperation::Watch))
                    .inspect_err(|_| self.remove(control.0))
            }
            Some((fd, event)) => self.add(fd, event, false).inspect_err(|_| self.remove(control.0)),
            None => Ok(()),
        }
    }

    /// Also watches `fd` for writability if that is `wanted`. `watches` is the present state, which this updates.
    pub(super) fn watch_write(
        &self,
        fd: BorrowedFd<'_>,
        event: Event,
        wanted: bool,
        watches: &mut bool,
    ) -> Result<(), Error> {
        if wanted != *watches {
            self.modify(fd, event, flags(wanted))?;
            *watches = wanted;
        }
        Ok(())
    }

    /// Sets whether `listener`, which is watched, is watched for connections.
    pub(super) fn listen(&self, listener: BorrowedFd<'_>, connections: bool) -> Result<(), Error> {
        let flags = if connections { flags(false) } else { epoll::EventFlags::empty() };
        self.modify(listener, Event::Listener, flags)
    }

    fn modify(&self, fd: BorrowedFd<'_>, event: Event, flags: epoll::EventFlags) -> Result<(), Error> {
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(event.to_data()), flags)
            .map_err(system(SystemOperation::Watch))
    }

    /// Removes the descriptors of a link that ends. Closing them would not do: a copy in another process
    /// keeps them watched, and the source has one of its doorbell.
    pub(super) fn remove_link(&self, doorbell: Option<BorrowedFd<'_>>, control: BorrowedFd<'_>) {
        doorbell.into_iter().for_each(|doorbell| self.remove(doorbell));
        self.remove(control);
    }

    /// Stops watching `fd`.
    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits for an event, at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> Result<Events, Error> {
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = Events { all: [nothing; MOST_EVENTS], count: 0 };
        match epoll::wait(&self.epoll, &mut events.all[..], Some(&timespec(timeout))) {
            Ok(count) => events.count = count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(system(SystemOperation::Sleep)(errno)),
        }
        Ok(events)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn flags(write: bool) -> epoll::EventFlags {
    if write { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_comes_back_as_what_it_was() {
        let single = [Event::Listener, Event::Stop, Event::Handshake, Event::Compiler, Event::Store];
        let mut seen = Vec::new();
        for id in [0, 1, 2, 3, 1 << 40] {
            let numbered = [Event::Arrival(id), Event::Control(id), Event::Doorbell(id), Event::Peer(id)];
            for event in numbered.into_iter().chain(single) {
                assert_eq!(Event::from_data(event.to_data()), event);
                seen.push(event.to_data());
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), single.len() + 4 * 5);
    }
}
