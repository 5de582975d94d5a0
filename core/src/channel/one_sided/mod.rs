//! The path through a mailbox: rings in regions that the peer writes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

use super::{ChannelParams, SendError, failed, protocol, ring_of};
use crate::frame::{Flags, Header, Layout, Plan, Trailer};
use crate::mailbox::{
    CONSUMED_AT, CONTROL_LEN, FastPoll, Finished, Inbound, NoSpace, Outbound, STATE_AT, Seen, State, Waker,
};
use crate::memory::{Memory, Region, Ring};
use crate::sync::{Handover, release};
use crate::transport::{
    ArrivalRules, Cause, LocalMemory, Operation, PathInfo, Reads, RemoteMemory, TransportError,
};

mod moving;
mod processor;
mod put;
mod sleep;
mod wakes;

use wakes::Wakes;

// The fields that a poll touches come first, then those that each send touches.
#[repr(C)]
pub(super) struct OneSided {
    pub(super) inbound: Inbound<Ring>,
    /// The whole local region, for its credit line.
    returns: Region,
    /// True if the peer's region is mapped here.
    is_mapped: bool,
    /// True if the ring is mapped and no frame is kept: the fast paths may write the next frame.
    lines_open: bool,
    /// True if the ring is not mapped and a frame of one line needs no checksum.
    puts_lines: bool,
    /// True if the ring is not mapped and a frame of one line ends with a trailer, which arrives last.
    trails: bool,
    /// True if the rule is the one that counts completed writes.
    counts: bool,
    /// True if a fence is needed between "store the frame" and "is the peer asleep?".
    fence: bool,
    /// True if the frame at the head is held: an event is pending, and the frame is not read again.
    holds: bool,
    /// The wakes of the peer: for each frame as it is sent, or once for several.
    wakes: Wakes,
    /// The last notice of the peer that was reported to the caller.
    notice: u32,
    pub(super) out: Outbound<Ring, Region>,
    waker: Waker,
    /// The peer's control page, if it is mapped.
    peer: Option<Region>,
    /// The state of this endpoint, and the state last sent to the peer: equal unless the backend's queue was
    /// full.
    state: State,
    sent_state: State,
    rule: ArrivalRules,
    /// Completed writes known so far.
    completed: u64,
    /// The backend's error, for the general poll.
    failed: Option<TransportError>,
    /// The peer's consumed position when credit ran out. No doorbell reports new credit.
    starved: Option<u64>,
    /// A frame finished in the shadow ring that the backend could not take yet.
    pending: Option<Pending>,
    // The regions above point into these and into the shadow ring: dropped last, in this order.
    remote: Box<dyn RemoteMemory>,
    pub(super) local: Box<dyn LocalMemory>,
    _shadow_ring: ShadowRing,
}

/// The progress of a finished frame towards the peer.
#[derive(Clone, Copy)]
struct Pending {
    frame: Finished,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Body,
    Fence,
    Signal,
}

