//! Sleep and notices: the state word of each endpoint.

use super::super::Armed;
use super::OneSided;
use crate::mailbox::{Look, STATE_AT, Seen, Sleep, Sleeper, State, fall_asleep};
use crate::memory::Memory;
use crate::sync::Ordering;
use crate::transport::TransportError;

impl OneSided {
    #[inline]
    pub(super) fn notices(&self) -> u32 {
        // Acquire: makes visible the messages that the peer wrote to the control connection before its
        // notice.
        State(self.returns.load(STATE_AT, Ordering::Acquire)).notice()
    }

    pub(in crate::channel) fn notify(&mut self) -> Result<(), TransportError> {
        self.state = self.state.with_notice();
        self.send_state()
    }

    /// Sends the peer this endpoint's state if it has changed, and wakes the peer if the state holds a
    /// notice. If the backend's queue is full, `work` sends it later.
    pub(super) fn send_state(&mut self) -> Result<(), TransportError> {
        if self.sent_state == self.state {
            return Ok(());
        }
        match self.write_credit_line(STATE_AT, self.state.0) {
            Ok(()) => {
                let calls = self.sent_state.notice() != self.state.notice();
                self.sent_state = self.state;
                if calls { self.remote.wake_peer() } else { Ok(()) }
            }
            Err(error) if error.is_full() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// `holds` is true if a frame was found and is not released.
    pub(in crate::channel) fn arm(&mut self, holds: bool) -> Result<Armed, TransportError> {
        self.holds = holds;
        self.work(true)?;
        if self.inbound.is_summing() {
            return Ok(Armed::Ready);
        }
        Ok(match fall_asleep(self)? {
            Sleep::Awake => {
                self.disarm()?;
                Armed::Ready
            }
            Sleep::Lightly => Armed::Nap,
            Sleep::Soundly => match self.local.descriptor() {
                Some(_) => Armed::Sleep,
                None => Armed::Nap,
            },
        })
    }

    pub(in crate::channel) fn disarm(&mut self) -> Result<(), TransportError> {
        if !self.state.asleep() {
            return Ok(());
        }
        self.state = self.state.toggled();
        self.send_state()?;
        self.local.after_sleep()
    }
}

impl Sleeper for OneSided {
    type Error = TransportError;

    fn say_asleep(&mut self) -> Result<bool, TransportError> {
        if !self.state.asleep() {
            self.state = self.state.toggled();
        }
        self.send_state()?;
        // A peer without the current credit would wake this endpoint for frames that it has consumed.
        Ok(self.sent_state == self.state && self.inbound.due(true).is_none())
    }

    fn order(&mut self) -> Result<bool, TransportError> {
        self.local.before_sleep()
    }

    fn look(&mut self) -> Result<Look, TransportError> {
        if self.holds {
            return Ok(Look::Something);
        }
        let position = self.inbound.position();
        self.inbound.naps();
        let seen = self.poll()?;
        // The peer sent its wake-up for this sleep with the skip, and sends none for the frame behind it.
        let skipped = self.inbound.position() != position;
        // `order` may have discarded a wake-up that carried a notice.
        let called = self.notices() != self.notice;
        let fed = self.starved.is_some_and(|consumed| self.out.consumed() != consumed);
        if fed {
            self.starved = None;
        }
        if matches!(seen, Seen::Frame(..)) || self.inbound.is_summing() || skipped || called || fed {
            return Ok(Look::Something);
        }
        let in_flight = seen == Seen::Partial
            || self.pending.is_some()
            || self.starved.is_some()
            || self.inbound.due(true).is_some();
        Ok(if in_flight { Look::InFlight } else { Look::Nothing })
    }
}
