//! A session's large mailbox, for frames that exceed the link's own: made at the source's request, and dropped when the
//! source returns it (`docs/design/mailbox.md`).
//!
//! A frame in it has its place among the others: a `Large` in the link's own mailbox stands for it, and is
//! released with it.

use std::time::{Duration, Instant};

use farjump_control::{DeferredFd, EndpointInfo, Limits, Message, RefusalCause, SecondEndpoint};
use farjump_core::channel::{Channel, Contents, Polled};
use farjump_core::frame::MAX_FRAME;
use farjump_core::mailbox;
use farjump_core::transport::{OpenRequest, Transport};

use super::head::{HeldFrame, Mailbox};
use super::{Session, Shared, Stop, cut};
use crate::Refusal;
use crate::open_channel::joined_channel;

/// Most bytes of a frame beside payload and code: header, name, trailer, and alignment of its parts.
const AROUND: usize = 3 * 4096;
/// A source with more frequent requests gets a mailbox only for a longer frame than the last.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest frames that a target takes outside the mailbox of a link.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct LargeFrames {
    /// Longest payload, in bytes.
    payload: usize,
    /// Longest frame, in bytes, all included.
    pub(in crate::serve) frame: usize,
}

/// Most time for a KiB of a frame: more than a device in software takes on a busy machine.
const PER_KIB: Duration = Duration::from_millis(1);

/// The large mailbox of one session.
pub(in crate::serve) struct LargeMailbox {
    /// Name of the link's transport.
    transport: String,
    state: State,
    /// Time of the last mailbox made, and length of its frame.
    last: Option<(Instant, usize)>,
    /// Bytes of memory that it takes, charged to the source's budget.
    price: usize,
    /// Bytes of frames that were taken from earlier large mailboxes.
    received: u64,
    /// Bytes of frames in earlier large mailboxes for which checksums were computed.
    summed: u64,
}

enum State {
    Absent,
    /// The source's endpoint is due.
    Offered {
        endpoint: SecondEndpoint,
        until: Instant,
    },
    /// The source's endpoint did not come in time. The source learns this when the endpoint comes.
    Lapsed,
    Open(Box<Channel>),
}

impl LargeFrames {
    /// Those of a target with `arena_size` bytes for code, which may travel beside a payload.
    pub(in crate::serve) fn of(limits: &Limits, arena_size: usize) -> LargeFrames {
        let payload = limits.payload.min(limits.large_payload);
        // Half of a frame's greatest length: rings are powers of two, and no ring is longer than the longest
        // frame.
        let most = limits.frame.min(MAX_FRAME / 2);
        let frame = payload.saturating_add(arena_size).saturating_add(AROUND).min(most);
        LargeFrames { payload, frame }
    }

    /// The request to the transport for frames of `frame` bytes: a ring for two of them, if the limit allows
    /// that.
    fn request(&self, frame: usize) -> OpenRequest {
        let most = self.frame;
        let longest_ring = most.next_power_of_two();
        let ring = frame.saturating_mul(2).max(mailbox::MIN_RING).min(longest_ring).next_power_of_two();
        let max_frame = if ring == longest_ring { most } else { ring / 2 };
        // Its memory is allocated as frames are written: a source that only makes requests costs this target
        // little time.
        OpenRequest::new(mailbox::region_len(ring), max_frame).at_once(0)
    }

    /// Refuses a payload of `len` bytes that is over the limit.
    pub(in crate::serve) fn check_payload(&self, len: u64) -> Result<(), Refusal> {
        if len <= self.payload as u64 {
            return Ok(());
        }
        let what = format!(
            "its payload of {len} bytes is over this target's limit of {}: send it in parts, or have the target allow more (TargetBuilder::max_payload)",
            self.payload
        );
        Err(Refusal::new(RefusalCause::TooLarge, what))
    }

