//! UCX's transports that carry frames: those in the user's `UCX_TLS`, without some.
//!
//! `cma` copies long messages out of the sender's memory. If that memory is gone, because the sender died, closed its
//! endpoint or lied, UCX 1.13 aborts the process (`docs/design/ucx.md`). Without `cma` the sender passes long messages
//! in pieces. `tcp` is excluded unless the operator allows it. A worker with `tcp` listens on every device, and a
//! process that reaches such a port may write to any address of this one. RDMA devices are excluded if UCX cannot lock
//! the memory that it takes for them (`device_memlock.rs`).

use std::env;
use std::sync::Once;

use super::device_memlock;

/// UCX's name for all of its transports over RDMA devices.
const DEVICES: &str = "ib";

/// UCX's name for its transport over TCP.
const TCP: &str = "tcp";

/// Returns whether this is UCX's transport over TCP.
pub(super) fn is_tcp(transport: &str) -> bool {
    transport == TCP
}

/// The warning for users whose `ucx-am` may have TCP.
pub(super) const TCP_WARNING: &str =
    "UCX's TCP is on: a process that reaches its ports may write this process's memory";

/// Returns the user's UCX_TLS, without RDMA devices if UCX lacks memory for them; or the reason why nothing is left.
fn setting() -> Result<Option<String>, String> {
    static LOGGED: Once = Once::new();
    let set = env::var("UCX_TLS").ok();
    let Some(why) = device_memlock::no_devices() else { return Ok(set) };
    let rest = spared(set.as_deref())
        .map_err(|set| format!("UCX_TLS={set} names nothing but RDMA transports: {why}"))?;
    LOGGED.call_once(|| log::warn!("{why}"));
    Ok(rest)
}

/// Returns the value `set` of UCX_TLS without RDMA devices. `Err` if it has nothing else.
fn spared(set: Option<&str>) -> Result<Option<String>, &str> {
    match (without(set, &[DEVICES]), set) {
        (None, Some(set)) if set.split(',').any(is_device) => Err(set),
        // The value named nothing that reaches another process: UCX reports that.
        (None, set) => Ok(set.map(str::to_owned)),
        (rest, _) => Ok(rest),
    }
}

/// Returns whether this is a name of UCX for transports over RDMA devices: `rc_v`, `ud`, `dc_x`, `rc:aux`.
fn is_device(name: &str) -> bool {
    let name = name.trim();
    name == DEVICES || ["rc", "ud", "dc"].iter().any(|kind| name.starts_with(kind))
}

/// Returns the `UCX_TLS` for active messages, with TCP if `tcp`.
///
/// # Errors
/// The reason why nothing is left, and the remedy.
pub(super) fn for_messages(tcp: bool) -> Result<String, String> {
    messages(setting()?.as_deref(), tcp)
}

fn messages(set: Option<&str>, tcp: bool) -> Result<String, String> {
    let left_out: &[&str] = if tcp { &["cma"] } else { &[TCP, "cma"] };
    match (without(set, left_out), set) {
        (Some(rest), _) => Ok(rest),
        (None, Some(set)) if !tcp && set.split(',').any(|name| is_named(name, TCP)) => Err(format!(
            "UCX_TLS={set} names TCP and nothing else, and UCX's TCP is used only if both processes allow it (BackendOptions::with_ucx_tcp): a process \
             that reaches its port may write this process's memory. Between machines use transport tcp, or add an RDMA transport \
             to UCX_TLS"
        )),
        // Only `cma`, or only `self`, carries nothing to a peer: UCX reports that.
        (None, set) => Ok(set.unwrap_or("all").to_owned()),
    }
}

/// Returns the `UCX_TLS` for memory that peers write, or the reason why nothing is left.
pub(super) fn for_memory() -> Result<String, String> {
    let set = setting()?;
    without(set.as_deref(), &["tcp", "cma"]).ok_or_else(|| {
        format!(
            "UCX_TLS={} leaves no transport that writes a peer's memory: over TCP, UCX emulates writes in software, which is \
             slower than messages and lets each process write anywhere in the other; use transport tcp, or add shm or an \
             RDMA transport to UCX_TLS",
            set.unwrap_or_default()
        )
    })
}

/// Returns the `UCX_ALLOC_PRIO` for memory that peers write.
pub(super) fn of_memory() -> String {
    without_heap(env::var("UCX_ALLOC_PRIO").ok().as_deref())
}

/// Returns the value `set` of UCX_ALLOC_PRIO without the methods that use this process's heap (`thp` does
/// too). UCX keeps freed memory registered with a device until the system takes it. A late or malicious write
/// of a peer would then land in new data of the heap.
fn without_heap(set: Option<&str>) -> String {
    let set = set.unwrap_or("md:sysv,md:posix,huge,md:*,mmap");
    let ways: Vec<_> =
        set.split(',').map(str::trim).filter(|way| !matches!(*way, "" | "heap" | "thp")).collect();
    if ways.is_empty() { "mmap".to_owned() } else { ways.join(",") }
}

