//! Memory of a process, by the kernel's count.

use std::fs;

/// Bytes of resident memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Resident {
    /// Private memory: heap, stacks and tables.
    pub(super) own: u64,
    /// Memory of files and shared memory, mailboxes included.
    pub(super) shared: u64,
}

impl Resident {
    /// Reads the memory of a process; `None` if the kernel does not report it.
    pub(super) fn of(pid: u32) -> Option<Resident> {
        parse(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
    }

    /// Returns the growth since `before`, divided by `count`.
    pub(super) fn each(&self, before: &Resident, count: u64) -> Option<Resident> {
        let each = |now: u64, then: u64| now.saturating_sub(then).checked_div(count);
        Some(Resident { own: each(self.own, before.own)?, shared: each(self.shared, before.shared)? })
    }
}

/// Parses lines like `Rss:    1234 kB` (proc_pid_smaps(5)).
fn parse(text: &str) -> Option<Resident> {
    let bytes = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    let (all, own) = (bytes("Rss")?, bytes("Anonymous")?);
    Some(Resident { own, shared: all.checked_sub(own)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_that_is_not_anonymous_counts_as_shared() {
        let text = "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    5000 kB\nPss:    3000 kB\nPss_Anon:   900 kB\n\
                    Anonymous:   1000 kB\nAnonHugePages:   0 kB\n";
        let found = parse(text).expect("it is whole");
        assert_eq!(found, Resident { own: 1000 << 10, shared: 4000 << 10 });
        assert_eq!(parse("Rss:   10 kB\n"), None);
        assert_eq!(parse("Rss:   ten kB\nAnonymous:  1 kB\n"), None);
    }

    #[test]
    fn growth_of_resident_memory_is_divided_by_the_count() {
        let own = std::process::id();
        let before = Resident::of(own).expect("/proc is mounted");
        let taken = vec![1_u8; 64 << 20];
        let after = Resident::of(own).expect("/proc is mounted");
        let each = after.each(&before, 2).expect("there are two");
        assert!((31 << 20..64 << 20).contains(&each.own), "{each:?}");
        assert_eq!(after.each(&before, 0), None);
        drop(taken);
    }
}
