//! Waiting: turns of spinning without `pause`, then with it, then of waiting for an event, then of yielding, before
//! sleeping.
//!
//! A `pause` costs up to 140 cycles and doubles the one-way time of a line between two cores, so the first
//! turns do without it. A longer wait leaves the core to other threads, and at last sleeps.
//!
//! **Events** are aarch64's. An exclusive load of the awaited word has the core watch its line; then `wfe` stops the
//! core until the line is written, or for another event. The core uses less power meanwhile, and leaves the line to its
//! writer. A write between the load and `wfe` is an event, too, so none is missed. A write by a device need not be one:
//! the timer's *event stream* ends the wait then, in Linux every 100 microseconds. This crate cannot know whether the
//! system has the timer send events. Without them only an interrupt would end such a wait, so the caller must take
//! [`WaitPolicy::without_events`] there (Linux says so by `HWCAP_EVTSTRM` in `AT_HWCAP`). The crate `farjump` does this
//! itself. Other architectures, and a poll loop that waits for more than one word, pause in the turns for events.

use crate::sync::AtomicU64;
#[cfg(not(all(target_arch = "aarch64", not(loom), not(miri))))]
use crate::sync::Ordering;

/// The lengths of the phases, in turns of the waiting loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPolicy {
    /// Turns without `pause`.
    pub spins: u32,
    /// Turns with `pause` after those.
    pub pauses: u32,
    /// Turns that wait until the awaited word is written, after those: see [`WaitPolicy::events_only`].
    pub events: u32,
    /// Turns that give the processor to another thread after those.
    pub yields: u32,
}

impl WaitPolicy {
    /// The policy for a machine with `cores` cores on which `pollers` threads, this one included, poll at the
    /// same time. If pollers share a core, spinning would keep the peer from running, so it is left out.
    pub const fn for_cores(cores: usize, pollers: usize) -> Self {
        if pollers <= cores {
            WaitPolicy { spins: 4_000, pauses: 1_000, events: 0, yields: 16 }
        } else {
            WaitPolicy { spins: 20, pauses: 0, events: 0, yields: 16 }
        }
    }

    /// Never sleeps before `u32::MAX` turns: for benchmarks and for runtimes that own the core.
    pub const fn spin_only() -> Self {
        WaitPolicy { spins: u32::MAX, pauses: 0, events: 0, yields: 0 }
    }

    /// Never sleeps before `u32::MAX` turns, but stops the core between them until the awaited word is
    /// written: for runtimes that own the core and save its power. This needs aarch64 and a wait whose word
    /// is known: that of a source, or of a target with one source, over mapped memory. Other waits, and other
    /// architectures, pause instead.
    ///
    /// The caller must know that the system's timer sends events; if not, see [`WaitPolicy::without_events`].
    pub const fn events_only() -> Self {
        WaitPolicy { spins: 0, pauses: 0, events: u32::MAX, yields: 0 }
    }

    /// The same policy for a system whose timer sends no events: it pauses in the turns for events.
    pub const fn without_events(self) -> Self {
        WaitPolicy { pauses: self.pauses.saturating_add(self.events), events: 0, ..self }
    }

    /// Goes to sleep at once.
    pub const fn sleep_only() -> Self {
        WaitPolicy { spins: 0, pauses: 0, events: 0, yields: 0 }
    }
}

/// The action of one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Poll again; [`Waiter::turn`] has spun or paused already.
    Again,
    /// Poll again; [`Waiter::turn_awaiting`] has waited for an event. The wait may have lasted a period of
    /// the timer. So a check that is otherwise due every few hundred turns is due after a few of these.
    Event,
    /// Yield the processor, then poll again.
    Yield,
    /// Sleep on the available descriptor.
    Sleep,
}

/// One wait, from one event to the next.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    turn: u32,
}

impl Waiter {
    /// Makes a wait that has not begun.
    pub const fn new(policy: WaitPolicy) -> Self {
        Waiter { policy, turn: 0 }
    }

    /// Restarts the wait: something was found.
    #[inline]
    pub fn reset(&mut self) {
        self.turn = 0;
    }

    /// Turns since something was found.
    #[inline]
    pub fn turns(&self) -> u32 {
        self.turn
    }

    /// One turn without result: spins or pauses if this turn is for that, then returns the action to take. Pauses in
    /// turns for events.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.turn_awaiting(|| None)
    }

    /// [`Waiter::turn`] for a loop that waits for one word. In turns for events, waits until that word is
    /// written. `word` returns the word, if it is known.
    #[inline]
    pub fn turn_awaiting<'w>(&mut self, word: impl FnOnce() -> Option<AwaitedWord<'w>>) -> Turn {
        let turn = self.turn;
        self.turn = turn.saturating_add(1);
        if turn < self.policy.spins {
            return Turn::Again;
        }
        match self.later(turn - self.policy.spins) {
            Turn::Event => match word() {
                Some(word) => word.wait(),
                None => {
                    core::hint::spin_loop();
                    Turn::Again
                }
            },
            turn => turn,
        }
    }

    #[cold]
    fn later(&self, turn: u32) -> Turn {
        let WaitPolicy { pauses, events, yields, .. } = self.policy;
        if turn < pauses {
            core::hint::spin_loop();
            Turn::Again
        } else if turn - pauses < events {
            Turn::Event
        } else if turn - pauses - events < yields {
            Turn::Yield
        } else {
            Turn::Sleep
        }
    }
}

/// The word that a poll loop waits for.
#[derive(Clone, Copy, Debug)]
pub struct AwaitedWord<'w> {
    word: &'w AtomicU64,
    awaited: u64,
}

impl<'w> AwaitedWord<'w> {
    /// The wait for `word` to be `awaited`.
    pub fn new(word: &'w AtomicU64, awaited: u64) -> Self {
        AwaitedWord { word, awaited }
    }

    /// Waits until the word is written, or for another event; not at all if it has the awaited value. The value orders
    /// nothing: the next poll must load it with acquire order.
    #[cfg(all(target_arch = "aarch64", not(loom), not(miri)))]
    fn wait(self) -> Turn {
        // SAFETY: the word is valid for reads, by the reference; an exclusive load is an atomic one. `wfe` only waits.
        // One block, so that no other access can come between the load and the wait, and end it early.
        unsafe {
            core::arch::asm!(
                "ldxr {found}, [{word}]",
                "cmp {found}, {awaited}",
                "b.eq 2f",
                "wfe",
                "2:",
                word = in(reg) self.word,
                awaited = in(reg) self.awaited,
                found = out(reg) _,
                options(nostack, readonly),
            );
        }
        Turn::Event
    }

    /// Pauses: there are no events.
    #[cfg(not(all(target_arch = "aarch64", not(loom), not(miri))))]
    fn wait(self) -> Turn {
        if self.word.load(Ordering::Relaxed) != self.awaited {
            core::hint::spin_loop();
        }
        Turn::Again
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
