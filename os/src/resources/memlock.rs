//! The amount of memory that this process may lock. Memory that an RDMA device reads or writes has to be
//! locked.

use std::fs;

use rustix::process::Resource;
use rustix::thread::{CapabilitySet, capabilities};

use crate::limits;

/// Returns the limit of this process (`RLIMIT_MEMLOCK`) in bytes, or `None` if there is none. A process may
/// be exempt from it ([`is_exempt`]).
pub fn limit() -> Option<u64> {
    limits::of(Resource::Memlock).current
}

/// Returns whether the limit does not apply to this process. That requires `CAP_IPC_LOCK` outside a user
/// namespace of its own: inside one the kernel does not check that capability.
pub fn is_exempt() -> bool {
    let holds = capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::IPC_LOCK));
    holds && fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| is_first_namespace(&map))
}

/// Returns whether `map` is the user map of the initial namespace, which contains all users.
fn is_first_namespace(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_in_a_user_namespace_of_ones_own_do_not_count() {
        assert!(is_first_namespace("         0          0 4294967295\n"));
        for own in ["0 1000 1\n", "0 100000 65536\n", "0 0 4294967295\n1 1 1\n", ""] {
            assert!(!is_first_namespace(own), "{own}");
        }
    }
}
