//! The path through a mailbox: rings in regions that the peer writes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

use super::{Armed, SendError, Terms, failed, protocol, ring_of};
use crate::frame::{Flags, Header, LINE, Layout, Plan, Trailer};
use crate::mailbox::{
    CONSUMED_AT, CONTROL_LEN, Finished, Inbound, Look, NoRoom, Outbound, STATE_AT, Seen, Sleep, Sleeper,
    State, Waker, fall_asleep,
};
use crate::memory::{Memory, Region};
use crate::sync::{Handover, Ordering, release};
use crate::transport::{ArrivalRules, Cause, LocalMemory, Operation, RemoteMemory, Route, TransportError};

pub(super) struct OneSided {
    pub(super) out: Outbound<Region>,
    pub(super) inbound: Inbound<Region>,
    /// The whole local region, for its return line.
    returns: Region,
    /// The peer's control page, where it is mapped.
    peer: Option<Region>,
    rule: ArrivalRules,
    /// Between "store the frame" and "is the peer asleep?" a fence of our own is needed.
    fence: bool,
    waker: Waker,
    /// Attention of the peer's that was reported upwards.
    attention: u32,
    /// Our state, and what of it the peer was told: the same, unless the backend's queue was full.
    state: State,
    told: State,
    /// What the peer had consumed when there was no room for a frame: nobody rings when there is.
    starved: Option<u64>,
    /// A frame finished in the twin that the backend could not take yet.
    pending: Option<Pending>,
    /// The frame at the head is held: there is something, and it is not read again.
    holds: bool,
    // The regions above point into these, and into the twin: dropped last, in this order.
    remote: Box<dyn RemoteMemory>,
    pub(super) local: Box<dyn LocalMemory>,
    _twin: Twin,
}

/// How far the moving of a finished frame has come.
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

