//! Limits of the process (getrlimit(2)) behind failed calls, in words that name them and the remedy.

use std::fmt::Write;
use std::io;

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, fcntl_getfd};
use rustix::process::{Resource, Rlimit};

/// Descriptor numbers that are checked. A process with a higher limit counts as having enough.
const LOOKED_AT: u64 = 4096;
/// Free descriptors below which a library's unexplained failure is attributed to their lack: UCX opens some
/// ten for a worker, and closes them again before it reports the failure.
const FEW: usize = 16;

/// Returns advice for a failed system call, to append to its error: a colon, a blank and the limit that
/// stopped it; nothing if there is none.
pub fn behind(error: &io::Error) -> String {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::MFILE) => Some(of_descriptors()),
        Some(Errno::NFILE) => Some("the machine has no more open files: raise fs.file-max".to_owned()),
        Some(Errno::NOMEM) => of_addresses(),
        Some(Errno::FBIG) => of_files(),
        _ => None,
    };
    advice.map(|advice| format!(": {advice}")).unwrap_or_default()
}

/// As [`behind`], for `call`, a system call that needs no right: if it is denied or missing, the cause is a
/// filter of system calls.
pub fn behind_call(call: &str, error: &io::Error) -> String {
    const ALLOW: &str =
        "allow it (SystemCallFilter= of systemd, `docker run --security-opt seccomp=unconfined`)";
    match Errno::from_io_error(error) {
        Some(Errno::PERM) => {
            format!(": a filter of system calls (seccomp) forbids {call} to this process: {ALLOW}")
        }
        Some(Errno::NOSYS) => {
            format!(
                ": the kernel lacks {call}, or a filter of system calls (seccomp) forbids it to this process: {ALLOW}"
            )
        }
        _ => behind(error),
    }
}

/// As [`behind`], for a thread that could not be started.
pub fn behind_thread(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => format!(": {}", of_processes("threads")),
        _ => behind_call("clone", error),
    }
}

/// As [`behind`], for a program that could not be started. `missing` is the remedy if the program is missing,
/// as a sentence without a full stop.
pub fn behind_program(error: &io::Error, missing: &str) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => format!(". {missing}"),
        Some(Errno::AGAIN) => format!(": {}", of_processes("processes")),
        Some(Errno::ACCESS | Errno::PERM) => {
            ": this user may not run the file, or its file system is mounted noexec: make it executable (`chmod +x`), or \
             name another program"
                .to_owned()
        }
        Some(Errno::NOEXEC) => {
            ": the file is no program of this machine: install it for this machine, or name another program".to_owned()
        }
        Some(Errno::NOMEM) => {
            of_addresses().map_or_else(|| ": free memory".to_owned(), |advice| format!(": {advice}"))
        }
        _ => behind(error),
    }
}

/// Returns the limit that is most likely behind a failure whose system call is not known; `None` if this
/// process is near none.
pub fn shortage() -> Option<String> {
    lack_of_descriptors(FEW).or_else(of_files).or_else(of_addresses)
}

/// Returns the limit of descriptors if this process may open fewer than `needed` more.
pub fn lack_of_descriptors(needed: usize) -> Option<String> {
    (free_descriptors(needed) < needed).then(of_descriptors)
}

/// Returns how many descriptors this process may still open, `most` at most.
pub fn free_descriptors(most: usize) -> usize {
    let Some(limit) = descriptors().filter(|limit| *limit <= LOOKED_AT) else { return most };
    let is_free = |number: &i32| {
        // SAFETY: the call only queries the number; one that is not open is an error, and no other call uses
        // the borrow.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
        fcntl_getfd(descriptor) == Err(Errno::BADF)
    };
    (0..limit as i32).filter(is_free).take(most).count()
}

/// Returns the limits of a resource. They count as none if the system does not report them.
pub fn of(resource: Resource) -> Rlimit {
    let mut limits = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // rustix's call panics where a filter of system calls denies it.
    // SAFETY: the system writes the two words, or nothing.
    let told = unsafe { libc::getrlimit(resource as libc::__rlimit_resource_t, &raw mut limits) } == 0;
    let known = |limit| (told && limit != libc::RLIM_INFINITY).then_some(limit);
    Rlimit { current: known(limits.rlim_cur), maximum: known(limits.rlim_max) }
}

