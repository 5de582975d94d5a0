//! The limits of the program and its children.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::pipe::PipeFlags;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Closes all descriptors but the standard ones: the target may have left more open.
///
/// # Errors
/// The reason why they cannot be closed: a clause.
pub(super) fn leave_parents_descriptors() -> Result<(), String> {
    // SAFETY: this program has opened none.
    unsafe { close_all_but(0..=2) }
}

/// Ignores the signals that a terminal sends. The target handles them; the end of the connection is this
/// program's sign to end.
pub(super) fn ignore_signals_of_terminals() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: no handler is set, and there is no other thread.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Closes all descriptors but `kept`.
///
/// # Errors
/// The reason why they cannot be closed: a clause.
///
/// # Safety
/// The caller uses none of the other descriptors any more; Rust's own objects for them are leaked or
/// forgotten.
unsafe fn close_all_but(kept: RangeInclusive<u32>) -> Result<(), String> {
    let below = kept.start().checked_sub(1).map(|last| 0..=last);
    let others = below.into_iter().chain([kept.end() + 1..=u32::MAX]);
    for range in others {
        // SAFETY: the caller guarantees that nothing uses these descriptors (see Safety).
        let closed = unsafe { libc::syscall(libc::SYS_close_range, *range.start(), *range.end(), 0) };
        if closed == 0 {
            continue;
        }
        // This is Linux before 5.9, or a filter of system calls that is older than the call.
        // SAFETY: the caller guarantees that nothing uses these descriptors (see Safety).
        unsafe { close_listed(&range)? };
    }
    Ok(())
}

/// Closes the descriptors in `range`, one by one.
///
/// # Errors
/// As [`close_all_but`].
///
/// # Safety
/// As [`close_all_but`].
unsafe fn close_listed(range: &RangeInclusive<u32>) -> Result<(), String> {
    let mine = std::fs::read_dir("/proc/self/fd")
        .map_err(|error| format!("its descriptors cannot be closed: /proc/self/fd: {error}"))?;
    let numbers = mine.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The list is read to its end before the first descriptor is closed: the folder's own is among them.
    let numbers: Vec<u32> = numbers.filter(|number| range.contains(number)).collect();
    for number in numbers {
        // SAFETY: the caller guarantees that nothing uses these descriptors (see Safety). The folder's own is
        // closed already, and that error does not matter.
        unsafe { libc::close(number as i32) };
    }
    Ok(())
}

/// Confines a forked child for good: it keeps `pipe` alone, can open nothing, and has `memory` more bytes of address
/// space and `seconds` of processor time.
///
/// # Errors
/// The reason why the system refuses one of the bounds: a clause. The child must not use data from a peer
/// then.
///
/// # Safety
/// The caller is a child with one thread, which uses nothing any more that needs another descriptor.
pub(super) unsafe fn confine(pipe: BorrowedFd<'_>, memory: u64, seconds: u64) -> Result<(), String> {
    let pipe = pipe.as_raw_fd() as u32;
    // SAFETY: the caller uses no other descriptor any more (see Safety).
    unsafe { close_all_but(pipe..=pipe)? };
    // The child does not outlive the program.
    control("PR_SET_PDEATHSIG", libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize, 0)?;
    control("PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    control("PR_SET_DUMPABLE", libc::PR_SET_DUMPABLE, 0, 0)?;
    let used = address_space();
    let limits = [
        // No descriptor is below this limit, so none can be made.
        ("NOFILE", Resource::Nofile, 0),
        ("CORE", Resource::Core, 0),
        ("FSIZE", Resource::Fsize, 0),
        ("NPROC", Resource::Nproc, 0),
        ("AS", Resource::As, used.saturating_add(memory)),
        ("CPU", Resource::Cpu, seconds.max(1)),
    ];
    for (name, resource, limit) in limits {
        let limit = farjump_os::limits::of(resource).maximum.map_or(limit, |most| most.min(limit));
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })
            .map_err(|error| refused(&format!("setrlimit(RLIMIT_{name})"), &error.into()))?;
    }
    filter_system_calls()
}

/// Calls prctl(2) with an option of this name.
fn control(name: &str, option: i32, value: usize, more: usize) -> Result<(), String> {
    // SAFETY: the options that are used change what this process may do, and read at most a filter, which is whole.
    match unsafe { libc::prctl(option, value, more, 0_usize, 0_usize) } {
        -1 => Err(refused(&format!("prctl({name})"), &io::Error::last_os_error())),
        _ => Ok(()),
    }
}

