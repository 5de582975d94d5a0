//! System clocks: one that all processes share, and those of processor time.

use std::mem::MaybeUninit;

use crate::program::failure::Failure;

/// Returns nanoseconds of CLOCK_MONOTONIC, which is the same for all processes of a machine.
#[inline]
pub(in crate::perf) fn now() -> u64 {
    // Every supported Linux has this clock and the next one.
    read(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

/// Returns this thread's processor time in nanoseconds.
pub(in crate::perf) fn of_this_thread() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// Returns the processor time of a process in nanoseconds, all its threads together.
///
/// # Errors
/// The process is gone.
pub(in crate::perf) fn of_process(pid: u32) -> Result<u64, Failure> {
    let gone = || Failure::new("the processor time of the second process cannot be read: it is gone");
    let mut clock = 0;
    // SAFETY: `clock` has space for the clock's number.
    match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) } {
        0 => read(clock).ok_or_else(gone),
        _ => Err(gone()),
    }
}

#[inline]
fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` has space for a time, and is initialized if the call succeeds.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_clocks_count_work_and_the_thread_clock_excludes_sleep() {
        let own = std::process::id();
        // The clock of the process is read first, so that it includes all that is on the thread's.
        let before = (now(), of_process(own).unwrap(), of_this_thread());
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(now() - before.0 >= 30_000_000);
        assert!(of_this_thread() - before.2 < 30_000_000);
        while of_this_thread() - before.2 < 5_000_000 {}
        assert!(of_process(own).unwrap() - before.1 >= 5_000_000);
    }

    #[test]
    fn a_process_that_is_not_there_has_no_clock() {
        // Above the highest number on Linux (2^22, proc_sys_kernel(5)), but within the bits that a clock has
        // for it.
        assert!(of_process(1 << 26).is_err());
    }
}