/// Returns the value `set` of UCX_TLS without some transports. The value is a list of names, or of names to
/// leave out behind `^`, or `all`. `None` if nothing is left that reaches another process.
fn without(set: Option<&str>, left_out: &[&str]) -> Option<String> {
    let set = set.unwrap_or("all").trim();
    if let Some(given) = set.strip_prefix('^') {
        let mut names: Vec<&str> = given.split(',').map(str::trim).collect();
        names.extend(left_out.iter().filter(|name| !given.split(',').any(|given| given.trim() == **name)));
        return Some(format!("^{}", names.join(",")));
    }
    let names: Vec<_> = set.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.contains(&"all") {
        return Some(format!("^{}", left_out.join(",")));
    }
    let kept: Vec<_> = names
        .into_iter()
        .filter(|name| !left_out.iter().any(|left_out| is_named(name, left_out)))
        .filter(|name| !(left_out.contains(&DEVICES) && is_device(name)))
        // UCX's names for everything within a machine, `cma` included.
        .map(|name| if matches!(name, "sm" | "shm" | "mm") { "posix,sysv" } else { name })
        .collect();
    kept.iter().any(|name| *name != "self").then(|| kept.join(","))
}

/// Returns whether an element of UCX_TLS names this transport. The element may have a modifier, `tcp:aux`, and a
/// backslash that marks it as no alias.
fn is_named(element: &str, transport: &str) -> bool {
    let element = element.trim();
    let element = element.strip_prefix('\\').unwrap_or(element);
    element.split(':').next() == Some(transport)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_by_tcp_only_where_that_is_allowed() {
        for (set, without, with) in [
            (None, "^tcp,cma", "^cma"),
            (Some("all"), "^tcp,cma", "^cma"),
            (Some("posix,tcp"), "posix", "posix,tcp"),
            (Some(r"posix,\tcp"), "posix", r"posix,\tcp"),
            (Some("posix"), "posix", "posix"),
            (Some("^tcp"), "^tcp,cma", "^tcp,cma"),
            (Some("^posix"), "^posix,tcp,cma", "^posix,cma"),
            (Some("cma"), "cma", "cma"),
            (Some(""), "", ""),
            (Some("nonsense"), "nonsense", "nonsense"),
        ] {
            assert_eq!(messages(set, false).as_deref(), Ok(without), "{set:?}");
            assert_eq!(messages(set, true).as_deref(), Ok(with), "{set:?}");
        }
    }

    #[test]
    fn where_tcp_is_all_that_was_named_the_reason_names_the_switch() {
        for set in ["tcp", "tcp,self", "self, tcp:aux", r"\tcp,cma"] {
            let why = messages(Some(set), false).unwrap_err();
            assert!(why.contains("BackendOptions::with_ucx_tcp") && why.contains(set), "{why}");
            assert!(messages(Some(set), true).is_ok(), "{set}");
        }
    }

    #[test]
    fn without_devices_the_rest_of_what_is_wanted_stays() {
        for (set, rest) in [
            (None, Ok(Some("^ib"))),
            (Some("all"), Ok(Some("^ib"))),
            (Some("^tcp"), Ok(Some("^tcp,ib"))),
            (Some("posix,rc_v,ud:aux,self"), Ok(Some("posix,self"))),
            (Some("self"), Ok(Some("self"))),
            (Some("rc_v,ud_v,self"), Err("rc_v,ud_v,self")),
            (Some("ib"), Err("ib")),
        ] {
            let spared = spared(set);
            assert_eq!(spared.as_ref().map(|rest| rest.as_deref()).map_err(|set| *set), rest, "{set:?}");
        }
    }

    #[test]
    fn memory_that_peers_write_is_never_taken_from_the_heap() {
        for (set, used) in [
            (None, "md:sysv,md:posix,huge,md:*,mmap"),
            (Some("md:sysv,thp,md:*,mmap,heap"), "md:sysv,md:*,mmap"),
            (Some("md:posix"), "md:posix"),
            (Some(" heap "), "mmap"),
            (Some(""), "mmap"),
        ] {
            assert_eq!(without_heap(set), used, "{set:?}");
        }
    }

    #[test]
    fn excluded_transports_are_removed_from_any_ucx_tls_and_others_stay() {
        for (set, messages, memory) in [
            (None, Some("^cma"), Some("^tcp,cma")),
            (Some("all"), Some("^cma"), Some("^tcp,cma")),
            (Some(""), None, None),
            (Some("all,tcp"), Some("^cma"), Some("^tcp,cma")),
            (Some("^ud"), Some("^ud,cma"), Some("^ud,tcp,cma")),
            (Some("^tcp,cma"), Some("^tcp,cma"), Some("^tcp,cma")),
            (Some("posix, cma, self"), Some("posix,self"), Some("posix,self")),
            (Some("shm,tcp"), Some("posix,sysv,tcp"), Some("posix,sysv")),
            (Some("sm"), Some("posix,sysv"), Some("posix,sysv")),
            (Some("tcp:aux,rc_v"), Some("tcp:aux,rc_v"), Some("rc_v")),
            (Some("tcp,self"), Some("tcp,self"), None),
            (Some("tcp"), Some("tcp"), None),
            (Some("cma"), None, None),
            (Some("self"), None, None),
        ] {
            assert_eq!(without(set, &["cma"]).as_deref(), messages, "{set:?}");
            assert_eq!(without(set, &["tcp", "cma"]).as_deref(), memory, "{set:?}");
        }
    }
}
