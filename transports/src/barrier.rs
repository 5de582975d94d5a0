//! Who needs a fence between "store a frame" and "does the peer sleep?".
//!
//! The sender stores a frame and then looks whether the peer sleeps; the sleeper stores "asleep" and then looks for a
//! frame. If each may do its looking before its storing, both miss the other and the frame lies there unseen. A full fence
//! on both sides prevents it, at the price of one for each frame sent. Instead the sleeper, who has time, may call
//! `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)`: it makes every running thread of every *registered* process pass a
//! full fence (membarrier(2)), so the sender needs none of its own.
//!
//! That holds for one direction if **the sender's process is registered** and **the sleeper promises to call**. Each side
//! tells both of itself in its address, and [`spares_fence`] is evaluated by both sides with the same arguments: by the
//! sender to leave its fence out, by the sleeper to know that it must call. The two directions are decided apart.

use std::sync::atomic::{Ordering, fence};

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

bitflags::bitflags! {
    /// What a process says of itself.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Barriers: u16 {
        /// Barriers that others call reach its threads.
        const REGISTERED = 1 << 0;
        /// It calls a barrier on its way to sleep, for peers that rely on it.
        const CALLS = 1 << 1;
    }
}

impl Barriers {
    /// Registers this process, where the system has it; again is harmless. The registration is the process's until it
    /// executes another program.
    pub(crate) fn of_this_process() -> Barriers {
        let known = membarrier_query();
        let can = |command: MembarrierCommand, in_query: MembarrierQuery| {
            // Tried, and not only asked for: a sandbox may forbid the call.
            known.contains(in_query) && membarrier(command).is_ok()
        };
        let mut barriers = Barriers::empty();
        barriers.set(
            Barriers::REGISTERED,
            can(MembarrierCommand::RegisterGlobalExpedited, MembarrierQuery::REGISTER_GLOBAL_EXPEDITED),
        );
        barriers
            .set(Barriers::CALLS, can(MembarrierCommand::GlobalExpedited, MembarrierQuery::GLOBAL_EXPEDITED));
        barriers
    }
}

/// Whether `sender` needs no fence of its own because `sleeper` calls a barrier.
pub(crate) fn spares_fence(sender: Barriers, sleeper: Barriers) -> bool {
    sender.contains(Barriers::REGISTERED) && sleeper.contains(Barriers::CALLS)
}

/// Stands between storing "asleep" and looking for a frame. `false` when the order cannot be promised.
///
/// Pairs with the sender's fence between storing a frame and loading this side's state or, where the sender has none
/// (`sender_has_no_fence`), with the one that `membarrier` makes it pass. Either the sender's load comes before that fence,
/// then its frame was stored before it and our look finds it; or it comes after, then it sees "asleep" and rings.
pub(crate) fn between_sleeping_and_looking(sender_has_no_fence: bool) -> bool {
    // For senders with a fence of their own; and the compiler, too, must keep the store before what follows. It keeps the look
    // behind the call by itself, which may change any memory for all it knows.
    fence(Ordering::SeqCst);
    // The call worked when the end was opened. Should it fail now (a sandbox put up since) the sender's fence is missing
    // all the same: better nap than sleep.
    !sender_has_no_fence || membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, compiler_fence};
    use std::{hint, thread};

    #[test]
    fn a_sender_leaves_its_fence_out_only_if_registered_and_the_sleeper_calls() {
        let all = [Barriers::empty(), Barriers::REGISTERED, Barriers::CALLS, Barriers::all()];
        for sender in all {
            for sleeper in all {
                let both = sender.contains(Barriers::REGISTERED) && sleeper.contains(Barriers::CALLS);
                assert_eq!(spares_fence(sender, sleeper), both, "{sender:?} {sleeper:?}");
            }
        }
        // The directions are apart: registered without calling helps one and not the other.
        assert!(spares_fence(Barriers::REGISTERED, Barriers::CALLS));
        assert!(!spares_fence(Barriers::CALLS, Barriers::REGISTERED));
    }

    /// The race itself, over and over: sender and sleeper at the same instant, on two lines of their own. Were the barrier
    /// left out, each would now and then miss the other's store.
    #[test]
    fn sender_and_sleeper_never_miss_each_other() {
        const ROUNDS: u64 = 20_000;
        #[repr(align(128))]
        struct Line(AtomicU64);
        let [frame, asleep, turn] = [const { Line(AtomicU64::new(0)) }; 3];
        let ours = Barriers::of_this_process();
        let no_fence = spares_fence(ours, ours);
        let meet = |mark: u64| {
            turn.0.fetch_add(1, Ordering::AcqRel);
            for look in 1u32.. {
                match turn.0.load(Ordering::Acquire) {
                    turn if turn >= mark => break,
                    // The other one may have no core to run on.
                    _ if look % 1000 == 0 => thread::yield_now(),
                    _ => hint::spin_loop(),
                }
            }
        };
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut rings = Vec::with_capacity(ROUNDS as usize);
                for round in 1..=ROUNDS {
                    meet(4 * round - 2);
                    frame.0.store(round, Ordering::Release);
                    match no_fence {
                        true => compiler_fence(Ordering::SeqCst),
                        false => fence(Ordering::SeqCst),
                    }
                    rings.push(asleep.0.load(Ordering::Relaxed) == round);
                    meet(4 * round);
                }
                rings
            });
            let mut seen = Vec::with_capacity(ROUNDS as usize);
            for round in 1..=ROUNDS {
                meet(4 * round - 2);
                asleep.0.store(round, Ordering::Release);
                assert!(between_sleeping_and_looking(no_fence));
                seen.push(frame.0.load(Ordering::Acquire) == round);
                meet(4 * round);
            }
            let rings = sender.join().unwrap();
            let missed = rings.iter().zip(&seen).filter(|(rang, saw)| !**rang && !**saw).count();
            assert_eq!(missed, 0, "of {ROUNDS} frames");
        });
    }

    #[test]
    fn a_sleeper_who_need_not_call_always_promises() {
        assert!(between_sleeping_and_looking(false));
    }
}
