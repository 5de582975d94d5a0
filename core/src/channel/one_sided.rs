//! The path through a mailbox: rings in regions that the peer writes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Armed, SendError, Terms, failed, protocol, ring_of};
use crate::frame::{Header, Layout, Trailer};
use crate::mailbox::{CONSUMED_AT, CONTROL_LEN, Inbound, NoRoom, Outbound, STATE_AT, Seen, State};
use crate::memory::{Memory, Region};
use crate::sync::{Ordering, fence};
use crate::transport::{ArrivalRules, Cause, LocalMemory, Operation, RemoteMemory, TransportError};

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
    /// Last state of the peer that was acted upon; while it does not change there is nothing to do.
    peer_state: State,
    /// Attention of the peer's that was reported upwards.
    attention: u32,
    /// Our state, as last told.
    state: State,
    /// A frame finished in the twin that the backend could not take yet.
    pending: Option<Pending>,
    // The regions above point into these, and into the twin: dropped last, in this order.
    remote: Box<dyn RemoteMemory>,
    pub(super) local: Box<dyn LocalMemory>,
    _twin: Twin,
}

/// How far the moving of a finished frame has come.
#[derive(Clone, Copy)]
struct Pending {
    at: usize,
    len: usize,
    signal: u64,
    position: u64,
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
        remote: Box<dyn RemoteMemory>,
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
        // SAFETY: the same promise of `RemoteMemory::mapped`.
        let mapped = remote.mapped().map(|base| unsafe { Region::new(base, remote.len()) });
        if (terms.rule == ArrivalRules::STORES) != mapped.is_some() {
            return Err(failed(Operation::Connect, Cause::Unsupported("this arrival rule on this memory")));
        }
        let (twin, staging) = match mapped {
            Some(region) => (Twin(Vec::new()), region.part(CONTROL_LEN, out_ring)),
            None => {
                let mut pages = alloc::vec![Page([0; 4096]); out_ring / 4096];
                let base = core::ptr::NonNull::new(pages.as_mut_ptr().cast())
                    .expect("a vector's pointer is not null");
                // SAFETY: the vector's buffer holds `out_ring` bytes, does not move while `Twin` owns it untouched, and is
                // dropped with this value.
                (Twin(pages), unsafe { Region::new(base, out_ring) })
            }
        };
        Ok(OneSided {
            out: Outbound::new(staging, returns, terms.send_key),
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
            peer_state: State::default(),
            attention: 0,
            state: State::default(),
            pending: None,
            remote,
            local,
            _twin: twin,
        })
    }

    #[inline]
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
            NoRoom::Full => Err(SendError::Full),
            NoRoom::TooLarge(len) => Err(SendError::TooLarge { len, max: self.out.ring().len() }),
            NoRoom::SkipFirst => {
                let trailer = trailer == Trailer::Always;
                let skip = self.out.skip(trailer);
                self.send(skip, trailer)?;
                // At the start of the ring there is no second skip.
                self.out.reserve(layout).map_err(|_| SendError::Full)
            }
        }
    }

    #[inline]
    pub(super) fn commit(&mut self, header: Header) -> Result<(), SendError> {
        let trailer = header.flags.contains(crate::frame::Flags::TRAILER);
        let frame = self.out.finish(header);
        self.send(frame, trailer)
    }

    #[inline]
    fn send(&mut self, frame: crate::mailbox::Finished, trailer: bool) -> Result<(), SendError> {
        if trailer {
            self.out.trail(&frame, self.rule == ArrivalRules::CHECKED);
        }
        if self.is_mapped() {
            self.out.publish(&frame);
        } else {
            self.out.stage_signal(&frame);
            let crate::mailbox::Finished { at, len, signal, position } = frame;
            self.pending = Some(Pending { at, len, signal, position, step: Step::Body });
            // A queue that is full is worked off by `progress` and by the next `reserve`: the frame is accepted.
            match self.move_pending() {
                Err(SendError::Full) => return Ok(()),
                result => result?,
            }
        }
        self.look_at_peer()?;
        Ok(())
    }

    /// Hands the finished frame to the backend, from where it stopped.
    fn move_pending(&mut self) -> Result<(), SendError> {
        let Some(mut frame) = self.pending else { return Ok(()) };
        let ring_at = CONTROL_LEN + frame.at;
        let inside = ring_at.checked_add(frame.len).is_some_and(|end| end <= self.remote.len());
        if !inside {
            let region = self.remote.len();
            let cause = Cause::OutOfRegion { offset: ring_at, len: frame.len, region };
            return Err(failed(Operation::Put, cause).with_frame(frame.position).into());
        }
        // SAFETY: the frame is finished: this side writes these bytes again only after the peer returned credit for them.
        let bytes = unsafe { self.out.ring().slice(frame.at, frame.len) };
        let result = match self.rule {
            ArrivalRules::FENCED => loop {
                let step = match frame.step {
                    Step::Body => self.remote.put(ring_at + 8, &bytes[8..], frame.position),
                    Step::Fence => self.remote.fence(),
                    Step::Signal => break self.remote.put_word(ring_at, frame.signal, frame.position),
                };
                match step {
                    Ok(()) => frame.step = if frame.step == Step::Body { Step::Fence } else { Step::Signal },
                    error => break error,
                }
            },
            ArrivalRules::WRITE_IMM => self.remote.put_with_completion(ring_at, bytes, frame.position),
            _ => self.remote.put(ring_at, bytes, frame.position),
        };
        match result {
            Ok(()) => {
                self.pending = None;
                Ok(())
            }
            Err(error) if error.is_full() => {
                self.pending = Some(frame);
                Err(SendError::Full)
            }
            Err(error) => Err(error.with_frame(frame.position).into()),
        }
    }

    /// Wakes the peer if it fell asleep since we last looked.
    #[inline]
    fn look_at_peer(&mut self) -> Result<(), TransportError> {
        if self.fence {
            // Pairs with the fence (or membarrier) in `LocalMemory::before_sleep`: either we see that the peer sleeps, or
            // it sees our frame.
            fence(Ordering::SeqCst);
        } else {
            core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        }
        let state = State(self.returns.load(STATE_AT, Ordering::Relaxed));
        if state != self.peer_state { self.peer_changed(state) } else { Ok(()) }
    }

    #[cold]
    fn peer_changed(&mut self, state: State) -> Result<(), TransportError> {
        self.peer_state = state;
        if state.asleep() { self.remote.ring() } else { Ok(()) }
    }

    #[inline]
    pub(super) fn poll(&mut self) -> Result<Seen, TransportError> {
        let completions = match self.rule {
            ArrivalRules::WRITE_IMM => Some(self.local.completions()?),
            _ => None,
        };
        self.inbound.poll(completions).map_err(protocol)
    }

    #[inline]
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
                peer.store(at, word, Ordering::Release);
                Ok(())
            }
            None => self.remote.put_word(at, word, self.inbound.position()),
        }
    }

    pub(super) fn progress(&mut self, idle: bool) -> Result<bool, TransportError> {
        if !self.is_mapped() {
            self.remote.progress()?;
            match self.move_pending() {
                Err(SendError::Failed(error)) => return Err(error),
                _ => self.look_at_peer()?,
            }
        }
        if let Some(position) = self.inbound.due(idle) {
            self.report(position)?;
        }
        let attention = State(self.returns.load(STATE_AT, Ordering::Acquire)).attention();
        let called = attention != self.attention;
        self.attention = attention;
        Ok(called)
    }

    pub(super) fn call_attention(&mut self) -> Result<(), TransportError> {
        self.set_state(self.state.with_attention())?;
        self.remote.ring()
    }

    fn set_state(&mut self, state: State) -> Result<(), TransportError> {
        match self.tell(STATE_AT, state.0) {
            Err(error) if error.is_full() => {
                self.remote.progress()?;
                Ok(())
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.state = state;
                Ok(())
            }
        }
    }

    pub(super) fn arm(&mut self) -> Result<Armed, TransportError> {
        self.progress(true)?;
        if !self.state.asleep() {
            self.set_state(self.state.toggled())?;
        }
        let told = self.local.before_sleep()?;
        let seen = self.poll()?;
        if matches!(seen, Seen::Frame(..)) {
            self.disarm()?;
            return Ok(Armed::Ready);
        }
        // A frame of the peer's or of ours is on its way, or the peer does not know that we sleep: nobody would ring.
        if !told || seen == Seen::Partial || !self.state.asleep() || self.pending.is_some() {
            return Ok(Armed::Nap);
        }
        Ok(self.local.descriptor().map_or(Armed::Nap, Armed::Sleep))
    }

    pub(super) fn disarm(&mut self) -> Result<(), TransportError> {
        if self.state.asleep() {
            self.set_state(self.state.toggled())?;
            self.local.after_sleep()?;
        }
        Ok(())
    }
}
