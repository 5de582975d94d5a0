//! Events of a session's channel: what the system reports of it, and what it has brought.

use super::Session;
use crate::Error;
use crate::serve::epoll::{Event, Watch};
use crate::serve::sessions::Found;

/// What is known of the events of a session's channel.
pub(in crate::serve) struct ChannelEvents {
    /// Bytes received at the last query of [`Session::has_brought`].
    last_received: u64,
    /// Whether the channel's descriptor reports frames without polling.
    reports_frames: bool,
    /// Whether the channel's descriptor is watched for writability.
    watches_write: bool,
}

impl ChannelEvents {
    pub(super) fn new(reports_frames: bool) -> ChannelEvents {
        ChannelEvents { last_received: 0, reports_frames, watches_write: false }
    }

    /// Whether an event of the channel's descriptor means that this session has work.
    pub(in crate::serve) fn are_reported(&self) -> bool {
        self.reports_frames || self.watches_write
    }
}

impl Session {
    /// Whether frames have come since the last such query, or wait here.
    fn has_brought(&mut self) -> bool {
        let received = self.channel.received();
        let more = std::mem::replace(&mut self.events.last_received, received) != received;
        more || self.head.is_blocked() || self.control.has_unread()
    }

    /// The class that the session belongs to now. `all`: also a class that takes long to find out.
    pub(in crate::serve) fn class(&mut self, all: bool) -> Found {
        let reports_frames = self.events.reports_frames;
        if !reports_frames && !all {
            Found::Unknown
        } else if self.has_brought() {
            Found::Busy
        } else if self.channel.tells_unasked() {
            Found::Reported
        } else if reports_frames {
            // A frame is here that was received beside something else.
            Found::Busy
        } else {
            Found::Idle
        }
    }

    /// Watches the session's descriptors for writability while bytes wait to be sent.
    pub(in crate::serve) fn rewatch(&mut self, watch: &Watch) -> Result<(), Error> {
        self.control.rewatch(self.id, watch)?;
        let Some(descriptor) = self.channel.descriptor() else { return Ok(()) };
        let wanted = self.channel.wants_write();
        watch.watch_write(descriptor, Event::Doorbell(self.id), wanted, &mut self.events.watches_write)
    }
}
