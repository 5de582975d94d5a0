//! Falling asleep and being woken: the state word of a credit line, and the handshake that loses no wake-up.
//!
//! | sender | sleeper |
//! |---|---|
//! | stores a frame; *order*; wakes a sleeper | says "asleep"; *order*; stays awake if there is a frame |
//!
//! Each stores one word, then loads the other's. With a full fence at *order* in both, at least one sees the
//! other's store. Without one of them both can miss it, and the frame stays unseen. The sleeper can replace
//! the sender's fence by `membarrier`: see
//! [`store_load_ordered`](crate::transport::RemoteMemory::store_load_ordered).

use crate::memory::Memory;
use crate::sync::{Ordering, compiler_fence, fence};

use super::STATE_AT;

/// The state word of a credit line.
///
/// The low half counts falling asleep and waking up: odd while asleep. The high half counts the notices of
/// its writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct State(pub(crate) u64);

impl State {
    pub(crate) const fn asleep(self) -> bool {
        self.0 & 1 != 0
    }

    pub(crate) const fn notice(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn toggled(self) -> State {
        State((self.0 & !0xffff_ffff) | ((self.0 as u32).wrapping_add(1) as u64))
    }

    pub(crate) const fn with_notice(self) -> State {
        let notice = self.notice().wrapping_add(1) as u64;
        State((self.0 & 0xffff_ffff) | (notice << 32))
    }
}

/// The sender's part: the peer's state that it last acted upon. While the state does not change there is
/// nothing to do.
#[derive(Default)]
pub(crate) struct Waker {
    seen: State,
}

impl Waker {
    /// Returns whether the peer fell asleep since the last check and must be woken. Call this after every
    /// stored frame, with `fenced` unless the sleeper provides the order. `returns` is the region that the
    /// peer writes. `in_flight` returns the bytes that the peer is not known to have consumed.
    #[inline(always)]
    pub(crate) fn must_wake(
        &mut self,
        returns: &impl Memory,
        fenced: bool,
        in_flight: impl FnOnce() -> u64,
    ) -> bool {
        self.state_changed(returns, fenced) && self.changed(returns, in_flight)
    }

    /// Returns whether the peer's state has changed since the last check: only then may it have fallen
    /// asleep. Call this as [`Waker::must_wake`].
    #[inline(always)]
    pub(crate) fn state_changed(&self, returns: &impl Memory, fenced: bool) -> bool {
        order(fenced);
        // Relaxed: `changed` has the fence for the reads that depend on it.
        State(returns.load_first(STATE_AT, Ordering::Relaxed)) != self.seen
    }

    /// The peer's current sleep, if this sender has not woken it from that sleep. For checks that follow no
    /// frame: before the caller wakes the peer for this sleep ([`Waker::note_woken`]), it must know that the
    /// peer may have missed a frame.
    pub(crate) fn missed_sleep(&self, returns: &impl Memory) -> Option<State> {
        order(true);
        // Acquire: the peer's consumed position at the time it fell asleep is read after the state.
        let state = State(returns.load(STATE_AT, Ordering::Acquire));
        (state != self.seen && state.asleep()).then_some(state)
    }

    /// Records that the peer was woken from this sleep, so that no second wake-up follows.
    pub(crate) fn note_woken(&mut self, sleep: State) {
        self.seen = sleep;
    }

    /// [`Waker::must_wake`] after [`Waker::state_changed`].
    #[cold]
    pub(crate) fn changed(&mut self, returns: &impl Memory, in_flight: impl FnOnce() -> u64) -> bool {
        let state = State(returns.load_first(STATE_AT, Ordering::Relaxed));
        if !state.asleep() {
            self.seen = state;
            return false;
        }
        // Pairs with the release store of the state: the peer's consumed position at the time it fell asleep
        // is read after it.
        fence(Ordering::Acquire);
        // A peer that took the frame before it fell asleep is not woken. It might discard the wake-up and
        // find nothing, and the next frame would not wake it again for the same sleep.
        let missed = in_flight() > 0;
        if missed {
            self.seen = state;
        }
        missed
    }
}

/// The order between "store a frame" and "is the peer asleep?".
#[inline(always)]
fn order(fenced: bool) {
    if fenced {
        // Pairs with the fence in `Sleeper::order`: either this sender sees that the peer sleeps, or the peer
        // sees the frame.
        fence(Ordering::SeqCst);
    } else {
        // The barrier that the sleeper calls in `Sleeper::order` orders the processor; this orders the
        // compiler.
        compiler_fence(Ordering::SeqCst);
    }
}

/// The steps of going to sleep.
pub(crate) trait Sleeper {
    type Error;

