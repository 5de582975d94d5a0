//! The pending calls of a link.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Waker;

use farjump_core::frame::{Kind, Plan};
use smallvec::SmallVec;

use crate::Error;
use crate::link::wait::tasks::Tasks;

/// A reply's bytes: those of one line are kept without an allocation.
pub(crate) type ReplyBytes = SmallVec<[u8; 40]>;

/// Calls whose outcome was not taken, and data that belongs to their outcomes.
// The fields that every call uses come first, side by side.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct PendingCalls {
    pub(crate) slots: CallSlots,
    /// Memory of a long reply, kept for the next one.
    pub(crate) spare_reply: ReplyBytes,
    /// First refusal of a one-way call, for the next flush.
    pub(crate) one_way_refusal: Option<Error>,
}

/// Slots for pending calls. A token is a slot and the slot's generation, so a late reply to a cancelled call
/// matches no call. Slots are reused: in the steady state nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct CallSlots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Wakers of the tasks that await calls, made with the first of them.
    tasks: Option<Arc<Tasks>>,
}

#[derive(Debug)]
struct Slot {
    /// Counts reuses in 16 bits; never 0, so that no token is 0. Wider than needed, so that it is stored and
    /// loaded alone.
    generation: u32,
    /// Code index of the function called, to name it in errors.
    code: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting,
    /// As `Waiting`, with a task to wake when the outcome comes.
    Awaited,
    /// Cancelled by its owner; the outcome is still to come and frees the slot.
    Abandoned,
    Done(Result<ReplyBytes, Error>),
}

/// Most pending calls on one link.
pub(crate) const MAX_CALLS: usize = 1 << 15;

/// Marks the tokens of one-way frames: no slot has so high a number ([`MAX_CALLS`]). The upper half holds the
/// code index, which identifies the function of a refusal.
const ONE_WAY: u32 = MAX_CALLS as u32;

/// The token of one-way frames of the function with this code index.
pub(crate) fn one_way_token(index: u16) -> u32 {
    ONE_WAY | u32::from(index) << 16
}

/// The code index in the token of a one-way frame; `None` for the token of a call with a reply.
pub(crate) fn one_way_index(token: u32) -> Option<u16> {
    (token & ONE_WAY != 0).then_some((token >> 16) as u16)
}

fn token(slot: usize, generation: u32) -> u32 {
    slot as u32 | generation << 16
}

impl CallSlots {
    /// A token for a new call; `None` when [`MAX_CALLS`] are pending.
    #[inline(always)]
    pub(crate) fn open(&mut self, code: u16) -> Option<u32> {
        match self.open_free(code) {
            Some(token) => Some(token),
            None => self.grow(code),
        }
    }

    /// A token for a new call in a free slot; `None` without one.
    #[inline(always)]
    fn open_free(&mut self, code: u16) -> Option<u32> {
        let slot = self.free.pop()?;
        let entry = &mut self.slots[usize::from(slot)];
        // The state of a free slot owns nothing that would have to be dropped.
        debug_assert!(matches!(entry.state, State::Free));
        std::mem::forget(std::mem::replace(&mut entry.state, State::Waiting));
        entry.code = u32::from(code);
        Some(token(usize::from(slot), entry.generation))
    }

    /// A token for a call of the code with this index: a slot's if a reply is wanted. `None` when
    /// [`MAX_CALLS`] are pending.
    #[inline(always)]
    pub(crate) fn token(&mut self, index: u16, wants_reply: bool) -> Option<u32> {
        if wants_reply { self.open(index) } else { Some(one_way_token(index)) }
    }

