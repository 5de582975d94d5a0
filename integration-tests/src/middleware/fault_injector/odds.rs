//! The choice of operations and faults, by a seeded generator.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Fault, Faults, Hold, Link};

/// The generator of one link.
pub(super) struct FaultGenerator {
    rng: fastrand::Rng,
    faults: Faults,
    operations: u64,
    injected: u64,
    link: Arc<Link>,
}

/// Remaining `progress` calls of a wait; this value means for ever.
pub(super) const FOREVER: u64 = u64::MAX;

impl FaultGenerator {
    pub(super) fn new(seed: u64, faults: Faults, link: Arc<Link>) -> FaultGenerator {
        FaultGenerator { rng: fastrand::Rng::with_seed(seed), faults, operations: 0, injected: 0, link }
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Draws the fault for the next operation, among those that `possible` allows, and counts it.
    pub(super) fn draw(&mut self, possible: impl Fn(Fault) -> bool) -> Option<Fault> {
        self.operations += 1;
        let mut drawn = None;
        // Every fault is drawn for, hit or not, so that the numbers drawn for an operation do not depend on
        // the odds.
        for fault in Fault::ALL {
            let hit = self.rng.u16(0..1000) < self.faults.odds(fault).0;
            if hit && drawn.is_none() && possible(fault) {
                drawn = Some(fault);
            }
        }
        if self.operations <= self.faults.spare || self.injected >= self.faults.limit {
            return None;
        }
        let fault = drawn?;
        self.injected += 1;
        self.link.record.counts[fault as usize].fetch_add(1, Relaxed);
        Some(fault)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.rng.usize(0..end)
    }

    /// Number of `progress` calls that an operation held now waits.
    pub(super) fn turns(&self) -> u64 {
        match self.faults.hold {
            Hold::Turns(turns) => u64::from(turns),
            Hold::Forever => FOREVER,
        }
    }

    /// Changes one bit of `bytes`, if there are any.
    pub(super) fn flip(&mut self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let at = self.below(bytes.len());
            bytes[at] ^= 1 << self.below(8);
        }
    }
}