    /// Opens an endpoint for frames of up to `frame` bytes with `payload` bytes of payload. Both numbers are
    /// the source's. `pay` charges the memory first.
    fn open(
        &self,
        transport: &mut dyn Transport,
        frame: u64,
        payload: u64,
        pay: impl FnOnce(usize) -> Result<(), Refusal>,
    ) -> Result<SecondEndpoint, Refusal> {
        let too_large = |what: String| Refusal::new(RefusalCause::TooLarge, what);
        self.check_payload(payload)?;
        let most = self.frame.min(transport.capabilities().max_frame);
        let frame = match usize::try_from(frame) {
            Ok(len) if len <= most => len,
            _ => {
                return Err(too_large(format!(
                    "its {frame} bytes, with code, are over the {most} that this target takes over {}: send them in parts, or have the target allow more (TargetBuilder::max_frame, TargetBuilder::max_payload)",
                    transport.name()
                )));
            }
        };
        let request = self.request(frame);
        pay(request.region_len)?;
        SecondEndpoint::open(transport, &request).map_err(|error| {
            let what = format!("there is no memory for a mailbox for its {frame} bytes: {error}");
            Refusal::new(RefusalCause::OutOfMemory, what)
        })
    }
}

impl LargeMailbox {
    /// The link's transport.
    pub(in crate::serve) fn transport(&self) -> &str {
        &self.transport
    }

    /// No mailbox, on a link over the transport of this name.
    pub(in crate::serve) fn absent(transport: String) -> LargeMailbox {
        LargeMailbox { transport, state: State::Absent, last: None, price: 0, received: 0, summed: 0 }
    }

    /// Returns whether the source requests no more than it got a moment ago.
    fn requests_too_often(&self, frame: u64) -> bool {
        self.last.is_some_and(|(when, len)| frame <= len as u64 && when.elapsed() < PAUSE)
    }

    /// Time limit of the longest frame that the mailbox was made for.
    fn journey(&self) -> Duration {
        let kibibytes = self.last.map_or(0, |(_, frame)| frame / 1024);
        PER_KIB.saturating_mul(u32::try_from(kibibytes).unwrap_or(u32::MAX))
    }
}

