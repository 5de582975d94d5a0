//! Falling asleep and being woken: the state word of a return line, and the handshake that loses no wake-up.
//!
//! | who sends | who goes to sleep |
//! |---|---|
//! | stores a frame | says "asleep" |
//! | *order* | *order* |
//! | is the peer asleep? then ring | is there a frame? then stay awake |
//!
//! Each stores one word and then loads the other's. Where a full fence stands at *order* on both sides, at least one of
//! them sees what the other stored; where it is missing on one, both can miss it, and the frame lies there with nobody
//! looking. The sleeper can put the sender's fence in its place (`membarrier`), see
//! [`store_load_ordered`](crate::transport::RemoteMemory::store_load_ordered).

use crate::memory::Memory;
use crate::sync::{Ordering, compiler_fence, fence};

use super::STATE_AT;

/// The state word of a return line.
///
/// The low half counts falling asleep and waking up: odd while asleep. The high half counts how often its writer put
/// something on the control connection that the reader should look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct State(pub(crate) u64);

impl State {
    pub(crate) const fn asleep(self) -> bool {
        self.0 & 1 != 0
    }

    pub(crate) const fn attention(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn toggled(self) -> State {
        State((self.0 & !0xffff_ffff) | ((self.0 as u32).wrapping_add(1) as u64))
    }

    pub(crate) const fn with_attention(self) -> State {
        let attention = self.attention().wrapping_add(1) as u64;
        State((self.0 & 0xffff_ffff) | (attention << 32))
    }
}

/// The sending side: which state of the peer it has acted upon. While that does not change there is nothing to do.
#[derive(Default)]
pub(crate) struct Waker {
    seen: State,
}

impl Waker {
    /// Whether the peer fell asleep since the last look and has to be rung. To be asked behind every frame stored;
    /// `fenced` unless the sleeper orders the two for us. `returns` is the region that the peer writes, and `in_flight` says
    /// how much the peer is not known to have consumed.
    #[inline]
    pub(crate) fn must_ring(
        &mut self,
        returns: &impl Memory,
        fenced: bool,
        in_flight: impl FnOnce() -> u64,
    ) -> bool {
        order(fenced);
        // Relaxed: `changed` has the fence for what is read on the strength of it.
        let state = State(returns.load(STATE_AT, Ordering::Relaxed));
        state != self.seen && self.changed(state, in_flight)
    }

    /// The sleep that the peer is in, if it was not rung out of it. For a look that follows no frame: before the peer is rung for
    /// this sleep ([`Waker::answer`]) it has to be known that a frame is there which it may have missed.
    pub(crate) fn unanswered(&self, returns: &impl Memory, fenced: bool) -> Option<State> {
        order(fenced);
        // Acquire: how far the peer had consumed when it fell asleep is read after it.
        let state = State(returns.load(STATE_AT, Ordering::Acquire));
        (state != self.seen && state.asleep()).then_some(state)
    }

    /// The peer is rung out of this sleep: once will do.
    pub(crate) fn answer(&mut self, sleep: State) {
        self.seen = sleep;
    }

    #[cold]
    fn changed(&mut self, state: State, in_flight: impl FnOnce() -> u64) -> bool {
        if !state.asleep() {
            self.seen = state;
            return false;
        }
        // Pairs with the release store of the state: how far the peer had consumed when it fell asleep is read after it.
        fence(Ordering::Acquire);
        // A peer that took the frame before it fell asleep is not rung: it may take the ring back and find nothing, and the next
        // frame would not ring again for the same sleep.
        let missed = in_flight() > 0;
        if missed {
            self.seen = state;
        }
        missed
    }
}

/// Stands between "store a frame" and "is the peer asleep?".
#[inline(always)]
fn order(fenced: bool) {
    if fenced {
        // Pairs with the fence in `Sleeper::order`: either we see that the peer sleeps, or it sees our frame.
        fence(Ordering::SeqCst);
    } else {
        // The processor's part is done by the barrier that the sleeper calls in `Sleeper::order`.
        compiler_fence(Ordering::SeqCst);
    }
}

/// The steps of somebody who goes to sleep.
pub(crate) trait Sleeper {
    type Error;