    /// Stores "asleep" in the peer's region. Returns `false` if the peer could not be notified now.
    fn say_asleep(&mut self) -> Result<bool, Self::Error>;

    /// Orders the store before the poll that follows, for the peer too. Returns `false` if the order is not
    /// guaranteed.
    fn order(&mut self) -> Result<bool, Self::Error>;

    /// Checks whether there is something to do.
    fn look(&mut self) -> Result<Look, Self::Error>;
}

/// The result of the last check before sleeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Something to do.
    Something,
    /// Nothing yet, but something is under way that no doorbell will report.
    InFlight,
    /// Nothing.
    Nothing,
}

/// The kind of sleep that is safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleep {
    /// None: there is something to do.
    Awake,
    /// A nap: no doorbell is certain.
    Lightly,
    /// Until woken: a doorbell reports every event.
    Soundly,
}

/// Says "asleep", then polls once more.
pub(crate) fn fall_asleep<S: Sleeper>(sleeper: &mut S) -> Result<Sleep, S::Error> {
    let said = sleeper.say_asleep()?;
    let ordered = sleeper.order()?;
    Ok(match sleeper.look()? {
        Look::Something => Sleep::Awake,
        Look::Nothing if said && ordered => Sleep::Soundly,
        Look::Nothing | Look::InFlight => Sleep::Lightly,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_a_state_do_not_touch_each_other() {
        let mut state = State(0xffff_ffff_ffff_fffe);
        assert!(!state.asleep());
        state = state.toggled();
        assert!(state.asleep());
        assert_eq!(
            state.toggled(),
            State(0xffff_ffff_0000_0000),
            "the count of sleeps wraps within its half"
        );
        state = state.with_notice();
        assert_eq!((state.notice(), state.asleep()), (0, true), "the count of calls wraps within its half");
        assert_eq!(state.with_notice(), State(0x0000_0001_ffff_ffff));
    }

    #[test]
    fn a_sleeping_peer_is_woken_once_and_only_for_untaken_frames() {
        let mut control = std::vec![0u64; 8];
        // SAFETY: 64 bytes that nothing else uses while the region is used. Words need only their own
        // alignment.
        let returns =
            unsafe { crate::memory::Region::new(core::ptr::NonNull::from(&mut control[0]).cast(), 64) };
        let mut waker = Waker::default();
        let say = |state| returns.store(STATE_AT, state, Ordering::Relaxed);
        let mut must_wake = |in_flight| waker.must_wake(&returns, true, || in_flight);
        assert!(!must_wake(64), "awake");
        say(1);
        assert!(!must_wake(0), "it had taken all when it fell asleep");
        assert!(must_wake(64), "and that was no ring for this sleep");
        assert!(!must_wake(128), "once will do");
        say(2);
        assert!(!must_wake(64));
        say(3);
        assert!(must_wake(64));
    }

    struct Steps {
        said: bool,
        ordered: bool,
        look: Look,
        taken: std::vec::Vec<&'static str>,
    }

    impl Sleeper for Steps {
        type Error = ();
        fn say_asleep(&mut self) -> Result<bool, ()> {
            self.taken.push("say");
            Ok(self.said)
        }
        fn order(&mut self) -> Result<bool, ()> {
            self.taken.push("order");
            Ok(self.ordered)
        }
        fn look(&mut self) -> Result<Look, ()> {
            self.taken.push("look");
            Ok(self.look)
        }
    }

    #[test]
    fn sleep_is_sound_only_if_announced_ordered_and_nothing_arrives() {
        for said in [false, true] {
            for ordered in [false, true] {
                for look in [Look::Something, Look::InFlight, Look::Nothing] {
                    let mut steps = Steps { said, ordered, look, taken: std::vec::Vec::new() };
                    let expected = match look {
                        Look::Something => Sleep::Awake,
                        Look::Nothing if said && ordered => Sleep::Soundly,
                        _ => Sleep::Lightly,
                    };
                    assert_eq!(fall_asleep(&mut steps), Ok(expected), "{said} {ordered} {look:?}");
                    assert_eq!(steps.taken, ["say", "order", "look"]);
                }
            }
        }
    }
}
