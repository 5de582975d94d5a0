//! The processors of the two threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Failed;

/// Returns two processors that this process may use, for the source and for the shards; `None` if there is only one,
/// which both share.
///
/// # Errors
/// When the system does not report them.
pub fn two() -> Result<Option<[usize; 2]>, Failed> {
    let allowed = sched_getaffinity(None)?;
    let mut free = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Ok(free.next().zip(free.next()).map(<[usize; 2]>::from))
}

/// Keeps the calling thread on a processor.
///
/// # Errors
/// When the system refuses.
pub fn pin(cpu: Option<usize>) -> Result<(), Failed> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}
