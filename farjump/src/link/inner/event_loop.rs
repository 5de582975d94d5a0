//! Sleeping in the caller's event loop, in place of [`waiting`](super::waiting).

use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use farjump_core::channel::Armed;

use super::Connection;
use super::Inner;
use crate::Error;
use crate::link::wait::epoll::{Rest, Traffic, Watch};
use crate::link::wait::tasks::Tasks;

impl Inner {
    /// Adds this link to `watch`, which watches nothing yet, until [`Inner::move_watch`].
    pub(in super::super) fn watch(&self, watch: &Watch) -> Result<(), Error> {
        watch.add(self.control(), self.doorbell())
    }

    /// Moves `watch` to the channel and control connection that replace this link's. On failure it still
    /// watches the old ones.
    pub(super) fn move_watch(&self, watch: &Watch, next: &Connection) -> Result<(), Error> {
        watch.remove(self.control(), self.doorbell());
        let moved = watch.add(next.control.stream.as_fd(), next.channel.descriptor());
        moved.or_else(|error| self.watch(watch).and(Err(error)))
    }

    /// Counters of frames sent and bytes taken since the link was made.
    pub(in super::super) fn traffic(&self) -> Traffic {
        Traffic { taken: self.connection.channel.received(), sent: self.stats.frames }
    }

    /// A number that changes when an outcome may have come: by a frame, a refusal, or the target's end.
    pub(in super::super) fn news(&self) -> u64 {
        let control = &self.connection.control;
        let has_ended = control.gone.is_some() || control.leaving.is_some();
        self.connection.channel.received().wrapping_add(control.refusals_read).wrapping_add(has_ended.into())
    }

    /// Prepares to sleep on `watch`. Returns the longest time to sleep; `None` if an event has come since the
    /// last time.
    pub(in super::super) fn arm_watch(&mut self, watch: &Watch) -> Result<Option<Duration>, Error> {
        self.check_alive()?;
        self.look_everywhere()?;
        if watch.has_news(self.traffic()) | std::mem::take(&mut self.connection.control.has_notice) {
            return Ok(None);
        }
        match self.connection.control.leaving {
            // An ended connection would stay readable for ever.
            Some(_) => watch.unwatch(self.control()),
            None => watch.wants_write(self.control(), self.wants_write())?,
        }
        let armed = match self.arm() {
            Ok(Armed::Ready) => return Ok(None),
            Ok(armed) => armed,
            Err(error) => return self.broken_for_now(&error).map(|()| None),
        };
        let rings = armed == Armed::Sleep;
        if let Some(doorbell) = self.doorbell() {
            watch.watch_doorbell(
                doorbell,
                rings,
                self.connection.channel.wants_write() && self.connection.control.leaving.is_none(),
            )?;
        }
        self.is_watch_armed = true;
        Ok(Some(watch.longest(if rings && !self.is_starved() { Rest::Sound } else { Rest::Light })))
    }

    /// Ends the sleep. A failure ends the link, which the next poll reports.
    pub(in super::super) fn disarm_watch(&mut self) {
        self.is_watch_armed = false;
        // The sleep of a forked child's copy is its parent's.
        if !self.is_own() {
            return;
        }
        if let Err(error) = self.disarm() {
            self.broken(&error);
        }
    }

    /// Returns whether [`Inner::arm_watch`] has prepared a sleep that has not ended.
    #[cfg(feature = "tokio")]
    pub(in super::super) fn is_watch_armed(&self) -> bool {
        self.is_watch_armed
    }

    /// Tasks that await this link.
    pub(in super::super) fn tasks(&mut self) -> &Arc<Tasks> {
        self.pending.slots.tasks()
    }

    /// Registers `waker` for the outcome of this call; `false` if none will come.
    pub(in super::super) fn wake_on_outcome(&mut self, token: u32, waker: &Waker) -> bool {
        self.pending.slots.wake_on_outcome(token, waker)
    }
}
