//! The pages of memory that another process made.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

/// File system type that `fstatfs` reports for a tmpfs, which memory of ordinary pages is in (`TMPFS_MAGIC`, statfs(2)).
pub const TMPFS: i64 = 0x0102_1994;

/// Returns whether a memfd has ordinary pages.
///
/// Huge pages of hugetlbfs are no reliable memory: if a process gives one back (fallocate, punching a hole), a new one comes
/// from a pool that may be empty, and the next access is SIGBUS. An ordinary page that was given back reads as zeros.
///
/// # Errors
/// The system does not say.
pub fn has_ordinary_pages(memfd: impl AsFd) -> Result<bool, Errno> {
    Ok(fstatfs(memfd)?.f_type == TMPFS)
}
