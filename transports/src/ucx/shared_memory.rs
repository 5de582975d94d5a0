//! The sizes of UCX's own shared memory, which each worker has for every transport within a machine.
//!
//! UCX fills its queue for arriving messages with a buffer of 8 KiB for each element, and takes these buffers from a
//! stock. It writes to each page of the stock that begins a buffer. With UCX's own sizes that is 2 MiB for each worker
//! and transport, although frames use few buffers (docs/design/ucx.md).

use std::env;
use std::ffi::CStr;

use farjump_ucx_sys::Version;

/// A setting: UCX's name, the value, and variables by which users set it. `ucp_config_modify` knows the names in
/// all versions from 1.13 on, also before 1.17.
struct Size {
    name: &'static CStr,
    value: &'static str,
    variables: [&'static str; 3],
}

/// The elements of the queue. A sender assumes its own number, so both peers must have the same (`settings.rs`), and it
/// depends only on the version.
fn elements(version: Version) -> Size {
    Size {
        name: c"MM_FIFO_SIZE",
        // UCX's own number is 64, or 256 from 1.16 on. From there on, 128 elements pass as many short messages in a
        // second, and 64 a fifth fewer.
        value: if has_small_queue(version) { "64" } else { "128" },
        variables: ["UCX_MM_FIFO_SIZE", "UCX_POSIX_FIFO_SIZE", "UCX_SYSV_FIFO_SIZE"],
    }
}

/// The buffers by which the stock grows: one for each element of the queue, and more than UCX takes from the
/// queue at once, 16, which the receiver may keep.
fn stock(version: Version) -> Size {
    Size {
        name: c"MM_RX_BUFS_GROW",
        value: if has_small_queue(version) { "96" } else { "160" },
        variables: ["UCX_MM_RX_BUFS_GROW", "UCX_POSIX_RX_BUFS_GROW", "UCX_SYSV_RX_BUFS_GROW"],
    }
}

fn has_small_queue(version: Version) -> bool {
    (version.major, version.minor) < (1, 16)
}

/// Returns UCX's settings for workers with the transports `tls`, a value of UCX_TLS: those that the user has not set.
/// Empty if no transport reads them, because UCX would log them as unused.
pub(super) fn sizes(tls: &str, version: Version) -> Vec<(&'static CStr, &'static str)> {
    sizes_where(tls, version, |name| env::var_os(name).is_some())
}

fn sizes_where(
    tls: &str,
    version: Version,
    is_set: impl Fn(&str) -> bool,
) -> Vec<(&'static CStr, &'static str)> {
    if !has_shared_memory(tls) {
        return Vec::new();
    }
    let (elements, stock) = (elements(version), stock(version));
    let mut set = Vec::new();
    if !elements.variables.into_iter().any(&is_set) {
        set.push((elements.name, elements.value));
        // This stock fits the queue above, not the user's.
        if !stock.variables.into_iter().any(&is_set) {
            set.push((stock.name, stock.value));
        }
    }
    set
}

/// Returns whether a value of UCX_TLS may let UCX use shared memory. Unknown values count as such.
fn has_shared_memory(tls: &str) -> bool {
    if let Some(left_out) = tls.trim().strip_prefix('^') {
        let is_left_out = |name: &str| left_out.split(',').any(|other| other.trim() == name);
        return !["posix", "sysv", "xpmem"].into_iter().all(is_left_out);
    }
    tls.split(',').any(|name| {
        let name = name.trim().trim_start_matches('\\');
        let is_device = ["ib", "rc", "ud", "dc"].iter().any(|kind| name.starts_with(kind));
        !is_device && !matches!(name.split(':').next(), Some("" | "self" | "tcp" | "cma" | "knem"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Version = Version { major: 1, minor: 13, release: 1 };

    fn names(tls: &str, set: &str) -> Vec<&'static CStr> {
        sizes_where(tls, OWN, |name| name == set).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn sizes_are_set_where_a_transport_reads_them() {
        for (tls, set) in [
            ("^tcp,cma", true),
            ("posix", true),
            (r"\sysv,self", true),
            ("xpmem:aux", true),
            ("^posix,sysv", true),
            ("^posix,sysv,xpmem", false),
            ("tcp,self", false),
            ("tcp:aux,rc_v", false),
            ("", false),
        ] {
            assert_eq!(!names(tls, "").is_empty(), set, "{tls}");
        }
    }

    #[test]
    fn a_users_stock_replaces_ours_and_a_users_queue_replaces_both() {
        assert_eq!(names("posix", "UCX_MM_SEG_SIZE"), [c"MM_FIFO_SIZE", c"MM_RX_BUFS_GROW"]);
        for prefix in ["MM", "POSIX", "SYSV"] {
            assert_eq!(names("posix", &format!("UCX_{prefix}_RX_BUFS_GROW")), [c"MM_FIFO_SIZE"], "{prefix}");
            assert!(names("posix", &format!("UCX_{prefix}_FIFO_SIZE")).is_empty(), "{prefix}");
        }
    }
}