    /// Stores "asleep" where the peer looks. `false`: the peer could not be told now.
    fn say_asleep(&mut self) -> Result<bool, Self::Error>;

    /// Makes what was said come before the look that follows, for the peer too. `false`: that cannot be promised.
    fn order(&mut self) -> Result<bool, Self::Error>;

    /// Looks whether there is something to do.
    fn look(&mut self) -> Result<Look, Self::Error>;
}

/// What the last look before sleeping found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Something to do.
    Something,
    /// Nothing yet, and something is under way of which nobody will tell.
    UnderWay,
    /// Nothing.
    Nothing,
}

/// How well one sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleep {
    /// Not at all: there is something to do.
    Awake,
    /// Not without looking up now and then: nobody may ring.
    Lightly,
    /// Until rung: whoever brings something rings.
    Soundly,
}

/// Says "asleep", and looks once more.
pub(crate) fn fall_asleep<S: Sleeper>(sleeper: &mut S) -> Result<Sleep, S::Error> {
    let told = sleeper.say_asleep()?;
    let ordered = sleeper.order()?;
    Ok(match sleeper.look()? {
        Look::Something => Sleep::Awake,
        Look::Nothing if told && ordered => Sleep::Soundly,
        Look::Nothing | Look::UnderWay => Sleep::Lightly,
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
        state = state.with_attention();
        assert_eq!(
            (state.attention(), state.asleep()),
            (0, true),
            "the count of calls wraps within its half"
        );
        assert_eq!(state.with_attention(), State(0x0000_0001_ffff_ffff));
    }

    #[test]
    fn a_peer_is_rung_once_for_a_sleep_and_only_for_what_it_has_not_taken_before() {
        let mut control = std::vec![0u64; 8];
        // SAFETY: 64 bytes, that nobody else uses while the region is used. Words need no more than their own alignment.
        let returns =
            unsafe { crate::memory::Region::new(core::ptr::NonNull::from(&mut control[0]).cast(), 64) };
        let mut waker = Waker::default();
        let say = |state| returns.store(STATE_AT, state, Ordering::Relaxed);
        let mut must_ring = |in_flight| waker.must_ring(&returns, true, || in_flight);
        assert!(!must_ring(64), "awake");
        say(1);
        assert!(!must_ring(0), "it had taken all when it fell asleep");
        assert!(must_ring(64), "and that was no ring for this sleep");
        assert!(!must_ring(128), "once will do");
        say(2);
        assert!(!must_ring(64));
        say(3);
        assert!(must_ring(64));
    }

    struct Steps {
        told: bool,
        ordered: bool,
        look: Look,
        taken: std::vec::Vec<&'static str>,
    }

    impl Sleeper for Steps {
        type Error = ();
        fn say_asleep(&mut self) -> Result<bool, ()> {
            self.taken.push("say");
            Ok(self.told)
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
    fn one_sleeps_soundly_only_if_told_ordered_and_nothing_is_there_or_under_way() {
        for told in [false, true] {
            for ordered in [false, true] {
                for look in [Look::Something, Look::UnderWay, Look::Nothing] {
                    let mut steps = Steps { told, ordered, look, taken: std::vec::Vec::new() };
                    let expected = match look {
                        Look::Something => Sleep::Awake,
                        Look::Nothing if told && ordered => Sleep::Soundly,
                        _ => Sleep::Lightly,
                    };
                    assert_eq!(fall_asleep(&mut steps), Ok(expected), "{told} {ordered} {look:?}");
                    assert_eq!(steps.taken, ["say", "order", "look"]);
                }
            }
        }
    }
}