fn refused(call: &str, error: &io::Error) -> String {
    format!(
        "the system does not let the compiler confine a job: {call}: {error}; allow that call where this program runs, or \
         take no bitcode"
    )
}

/// Checks in a child of its own that jobs can be confined.
///
/// # Errors
/// The reason why they cannot: a clause.
pub(super) fn try_to_confine() -> Result<(), String> {
    note_address_space();
    let failed = |error: io::Error| format!("the compiler cannot begin a job: {error}");
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    // SAFETY: this program has one thread, so that the child may do all that this process may.
    match unsafe { libc::fork() } {
        -1 => Err(failed(io::Error::last_os_error())),
        0 => {
            // SAFETY: this is a forked child, which uses the pipe alone from here on.
            let confined = unsafe { confine(write.as_fd(), 64 << 20, 10) };
            let why = confined.err().unwrap_or_default();
            let written = rustix::io::write(&write, why.as_bytes());
            // SAFETY: nothing of the parent has to be flushed or released here.
            unsafe { libc::_exit(i32::from(written.is_err())) }
        }
        child => {
            drop(write);
            let mut why = String::new();
            let read = File::from(read).read_to_string(&mut why);
            let mut status = 0;
            // SAFETY: `child` is a child of this process that nothing has waited for.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            match read {
                Err(error) => Err(failed(error)),
                Ok(_) if !why.is_empty() => Err(why),
                Ok(_) if status != 0 => {
                    Err(format!("a job that is confined ends at once, with status {status}"))
                }
                Ok(_) => Ok(()),
            }
        }
    }
}

/// Bytes of address space that this process has.
fn address_space() -> u64 {
    SIZE.load(Ordering::Relaxed)
}

/// Bytes of address space before the first fork: a child can open no file to read its own.
static SIZE: AtomicU64 = AtomicU64::new(0);

/// Notes the address space that this process has, to which the children's limit adds.
pub(super) fn note_address_space() {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = text.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let kibibytes: u64 = size.and_then(|size| size.parse().ok()).unwrap_or(1 << 20);
    SIZE.store(kibibytes << 10, Ordering::Relaxed);
}

/// The system calls that a child needs for memory, for its pipe and to end; others fail. A child can make no
/// descriptors and reach no other processes, whatever the bitcode makes LLVM do.
const ALLOWED: [libc::c_long; 21] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Refuses all other system calls from now on, in this process.
///
/// The filter is a program of classic BPF (seccomp(2)): the number of the call is compared with each of those
/// allowed. The filter ends a process that calls the kernel by another architecture's numbers, as one of
/// x86-64 could.
fn filter_system_calls() -> Result<(), String> {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    };
    let step = |code: u32, yes: u8, no: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    let architecture = match () {
        () if cfg!(target_arch = "x86_64") => 0xc000_003e,
        () if cfg!(target_arch = "aarch64") => 0xc000_00b7,
        () if cfg!(target_arch = "riscv64") => 0xc000_00f3,
        () => return Err("the compiler confines no job on this machine".to_owned()),
    };
    let load = |offset| step(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
    let ends = |what| step(BPF_RET | BPF_K, 0, 0, what);
    let equals = |value, yes, no| step(BPF_JMP | BPF_JEQ | BPF_K, yes, no, value);
    // `struct seccomp_data`: the number of the call, then the architecture.
    let mut program =
        vec![load(4), equals(architecture, 1, 0), ends(libc::SECCOMP_RET_KILL_PROCESS), load(0)];
    for (index, call) in ALLOWED.iter().enumerate() {
        // The jump goes over the comparisons that follow, and the refusal.
        program.push(equals(*call as u32, (ALLOWED.len() - index) as u8, 0));
    }
    program.push(ends(SECCOMP_RET_ERRNO | libc::EPERM as u32));
    program.push(ends(SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let mode = libc::SECCOMP_MODE_FILTER as usize;
    control("PR_SET_SECCOMP", libc::PR_SET_SECCOMP, mode, (&raw const filter).expose_provenance())
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn descriptors_are_closed_one_by_one_where_the_system_closes_no_range() {
        let file = File::open("/dev/null").unwrap();
        let [first, second, other] =
            [700, 733, 750].map(|least| rustix::io::fcntl_dupfd_cloexec(&file, least).unwrap().into_raw_fd());
        // SAFETY: of these descriptor numbers only the test's two are in use.
        unsafe { close_listed(&(700..=740)).unwrap() };
        let is_open = |number: i32| std::fs::exists(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!([first, second, other].map(is_open), [false, false, true]);
        // SAFETY: the descriptor is the test's.
        unsafe { libc::close(other) };
    }
}
