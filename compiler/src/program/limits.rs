//! What the program and its children may not do.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Closes all descriptors but the standard ones: a target's program may have left more open.
pub(super) fn leave_parents_descriptors() {
    close_from(3);
}

/// The target handles what a terminal sends; the end of the connection is this program's sign to end.
pub(super) fn ignore_signals_of_terminals() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: no handler is set, and there is no other thread.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn close_from(first: u32) {
    // SAFETY: the caller uses none of these any more; Rust's own objects for them are leaked or forgotten.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

/// Confines a forked child for good: it keeps `pipe` alone, can open nothing, and has `memory` more bytes of address
/// space and `seconds` of processor time.
///
/// # Safety
/// To be called in a child of one thread, in which nothing is used any more that needs another descriptor.
pub(super) unsafe fn confine(pipe: BorrowedFd<'_>, memory: u64, seconds: u64) {
    let pipe = pipe.as_raw_fd() as u32;
    // SAFETY: the caller uses none of these any more.
    unsafe {
        if pipe > 0 {
            libc::syscall(libc::SYS_close_range, 0, pipe - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, pipe + 1, u32::MAX, 0);
        // It does not outlive the program.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
    let used = address_space();
    let limits = [
        // A descriptor below the limit cannot be made.
        (Resource::Nofile, 0),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
        (Resource::As, used.saturating_add(memory)),
        (Resource::Cpu, seconds.max(1)),
    ];
    for (resource, limit) in limits {
        let limit = getrlimit(resource).maximum.map_or(limit, |most| most.min(limit));
        let _ = setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) });
    }
}

/// Bytes of address space that this process has.
fn address_space() -> u64 {
    SIZE.load(Ordering::Relaxed)
}

/// Bytes of address space before the first fork: a child can open no file to read its own.
static SIZE: AtomicU64 = AtomicU64::new(0);

/// Notes the address space that this process has, on which the children's limit is put.
pub(super) fn note_address_space() {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = text.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let kibibytes: u64 = size.and_then(|size| size.parse().ok()).unwrap_or(1 << 20);
    SIZE.store(kibibytes << 10, Ordering::Relaxed);
}
