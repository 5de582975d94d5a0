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

/// True if an acquire load that returns a write of a device also orders the device's earlier writes. On
/// x86-64 every load does. On other architectures acquire order holds between processors only:
/// [`order_device`] adds the device's.
pub(crate) const ACQUIRE_ORDERS_DEVICES: bool =
    cfg!(any(loom, miri, not(any(target_arch = "aarch64", target_arch = "riscv64"))));

/// Orders loads behind a load that saw a write of a device: they see what the device wrote before. The same as
/// `udma_from_device_barrier` of rdma-core (`docs/design/frames.md`).
#[inline(always)]
pub(crate) fn order_device() {
    // SAFETY: the instruction changes no register and no memory.
    #[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    // SAFETY: the instruction changes no register and no memory.
    #[cfg(all(target_arch = "riscv64", not(any(loom, miri))))]
    unsafe {
        core::arch::asm!("fence ir, ir", options(nostack, preserves_flags));
    }
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
