//! The machine and its kernel: their kind, virtualization, and permissions of tools.

use rustix::process::geteuid;
use rustix::thread::{MembarrierCommand, membarrier};

use super::finding::{Finding, Verdict};
use farjump_cli::program::procfs::{field, read};

/// The first kernel whose madvise(2) keeps an arena from forked children.
const OLDEST: (u32, u32) = (4, 14);
/// The first kernel that can populate memory before its use.
const POPULATES: (u32, u32) = (5, 14);

pub(super) fn look() -> Vec<Finding> {
    let root = geteuid().is_root();
    let number = |file: &str| read(file).and_then(|text| text.parse().ok());
    vec![
        machine(std::env::consts::ARCH),
        kernel(read("/proc/sys/kernel/osrelease")),
        barrier(),
        virtual_machine(
            read("/proc/cpuinfo"),
            read("/sys/class/dmi/id/product_name"),
            read("/proc/stat").as_deref().and_then(stolen),
        ),
        perf(number("/proc/sys/kernel/perf_event_paranoid"), root),
        ptrace(number("/proc/sys/kernel/yama/ptrace_scope"), root),
    ]
}

fn machine(architecture: &str) -> Finding {
    const NAME: &str = "machine";
    match architecture {
        "x86_64" | "aarch64" | "riscv64" => {
            Finding::new(NAME, Verdict::Ok, architecture, "images are made for it")
        }
        _ => Finding::new(
            NAME,
            Verdict::Impossible,
            architecture,
            "injected code runs on x86-64, aarch64 and riscv64, so far",
        ),
    }
}

fn kernel(release: Option<String>) -> Finding {
    const NAME: &str = "kernel";
    let Some((release, version)) = release.and_then(|release| version(&release).map(|v| (release, v))) else {
        let means = "farjump needs Linux 4.14 or later";
        return Finding::new(NAME, Verdict::Note, "/proc does not show its version", means);
    };
    let found = format!("Linux {release}");
    if version < OLDEST {
        let means = "too old to keep injected code from forked children: no target can run here";
        Finding::new(NAME, Verdict::Impossible, found, means).mend("sudo apt-get dist-upgrade")
    } else if version < POPULATES {
        let means = "before 5.14 memory is backed at its first use: the first calls take longer";
        Finding::new(NAME, Verdict::Slow, found, means).mend("sudo apt-get dist-upgrade")
    } else {
        Finding::new(NAME, Verdict::Ok, found, "has all that farjump uses")
    }
}

/// Returns the first two numbers of a release such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Tries the call, because a sandbox may forbid it. The call concerns this process alone, which ends soon.
fn barrier() -> Finding {
    let register = membarrier(MembarrierCommand::RegisterGlobalExpedited);
    judge_barrier(
        register.and_then(|()| membarrier(MembarrierCommand::GlobalExpedited)).map_err(|e| e.to_string()),
    )
}

fn judge_barrier(called: Result<(), String>) -> Finding {
    const NAME: &str = "membarrier";
    match called {
        Ok(()) => {
            Finding::new(NAME, Verdict::Ok, "global expedited works", "a frame is sent without a fence")
        }
        Err(error) => {
            let means = "each frame sent costs a full fence, because the peer may be going to sleep";
            let mend = "docker run --security-opt seccomp=unconfined IMAGE   # and Linux 4.16 or later";
            Finding::new(NAME, Verdict::Slow, format!("global expedited: {error}"), means).mend(mend)
        }
    }
}

/// Judges virtualization. `stolen` is in percent of the time since the machine started.
fn virtual_machine(cpuinfo: Option<String>, product: Option<String>, stolen: Option<f64>) -> Finding {
    const NAME: &str = "virtual machine";
    const MUCH: f64 = 1.0;
    let flags = cpuinfo.as_deref().and_then(|text| field(text, "flags"));
    let is_one = flags.is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    if !is_one {
        return Finding::new(NAME, Verdict::Ok, "none that shows", "no host takes processors away");
    }
    let named = product.filter(|name| !name.is_empty()).map_or(String::new(), |name| format!(" ({name})"));
    let share =
        stolen.map_or(String::new(), |percent| format!(", {percent:.1} % of the time taken by the host"));
    let found = format!("yes{named}{share}");
    let finding = if stolen.is_some_and(|percent| percent >= MUCH) {
        let means =
            "a processor that the host takes away replies late, and a peer that waits for it spins in vain";
        Finding::new(NAME, Verdict::Slow, found, means)
            .mend("vmstat 1   # column st; dedicated processors are for the host to give")
    } else {
        Finding::new(NAME, Verdict::Note, found, "timings vary more than on dedicated hardware")
    };
    match stolen {
        Some(percent) => finding.figure("stolen_percent", percent),
        None => finding,
    }
}

/// Reads from /proc/stat (proc(5)) the share of all processors' time that the host took, in percent.
fn stolen(stat: &str) -> Option<f64> {
    const STEAL: usize = 7;
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    // Later fields are part of earlier ones.
    let times = line.split_whitespace().skip(1).take(STEAL + 1).map(str::parse::<u64>);
    let times = times.collect::<Result<Vec<_>, _>>().ok()?;
    let all: u64 = times.iter().fold(0, |sum, time| sum.saturating_add(*time));
    (all != 0).then_some(*times.get(STEAL)? as f64 * 100.0 / all as f64)
}

