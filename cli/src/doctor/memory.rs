//! Memory: whether code can run from it, whether it can be shared, and its limits.

use farjump::transports::{available, preferred};
use farjump_loader::{Arena, Error};
use farjump_os::limits;
use farjump_os::resources::memlock;
use rustix::fs::{MemfdFlags, StatVfsMountFlags, ftruncate, memfd_create, statvfs};
use rustix::io::Errno;

use super::finding::{Finding, Verdict};
use farjump_cli::program::procfs::{chosen, field, read};
use farjump_cli::program::units::show_limit;

/// Bytes mapped for the probe: the capacity for a few hundred images.
const TRIED: usize = 1 << 20;
/// A mailbox of `farjump serve`, in bytes.
const MAILBOX: u64 = 4 << 20;
/// The command that lifts a filter of system calls.
pub(super) const FILTER: &str =
    "docker run --security-opt seccomp=unconfined IMAGE   # or SystemCallFilter= of systemd";
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage";

pub(super) fn look() -> Vec<Finding> {
    let enforcing = read("/sys/fs/selinux/enforce").as_deref() == Some("1");
    vec![
        executable(Arena::new(TRIED).map(|arena| arena.capacity()), enforcing),
        shared(),
        dev_shm(),
        locked(memlock::limit(), memlock::is_exempt()),
        huge_pages(read(format!("{HUGE}/shmem_enabled")), read("/proc/meminfo")),
    ]
}

/// Judges the outcome of mapping an arena, as a target does when it is built.
fn executable(mapped: Result<usize, Error>, selinux_enforces: bool) -> Finding {
    const NAME: &str = "executable memory";
    match mapped {
        Ok(bytes) => {
            let found = format!("{} mapped twice: writable here, executable there", show_limit(bytes));
            Finding::new(NAME, Verdict::Ok, found, "targets can run code").figure("bytes", bytes)
        }
        Err(error @ Error::ExecForbidden { .. }) => {
            let mend = match selinux_enforces {
                true => "sudo setsebool deny_execmem 0",
                false => {
                    "sudo systemctl edit UNIT   # MemoryDenyWriteExecute=no, and no seccomp filter on mprotect"
                }
            };
            Finding::new(NAME, Verdict::Impossible, error.to_string(), "no target can run here").mend(mend)
        }
        Err(error) => {
            let mend = if error.to_string().contains("seccomp") { FILTER } else { "ulimit -v unlimited" };
            Finding::new(NAME, Verdict::Impossible, error.to_string(), "no target can run here").mend(mend)
        }
    }
}

