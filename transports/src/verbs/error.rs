//! Errors of the verbs library as text.

use rustix::io::Errno;

/// The system's error in the last call of this thread. Most verbs functions that return a pointer leave their error
/// there.
pub(super) fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

/// The error text for a device that has no more objects of a kind that each link needs, with a remedy.
#[cold]
pub(super) fn exhausted(device: &str, what: &str, error: &std::io::Error) -> String {
    // The error of Linux's `rdma_cgroup`; devices without free objects return ENOMEM or ENOSPC.
    let mend = match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => {
            "this process's control group may have no more (rdma.max): raise that, or have fewer links"
        }
        Some(Errno::MFILE) => {
            "this process may have no more files open: raise that (ulimit -n), or have fewer links"
        }
        _ => "each link takes some: have fewer links, or another device",
    };
    format!("{device} has no further {what}: {error}; {mend}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_devices_and_the_open_file_limit_are_reported_differently() {
        let text = exhausted("rxe0", "queue pair", &Errno::NOMEM.into());
        assert!(text.contains("rxe0 has no further queue pair: ") && !text.contains("rdma.max"), "{text}");
        let text = exhausted("rxe0", "completion channel", &Errno::MFILE.into());
        assert!(text.contains("ulimit -n"), "{text}");
    }
}
