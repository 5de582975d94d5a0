//! Resources of machines and containers that are made of files.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Mounts of version 2, and of two controllers of version 1.
const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const LEGACY: &str = "31 23 0:28 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n\
                      32 23 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup cgroup rw,cpu,cpuacct\n\
                      33 23 0:30 / /sys/fs/cgroup/cpuset rw shared:7 - cgroup cgroup rw,cpuset\n";
const MIB: u64 = 1 << 20;
/// The value of version 1 that stands for no limit.
const NO_LIMIT: &str = "9223372036854771712";

/// A machine of 1000 MiB and 8 processors.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(groups: &str, mounts: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine
            .with("proc/meminfo", "MemTotal:        1024000 kB\nMemFree: 1 kB\n")
            .with("sys/devices/system/cpu/online", "0-7\n")
            .with("proc/self/cgroup", groups)
            .with("proc/self/mountinfo", mounts)
    }

    fn with(self, path: &str, text: &str) -> Machine {
        let path: PathBuf = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn memory(&self) -> u64 {
        memory_below(self.root(), None)
    }

    fn processors(&self) -> usize {
        shared_below(self.root(), || panic!("the list of processors is there"))
    }
}

#[test]
fn without_groups_the_machine_and_the_limit_of_addresses_count() {
    let machine = Machine::new("", "");
    assert_eq!((machine.memory(), machine.processors()), (1000 * MIB, 8));
    assert_eq!(memory_below(machine.root(), Some(64 * MIB)), 64 * MIB);
    assert_eq!(memory_below(machine.root(), Some(u64::MAX)), 1000 * MIB);
}

#[test]
fn without_system_files_there_is_a_processor_and_no_memory_limit() {
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(memory_below(nothing.path(), None), u64::MAX);
    assert_eq!(shared_below(nothing.path(), || 3), 3);
    assert_eq!(shared_below(nothing.path(), || 0), 1);
    assert_eq!(Files(nothing.path()).time_of_groups(), None);
}

#[test]
fn the_least_limit_of_nested_groups_of_version_2_counts() {
    let machine = Machine::new("0::/a/b\n", UNIFIED)
        .with("sys/fs/cgroup/a/b/memory.max", "max\n")
        .with("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_eq!((machine.memory(), machine.processors()), (1000 * MIB, 8));
    let machine = machine
        .with("sys/fs/cgroup/a/memory.max", "314572800\n")
        .with("sys/fs/cgroup/a/cpu.max", "350000 100000\n");
    assert_eq!((machine.memory(), machine.processors()), (300 * MIB, 3));
    let machine = machine
        .with("sys/fs/cgroup/a/b/memory.high", "209715200\n")
        .with("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_eq!((machine.memory(), machine.processors()), (200 * MIB, 1));
}

#[test]
fn version_1_limits_include_those_of_invisible_parent_groups() {
    let groups = "9:memory:/docker/ab\n5:cpu,cpuacct:/docker/ab\n3:cpuset:/docker/ab\n0::/\n";
    let machine = Machine::new(groups, LEGACY)
        .with("sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", NO_LIMIT)
        .with("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "-1\n")
        .with("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000\n");
    assert_eq!((machine.memory(), machine.processors()), (1000 * MIB, 8));
    let machine = machine
        .with("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "419430400\n")
        .with("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "200000\n")
        .with("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
    assert_eq!((machine.memory(), machine.processors()), (400 * MIB, 2));
    let stat = "cache 0\nhierarchical_memory_limit 104857600\nhierarchical_memsw_limit 1\n";
    let machine = machine.with("sys/fs/cgroup/memory/docker/ab/memory.stat", stat);
    assert_eq!(machine.memory(), 100 * MIB);
}

#[test]
fn a_containers_mount_is_its_group_despite_an_outside_path() {
    let mounts = UNIFIED.replace(" / ", " /system.slice/docker-ab.scope ");
    for (groups, mounts) in [
        ("0::/system.slice/docker-ab.scope\n", &*mounts),
        ("0::/system.slice/docker-ab.scope\n", UNIFIED),
        ("0::/../other\n", UNIFIED),
        ("0::/\n", UNIFIED),
    ] {
        let machine = Machine::new(groups, mounts)
            .with("sys/fs/cgroup/memory.max", "104857600\n")
            .with("sys/fs/cgroup/cpu.max", "100000 100000\n");
        assert_eq!((machine.memory(), machine.processors()), (100 * MIB, 1), "{groups}");
    }
}

#[test]
fn processors_outside_the_groups_cpuset_do_not_count() {
    let machine = Machine::new("0::/a\n", UNIFIED).with("sys/fs/cgroup/a/cpuset.cpus.effective", "2-3,7\n");
    assert_eq!(machine.processors(), 3);
    let machine = Machine::new("3:cpuset:/a\n", LEGACY)
        .with("sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "1\n")
        .with("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-7\n");
    assert_eq!(machine.processors(), 1);
}

#[test]
fn a_pinned_thread_has_one_processor_and_all_shared_ones() {
    let (all, mask) = (shared_processors(), rustix::thread::sched_getaffinity(None).unwrap());
    assert_eq!(processors(), all.min(mask.count() as usize));
    std::thread::spawn(move || {
        let mut one = rustix::thread::CpuSet::new();
        one.set((0..1024).find(|cpu| mask.is_set(*cpu)).expect("some processor is allowed"));
        rustix::thread::sched_setaffinity(None, &one).expect("a thread may pin itself");
        assert_eq!((processors(), shared_processors()), (1, all));
    })
    .join()
    .expect("the pinned thread agrees");
}

#[test]
fn this_process_has_processors_and_at_most_the_machines_memory() {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let machine = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
    assert!((MIB..=machine).contains(&memory()), "{} of {machine}", memory());
    assert!(processors() >= 1 && shared_processors() >= 1);
}

/// A control group of a test; removed when it is dropped.
struct Group(PathBuf);

impl Group {
    /// Makes one below this process's, with this limit of memory.
    fn new(bytes: u64) -> Result<Group, String> {
        let around =
            Files(Path::new("/")).groups("memory").into_iter().next().ok_or("there is none around")?;
        let path = around.join(format!("farjump-test-{}", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::create_dir(&path).map_err(failed)?;
        let group = Group(path.clone());
        let is_legacy = around.join("memory.limit_in_bytes").exists();
        let limit = path.join(if is_legacy { "memory.limit_in_bytes" } else { "memory.max" });
        fs::write(limit, bytes.to_string()).map_err(failed)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still count.
        for _ in 0..1000 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => std::thread::yield_now(),
                _ => return,
            }
        }
    }
}

/// Set where a test runs again, in a group with this limit.
const WITHIN: &str = "FARJUMP_TEST_MEMORY_OF_GROUP";

#[test]
fn the_limit_of_a_real_control_group_counts() {
    const LIMIT: u64 = 300 * MIB;
    if std::env::var_os(WITHIN).is_some() {
        assert_eq!(memory(), LIMIT);
        return;
    }
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(why) => return println!("skipped: no control group can be made: {why}"),
    };
    let again = "echo $$ > \"$1\"/cgroup.procs && exec \"$2\" --exact resources::tests::the_limit_of_a_real_control_group_counts";
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", again, "sh"])
        .args([&group.0, &program])
        .env(WITHIN, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("cgroup.procs") {
        return println!("skipped: no process can be put into a control group: {error}");
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}{error}");
}
