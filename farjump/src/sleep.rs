//! What waiting and sleeping share on both sides of a link.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use farjump_core::transport::Descriptor;
use farjump_core::wait::WaitPolicy;
use rustix::event::Timespec;

/// Borrows a transport's descriptor.
///
/// # Safety
/// Whoever gave the descriptor keeps it open while the result lives.
pub(crate) unsafe fn borrow(descriptor: &Descriptor) -> BorrowedFd<'_> {
    // SAFETY: the caller's promise.
    unsafe { BorrowedFd::borrow_raw(descriptor.0) }
}

/// A duration as the system takes it; what it cannot hold becomes a day.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(Duration::from_secs(86_400));
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// How long to spin where source and target each have a core, which is what two processes on this machine need.
pub(crate) fn default_wait() -> WaitPolicy {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    WaitPolicy::for_cores(cores, 2)
}
