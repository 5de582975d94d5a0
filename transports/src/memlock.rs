//! How much memory this process may lock: what RDMA devices read and write has to stay where it is.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// The limit of this process (`RLIMIT_MEMLOCK`) in bytes, which need not hold for it ([`is_exempt`]); `None` for none.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Whether the limit does not hold for this process: it has `CAP_IPC_LOCK`, and not in a user namespace of its own, where the kernel
/// does not ask for that.
pub fn is_exempt() -> bool {
    let holds = capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::IPC_LOCK));
    holds && fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| is_first_namespace(&map))
}

/// Whether this is the map of users of the namespace that has all of them.
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
