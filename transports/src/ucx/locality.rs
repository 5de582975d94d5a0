//! Locality of a process: the values that UCX compares before it takes shared memory. Explains a fallback to
//! TCP.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// The locality that an endpoint states.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Locality {
    /// `/proc/sys/kernel/random/boot_id`: another on each machine, and after each of its boots.
    machine: String,
    /// The inode of the process's IPC namespace, which System V memory does not leave.
    ipc: u64,
    /// The inode of its PID namespace: UCX opens POSIX memory through `/proc/PID/fd`.
    pid: u64,
}

impl Locality {
    /// Returns the locality of this process. An unknown value is empty, and equals no other.
    pub(super) fn own() -> Locality {
        let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |data| data.ino());
        let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Locality { machine: machine.trim().to_owned(), ipc: inode("ipc"), pid: inode("pid") }
    }

    /// Explains why a peer at `other` shares no memory with this process; `set` is the `UCX_TLS` of this process.
    pub(super) fn apart(&self, other: &Locality, set: Option<&str>) -> String {
        if self.machine.is_empty() || other.machine.is_empty() {
            return "whether the peer runs on this machine is unknown without /proc".to_owned();
        }
        if self.machine != other.machine {
            return "the peer runs on another machine".to_owned();
        }
        let namespaces = self.ipc != other.ipc && self.pid != other.pid;
        match set {
            _ if namespaces => {
                "the peer runs on this machine, in IPC and PID namespaces (a container) of its own".to_owned()
            }
            Some(set) => format!(
                "the peer runs on this machine; UCX_TLS={set} here, or its setting at the peer, excludes shared memory"
            ),
            None => "the peer runs on this machine; UCX_TLS at the peer may exclude shared memory, or /dev/shm is full or \
                     missing at one of the processes"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_one_process_share_a_place_and_differences_are_named() {
        let own = Locality::own();
        assert_eq!(own, Locality::own());
        assert!(!own.machine.is_empty() && own.ipc != 0 && own.pid != 0);
        let elsewhere = Locality { machine: "another".to_owned(), ..own.clone() };
        assert!(own.apart(&elsewhere, None).contains("another machine"));
        let container = Locality { ipc: 1, pid: 1, ..own.clone() };
        assert!(own.apart(&container, Some("all")).contains("container"));
        assert!(own.apart(&own, Some("tcp")).contains("UCX_TLS=tcp"));
        assert!(own.apart(&Locality::default(), None).contains("/proc"));
    }
}
