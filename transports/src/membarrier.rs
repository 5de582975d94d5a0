//! Removes the sender's fence between storing a frame and reading whether the peer is asleep.
//!
//! The sender stores a frame and then reads whether the peer is asleep. The sleeper stores "asleep" and then
//! polls for a frame. If each may load before it stores, both miss the other and the frame stays unseen. A
//! full fence in both processes prevents that and costs one for each frame. Instead the sleeper may call
//! `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)`: every running thread of every *registered* process then
//! passes a full fence (membarrier(2)), and the sender needs none. This holds for one direction if **the
//! sender's process is registered** and **the sleeper promises to call**. Each process states both in its
//! endpoint address, and both evaluate [`spares_fence`] with the same arguments for each direction.
//!
//! Linux's barrier does not reach a processor on which a thread of the sender's process has ended, until another process
//! has run there. So core looks once more, behind a fence, when the sender is idle (docs/design/sleep.md).

use std::sync::atomic::{Ordering, fence};

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

bitflags::bitflags! {
    /// Properties of a process, stated in its endpoint address.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Barriers: u16 {
        /// The barriers of other processes reach its threads.
        const REGISTERED = 1 << 0;
        /// It calls a barrier before it sleeps, for peers that rely on it.
        const CALLS = 1 << 1;
    }
}

impl Barriers {
    /// Registers this process where the kernel supports it. A second call is harmless. The registration lasts
    /// until the process executes another program.
    pub(crate) fn of_this_process() -> Barriers {
        let known = membarrier_query();
        let can = |command: MembarrierCommand, in_query: MembarrierQuery| {
            // The call is tried too, because a sandbox may forbid it.
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

/// Returns whether `sender` needs no fence because `sleeper` calls a barrier.
pub(crate) fn spares_fence(sender: Barriers, sleeper: Barriers) -> bool {
    sender.contains(Barriers::REGISTERED) && sleeper.contains(Barriers::CALLS)
}

/// Orders the store of "asleep" before the poll for a frame. Returns `false` if it cannot guarantee the order.
///
/// Pairs with the sender's fence between storing a frame and loading this process's state. If the sender has no fence
/// (`sender_has_no_fence`), pairs with the fence that `membarrier` imposes on the sender. If the sender's load comes
/// before that fence, its frame was stored earlier, and the poll after this call finds it. If the load comes after, the
/// sender sees "asleep" and wakes this process.
pub(crate) fn between_sleeping_and_looking(sender_has_no_fence: bool) -> bool {
    // For senders with a fence. The fence here also keeps the compiler from moving the store down. The compiler cannot
    // move the poll before the call, which may change any memory.
    fence(Ordering::SeqCst);
    // The call worked when the endpoint was opened. If it fails now (a sandbox set up since), the sender's
    // fence is missing, and a nap is safer than a sleep.
    !sender_has_no_fence || membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, compiler_fence};
    use std::{hint, thread};

    #[test]
    fn a_sender_omits_its_fence_only_if_registered_and_the_sleeper_calls() {
        let all = [Barriers::empty(), Barriers::REGISTERED, Barriers::CALLS, Barriers::all()];
        for sender in all {
            for sleeper in all {
                let both = sender.contains(Barriers::REGISTERED) && sleeper.contains(Barriers::CALLS);
                assert_eq!(spares_fence(sender, sleeper), both, "{sender:?} {sleeper:?}");
            }
        }
        // The directions are independent: registering without calling helps one, but not the other.
        assert!(spares_fence(Barriers::REGISTERED, Barriers::CALLS));
        assert!(!spares_fence(Barriers::CALLS, Barriers::REGISTERED));
    }

    /// Repeats the race: sender and sleeper at the same instant, on two separate lines. Without any order some 900 of
    /// these rounds are missed. With the barrier none is, unless a thread of this process has ended on the sender's
    /// processor (docs/design/sleep.md), as those of other tests do; then up to 20 are.
    #[test]
    fn a_barrier_keeps_sender_and_sleeper_from_missing_each_other() {
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
                    // The other thread may have no core to run on.
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
            assert!(missed <= 100, "{missed} of {ROUNDS} frames");
        });
    }

    #[test]
    fn a_sleeper_always_promises_when_senders_fence() {
        assert!(between_sleeping_and_looking(false));
    }
}
