//! Processor time that the control groups of this process grant it (cgroups(7)).

use std::path::{Path, PathBuf};

use farjump_benches::program::procfs::read;

/// Bound on the nesting of groups, beyond that of any machine.
const DEEPEST: usize = 32;

/// Returns the processor time that this process may use, in processors: the least over all its groups. `None`
/// without a limit, or where the groups cannot be read.
pub(super) fn of_this_process() -> Option<f64> {
    let groups = read("/proc/self/cgroup")?;
    let mounts = read("/proc/self/mountinfo")?;
    let folders = folders(&groups, &mounts);
    let limits = folders.iter().filter_map(|folder| {
        read(folder.join("cpu.max")).and_then(|text| unified(&text)).or_else(|| {
            let quota = read(folder.join("cpu.cfs_quota_us"))?;
            legacy(&quota, &read(folder.join("cpu.cfs_period_us"))?)
        })
    });
    limits.min_by(f64::total_cmp)
}

/// Reads `cpu.max`: quota and period in microseconds, or `max`.
fn unified(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    share(quota.parse().ok()?, period.trim().parse().ok()?)
}

/// Reads `cpu.cfs_quota_us`, -1 for no limit, and `cpu.cfs_period_us`.
fn legacy(quota: &str, period: &str) -> Option<f64> {
    share(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn share(quota: f64, period: f64) -> Option<f64> {
    (quota.is_finite() && quota > 0.0 && period.is_finite() && period > 0.0).then(|| quota / period)
}

/// Returns the folders that may hold a limit: in each hierarchy with `cpu`, those of the group and its
/// ancestors.
fn folders(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let is_unified = number == "0" && controllers.is_empty();
        if !is_unified && !controllers.split(',').any(|controller| controller == "cpu") {
            continue;
        }
        for (root, point) in mounts.lines().filter_map(|line| hierarchy(line, is_unified)) {
            // In a container the group's path may be the one seen from outside, where none of it is mounted.
            // Then the mount itself is the group.
            let inside = Path::new(group).strip_prefix(&root).unwrap_or(Path::new(""));
            let group = point.join(inside);
            let around = group.ancestors().take(DEEPEST).take_while(|folder| folder.starts_with(&point));
            found.extend(around.map(Path::to_owned));
        }
    }
    found
}

/// Returns root and mount point of a line of mountinfo (proc(5)) if it is the wanted hierarchy.
fn hierarchy(line: &str, is_unified: bool) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let fits = match is_unified {
        true => kind == "cgroup2",
        false => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
    };
    // mountinfo writes blanks in paths as octal numbers.
    fits.then(|| (root.replace("\\040", " ").into(), point.replace("\\040", " ").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_in_both_forms_and_nonsense_limits_nothing() {
        assert_eq!(unified("150000 100000"), Some(1.5));
        assert_eq!(legacy("50000\n", "100000\n"), Some(0.5));
        for none in ["max 100000", "", "100000", "x y", "100000 0", "-5 100000", "inf 1", "NaN 1"] {
            assert_eq!(unified(none), None, "{none:?}");
        }
        assert_eq!([legacy("-1", "100000"), legacy("", ""), legacy("1", "0")], [None; 3]);
    }

    #[test]
    fn a_group_is_looked_for_in_its_mount_with_all_groups_around_it() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let found = folders("0::/user.slice/session.scope\n", mounts);
        let expected =
            ["/sys/fs/cgroup/user.slice/session.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn in_a_container_the_mount_is_the_group() {
        let mounts = "31 23 0:28 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct";
        for group in ["/docker/ab", "/elsewhere"] {
            let found = folders(&format!("4:cpuacct,cpu:{group}\n3:cpuset:/x"), mounts);
            assert_eq!(found, [PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")], "{group}");
        }
    }

    #[test]
    fn broken_files_name_no_group() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup - cgroup2 cgroup2 rw";
        assert!(folders("", mounts).is_empty());
        assert!(folders("0:\n:::\n7:cpuset:/a\n", mounts).is_empty());
        for broken in ["", "31 23", "31 23 0:28 / /x - cgroup2", "31 23 0:28 / /x - tmpfs tmpfs rw"] {
            assert!(folders("0::/a", broken).is_empty(), "{broken:?}");
        }
    }
}
