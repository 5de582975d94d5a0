//! The memory and the processors that this process may use. They are the machine's, as far as control groups
//! (of both versions), the affinity mask and the limits of the process (getrlimit(2)) grant them.
//!
//! Each function queries the system anew, since all of these change while a process runs.

mod cgroup;
mod files;
pub mod memlock;

use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use rustix::process::Resource;

use crate::limits;
use files::{Files, count_list};

/// Bytes of memory that this process may use: the least of the machine's, `memory.max` and `memory.high` of
/// its control groups (`memory.limit_in_bytes` of version 1), and its limit of address space. `u64::MAX` if
/// the system reports none of them.
///
/// Other processes may use parts of it.
pub fn memory() -> u64 {
    memory_below(Path::new("/"), limits::of(Resource::As).current)
}

fn memory_below(root: &Path, addresses: Option<u64>) -> u64 {
    let files = Files(root);
    let kib = files.field("/proc/meminfo", "MemTotal").and_then(|kib| kib.parse::<u64>().ok());
    let machine = kib.map(|kib| kib.saturating_mul(1024));
    let all = [machine, files.memory_of_groups(), addresses];
    all.into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// Number of processors that this thread may use at once, at least 1. They are those of its affinity mask, as
/// far as the control groups grant time for them (a quota of 1.5 processors is 1).
pub fn processors() -> usize {
    within(allowed(), processor_time())
}

/// Number of processors in the affinity mask.
fn allowed() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// Number of processors for this process and its peers in the same container, at least 1. They are those of
/// the machine, as far as the control groups grant them and time for them, and not only those of this
/// thread's affinity mask: a thread that is pinned to one of them has its peer on another. The system is
/// queried once in each process: each link needs the number, and the query reads a dozen files.
pub fn shared_processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| shared_below(Path::new("/"), allowed))
}

fn shared_below(root: &Path, own: impl FnOnce() -> usize) -> usize {
    let files = Files(root);
    let count = |list: Option<String>| count_list(&list?);
    let online = count(files.read("/sys/devices/system/cpu/online"));
    let granted = count(files.processors_of_groups());
    let count = online.into_iter().chain(granted).min().unwrap_or_else(own);
    within(count, files.time_of_groups())
}

/// The part of `processors` for which there is processor time.
fn within(processors: usize, time: Option<f64>) -> usize {
    time.map_or(processors, |time| processors.min(time as usize)).max(1)
}

/// Processor time that the control groups grant this process, in processors: the least over all its groups. `None` without a
/// limit, or where the groups cannot be read.
pub fn processor_time() -> Option<f64> {
    Files(Path::new("/")).time_of_groups()
}

#[cfg(test)]
mod tests;
