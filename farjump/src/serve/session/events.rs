//! Events of a session's channel: the system's reports of it, and the frames that it has brought.

use farjump_core::channel::{Armed, Channel};

use super::{Session, Shared, Stop};
use crate::Error;
use crate::serve::epoll::{Event, Watch};
use crate::serve::sessions::Found;

/// State of the events of a session's channel.
pub(in crate::serve) struct ChannelEvents {
    /// Bytes received at the last query of [`Session::has_brought`].
    last_received: u64,
    /// Whether the channel's descriptor reports frames without polling.
    reports_frames: bool,
    /// True if the channel is armed, so that its descriptor reports the next frame.
    is_armed: bool,
    /// Whether the channel's descriptor is watched for writability.
    watches_write: bool,
}

impl ChannelEvents {
    pub(super) fn new(reports_frames: bool) -> ChannelEvents {
        ChannelEvents { last_received: 0, reports_frames, is_armed: false, watches_write: false }
    }

    /// Returns whether the descriptor of a channel reports frames only while armed, at the cost of system calls for
    /// both peers. Such a channel is armed when its source is idle. A channel in memory is polled: that costs less.
    pub(in crate::serve) fn are_armed_for(channel: &Channel) -> bool {
        !channel.polls_memory() && !channel.wakes_unarmed()
    }

    /// Returns whether an event of the channel's descriptor means that this session has work.
    pub(in crate::serve) fn are_reported(&self) -> bool {
        self.reports_frames || self.is_armed || self.watches_write
    }
}

impl Session {
    /// Ends the state in which the channel's descriptor reports the next frame.
    pub(in crate::serve) fn silence(&mut self, _: &mut Shared) -> Result<(), Stop> {
        if std::mem::take(&mut self.events.is_armed) {
            self.channel.disarm()?;
        }
        Ok(())
    }

    /// Keeps a channel armed that [`Session::arm`] has prepared for a sleep, while others work. Returns `false` if it
    /// has more to do than to wait for a frame.
    pub(in crate::serve) fn stay_armed(&mut self) -> bool {
        self.events.is_armed = self.channel.stays_armed()
            && !self.head.is_blocked()
            && !self.control.is_leaving()
            && !self.has_large();
        self.events.is_armed
    }

    /// Returns whether it was left armed by [`Session::stay_armed`].
    pub(in crate::serve) fn is_left_armed(&self) -> bool {
        self.events.is_armed && self.channel.stays_armed()
    }

    /// Returns whether frames have come since the last such query, or wait here.
    fn has_brought(&mut self) -> bool {
        let received = self.channel.received();
        let more = std::mem::replace(&mut self.events.last_received, received) != received;
        more || self.head.is_blocked() || self.control.has_unread()
    }

    /// Returns the class that the session belongs to now. With `all`, also a class that takes long to find out. With
    /// `few`, it is one of few sessions, which are polled rather than armed.
    pub(in crate::serve) fn class(&mut self, all: bool, few: bool) -> Found {
        let reports_frames = self.events.reports_frames;
        if std::mem::take(&mut self.events.is_armed) && self.channel.stays_armed() {
            // Something else made it busy. The next poll returns an error.
            let _ = self.channel.disarm();
        }
        if !reports_frames && !all {
            Found::Unknown
        } else if self.has_brought() {
            // Polling a socket costs a system call.
            if reports_frames { Found::Busy } else { Found::Unknown }
        } else if self.channel.wakes_unarmed() {
            Found::Reported
        } else if reports_frames {
            // A frame is here that was received beside something else.
            Found::Busy
        } else if few
            || self.control.is_leaving()
            || self.channel.polls_memory()
            || self.channel.descriptor().is_none()
        {
            Found::Idle
        } else {
            // If it cannot be armed, more is under way, or an error that the next poll returns.
            self.events.is_armed = matches!(self.channel.arm(), Ok(Armed::Sleep));
            if self.events.is_armed { Found::Reported } else { Found::Unknown }
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