/// The shadow ring of a path without mapped memory: the same offsets as in the peer's ring.
struct ShadowRing(#[allow(dead_code, reason = "owned for its memory")] Vec<Page>);

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl OneSided {
    pub(super) fn new(
        local: Box<dyn LocalMemory>,
        mut remote: Box<dyn RemoteMemory>,
        terms: &ChannelParams,
        trailer: Trailer,
    ) -> Result<Self, TransportError> {
        let (in_ring, out_ring) = (ring_of(terms.receive_region)?, ring_of(terms.send_region)?);
        for (stated, len) in [(terms.receive_region, local.len()), (terms.send_region, remote.len())] {
            if len < stated {
                let cause = Cause::OutOfRegion { offset: 0, len: stated, region: len };
                return Err(failed(Operation::Connect, cause));
            }
        }
        // SAFETY: `LocalMemory` guarantees its base and length until it is dropped, which is after this
        // value's regions.
        let returns = unsafe { Region::new(local.base(), local.len()) };
        let unsupported = |what| Err(failed(Operation::Connect, Cause::Unsupported(what)));
        // Under the other rules no mapping is requested: the peer's middleware may want to observe the puts.
        let base = match terms.rule {
            ArrivalRules::STORES => match remote.mapped() {
                Some(base) => Some(base),
                None => return unsupported("the arrival rule stores on memory that is not mapped"),
            },
            ArrivalRules::IN_ORDER
            | ArrivalRules::FENCED
            | ArrivalRules::WRITE_IMM
            | ArrivalRules::CHECKED => None,
            _ => return unsupported("this arrival rule on one-sided memory"),
        };
        // SAFETY: `RemoteMemory::mapped` guarantees the same for the mapping.
        let mapped = base.map(|base| unsafe { Region::new(base, remote.len()) });
        let (shadow, staging) = match mapped {
            Some(region) => (ShadowRing(Vec::new()), region.part(CONTROL_LEN, out_ring)),
            None => match remote.staging(out_ring)? {
                // SAFETY: `RemoteMemory::staging` guarantees `out_ring` bytes until `remote` is dropped, and
                // the regions of this value are not used after that.
                Some(base) => (ShadowRing(Vec::new()), unsafe { Region::new(base, out_ring) }),
                None => {
                    let mut pages = alloc::vec![Page([0; 4096]); out_ring / 4096];
                    let base =
                        NonNull::new(pages.as_mut_ptr().cast()).expect("a vector's pointer is not null");
                    // SAFETY: the vector's buffer holds `out_ring` bytes, does not move while `ShadowRing`
                    // owns it untouched, and is dropped with this value.
                    (ShadowRing(pages), unsafe { Region::new(base, out_ring) })
                }
            },
        };
        Ok(OneSided {
            out: Outbound::new(Ring::of(staging), returns, terms.send_key, terms.send_limit),
            inbound: Inbound::new(
                Ring::of(returns.part(CONTROL_LEN, in_ring)),
                terms.receive_key,
                terms.rule,
                trailer,
                terms.receive_limit,
            ),
            returns,
            peer: mapped.map(|region| region.part(0, CONTROL_LEN)),
            rule: terms.rule,
            is_mapped: mapped.is_some(),
            lines_open: mapped.is_some(),
            puts_lines: mapped.is_none() && terms.rule != ArrivalRules::CHECKED,
            trails: mapped.is_none() && terms.rule == ArrivalRules::IN_ORDER && trailer == Trailer::Always,
            counts: terms.rule == ArrivalRules::WRITE_IMM,
            completed: 0,
            failed: None,
            fence: !remote.store_load_ordered(),
            waker: Waker::default(),
            notice: 0,
            state: State::default(),
            sent_state: State::default(),
            starved: None,
            pending: None,
            holds: false,
            wakes: Wakes::default(),
            remote,
            local,
            _shadow_ring: shadow,
        })
    }

    pub(super) fn path_info(&self) -> PathInfo {
        self.remote.path_info()
    }

    pub(super) fn reads(&mut self) -> Option<&mut dyn Reads> {
        self.remote.reads()
    }

    #[inline(always)]
    pub(super) fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// See [`Channel::may_have_frames`](super::Channel::may_have_frames).
    pub(super) fn may_have_frames(&self) -> bool {
        !self.is_mapped
            || self.holds
            || self.inbound.is_summing()
            || self.notices() != self.notice
            || !matches!(self.inbound.poll_fast(), FastPoll::Nothing)
    }

    #[inline(always)]
    pub(super) fn lines_are_open(&self) -> bool {
        self.lines_open
    }

    /// Keeps the fast paths from the space of the next frame.
    #[inline]
    pub(super) fn close_lines(&mut self) {
        self.lines_open = false;
        self.out.close();
    }

    /// Ends [`OneSided::close_lines`].
    #[inline]
    pub(super) fn open_lines(&mut self) {
        self.lines_open = self.is_mapped();
        self.out.open();
    }

    #[inline]
    pub(super) fn reserve(
        &mut self,
        layout: impl Fn(usize) -> Layout,
        trailer: Trailer,
    ) -> Result<(usize, Layout), SendError> {
        if self.pending.is_some() {
            self.move_pending()?;
        }
        match self.out.reserve(&layout) {
            Ok(reserved) => Ok(reserved),
            Err(why) => self.reserve_behind_skip(why, layout, trailer),
        }
    }

    #[cold]
    fn reserve_behind_skip(
        &mut self,
        why: NoSpace,
        layout: impl Fn(usize) -> Layout,
        trailer: Trailer,
    ) -> Result<(usize, Layout), SendError> {
        match why {
            NoSpace::Full => Err(self.starve()),
            NoSpace::TooLarge(len) => Err(SendError::TooLarge { len, max: self.out.ring().len() }),
            NoSpace::SkipFirst => {
                let trailer = trailer == Trailer::Always;
                let skip = self.out.skip(trailer);
                self.send(skip, trailer, skip.len)?;
                if self.pending.is_some() {
                    // The skip must go first.
                    return Err(SendError::Full);
                }
                // At the start of the ring no second skip is needed.
                self.out.reserve(layout).map_err(|_| self.starve())
            }
        }
    }

    #[cold]
    fn starve(&mut self) -> SendError {
        self.starved = Some(self.out.consumed());
        SendError::Full
    }

    /// Sends the frame whose space was reserved last, with this header and a payload that ends at `end`.
    #[inline]
    pub(super) fn commit(&mut self, mut header: Header, end: usize) -> Result<(), SendError> {
        let trailer = header.flags.contains(Flags::TRAILER);
        if self.is_mapped() {
            let alone = header.flags.contains(Flags::ALONE);
            header.frame_len = self.out.stretched(header.frame_len as usize, alone) as u32;
        }
        let frame = self.out.finish(header);
        self.send(frame, trailer, end)
    }

    /// Sends a finished frame whose parts end at `end`.
    #[inline]
    fn send(&mut self, mut frame: Finished, trailer: bool, end: usize) -> Result<(), SendError> {
        if trailer {
            self.out.trail(&frame, self.rule == ArrivalRules::CHECKED);
        }
        if self.is_mapped() {
            self.out.publish(&frame);
        } else {
            self.out.stage_signal(&frame);
            if matches!(self.rule, ArrivalRules::FENCED | ArrivalRules::WRITE_IMM) {
                // The signal proves the bytes put before it. Bytes behind the payload mean nothing.
                frame.len = frame.len.min(end.next_multiple_of(size_of::<u64>()));
            }
            self.pending = Some(Pending { frame, step: Step::Body });
            // If the queue is full, `progress` and the next `reserve` drain it: the frame counts as accepted.
            match self.move_pending() {
                Err(SendError::Full) => return Ok(()),
                result => result?,
            }
        }
        self.look_at_peer()?;
        Ok(())
    }

    /// Offset and address of a frame of one line, if the ring is mapped and has space for it, and no frame is
    /// kept.
    #[inline(always)]
    pub(super) fn line(&mut self) -> Option<(usize, NonNull<u8>)> {
        if !self.lines_open {
            return None;
        }
        let at = self.out.line()?;
        Some((at, self.out.ring().line_pointer(at)))
    }

    /// [`OneSided::line`] in the part of the ring that needs no check. Nor does `lines_open` need one: that
    /// part begins with a frame sent while `lines_open` was set, and [`OneSided::close_lines`] ends the part.
    #[inline(always)]
    pub(super) fn clear_line(&self) -> Option<(usize, NonNull<u8>)> {
        let at = self.out.clear_line()?;
        debug_assert!(self.lines_open);
        Some((at, self.out.ring().line_pointer(at)))
    }

    /// Sends the frame at `at`, an offset that [`OneSided::clear_line`] returned and at which the payload was
    /// written. Returns whether the peer's state has changed. Then call [`OneSided::look_at_changed_peer`],
    /// which wakes a sleeping peer.
    #[inline(always)]
    pub(super) fn send_clear_line(&mut self, at: usize, plan: &Plan<'_>, len: usize) -> bool {
        self.out.send_clear_line(at, plan, len);
        self.waker.state_changed(&self.returns, self.fence)
    }

    /// Wakes the peer, whose state has changed, if it fell asleep since the last check.
    #[cold]
    pub(super) fn look_at_changed_peer(&mut self) -> Result<(), TransportError> {
        let (out, wakes) = (&mut self.out, &mut self.wakes);
        let must_wake = self.waker.changed(&self.returns, || wakes.missed(|| out.in_flight()));
        if must_wake { self.remote.wake_peer() } else { Ok(()) }
    }

    /// Sends the frame at `at`, an offset that [`OneSided::line`] returned and at which the payload was
    /// written.
    #[inline(always)]
    pub(super) fn send_line(&mut self, at: usize, plan: &Plan<'_>, len: usize) -> Result<(), TransportError> {
        self.out.send_line(at, plan, len);
        self.look_at_peer()
    }

    /// Sends the frame at `at`, whose space is reserved and whose payload of `len` bytes was written from its
    /// second line on. Only for mapped rings.
    #[inline(always)]
    pub(super) fn send_lines(
        &mut self,
        at: usize,
        plan: &Plan<'_>,
        len: usize,
    ) -> Result<(), TransportError> {
        self.out.send_lines(at, plan, len);
        self.look_at_peer()
    }

    /// Wakes the peer if it fell asleep since the last check.
    #[inline(always)]
    fn look_at_peer(&mut self) -> Result<(), TransportError> {
        let (out, wakes) = (&mut self.out, &mut self.wakes);
        let must_wake = self.waker.must_wake(&self.returns, self.fence, || wakes.missed(|| out.in_flight()));
        if must_wake { self.remote.wake_peer() } else { Ok(()) }
    }

    /// Stops frames from waking the peer until [`OneSided::end_group`].
    pub(super) fn begin_group(&mut self) {
        self.wakes.hold();
    }

    /// Lets later frames wake the peer again. [`OneSided::wake_for_group`] wakes it for the frames sent
    /// meanwhile.
    pub(super) fn end_group(&mut self) {
        self.wakes.end_hold();
    }

    /// Returns whether the peer may sleep and have missed frames of a group.
    #[inline(always)]
    pub(super) fn owes_wake(&self) -> bool {
        self.wakes.are_owed()
    }

    /// Wakes the peer if it fell asleep before frames of a group arrived. [`OneSided::work`] does so for
    /// frames that the backend could not take yet.
    #[cold]
    pub(super) fn wake_for_group(&mut self) -> Result<(), TransportError> {
        self.wakes = Wakes::default();
        if self.pending.is_some() { Ok(()) } else { self.look_at_peer() }
    }

    /// Wakes the peer if it fell asleep before a sent frame arrived: the backend may still have been moving the frame, or
    /// `membarrier` may not have reached this thread (docs/design/sleep.md). The fence here needs no barrier of the peer.
    ///
    /// Wakes it only then: a peer that is going to sleep discards wake-ups, and polls for the frames that
    /// they announced. A wake-up without a frame would be lost, and the next frame would not wake the peer
    /// again for the same sleep.
    fn look_again(&mut self) -> Result<(), TransportError> {
        // The sleep first: the peer returns credit before it says that it sleeps.
        match self.waker.missed_sleep(&self.returns) {
            // A pending frame gets this check once it is handed over.
            Some(sleep) if self.pending.is_none() && self.wakes.missed(|| self.out.in_flight()) > 0 => {
                self.waker.note_woken(sleep);
                self.remote.wake_peer()
            }
            _ => Ok(()),
        }
    }

    /// The general poll.
    pub(super) fn poll(&mut self) -> Result<Seen, TransportError> {
        let completions = self.completions()?;
        self.inbound.poll(completions).map_err(protocol)
    }

    #[inline(always)]
    pub(super) fn release(&mut self, frame_len: u32) -> Result<(), TransportError> {
        self.inbound.release(frame_len);
        match self.inbound.due(false) {
            Some(position) => self.report(position),
            None => Ok(()),
        }
    }

    /// [`OneSided::release`] for a frame that [`Inbound::poll_plain`] found.
    #[inline(always)]
    pub(super) fn release_plain(&mut self, frame_len: u32) -> Result<(), TransportError> {
        self.inbound.release_plain(frame_len);
        if self.inbound.is_return_due() { self.report(self.inbound.position()) } else { Ok(()) }
    }

    /// Returns credit up to `position`.
    #[cold]
    fn report(&mut self, position: u64) -> Result<(), TransportError> {
        match self.write_credit_line(CONSUMED_AT, position) {
            Ok(()) => self.inbound.set_reported(position),
            // Sent again later: `due` still says so.
            Err(error) if error.is_full() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes a word of the credit line in the peer's region.
    fn write_credit_line(&mut self, at: usize, word: u64) -> Result<(), TransportError> {
        match &self.peer {
            Some(peer) => {
                // For CONSUMED_AT this pairs with the acquire load in `Outbound::refresh`: frames are read
                // before their credit is returned.
                let what = if at == STATE_AT { Handover::Notice } else { Handover::Credit };
                peer.store(at, word, release(what));
                Ok(())
            }
            None => {
                // Puts to the same bytes may overtake each other: without the fence an older word could stay.
                self.remote.fence()?;
                self.remote.put_word(at, word, self.inbound.position())
            }
        }
    }

    /// Returns whether the peer sent a notice since the last call.
    #[inline]
    pub(super) fn progress(&mut self, idle: bool) -> Result<bool, TransportError> {
        self.work(idle)?;
        let notice = self.notices();
        let called = notice != self.notice;
        self.notice = notice;
        Ok(called)
    }

    #[inline]
    fn work(&mut self, idle: bool) -> Result<(), TransportError> {
        if !self.is_mapped() {
            self.remote.progress()?;
            if let Err(SendError::Failed(error)) = self.move_pending() {
                return Err(error);
            }
            self.send_state()?;
        }
        if idle || !self.is_mapped() {
            self.look_again()?;
        }
        match self.inbound.due(idle) {
            Some(position) => self.report(position),
            None => Ok(()),
        }
    }
}