/// The staging ring of a path whose peer is not mapped: the same offsets as the peer's ring.
struct Twin(#[allow(dead_code, reason = "owned for its memory")] Vec<Page>);

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl OneSided {
    pub(super) fn new(
        local: Box<dyn LocalMemory>,
        mut remote: Box<dyn RemoteMemory>,
        terms: &Terms,
        trailer: Trailer,
    ) -> Result<Self, TransportError> {
        let (in_ring, out_ring) = (ring_of(terms.receive_region)?, ring_of(terms.send_region)?);
        for (stated, len) in [(terms.receive_region, local.len()), (terms.send_region, remote.len())] {
            if len < stated {
                let cause = Cause::OutOfRegion { offset: 0, len: stated, region: len };
                return Err(failed(Operation::Connect, cause));
            }
        }
        // SAFETY: `LocalMemory` promises its base and length until it is dropped; it is dropped after this value's regions.
        let returns = unsafe { Region::new(local.base(), local.len()) };
        let unsupported = |what| Err(failed(Operation::Connect, Cause::Unsupported(what)));
        // Under the other rules a mapping is not asked for: the peer's middleware may want to see what is put.
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
        // SAFETY: the same promise of `RemoteMemory::mapped`.
        let mapped = base.map(|base| unsafe { Region::new(base, remote.len()) });
        let (twin, staging) = match mapped {
            Some(region) => (Twin(Vec::new()), region.part(CONTROL_LEN, out_ring)),
            None => match remote.staging(out_ring)? {
                // SAFETY: `RemoteMemory::staging` promises so many bytes until it is dropped, and this value's regions are used
                // no longer than that.
                Some(base) => (Twin(Vec::new()), unsafe { Region::new(base, out_ring) }),
                None => {
                    let mut pages = alloc::vec![Page([0; 4096]); out_ring / 4096];
                    let base =
                        NonNull::new(pages.as_mut_ptr().cast()).expect("a vector's pointer is not null");
                    // SAFETY: the vector's buffer holds `out_ring` bytes, does not move while `Twin` owns it untouched, and is
                    // dropped with this value.
                    (Twin(pages), unsafe { Region::new(base, out_ring) })
                }
            },
        };
        Ok(OneSided {
            out: Outbound::new(staging, returns, terms.send_key, terms.send_limit),
            inbound: Inbound::new(
                returns.part(CONTROL_LEN, in_ring),
                terms.receive_key,
                terms.rule,
                trailer,
                terms.receive_limit,
            ),
            returns,
            peer: mapped.map(|region| region.part(0, CONTROL_LEN)),
            rule: terms.rule,
            fence: !remote.store_load_ordered(),
            waker: Waker::default(),
            attention: 0,
            state: State::default(),
            told: State::default(),
            starved: None,
            pending: None,
            holds: false,
            remote,
            local,
            _twin: twin,
        })
    }

    pub(super) fn route(&self) -> Route {
        self.remote.route()
    }

    #[inline(always)]
    pub(super) fn is_mapped(&self) -> bool {
        self.peer.is_some()
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
            Ok(room) => Ok(room),
            Err(why) => self.make_room(why, layout, trailer),
        }
    }

    #[cold]
    fn make_room(
        &mut self,
        why: NoRoom,
        layout: impl Fn(usize) -> Layout,
        trailer: Trailer,
    ) -> Result<(usize, Layout), SendError> {
        match why {
            NoRoom::Full => Err(self.starve()),
            NoRoom::TooLarge(len) => Err(SendError::TooLarge { len, max: self.out.ring().len() }),
            NoRoom::SkipFirst => {
                let trailer = trailer == Trailer::Always;
                let skip = self.out.skip(trailer);
                self.send(skip, trailer)?;
                if self.pending.is_some() {
                    // The skip has to go first.
                    return Err(SendError::Full);
                }
                // At the start of the ring there is no second skip.
                self.out.reserve(layout).map_err(|_| self.starve())
            }
        }
    }

    #[cold]
    fn starve(&mut self) -> SendError {
        self.starved = Some(self.out.consumed());
        SendError::Full
    }

    #[inline]
    pub(super) fn commit(&mut self, mut header: Header) -> Result<(), SendError> {
        let trailer = header.flags.contains(Flags::TRAILER);
        if self.is_mapped() {
            let alone = header.flags.contains(Flags::ALONE);
            header.frame_len = self.out.stretched(header.frame_len as usize, alone) as u32;
        }
        let frame = self.out.finish(header);
        self.send(frame, trailer)
    }

    #[inline]
    fn send(&mut self, frame: Finished, trailer: bool) -> Result<(), SendError> {
        if trailer {
            self.out.trail(&frame, self.rule == ArrivalRules::CHECKED);
        }
        if self.is_mapped() {
            self.out.publish(&frame);
        } else {
            self.out.stage_signal(&frame);
            self.pending = Some(Pending { frame, step: Step::Body });
            // A queue that is full is worked off by `progress` and by the next `reserve`: the frame is accepted.
            match self.move_pending() {
                Err(SendError::Full) => return Ok(()),
                result => result?,
            }
        }
        self.look_at_peer()?;
        Ok(())
    }

    /// Where a frame of one line goes, in a mapped ring with room for it: its offset and its address.
    #[inline(always)]
    pub(super) fn line(&mut self) -> Option<(usize, NonNull<u8>)> {
        if !self.is_mapped() {
            return None;
        }
        let at = self.out.line()?;
        Some((at, self.out.ring().pointer(at, LINE)))
    }

    /// Sends the frame at `at`, which [`OneSided::line`] said and where its payload was written.
    #[inline(always)]
    pub(super) fn send_line(&mut self, at: usize, plan: &Plan<'_>, len: usize) -> Result<(), TransportError> {
        self.out.send_line(at, plan, len);
        self.look_at_peer()
    }

    /// Sends the frame at `at`, for which there is room and whose payload of `len` bytes was written from its second line on. Only
    /// in a mapped ring.
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

    /// Hands the finished frame to the backend, from where it stopped.
    fn move_pending(&mut self) -> Result<(), SendError> {
        let Some(Pending { frame, mut step }) = self.pending else { return Ok(()) };
        let ring_at = CONTROL_LEN + frame.at;
        let inside = ring_at.checked_add(frame.len).is_some_and(|end| end <= self.remote.len());
        if !inside {
            let region = self.remote.len();
            let cause = Cause::OutOfRegion { offset: ring_at, len: frame.len, region };
            return Err(failed(Operation::Put, cause).with_frame(frame.position).into());
        }
        // SAFETY: a frame is pending only where the peer is not mapped (`send`), so this is the staging ring, which the peer never
        // reaches. The frame is finished: this side writes these bytes again only after the peer returned credit for them.
        let bytes = unsafe { self.out.ring().slice(frame.at, frame.len) };
        let result = loop {
            let taken = match (self.rule, step) {
                (ArrivalRules::FENCED, Step::Body) => {
                    self.remote.put(ring_at + 8, &bytes[8..], frame.position)
                }
                (ArrivalRules::FENCED, Step::Fence) => self.remote.fence(),
                (ArrivalRules::FENCED, Step::Signal) => {
                    break self.remote.put_word(ring_at, frame.signal, frame.position);
                }
                // A frame that reads whole may still have writes under way, of bytes that were there already. A lap later
                // they would spoil what is put then: one fence a lap keeps them apart.
                (ArrivalRules::CHECKED, Step::Body) if frame.at == 0 => self.remote.fence(),
                (ArrivalRules::WRITE_IMM, _) => {
                    break self.remote.put_with_completion(ring_at, bytes, frame.position);
                }
                _ => break self.remote.put(ring_at, bytes, frame.position),
            };
            if let Err(error) = taken {
                break Err(error);
            }
            step = if step == Step::Body { Step::Fence } else { Step::Signal };
        };
        match result {
            Ok(()) => {
                self.pending = None;
                Ok(())
            }
            Err(error) if error.is_full() => {
                self.pending = Some(Pending { frame, step });
                Err(SendError::Full)
            }
            Err(error) => Err(error.with_frame(frame.position).into()),
        }
    }

    /// Wakes the peer if it fell asleep since we last looked.
    #[inline(always)]
    fn look_at_peer(&mut self) -> Result<(), TransportError> {
        let out = &mut self.out;
        let must_ring = self.waker.must_ring(&self.returns, self.fence, || out.in_flight());
        if must_ring { self.remote.ring() } else { Ok(()) }
    }

    /// Wakes the peer if it fell asleep before a frame had come that was sent already: the backend may have been at it still.
    ///
    /// Only then: a peer on its way to sleep takes rings back and looks whether what they tell of is there. A ring that tells of
    /// nothing would be lost on it, and the frame that comes next would not ring again for the same sleep.
    fn look_again(&mut self) -> Result<(), TransportError> {
        // The sleep first: the peer tells how far it has consumed before it says that it sleeps.
        match self.waker.unanswered(&self.returns, self.fence) {
            // A frame that was not handed over yet is looked after once it was.
            Some(sleep) if self.pending.is_none() && self.out.in_flight() > 0 => {
                self.waker.answer(sleep);
                self.remote.ring()
            }
            _ => Ok(()),
        }
    }

    /// The long look.
    pub(super) fn poll(&mut self) -> Result<Seen, TransportError> {
        let completions = match self.rule {
            ArrivalRules::WRITE_IMM => Some(self.local.completions()?),
            _ => None,
        };
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

    /// Tells the peer how far we have consumed.
    #[cold]
    fn report(&mut self, position: u64) -> Result<(), TransportError> {
        match self.tell(CONSUMED_AT, position) {
            Ok(()) => self.inbound.told(position),
            // Told again later: `due` still says so.
            Err(error) if error.is_full() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes a word of the return line in the peer's region.
    fn tell(&mut self, at: usize, word: u64) -> Result<(), TransportError> {
        match &self.peer {
            Some(peer) => {
                // For CONSUMED_AT this pairs with the acquire load in `Outbound::refresh`: what was read of the frames is
                // read before their room is given back.
                let what = if at == STATE_AT { Handover::Attention } else { Handover::Room };
                peer.store(at, word, release(what));
                Ok(())
            }
            None => {
                // Puts to the same bytes may overtake each other: an older word must not be the one that stays.
                self.remote.fence()?;
                self.remote.put_word(at, word, self.inbound.position())
            }
        }
    }

    /// Whether the peer called for attention since the last call of this.
    #[inline]
    pub(super) fn progress(&mut self, idle: bool) -> Result<bool, TransportError> {
        self.work(idle)?;
        let attention = self.attention_called();
        let called = attention != self.attention;
        self.attention = attention;
        Ok(called)
    }

    #[inline]
    fn work(&mut self, idle: bool) -> Result<(), TransportError> {
        if !self.is_mapped() {
            self.remote.progress()?;
            if let Err(SendError::Failed(error)) = self.move_pending() {
                return Err(error);
            }
            self.tell_state()?;
            self.look_again()?;
        }
        match self.inbound.due(idle) {
            Some(position) => self.report(position),
            None => Ok(()),
        }
    }

    #[inline]
    fn attention_called(&self) -> u32 {
        // Acquire: what the peer put on the control connection before is there for whoever looks after this.
        State(self.returns.load(STATE_AT, Ordering::Acquire)).attention()
    }

    pub(super) fn call_attention(&mut self) -> Result<(), TransportError> {
        self.state = self.state.with_attention();
        self.tell_state()
    }

    /// Tells the peer our state where it does not know it, and rings if that calls for attention. What the backend cannot
    /// take now `work` tells later.
    fn tell_state(&mut self) -> Result<(), TransportError> {
        if self.told == self.state {
            return Ok(());
        }
        match self.tell(STATE_AT, self.state.0) {
            Ok(()) => {
                let calls = self.told.attention() != self.state.attention();
                self.told = self.state;
                if calls { self.remote.ring() } else { Ok(()) }
            }
            Err(error) if error.is_full() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// `holds`: a frame was found and is not released.
    pub(super) fn arm(&mut self, holds: bool) -> Result<Armed, TransportError> {
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

    pub(super) fn disarm(&mut self) -> Result<(), TransportError> {
        if !self.state.asleep() {
            return Ok(());
        }
        self.state = self.state.toggled();
        self.tell_state()?;
        self.local.after_sleep()
    }
}

impl Sleeper for OneSided {
    type Error = TransportError;

    fn say_asleep(&mut self) -> Result<bool, TransportError> {
        if !self.state.asleep() {
            self.state = self.state.toggled();
        }
        self.tell_state()?;
        // A peer that does not know how far we have consumed would ring for what we have.
        Ok(self.told == self.state && self.inbound.due(true).is_none())
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
        // The peer has rung for this sleep when it sent the skip, and will not for the frame that comes behind it.
        let skipped = self.inbound.position() != position;
        // `order` may have taken a ring away that called for attention.
        let called = self.attention_called() != self.attention;
        let fed = self.starved.is_some_and(|consumed| self.out.consumed() != consumed);
        if fed {
            self.starved = None;
        }
        if matches!(seen, Seen::Frame(..)) || self.inbound.is_summing() || skipped || called || fed {
            return Ok(Look::Something);
        }
        let under_way = seen == Seen::Partial
            || self.pending.is_some()
            || self.starved.is_some()
            || self.inbound.due(true).is_some();
        Ok(if under_way { Look::UnderWay } else { Look::Nothing })
    }
}