impl Session {
    /// The parts of a frame.
    pub(super) fn contents(&self, held: &HeldFrame) -> Contents<'_> {
        match &self.large.state {
            State::Open(channel) if held.mailbox() == Mailbox::Large => channel.contents(&held.frame),
            _ => self.channel.contents(&held.frame),
        }
    }

    /// The channel of a mailbox.
    pub(super) fn mailbox_mut(&mut self, which: Mailbox) -> &mut Channel {
        match &mut self.large.state {
            State::Open(channel) if which == Mailbox::Large => channel,
            _ => &mut self.channel,
        }
    }

    /// Handles the source's request for a large mailbox.
    #[cold]
    pub(in crate::serve) fn offer_large(
        &mut self,
        frame: u64,
        payload: u64,
        shared: &mut Shared,
    ) -> Result<(), Stop> {
        if self.head.is_large() || matches!(self.large.state, State::Offered { .. }) {
            return Err(cut("its source requested a large mailbox while it was offered another"));
        }
        self.drop_large();
        match self.make(frame, payload, shared) {
            Ok(endpoint) => {
                let until = Instant::now() + shared.handshake_timeout;
                let sent = endpoint.with_info(|endpoint, descriptors| {
                    self.control.send_with(&Message::LargeOffer { endpoint }, descriptors)
                });
                self.large.state = State::Offered { endpoint, until };
                sent?;
                self.set_notice()
            }
            Err(refusal) => {
                shared.executor.stats.refuse(refusal.cause);
                shared.handlers.refused(self.control.peer(), &refusal);
                self.notify(&Message::LargeDecline { cause: refusal.cause, text: refusal.text })?;
                self.await_reading();
                Ok(())
            }
        }
    }

    fn make(&mut self, frame: u64, payload: u64, shared: &mut Shared) -> Result<SecondEndpoint, Refusal> {
        let transports = &mut shared.transports;
        let transport = transports.iter_mut().find(|transport| transport.name() == self.large.transport);
        let Some(transport) = transport.filter(|_| self.channel.takes_large_mailbox()) else {
            let limit = self.channel.max_frame();
            let what = format!("this link has no large mailboxes: frames have {limit} bytes at most");
            return Err(Refusal::new(RefusalCause::TooLarge, what));
        };
        if self.large.requests_too_often(frame) {
            let what = format!(
                "it requested a mailbox for such a frame less than {PAUSE:?} ago: keep the large mailbox for some time"
            );
            return Err(Refusal::new(RefusalCause::OutOfMemory, what));
        }
        let (budget, price) = (&mut self.codes.table.budget, &mut self.large.price);
        let made = shared.large_frames.open(transport.as_mut(), frame, payload, |bytes| {
            budget.take("a large mailbox", bytes)?;
            *price = bytes;
            Ok(())
        });
        if made.is_err() {
            budget.give_back(std::mem::take(price));
        }
        if made.as_ref().map_or_else(|refusal| refusal.cause == RefusalCause::OutOfMemory, |_| true) {
            // Success and failure both take this target's time.
            self.large.last = Some((Instant::now(), usize::try_from(frame).unwrap_or(usize::MAX)));
        }
        made
    }

    /// Handles the source's endpoint.
    #[cold]
    pub(in crate::serve) fn accept_large(
        &mut self,
        endpoint: EndpointInfo,
        descriptors: Vec<DeferredFd>,
    ) -> Result<(), Stop> {
        match std::mem::replace(&mut self.large.state, State::Absent) {
            State::Offered { endpoint: own, until } => {
                let joined = own.join(self.control.peer(), endpoint, descriptors, until).map_err(cut)?;
                let channel = joined_channel(joined, self.control.peer()).map_err(cut)?;
                self.large.state = State::Open(Box::new(channel));
                self.notify(&Message::Go)
            }
            State::Lapsed => {
                let text = "the target withdrew its offer of a large mailbox: it was not accepted in time";
                self.notify(&Message::LargeDecline { cause: RefusalCause::Stalled, text: text.into() })?;
                self.await_reading();
                Ok(())
            }
            _ => Err(cut("its source sent LargeAccept unasked")),
        }
    }

    /// Handles the return of the mailbox, or the decline of an offer.
    #[cold]
    pub(in crate::serve) fn shrink(&mut self) -> Result<(), Stop> {
        if self.head.is_large() || matches!(self.large.state, State::Absent) {
            return Err(cut("its source gave back a mailbox that it does not have, or that is not empty"));
        }
        self.drop_large();
        Ok(())
    }

    /// Drops the large mailbox, or the offer of one.
    fn drop_large(&mut self) {
        if let State::Open(channel) = std::mem::replace(&mut self.large.state, State::Absent) {
            self.large.received += channel.received();
            self.large.summed += channel.summed();
        }
        self.codes.table.budget.give_back(std::mem::take(&mut self.large.price));
    }

    /// Returns whether a poll of the large mailbox now continues the checksum of a frame.
    pub(in crate::serve) fn sums_large(&self) -> bool {
        matches!(&self.large.state, State::Open(large) if large.is_summing())
    }

    /// Bytes of frames taken, from all mailboxes of the link.
    pub(in crate::serve) fn received(&self) -> u64 {
        let large = match &self.large.state {
            State::Open(channel) => channel.received(),
            _ => 0,
        };
        self.channel.received() + self.large.received + large
    }

    /// Bytes of frames in all mailboxes of the link for which checksums were computed.
    pub(in crate::serve) fn summed(&self) -> u64 {
        let large = match &self.large.state {
            State::Open(channel) => channel.summed(),
            _ => 0,
        };
        self.channel.summed() + self.large.summed + large
    }

    /// Takes the frame that the held `Large` stands for. Returns the number of calls, or `None` if the frame
    /// is not whole.
    #[cold]
    pub(in crate::serve) fn take_large(&mut self, shared: &mut Shared) -> Result<Option<usize>, Stop> {
        let State::Open(large) = &mut self.large.state else {
            return Err(cut("a frame in a large mailbox that the link does not have"));
        };
        let Polled::Frame(frame) = large.poll()? else {
            // Frames that the transport still carries come, if there are any: the `Large` overtakes them
            // where each mailbox has a queue of its own.
            if large.is_summing() {
                return Ok(None);
            }
            self.head.check_age(shared.stall_timeout + self.large.journey())?;
            return Ok(None);
        };
        let frame = frame.take();
        // As first read: it is at the head until it is released.
        let Polled::Frame(switch) = self.channel.poll_general()? else { return Ok(None) };
        let held = HeldFrame::large(frame, switch.take());
        self.head.note_whole();
        self.run_held(held, shared).map(Some)
    }

    /// Releases a frame, in the large mailbox together with its `Large`.
    #[cold]
    pub(super) fn release_held(&mut self, held: HeldFrame) -> Result<(), Stop> {
        let HeldFrame { frame, switch, .. } = held;
        let Some(switch) = switch else { return Ok(self.channel.release(frame)?) };
        let released = self.channel.release(switch);
        if let State::Open(large) = &mut self.large.state {
            large.release(frame)?;
            // Credit is returned at once: the source may be waiting for this much.
            large.progress(true)?;
        }
        Ok(released?)
    }

    /// Returns whether there is a large mailbox, or one is on its way.
    pub(in crate::serve) fn has_large(&self) -> bool {
        !matches!(self.large.state, State::Absent)
    }

    /// Periodic tasks for the large mailbox.
    pub(in crate::serve) fn tend_large(&mut self, shared: &mut Shared) -> Result<(), Stop> {
        match &mut self.large.state {
            State::Absent | State::Lapsed => Ok(()),
            State::Offered { until, .. } if *until > Instant::now() => Ok(()),
            State::Offered { .. } => {
                // The source may have other work than to look, so it loses the memory, not its link.
                self.drop_large();
                self.large.state = State::Lapsed;
                let what = "it requested a large mailbox and did not accept it in time";
                let refusal = Refusal::new(RefusalCause::Stalled, what);
                shared.executor.stats.refuse(refusal.cause);
                shared.handlers.refused(self.control.peer(), &refusal);
                Ok(())
            }
            State::Open(large) => {
                // A skip at the ring's end has no `Large`, and the source may need its space. A frame found
                // by this is held, as it is now, until its `Large` has come.
                large.poll()?;
                large.progress(true)?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> LargeFrames {
        LargeFrames::of(&Limits::default(), 16 << 20)
    }

    #[test]
    fn a_large_mailbox_fits_two_requested_frames_or_one_at_the_limit() {
        for frame in [64, 4096, (4 << 20) + 64, 5 << 20, (32 << 20) - 64, 32 << 20] {
            let request = frames().request(frame);
            assert!(request.max_frame >= frame, "{frame}");
            let ring = mailbox::ring_len(request.region_len).unwrap();
            assert!(ring >= 2 * frame && ring < (4 * frame).max(2 * mailbox::MIN_RING), "{frame}: {ring}");
        }
        for frame in [(64 << 20) + 64, frames().frame] {
            let request = frames().request(frame);
            assert_eq!(request.max_frame, frames().frame);
            assert_eq!(mailbox::ring_len(request.region_len), Some(128 << 20));
        }
    }

    #[test]
    fn no_limits_make_a_mailbox_longer_than_rings_can_be() {
        let limits = Limits { large_payload: Limits::NONE, ..Limits::default() };
        let frames = LargeFrames::of(&limits, usize::MAX);
        let request = frames.request(frames.frame);
        assert!(request.max_frame <= MAX_FRAME);
        assert!(mailbox::ring_len(request.region_len).is_some_and(|ring| ring <= MAX_FRAME));
    }
}
