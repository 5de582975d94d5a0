//! Decides whether UCX may use RDMA devices: not without the memory that it locks for each.
//!
//! UCX 1.13 registers 6 MiB of buffers for a device's datagrams for each worker. If that fails, UCX retries and logs it
//! at each progress, and never stops. Symptom: endless `ibv_reg_mr(…, length=6291456) failed: Cannot allocate memory`
//! from the code that makes the first connection.

use std::fs;

use farjump_os::resources::memlock;

/// Bytes that UCX must be able to lock for one worker, with some more for its other registrations.
const LEAST: u64 = 8 << 20;

/// The reason why RDMA devices are excluded, and the remedy; `None` if they are not excluded, or there are none.
pub(super) fn no_devices() -> Option<String> {
    let has_device = fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    too_little(memlock::limit(), has_device && !memlock::is_exempt())
}

fn too_little(limit: Option<u64>, counts: bool) -> Option<String> {
    let limit = limit.filter(|limit| counts && *limit < LEAST)?;
    Some(format!(
        "RDMA devices are left out of UCX: this process may lock {limit} bytes of memory (RLIMIT_MEMLOCK), and UCX locks more than \
         6 MiB for each connection's worker; raise it to {LEAST} bytes or more by `ulimit -l {}` in the shell that starts it, or for good \
         in /etc/security/limits.conf or by LimitMEMLOCK= of systemd",
        LEAST >> 10
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_left_out_if_the_memlock_limit_is_too_low() {
        let why = too_little(Some(64 << 10), true).unwrap();
        assert!(why.contains("lock 65536 bytes") && why.contains("`ulimit -l 8192`"), "{why}");
        for (limit, counts) in [(Some(LEAST), true), (None, true), (Some(64 << 10), false)] {
            assert_eq!(too_little(limit, counts), None, "{limit:?} {counts}");
        }
    }
}
