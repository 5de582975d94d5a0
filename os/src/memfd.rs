//! Memory with a descriptor: making it, and the pages of one that another process made.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, fstatfs, memfd_create};
use rustix::io::Errno;

/// File system type that `fstatfs` reports for a tmpfs, which memory of ordinary pages is in (`TMPFS_MAGIC`, statfs(2)).
pub const TMPFS: i64 = 0x0102_1994;

/// Makes a memfd that is closed when a program is executed, and that nothing can execute as a file.
///
/// # Errors
/// The system's, for too many descriptors or for flags that it does not know.
pub fn memfd(name: &CStr, flags: MemfdFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | MemfdFlags::CLOEXEC;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not support the flag.
        Err(Errno::INVAL) => memfd_create(name, flags),
        made => made,
    }
}

/// Returns whether a memfd has ordinary pages.
///
/// Huge pages of hugetlbfs are no reliable memory. If a process gives one back (fallocate, punching a hole),
/// a new one comes from a pool that may be empty, and the next access is SIGBUS. An ordinary page that was
/// given back reads as zeros.
///
/// # Errors
/// When the system does not report it.
pub fn has_ordinary_pages(memfd: impl AsFd) -> Result<bool, Errno> {
    Ok(fstatfs(memfd)?.f_type == TMPFS)
}