fn perf(paranoid: Option<i32>, root: bool) -> Finding {
    const NAME: &str = "perf";
    let Some(level) = paranoid else {
        let means = "perf cannot profile targets; they run as well without it";
        return Finding::new(NAME, Verdict::Note, "this kernel has no performance events", means);
    };
    let found = format!("perf_event_paranoid {level}{}", if root { ", and this is root" } else { "" });
    let finding = if root || level <= 2 {
        Finding::new(NAME, Verdict::Ok, found, "perf may profile your own targets")
    } else {
        let means = "perf may not profile targets; they run as well without it";
        Finding::new(NAME, Verdict::Note, found, means).mend("sudo sysctl kernel.perf_event_paranoid=2")
    };
    finding.figure("perf_event_paranoid", level)
}

fn ptrace(scope: Option<i32>, root: bool) -> Finding {
    const NAME: &str = "ptrace";
    const NO_ATTACH: i32 = 3;
    let found = match scope {
        None => "no Yama in this kernel".to_owned(),
        Some(scope) => format!("ptrace_scope {scope}{}", if root { ", and this is root" } else { "" }),
    };
    let finding = match scope {
        Some(NO_ATTACH..) => {
            let means = "no debugger may attach to a running target until the machine starts anew";
            Finding::new(NAME, Verdict::Note, found, means)
                .mend("sudo reboot   # with kernel.yama.ptrace_scope=0 in /etc/sysctl.d")
        }
        Some(1..) if !root => {
            let means = "gdb may start a target, but not attach to a running one";
            Finding::new(NAME, Verdict::Note, found, means).mend("sudo sysctl kernel.yama.ptrace_scope=0")
        }
        _ => Finding::new(NAME, Verdict::Ok, found, "gdb may attach to your own targets"),
    };
    match scope {
        Some(scope) => finding.figure("ptrace_scope", scope),
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_judged_by_their_first_two_numbers() {
        let look = |release: &str| kernel(Some(release.to_owned())).verdict;
        assert_eq!(look("6.1.0-18-amd64"), Verdict::Ok);
        assert_eq!(look("5.14"), Verdict::Ok);
        assert_eq!(look("5.4.0"), Verdict::Slow);
        assert_eq!(look("4.14.336"), Verdict::Slow);
        assert_eq!(look("4.9.0"), Verdict::Impossible);
        assert_eq!(look("10.0-rc1"), Verdict::Ok);
        for broken in ["", "6", "six.one", "-6.1", "99999999999.1"] {
            assert_eq!(look(broken), Verdict::Note, "{broken:?}");
        }
        assert_eq!(kernel(None).verdict, Verdict::Note);
    }

    #[test]
    fn machines_without_images_are_impossible() {
        for machine_with_images in ["x86_64", "aarch64", "riscv64"] {
            assert_eq!(machine(machine_with_images).verdict, Verdict::Ok);
        }
        for other in ["x86", "arm", "riscv32", "powerpc64"] {
            assert_eq!(machine(other).verdict, Verdict::Impossible, "{other}");
        }
    }

    #[test]
    fn a_refused_barrier_is_slow() {
        assert_eq!(judge_barrier(Ok(())).verdict, Verdict::Ok);
        let refused = judge_barrier(Err("Function not implemented".into()));
        assert_eq!(refused.verdict, Verdict::Slow);
        assert!(refused.found.contains("not implemented") && refused.mend.is_some());
    }

    #[test]
    fn a_virtual_machine_is_judged_by_the_time_its_host_takes() {
        let info = "processor\t: 0\nflags\t\t: fpu hypervisor sse\nprocessor\t: 1";
        let look = |info: &str, stolen| virtual_machine(Some(info.into()), Some("KVM".into()), stolen);
        let quiet = look(info, Some(0.2));
        assert_eq!(
            (quiet.verdict, &*quiet.found),
            (Verdict::Note, "yes (KVM), 0.2 % of the time taken by the host")
        );
        assert_eq!(look(info, Some(3.0)).verdict, Verdict::Slow);
        assert_eq!(look(info, None).found, "yes (KVM)");
        assert_eq!(look("flags : hypervisors", Some(3.0)).verdict, Verdict::Ok);
        assert_eq!(virtual_machine(None, None, None).verdict, Verdict::Ok);
    }

    #[test]
    fn stolen_time_is_a_share_of_all_but_the_guests() {
        assert_eq!(stolen("cpu  40 0 10 30 5 3 2 10 7 7\ncpu0 1 1 1 1 1 1 1 1"), Some(10.0));
        for broken in ["", "cpu0 1 2 3", "cpu  1 2 3", "cpu  a b c d e f g h", "cpu  0 0 0 0 0 0 0 0"] {
            assert_eq!(stolen(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn perf_and_ptrace_verdicts_depend_on_settings_and_on_root() {
        assert_eq!(perf(Some(2), false).verdict, Verdict::Ok);
        assert_eq!(perf(Some(-1), false).verdict, Verdict::Ok);
        assert_eq!(perf(Some(3), false).verdict, Verdict::Note);
        assert_eq!(perf(Some(4), true).verdict, Verdict::Ok);
        assert_eq!(perf(None, true).verdict, Verdict::Note);
        assert_eq!(ptrace(None, false).verdict, Verdict::Ok);
        assert_eq!(ptrace(Some(0), false).verdict, Verdict::Ok);
        assert_eq!(ptrace(Some(1), false).verdict, Verdict::Note);
        assert_eq!(ptrace(Some(2), true).verdict, Verdict::Ok);
        assert!(ptrace(Some(3), true).mend.is_some_and(|mend| mend.contains("reboot")));
    }
}
