//! Atomics: the processor's, or loom's when the protocol is model-checked (`--cfg loom`).

pub(crate) use core::sync::atomic::Ordering;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, compiler_fence, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, fence};
#[cfg(loom)]
pub(crate) use membarrier::compiler_fence;

#[cfg(loom)]
pub(crate) mod membarrier;
#[cfg(any(loom, farjump_planted))]
pub(crate) mod planted;

/// The thing that a store with release order hands to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handover {
    /// A frame, by its signal.
    Frame,
    /// Credit for consumed frames, by the position in the credit line.
    Credit,
    /// A notice of a message on the control connection, by the state in the credit line.
    Notice,
}

/// The order of a store that hands something over. Always release, unless a test plants a race to check that
/// it is found.
#[cfg(not(any(loom, farjump_planted)))]
#[inline(always)]
pub(crate) const fn release(_: Handover) -> Ordering {
    Ordering::Release
}

#[cfg(any(loom, farjump_planted))]
pub(crate) fn release(what: Handover) -> Ordering {
    if planted::is(what) { Ordering::Relaxed } else { Ordering::Release }
}
