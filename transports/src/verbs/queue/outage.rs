//! Requests of which a device reports no end after its port went down.
//!
//! A device completes or fails each request. Soft-RoCE of Linux 6.1 does neither if the outage costs a request its
//! acknowledgement and a later one fails at once: it then repeats nothing (`rxe_completer`). Without this check, calls of
//! such a link would wait for their timeouts.

use std::mem;
use std::time::Instant;

use farjump_core::transport::Cause;

use super::Queue;
use crate::verbs::device::events::Since;

/// The account of a queue's requests since its port went down.
pub(super) struct Outage {
    /// Events before this are known.
    seen: Since,
    /// Number of the next request at the last check.
    posted: u64,
    /// While requests of an outage may be under way: the number of requests done, and since when it has been this number.
    waits: Option<(u64, Instant)>,
}

impl Outage {
    /// The account of an unused queue. `seen` is its device's present position.
    pub(super) fn new(seen: Since) -> Outage {
        Outage { seen, posted: 0, waits: None }
    }
}

impl Queue {
    /// Checks that the device has reported no fault of itself, its port or this queue pair. Also checks that it has not
    /// been silent about a request since its port went down for longer than it may repeat one. For this the queue has to
    /// be checked repeatedly, as before each sleep.
    #[cold]
    pub(in crate::verbs) fn check(&mut self) -> Result<(), Cause> {
        if let Some(what) = self.fault() {
            return Err(Cause::System(what));
        }
        let next = self.next();
        let has_posted = mem::replace(&mut self.outage.posted, next) != next;
        if let Some(seen) = self.device.went_down(self.outage.seen) {
            self.outage.seen = seen;
            if has_posted || self.awaited > 0 {
                self.outage.waits = Some((self.done(), Instant::now()));
            }
        }
        let Some((done, since)) = self.outage.waits else { return Ok(()) };
        if done != self.done() {
            self.outage.waits = None;
        } else if since.elapsed() > self.device.options.longest_silence() {
            if self.awaited > 0 {
                return Err(Cause::System(self.device.silent()));
            }
            // The last requests have no completions, and are done if one behind them is.
            if self.free_slots() > 0 {
                // SAFETY: the request has no bytes.
                unsafe { self.post(&[self.nothing()]) }?;
            }
            self.outage.waits = Some((done, Instant::now()));
        }
        Ok(())
    }
}