    /// The plan of a frame that calls the code with this index; `None` when [`MAX_CALLS`] are pending.
    #[inline(always)]
    pub(crate) fn plan(&mut self, kind: Kind, index: u16, wants_reply: bool) -> Option<Plan<'static>> {
        let alone = wants_reply && self.none_in_flight();
        let token = self.token(index, wants_reply)?;
        Some(Plan { kind, wants_reply, alone, travelled: false, index, token, align_log2: 0, code: None })
    }

    /// As [`CallSlots::plan`] if that allocates no slot; `None` otherwise.
    #[inline(always)]
    pub(crate) fn plan_in_place(
        &mut self,
        kind: Kind,
        index: u16,
        wants_reply: bool,
    ) -> Option<Plan<'static>> {
        let alone = wants_reply && self.none_in_flight();
        let token = if wants_reply { self.open_free(index)? } else { one_way_token(index) };
        Some(Plan { kind, wants_reply, alone, travelled: false, index, token, align_log2: 0, code: None })
    }

    /// Frees a token for which nothing was sent.
    pub(crate) fn take_back(&mut self, token: u32) {
        if one_way_index(token).is_none() {
            self.close(token);
        }
    }

    #[cold]
    fn grow(&mut self, code: u16) -> Option<u32> {
        let slot = self.slots.len();
        if slot == MAX_CALLS {
            return None;
        }
        self.slots.push(Slot { generation: 1, code: u32::from(code), state: State::Waiting });
        self.free.reserve(self.slots.len());
        Some(token(slot, 1))
    }

    #[inline]
    fn slot(&mut self, token: u32) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::from(token as u16))?;
        (slot.generation == token >> 16).then_some(slot)
    }

    /// Returns whether no call is pending.
    #[inline(always)]
    pub(crate) fn none_in_flight(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Code index of the function that the call with this token runs.
    pub(crate) fn code(&mut self, token: u32) -> Option<u16> {
        self.slot(token).map(|slot| slot.code as u16)
    }

    /// Returns whether the call with this token is pending, and no task awaits it.
    #[inline]
    pub(crate) fn waits(&mut self, token: u32) -> bool {
        self.slot(token).is_some_and(|slot| matches!(slot.state, State::Waiting))
    }

    /// Returns whether the outcome of the call with this token is still to come.
    pub(crate) fn is_in_flight(&mut self, token: u32) -> bool {
        self.slot(token).is_some_and(|slot| matches!(slot.state, State::Waiting | State::Abandoned))
    }

    /// Code indexes of the functions of calls whose outcome is still to come.
    pub(crate) fn codes_in_flight(&self) -> HashSet<u16> {
        let in_flight = self.slots.iter().filter(|slot| !matches!(slot.state, State::Free | State::Done(_)));
        in_flight.map(|slot| slot.code as u16).collect()
    }

    /// Returns whether the call with this token still belongs to its owner: its outcome was not taken, and it was not
    /// cancelled.
    #[inline]
    pub(crate) fn is_owned(&mut self, token: u32) -> bool {
        self.slot(token).is_some_and(|slot| !matches!(slot.state, State::Free | State::Abandoned))
    }

    /// Registers `waker` for the outcome of a pending call, in place of an earlier one. Returns `false` if the call is
    /// not pending.
    pub(crate) fn wake_on_outcome(&mut self, token: u32, waker: &Waker) -> bool {
        let Some(slot) = self.slot(token) else { return false };
        if !matches!(slot.state, State::Waiting | State::Awaited) {
            return false;
        }
        slot.state = State::Awaited;
        self.tasks().set_call(token as u16, waker);
        true
    }

    /// Tasks that await the link.
    pub(crate) fn tasks(&mut self) -> &Arc<Tasks> {
        self.tasks.get_or_insert_default()
    }

    /// Tasks that await the link, if any ever has.
    pub(crate) fn known_tasks(&self) -> Option<&Arc<Tasks>> {
        self.tasks.as_ref()
    }

    /// Notes the outcome of a call. Returns `false` if no call waits for it.
    #[inline]
    pub(crate) fn set_outcome(
        &mut self,
        token: u32,
        outcome: impl FnOnce() -> Result<ReplyBytes, Error>,
    ) -> bool {
        let Some(slot) = self.slot(token) else { return false };
        match slot.state {
            State::Waiting => {
                slot.state = State::Done(outcome());
                true
            }
            State::Abandoned => {
                self.free(token);
                true
            }
            State::Awaited => {
                slot.state = State::Done(outcome());
                self.wake(token);
                true
            }
            State::Free | State::Done(_) => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, token: u32) {
        if let Some(tasks) = &self.tasks {
            tasks.wake_call(token as u16);
        }
    }

    /// Takes the outcome, if it has come; the token is then void.
    #[inline]
    pub(crate) fn take(&mut self, token: u32) -> Option<Result<ReplyBytes, Error>> {
        let slot = self.slot(token)?;
        let State::Done(_) = slot.state else { return None };
        let State::Done(outcome) = std::mem::replace(&mut slot.state, State::Free) else { return None };
        self.free(token);
        Some(outcome)
    }

    /// Cancels the call. Its outcome, when it comes, is dropped.
    pub(crate) fn abandon(&mut self, token: u32) {
        let Some(slot) = self.slot(token) else { return };
        match slot.state {
            State::Waiting => slot.state = State::Abandoned,
            State::Awaited => {
                slot.state = State::Abandoned;
                if let Some(tasks) = &self.tasks {
                    tasks.unregister_call(token as u16);
                }
            }
            State::Done(_) => self.free(token),
            State::Free | State::Abandoned => {}
        }
    }

    /// Frees a token: nothing was sent for it, or its outcome needs no note.
    #[inline]
    pub(crate) fn close(&mut self, token: u32) {
        if self.slot(token).is_some() {
            self.free(token);
        }
    }

    #[inline]
    fn free(&mut self, token: u32) {
        let Some(slot) = self.slot(token) else { return };
        slot.state = State::Free;
        slot.generation = if slot.generation == 0xffff { 1 } else { slot.generation + 1 };
        self.free.push(token as u16);
    }

    /// Ends every pending call with an error, frees the cancelled ones, and wakes all tasks.
    pub(crate) fn fail_all(&mut self, error: impl Fn() -> Error) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let token = token(index, slot.generation);
            match slot.state {
                State::Waiting | State::Awaited => slot.state = State::Done(Err(error())),
                State::Abandoned => self.free(token),
                State::Free | State::Done(_) => {}
            }
        }
        if let Some(tasks) = &self.tasks {
            tasks.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<ReplyBytes, Error> {
        Ok(SmallVec::from_slice(text.as_bytes()))
    }

    #[test]
    fn outcomes_find_their_calls_in_any_order() {
        let mut calls = CallSlots::default();
        let (a, b) = (calls.open(0).unwrap(), calls.open(0).unwrap());
        assert!(calls.set_outcome(b, || bytes("b")) && calls.take(a).is_none());
        assert!(calls.set_outcome(a, || bytes("a")));
        assert!(calls.is_owned(a));
        assert_eq!(calls.take(a).unwrap().unwrap().as_slice(), b"a");
        assert!(!calls.is_owned(a) && calls.is_owned(b), "a's outcome was taken");
        assert_eq!(calls.take(b).unwrap().unwrap().as_slice(), b"b");
        assert!(calls.take(b).is_none());
    }

    #[test]
    fn the_outcome_of_an_abandoned_call_frees_its_slot() {
        let mut calls = CallSlots::default();
        let first = calls.open(0).unwrap();
        calls.abandon(first);
        assert!(!calls.is_owned(first));
        let second = calls.open(0).unwrap();
        assert_ne!(first as u16, second as u16, "the slot is taken until the outcome has come");
        assert!(calls.set_outcome(first, || bytes("late")));
        let third = calls.open(0).unwrap();
        assert_eq!(first as u16, third as u16);
        assert!(!calls.set_outcome(first, || bytes("later still")), "the old token is void");
        assert!(calls.take(third).is_none());
    }

    #[test]
    fn the_table_is_bounded_and_no_token_is_zero() {
        let mut calls = CallSlots::default();
        for _ in 0..MAX_CALLS {
            assert_ne!(calls.open(0).unwrap(), 0);
        }
        assert!(calls.open(0).is_none());
    }

    #[test]
    fn the_outcome_of_an_awaited_call_wakes_its_task_once() {
        let (mut calls, counted) =
            (CallSlots::default(), Arc::new(crate::link::wait::tasks::tests::Counted::default()));
        let waker = Waker::from(Arc::clone(&counted));
        let (a, b) = (calls.open(0).unwrap(), calls.open(0).unwrap());
        assert!(calls.wake_on_outcome(a, &waker) && calls.wake_on_outcome(b, &waker));
        assert!(!calls.waits(a) && calls.is_owned(a));
        assert_eq!(calls.codes_in_flight(), HashSet::from([0]), "their code is still in use");
        assert!(calls.set_outcome(a, || bytes("a")));
        assert_eq!(counted.wakes(), 1);
        assert!(!calls.wake_on_outcome(a, &waker), "it has its outcome");
        calls.abandon(b);
        assert!(!calls.is_owned(b));
        assert!(calls.set_outcome(b, || bytes("late")));
        assert_eq!(counted.wakes(), 1, "a cancelled call wakes no task");
        assert!(calls.take(a).unwrap().is_ok() && calls.none_in_flight());
    }

    #[test]
    fn the_end_of_a_link_ends_every_waiting_call() {
        let mut calls = CallSlots::default();
        let (kept, given_up) = (calls.open(0).unwrap(), calls.open(0).unwrap());
        calls.abandon(given_up);
        calls.fail_all(|| {
            Error::Wait(crate::WaitError::PeerGone {
                peer: "test".into(),
                cause: crate::GoneCause::Reconnected,
            })
        });
        assert!(calls.take(kept).unwrap().is_err());
        assert_eq!(calls.open(0).unwrap() as u16, kept as u16);
    }
}
