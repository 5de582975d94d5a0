//! The location of a run's target: a second process of this run, or a target that the user serves.

use super::child::Pair;
use super::child_protocol::Order;
use super::liveness::Watch;
use super::shared_memory::Memory;
use crate::perf::options::remote_target::Peer;
use crate::program::failure::Failure;

/// Counter of a measurement's messages.
pub(in crate::perf) trait Playing {
    /// Makes it serve while `measure` runs. Returns the result of `measure`, and the messages counted.
    fn play_counting<T>(
        &mut self,
        order: &Order,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<(T, u64), Failure>;
}

impl Playing for Pair {
    fn play_counting<T>(
        &mut self,
        order: &Order,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<(T, u64), Failure> {
        self.play(order, measure).map(|(measured, played)| (measured, played.counted))
    }
}

/// The counterpart of all measured cases.
pub(in crate::perf) enum Counterpart {
    Pair(Pair),
    Peer(Peer),
}

impl Playing for Counterpart {
    fn play_counting<T>(
        &mut self,
        order: &Order,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<(T, u64), Failure> {
        match (self, order) {
            (Counterpart::Pair(pair), order) => pair.play_counting(order, measure),
            (Counterpart::Peer(peer), Order::Play { endpoint, .. }) => peer.play(*endpoint, measure),
            (Counterpart::Peer(_), order) => {
                Err(Failure::new(format!("a remote target takes no orders: {order:?}")))
            }
        }
    }
}

impl Counterpart {
    /// Makes an endpoint's target serve while `attempt` runs, whatever the result.
    pub(in crate::perf) fn serve<T>(
        &mut self,
        endpoint: usize,
        attempt: impl FnOnce() -> Result<T, farjump::Error>,
    ) -> Result<Result<T, farjump::Error>, Failure> {
        match self {
            Counterpart::Pair(pair) => {
                pair.serve(endpoint, 0, || Ok(attempt())).map(|(attempted, _)| attempted)
            }
            // It serves all the time.
            Counterpart::Peer(_) => Ok(attempt()),
        }
    }

    /// Returns the second process, which baselines need.
    pub(in crate::perf) fn pair(&mut self) -> Result<&mut Pair, Failure> {
        match self {
            Counterpart::Pair(pair) => Ok(pair),
            Counterpart::Peer(_) => Err(Failure::new("there is no second process: the target is elsewhere")),
        }
    }

    /// Ends the second process, if there is one.
    pub(in crate::perf) fn end(self) -> Result<(), Failure> {
        match self {
            Counterpart::Pair(pair) => pair.end(),
            Counterpart::Peer(_) => Ok(()),
        }
    }
}
