//! The descriptors and mappings of this process. A conversation must leave none behind.

use std::fs;
use std::os::fd::RawFd;

/// The file of a library that the hostile peer exports, by the name that the peer gives.
const EXPORTED: &str = "/memfd:fuzz ";

/// The open descriptors and mappings of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// Descriptors.
    pub descriptors: usize,
    /// Bytes of mapped shared memory.
    pub shared: u64,
}

impl Holdings {
    /// The kinds of the descriptors, to find one that is left.
    pub fn open() -> Vec<String> {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
    }

    /// The numbers of the open descriptors.
    pub(crate) fn numbers() -> Vec<RawFd> {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns whether nothing exceeds `before`.
    pub fn is_within(self, before: Holdings) -> bool {
        self.descriptors <= before.descriptors && self.shared <= before.shared
    }

    /// Returns the present numbers of this process.
    pub fn now() -> Holdings {
        // The file of an exported library stays open, as the library stays loaded.
        let descriptors = Holdings::open().iter().filter(|open| !open.starts_with(EXPORTED)).count();
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let shared = maps.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            let (start, end) = fields.next()?.split_once('-')?;
            // Exported libraries are mapped privately, and stay.
            fields.next().filter(|rights| rights.ends_with('s'))?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        });
        Holdings { descriptors, shared: shared.sum() }
    }
}
