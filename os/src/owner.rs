//! The process that made a value: a forked child has its parent's values, and uses none that reach a peer.

use crate::fork_count;

/// The process that made a value, by the number of forks before: a child recognises its parent's without a system
/// call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    forks: u64,
    pid: u32,
}

impl Owner {
    /// This process. Forks count from now on.
    pub fn this() -> Owner {
        fork_count::watch();
        Owner { forks: fork_count::count(), pid: std::process::id() }
    }

    /// Whether it is this process, and no other one that forked this one.
    #[inline]
    pub fn is_this(self) -> bool {
        fork_count::count() == self.forks
    }

    /// Its process id, when the value was made.
    pub fn pid(self) -> u32 {
        self.pid
    }
}
