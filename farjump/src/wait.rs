//! Waiting and sleeping, as source and target do it.

use std::mem::MaybeUninit;
use std::time::Duration;

use farjump_control::PeerIdentity;
use farjump_core::channel::Channel;
use farjump_core::wait::WaitPolicy;
use farjump_os::resources;
use rustix::event::Timespec;

/// Longest sleep at a stretch, so that a lost wake delays and never hangs.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Naps where there is no doorbell, from the first to the longest: they double.
pub(crate) const NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));

/// The longest sleep of a target that one of its parts allows.
pub(crate) enum Rest {
    /// Not at all: there is work.
    None,
    /// For a nap: an event is awaited that no descriptor reports.
    Nap,
    /// Until a descriptor reports an event.
    Sleep,
}

/// Turns without result between looks for a peer on the same processor. Fewer would make a wait of usual
/// length dearer; more would delay each call over a shared processor.
pub(crate) const TURNS_TO_YIELD: u32 = 64;

/// Number of the processor that this thread runs on; it may change at any time.
pub(crate) fn processor() -> usize {
    // The system's C library, and not the vDSO as rustix finds it: valgrind hides that.
    // SAFETY: it has no conditions.
    let number = unsafe { libc::sched_getcpu() };
    // Without the call, any number serves.
    usize::try_from(number).unwrap_or(0)
}

/// The time of the monotonic clock, in nanoseconds. Comparing two such times takes the same instructions for all
/// values, which is not so for two of `Instant`: the count of a turn that reads the clock would differ from one to the
/// next.
// Not inlined: with the time on its stack, a caller could not make a tail call.
#[inline(never)]
pub(crate) fn nanoseconds() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the call writes the time, which is valid as zeros too.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// `time` in nanoseconds, at most the largest number of them.
pub(crate) fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns whether the peer of `channel` may be waiting for this thread's processor, `own`. If the peer's processor is
/// unknown, the result is true for any peer on this machine: a poll is then no mere load, so that yielding now and then
/// adds little to it.
pub(crate) fn may_share(channel: &mut Channel, peer: &PeerIdentity, own: usize) -> bool {
    channel.shares_processor(own).unwrap_or_else(|| match peer.address {
        Some(address) => address.ip().to_canonical().is_loopback(),
        None => true,
    })
}

/// Converts a duration for the system; one out of range becomes a day.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(Duration::from_secs(86_400));
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Returns the spinning for a machine on which source and target each need a core.
pub(crate) fn default_wait() -> WaitPolicy {
    WaitPolicy::for_cores(resources::shared_processors(), 2)
}

/// Returns the waiting of a source for an outcome: it pauses for more than 100 microseconds before it yields and
/// sleeps. The outcome is under way, and a source that sleeps gets it only when the system has woken it. That takes 50
/// microseconds where a virtual processor has been given back. It does not yield earlier, because another thread on its
/// processor then runs for milliseconds.
pub(crate) fn wait_for_outcome() -> WaitPolicy {
    let wait = default_wait();
    WaitPolicy { pauses: 6 * wait.pauses, ..wait }
}

/// Returns `policy` as this machine can follow it: without events if the timer sends none, as a wait for one could last
/// until the next interrupt.
pub(crate) fn followed_here(policy: WaitPolicy) -> WaitPolicy {
    match has_event_stream() {
        true => policy,
        false => policy.without_events(),
    }
}

/// Returns whether the system makes the timer send events, which end the wait for another one.
#[cfg(target_arch = "aarch64")]
fn has_event_stream() -> bool {
    /// `HWCAP_EVTSTRM`, of Linux's `asm/hwcap.h`.
    const EVENT_STREAM: std::ffi::c_ulong = 1 << 2;
    // SAFETY: the call only reads what the system passed to the program.
    unsafe { libc::getauxval(libc::AT_HWCAP) & EVENT_STREAM != 0 }
}

/// Other architectures have no such events.
#[cfg(not(target_arch = "aarch64"))]
fn has_event_stream() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_waited_for_only_where_the_timer_sends_some() {
        let policy = WaitPolicy { spins: 1, pauses: 2, events: 3, yields: 4 };
        let followed = followed_here(policy);
        if has_event_stream() {
            assert_eq!(followed, policy);
        } else {
            assert_eq!(followed, WaitPolicy { spins: 1, pauses: 5, events: 0, yields: 4 });
        }
    }
}
