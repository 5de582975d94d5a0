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
    filter_system_calls();
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

/// The system calls that a child needs for memory, for its pipe and to end; others fail. Descriptors cannot be made, other
/// processes not reached, whatever the bitcode makes of LLVM.
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

/// Refuses all other system calls from now on, in this process. Best effort: a kernel may be built without it.
///
/// The filter is a program of classic BPF (seccomp(2)): the number of the call is compared with each of those allowed. On
/// another architecture than this program's, by whose numbers a process of x86-64 could call the kernel, it ends.
fn filter_system_calls() {
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
        () => return,
    };
    let load = |offset| step(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
    let ends = |what| step(BPF_RET | BPF_K, 0, 0, what);
    let equals = |value, yes, no| step(BPF_JMP | BPF_JEQ | BPF_K, yes, no, value);
    // `struct seccomp_data`: the number of the call, then the architecture.
    let mut program =
        vec![load(4), equals(architecture, 1, 0), ends(libc::SECCOMP_RET_KILL_PROCESS), load(0)];
    for (index, call) in ALLOWED.iter().enumerate() {
        // Over those that follow, and the refusal.
        program.push(equals(*call as u32, (ALLOWED.len() - index) as u8, 0));
    }
    program.push(ends(SECCOMP_RET_ERRNO | libc::EPERM as u32));
    program.push(ends(SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which is whole; it changes nothing but what this process may call.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
}