/// Returns the most descriptors that this process may have, or `None` if there is no limit.
pub fn descriptors() -> Option<u64> {
    of(Resource::Nofile).current
}

/// Returns the longest file, and shared memory, that this process may make, in bytes; `None` if there is no
/// limit. A call beyond it ends a process that does not ignore SIGXFSZ.
pub fn file_size() -> Option<u64> {
    of(Resource::Fsize).current
}

/// Returns the most bytes of addresses that this process may have, and those that it has; `None` if there is
/// no limit.
pub fn address_space() -> Option<(u64, u64)> {
    let limit = of(Resource::As).current?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let used: u64 = used.and_then(|used| used.parse().ok()).unwrap_or(0);
    Some((limit, used * 1024))
}

/// Returns the advice about a file of `len` bytes if it is longer than this process may make.
pub fn too_long(len: u64) -> Option<String> {
    file_size().filter(|limit| *limit < len).and_then(|_| of_files())
}

fn of_descriptors() -> String {
    let limit = descriptors().map_or("no limit".to_owned(), |limit| limit.to_string());
    format!("the limit of descriptors is {limit}: raise it (`ulimit -n`, LimitNOFILE= of systemd)")
}

/// Advice where the system gives no more processes or threads (`what`).
fn of_processes(what: &str) -> String {
    let mut advice = format!("the system gives this user or this container no more {what}: raise ");
    let _ = match of(Resource::Nproc).current {
        Some(limit) => write!(
            advice,
            "the limit of processes, {limit} (`ulimit -u`, LimitNPROC= or TasksMax= of systemd), or pids.max of the control group"
        ),
        None => write!(advice, "pids.max of the control group (TasksMax= of systemd), or kernel.threads-max"),
    };
    advice
}

fn of_addresses() -> Option<String> {
    let (limit, used) = address_space()?;
    let (limit, used) = (limit / 1024, used / 1024);
    Some(format!(
        "the limit of address space is {limit} KiB, of which {used} are in use: raise it (`ulimit -v`, LimitAS= of systemd)"
    ))
}

fn of_files() -> Option<String> {
    let limit = file_size()?;
    Some(format!(
        "the limit of file sizes is {limit} bytes, for shared memory too: raise it (`ulimit -f`, LimitFSIZE= of systemd)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_error_names_its_remedy_and_others_get_no_advice() {
        let of = |errno: Errno| behind(&errno.into());
        assert!(of(Errno::MFILE).contains("ulimit -n"), "{}", of(Errno::MFILE));
        assert!(of(Errno::NFILE).contains("fs.file-max"));
        assert_eq!(of(Errno::PERM), "");
        let text = behind_thread(&Errno::AGAIN.into());
        assert!(text.contains("pids.max"), "{text}");
        for errno in [Errno::PERM, Errno::NOSYS] {
            let text = behind_call("memfd_create", &errno.into());
            assert!(text.contains("memfd_create") && text.contains("seccomp=unconfined"), "{errno}: {text}");
        }
        assert_eq!(behind_call("memfd_create", &Errno::MFILE.into()), of(Errno::MFILE));
    }

    #[test]
    fn only_a_program_that_is_not_there_is_to_be_installed() {
        let of = |errno: Errno| behind_program(&errno.into(), "Install it");
        assert_eq!([of(Errno::NOENT), of(Errno::NOTDIR)], [". Install it", ". Install it"]);
        for (errno, part) in [
            (Errno::AGAIN, "no more processes: raise"),
            (Errno::ACCESS, "chmod +x"),
            (Errno::NOEXEC, "no program of this machine"),
            (Errno::NOMEM, "memory"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::IO, ""),
        ] {
            let text = of(errno);
            assert!(text.contains(part) && !text.contains("Install it"), "{errno}: {text}");
        }
    }
}
