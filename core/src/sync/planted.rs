//! Planted races: stores that should have release order and do not. A model or a ThreadSanitizer test that
//! misses a planted race proves nothing when it finds no race.
#![cfg_attr(all(loom, not(test)), allow(dead_code, reason = "only models use it"))]

use super::Handover;

#[cfg(loom)]
std::thread_local! {
    // The threads of a model share one thread of the system, and models run in parallel.
    static PLANTED: core::cell::Cell<Option<Handover>> = const { core::cell::Cell::new(None) };
}

/// Makes stores that hand over `what` relaxed from now on; `None` ends that.
#[cfg(loom)]
pub(crate) fn plant(what: Option<Handover>) {
    PLANTED.set(what);
}

#[cfg(loom)]
pub(crate) fn is(what: Handover) -> bool {
    PLANTED.get() == Some(what)
}

#[cfg(not(loom))]
static PLANTED: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(u8::MAX);

/// Makes stores that hand over `what` relaxed from now on; `None` ends that.
#[cfg(not(loom))]
pub(crate) fn plant(what: Option<Handover>) {
    PLANTED.store(what.map_or(u8::MAX, |what| what as u8), super::Ordering::Relaxed);
}

#[cfg(not(loom))]
pub(crate) fn is(what: Handover) -> bool {
    PLANTED.load(super::Ordering::Relaxed) == what as u8
}