/// Checks that a transport works, and that memory can be allocated as `shm` does it.
fn shared() -> Finding {
    const NAME: &str = "shared memory";
    let Some(transport) = preferred() else {
        let reasons = available().into_iter().find_map(|backend| backend.usable.err()).unwrap_or_default();
        let means = "no two processes can connect: no source and no target can run here";
        return Finding::new(NAME, Verdict::Impossible, reasons, means).mend("farjump transports");
    };
    // Makes this one alone: a list of all would load the library of each into this process.
    if let Err(farjump_transports::Error::Unusable { why, .. }) = farjump_transports::make("shm") {
        let means = format!("shm cannot be used: sources and targets connect over {}", transport.name());
        return Finding::new(NAME, Verdict::Slow, why, means).mend(FILTER);
    }
    let mailbox = memfd_create("farjump-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|memfd| ftruncate(memfd, MAILBOX));
    if let Err(error) = mailbox {
        let means = "mailboxes are made of memfds: no source and no target can run here";
        let found = format!("a memfd of {MAILBOX} bytes: {error}{}", limits::behind(&error.into()));
        let mend = match error {
            Errno::FBIG => "ulimit -f unlimited",
            Errno::MFILE => "ulimit -n 1024",
            _ => FILTER,
        };
        return Finding::new(NAME, Verdict::Impossible, found, means).mend(mend);
    }
    let found = format!("memfd works; transport: {}", transport.name());
    Finding::new(NAME, Verdict::Ok, found, "sources and targets of this machine can connect")
}

fn dev_shm() -> Finding {
    match statvfs("/dev/shm") {
        Ok(stat) => {
            let no_exec = stat.f_flag.contains(StatVfsMountFlags::NOEXEC);
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            judge_dev_shm(Some((bytes(stat.f_blocks), bytes(stat.f_bavail), no_exec)))
        }
        Err(_) => judge_dev_shm(None),
    }
}

/// Judges /dev/shm. `found` is size and free space in bytes, and whether its mount forbids execution.
fn judge_dev_shm(found: Option<(u64, u64, bool)>) -> Finding {
    const NAME: &str = "/dev/shm";
    const SMALL: u64 = 64 << 20;
    let Some((size, free, no_exec)) = found else {
        let means = "farjump's shm uses memfds and does without; UCX (ucx-put, ucx-am) may need it";
        return Finding::new(NAME, Verdict::Note, "not there", means)
            .mend("sudo mount -t tmpfs tmpfs /dev/shm");
    };
    let text =
        format!("{}, {} free{}", show_rough(size), show_rough(free), if no_exec { ", noexec" } else { "" });
    let finding = if free < SMALL {
        let means = "farjump's shm uses memfds and does without; UCX (ucx-put, ucx-am) may need more";
        Finding::new(NAME, Verdict::Note, text, means).mend("sudo mount -o remount,size=1G /dev/shm")
    } else if no_exec {
        let means = "farjump's shm uses memfds and does without; in UCX's memory no code could run in place";
        Finding::new(NAME, Verdict::Note, text, means).mend("sudo mount -o remount,exec /dev/shm")
    } else {
        Finding::new(NAME, Verdict::Ok, text, "farjump's shm uses memfds and does without; enough for UCX")
    };
    finding.figure("size_bytes", size).figure("free_bytes", free).figure("noexec", no_exec)
}

/// Judges the limit of locked memory, in bytes or `None`; `lifted` if it does not bind this process.
fn locked(limit: Option<u64>, lifted: bool) -> Finding {
    const NAME: &str = "locked memory";
    let Some(limit) = limit else {
        return Finding::new(NAME, Verdict::Ok, "unlimited", "RDMA devices could take any mailbox");
    };
    let found = format!("at most {}", show_rough(limit));
    let means = "shm locks nothing; RDMA devices lock each mailbox twice (4 MiB a source, and as much where it sends)";
    let finding = if lifted {
        let found = format!("{found}, which does not hold for this process (CAP_IPC_LOCK)");
        Finding::new(NAME, Verdict::Ok, found, means)
    } else if limit >= 16 * MAILBOX {
        Finding::new(NAME, Verdict::Ok, found, means)
    } else {
        let mend = "sudo prlimit --pid $$ --memlock=unlimited   # lasting: /etc/security/limits.conf, or LimitMEMLOCK= of systemd";
        Finding::new(NAME, Verdict::Note, found, means).mend(mend)
    };
    finding.figure("limit_bytes", limit).figure("needed_bytes", 2 * MAILBOX)
}

fn huge_pages(shmem: Option<String>, meminfo: Option<String>) -> Finding {
    const NAME: &str = "huge pages";
    let reserved = meminfo.as_deref().and_then(|text| field(text, "HugePages_Total")?.parse::<u64>().ok());
    let choice = shmem.as_deref().and_then(chosen);
    let transparent = choice.map_or("unknown".to_owned(), |choice| format!("`{choice}`"));
    let found = match reserved {
        Some(count) => format!("transparent for shared memory: {transparent}; reserved: {count}"),
        None => format!("transparent for shared memory: {transparent}"),
    };
    let finding = if matches!(choice, Some("always" | "within_size" | "force")) {
        Finding::new(NAME, Verdict::Ok, found, "large mailboxes can lie in few pages")
    } else {
        let means =
            "mailboxes lie in small pages: more misses of the TLB with many of them, or large payloads";
        let finding = Finding::new(NAME, Verdict::Note, found, means);
        match choice {
            Some(_) => finding.mend(format!("echo within_size | sudo tee {HUGE}/shmem_enabled")),
            None => finding,
        }
    };
    match reserved {
        Some(count) => finding.figure("reserved", count),
        None => finding,
    }
}

/// Formats a number of bytes in the largest unit that gives two digits, rounded down, or that divides it.
pub(super) fn show_rough(bytes: u64) -> String {
    let fits = |shift: u32| bytes >> shift >= 10 || (bytes != 0 && bytes.is_multiple_of(1 << shift));
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let (unit, shift) = units.into_iter().find(|(_, shift)| fits(*shift)).unwrap_or(("B", 0));
    format!("{} {unit}", bytes >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn memory_that_may_not_be_executed_makes_targets_impossible() {
        let forbidden = || Err(Error::ExecForbidden { source: io::Error::from_raw_os_error(13) });
        let finding = executable(forbidden(), false);
        assert_eq!(finding.verdict, Verdict::Impossible);
        assert!(finding.mend.is_some_and(|mend| mend.contains("MemoryDenyWriteExecute=no")));
        assert!(executable(forbidden(), true).mend.is_some_and(|mend| mend.contains("setsebool")));
        assert_eq!(executable(Ok(1 << 20), true).verdict, Verdict::Ok);
    }

    #[test]
    fn a_small_or_noexec_dev_shm_is_worth_a_note() {
        let look = |size, free, no_exec| judge_dev_shm(Some((size, free, no_exec)));
        let roomy = look(24 << 30, 23 << 30, false);
        assert_eq!((roomy.verdict, &*roomy.found), (Verdict::Ok, "24 GiB, 23 GiB free"));
        let full = look(64 << 20, 1 << 20, false);
        assert_eq!((full.verdict, &*full.found), (Verdict::Note, "64 MiB, 1 MiB free"));
        assert!(look(1 << 30, 1 << 30, true).mend.is_some_and(|mend| mend.contains("remount,exec")));
        assert_eq!(judge_dev_shm(None).verdict, Verdict::Note);
    }

    #[test]
    fn a_low_limit_on_locked_memory_is_worth_a_note() {
        assert_eq!(locked(None, false).verdict, Verdict::Ok);
        assert_eq!(locked(Some(u64::MAX), false).verdict, Verdict::Ok);
        let low = locked(Some(65536), false);
        assert_eq!((low.verdict, &*low.found), (Verdict::Note, "at most 64 KiB"));
        assert_eq!(low.figures["needed_bytes"], 8 << 20);
        assert!(low.mend.is_some_and(|mend| mend.contains("prlimit") && mend.contains("LimitMEMLOCK")));
        let root = locked(Some(65536), true);
        assert!(root.verdict == Verdict::Ok && root.found.contains("CAP_IPC_LOCK"), "{}", root.found);
    }

    #[test]
    fn huge_pages_are_judged_by_what_shared_memory_gets() {
        let look = |shmem: &str, meminfo: &str| huge_pages(Some(shmem.into()), Some(meminfo.into()));
        let advise =
            look("always within_size [advise] never deny force", "MemTotal: 4 kB\nHugePages_Total:       7");
        assert_eq!((advise.verdict, &advise.figures["reserved"]), (Verdict::Note, &7.into()));
        assert!(advise.found.contains("`advise`; reserved: 7"), "{}", advise.found);
        assert_eq!(look("[always] within_size never", "").verdict, Verdict::Ok);
        assert_eq!(look("always [within_size] never", "").verdict, Verdict::Ok);
        let broken = look("nothing", "HugePages_Total: many");
        assert_eq!((&*broken.found, broken.mend), ("transparent for shared memory: unknown", None));
        assert_eq!(huge_pages(None, None).verdict, Verdict::Note);
    }
}
