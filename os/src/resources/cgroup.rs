//! The limits that the control groups of this process set (cgroups(7)), of both versions.

use std::path::{Component, Path, PathBuf};

use super::files::Files;

/// Bound on the nesting of groups, beyond that of any machine.
const DEEPEST: usize = 32;

impl Files<'_> {
    /// Returns the most bytes of memory that the groups grant; `None` without a limit.
    pub(super) fn memory_of_groups(&self) -> Option<u64> {
        let limits = self.groups("memory").into_iter().flat_map(|folder| {
            let bytes = |name: &str| self.read(folder.join(name))?.parse().ok();
            // Version 1 also counts the groups that a container does not see.
            let around = || self.field(folder.join("memory.stat"), "hierarchical_memory_limit")?.parse().ok();
            let unified = [bytes("memory.max"), bytes("memory.high")];
            unified.into_iter().chain([bytes("memory.limit_in_bytes"), around()]).flatten()
        });
        limits.min()
    }

    /// Returns the processor time that the groups grant, in processors; `None` without a limit.
    pub(super) fn time_of_groups(&self) -> Option<f64> {
        let limits = self.groups("cpu").into_iter().filter_map(|folder| {
            self.read(folder.join("cpu.max")).and_then(|text| unified_quota(&text)).or_else(|| {
                let quota = self.read(folder.join("cpu.cfs_quota_us"))?;
                quota_of(&quota, &self.read(folder.join("cpu.cfs_period_us"))?)
            })
        });
        limits.min_by(f64::total_cmp)
    }

    /// Returns the list of processors that the group may use; `None` without one.
    pub(super) fn processors_of_groups(&self) -> Option<String> {
        self.groups("cpuset").into_iter().find_map(|folder| {
            let list = |name: &str| self.read(folder.join(name)).filter(|list| !list.is_empty());
            list("cpuset.cpus.effective").or_else(|| list("cpuset.effective_cpus"))
        })
    }

    /// Returns the folders that may hold a limit of `controller`: in each hierarchy that has it, those of the
    /// group and its ancestors, innermost first.
    pub(super) fn groups(&self, controller: &str) -> Vec<PathBuf> {
        let groups = self.read("/proc/self/cgroup").unwrap_or_default();
        let mounts = self.read("/proc/self/mountinfo").unwrap_or_default();
        folders(controller, &groups, &mounts)
    }
}

/// Reads `cpu.max`: quota and period in microseconds, or `max`.
fn unified_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    quota_of(quota, period)
}

/// Returns quota, -1 for no limit, over period.
fn quota_of(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota.is_finite() && quota > 0.0 && period.is_finite() && period > 0.0).then(|| quota / period)
}

fn folders(controller: &str, groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let is_unified = number == "0" && controllers.is_empty();
        if !is_unified && !controllers.split(',').any(|of| of == controller) {
            continue;
        }
        let wanted = (!is_unified).then_some(controller);
        for (root, point) in mounts.lines().filter_map(|line| hierarchy(line, wanted)) {
            // In a container the group's path may be the one seen from outside, where none of it is mounted,
            // or lead out of the mount. Then the mount itself is the group.
            let inside = Path::new(group).strip_prefix(&root).ok();
            let inside = inside.filter(|path| path.components().all(|part| part != Component::ParentDir));
            let group = point.join(inside.unwrap_or(Path::new("")));
            let around = group.ancestors().take(DEEPEST).take_while(|folder| folder.starts_with(&point));
            found.extend(around.map(Path::to_owned));
        }
    }
    found
}

/// Returns root and mount point of a line of mountinfo (proc(5)) if it is the hierarchy of `controller`, or
/// without one the unified hierarchy.
fn hierarchy(line: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let fits = match controller {
        None => kind == "cgroup2",
        Some(controller) => kind == "cgroup" && options.split(',').any(|option| option == controller),
    };
    fits.then(|| (unescaped(root).into(), unescaped(point).into()))
}

/// Undoes mountinfo's octal numbers for blanks, tabs, line ends and backslashes.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(path.to_owned(), |path, (number, character)| path.replace(number, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_in_both_forms_and_nonsense_limits_nothing() {
        assert_eq!(unified_quota("150000 100000"), Some(1.5));
        assert_eq!(quota_of("50000\n", "100000\n"), Some(0.5));
        for none in ["max 100000", "", "100000", "x y", "100000 0", "-5 100000", "inf 1", "NaN 1"] {
            assert_eq!(unified_quota(none), None, "{none:?}");
        }
        assert_eq!([quota_of("-1", "100000"), quota_of("", ""), quota_of("1", "0")], [None; 3]);
    }

    #[test]
    fn a_group_is_found_in_its_mount_with_all_enclosing_groups() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let found = folders("cpu", "0::/user.slice/session.scope\n", mounts);
        let expected =
            ["/sys/fs/cgroup/user.slice/session.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn in_a_container_the_mount_is_the_group() {
        let mounts = "31 23 0:28 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct";
        for group in ["/docker/ab", "/elsewhere", "/docker/ab/../cd"] {
            let found = folders("cpu", &format!("4:cpuacct,cpu:{group}\n3:cpuset:/x"), mounts);
            assert_eq!(found, [PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")], "{group}");
        }
    }

    #[test]
    fn the_mount_of_a_path_with_blanks_and_backslashes_is_found() {
        let mounts = "31 23 0:28 / /a\\040b\\134c - cgroup cgroup rw,memory";
        assert_eq!(folders("memory", "4:memory:/", mounts), [PathBuf::from("/a b\\c")]);
    }

    #[test]
    fn broken_files_name_no_group() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup - cgroup2 cgroup2 rw";
        assert!(folders("cpu", "", mounts).is_empty());
        assert!(folders("cpu", "0:\n:::\n7:cpuset:/a\n", mounts).is_empty());
        for broken in ["", "31 23", "31 23 0:28 / /x - cgroup2", "31 23 0:28 / /x - tmpfs tmpfs rw"] {
            assert!(folders("cpu", "0::/a", broken).is_empty(), "{broken:?}");
        }
    }
}
