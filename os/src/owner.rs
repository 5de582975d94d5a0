//! The process that made a value: a forked child has its parent's values, and uses none that reach a peer.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fork_count;

/// The process that made a value, by the number of forks before: a child recognises its parent's values
/// without a system call.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The number of forks. Its address is stored here, because otherwise a program looks it up in a table,
    /// in a cache line that nothing else may need.
    count: &'static AtomicU64,
    /// The lower half of that number when the value was made.
    forks: u32,
    pid: u32,
}

impl Owner {
    /// This process. Forks count from now on.
    pub fn this() -> Owner {
        fork_count::watch();
        Owner { count: &fork_count::FORKS, forks: fork_count::count() as u32, pid: std::process::id() }
    }

    /// Returns whether it is this process, not another one that forked this one.
    #[inline(always)]
    pub fn is_this(self) -> bool {
        self.count.load(Ordering::Relaxed) as u32 == self.forks
    }

    /// Its process id, when the value was made.
    pub fn pid(self) -> u32 {
        self.pid
    }
}
