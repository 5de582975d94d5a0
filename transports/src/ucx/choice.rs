//! Which of UCX's transports carry frames: those that the user lets it take (`UCX_TLS`), less some.
//!
//! `cma` copies long messages out of the sender's memory. When that memory is gone, because the sender died, ended its end or
//! lied, UCX 1.13 ends the whole process (`docs/decisions/ucx-am.md`). Without `cma` the sender hands them over in pieces. And where
//! peers write memory, `tcp` is left out too: there UCX carries writes out in software (`docs/decisions/ucx-put.md`). Where UCX could
//! not lock the memory that it takes for an RDMA device, it gets none (`locked.rs`).

use std::env;
use std::sync::Once;

use super::locked;

/// UCX's name for all of its transports over RDMA devices.
const DEVICES: &str = "ib";

/// How far the transports of a context for active messages reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Without TCP: this machine, and RDMA devices. A worker that has TCP asks the system at each progress (measured: 250 ns
    /// instead of 6), and UCX takes it for long messages within a machine too, where they go round by the kernel.
    Near,
    /// With TCP.
    Far,
}

/// UCX_TLS as the user has it, without RDMA devices where UCX could not have memory for them; why nothing is left then, and the mend.
fn setting() -> Result<Option<String>, String> {
    static TOLD: Once = Once::new();
    let set = env::var("UCX_TLS").ok();
    let Some(why) = locked::no_devices() else { return Ok(set) };
    let rest = spared(set.as_deref())
        .map_err(|set| format!("UCX_TLS={set} names nothing but RDMA transports: {why}"))?;
    TOLD.call_once(|| log::warn!("{why}"));
    Ok(rest)
}

/// UCX_TLS, as it is `set`, without RDMA devices. `Err` if they are all there is in it.
fn spared(set: Option<&str>) -> Result<Option<String>, &str> {
    match (without(set, &[DEVICES]), set) {
        (None, Some(set)) if set.split(',').any(is_device) => Err(set),
        // Nothing that reaches another process was in it from the start: UCX says so.
        (None, set) => Ok(set.map(str::to_owned)),
        (rest, _) => Ok(rest),
    }
}

/// Whether this is a name of UCX's for transports over RDMA devices: `rc_v`, `ud`, `dc_x`, `rc:aux`.
fn is_device(name: &str) -> bool {
    let name = name.trim();
    name == DEVICES || ["rc", "ud", "dc"].iter().any(|kind| name.starts_with(kind))
}

/// For active messages of this reach: what `UCX_TLS` has to be. `None` where there is none of it: nothing is left, or without
/// TCP there is nothing that Near has not.
///
/// # Errors
/// Why there is none of any reach, and the mend.
pub(super) fn for_messages(reach: Reach) -> Result<Option<String>, String> {
    Ok(messages(setting()?.as_deref(), reach))
}

fn messages(set: Option<&str>, reach: Reach) -> Option<String> {
    let near = without(set, &["tcp", "cma"]);
    match reach {
        Reach::Near => near,
        // `cma` alone, or nothing but this process, is nothing that would carry anything: UCX says so.
        Reach::Far => {
            let far = without(set, &["cma"]).unwrap_or_else(|| set.unwrap_or("all").to_owned());
            (near.as_ref() != Some(&far)).then_some(far)
        }
    }
}

/// For memory that peers write: what `UCX_TLS` has to be, or why nothing is left.
pub(super) fn for_memory() -> Result<String, String> {
    let set = setting()?;
    without(set.as_deref(), &["tcp", "cma"]).ok_or_else(|| {
        format!(
            "UCX_TLS={} leaves no transport that writes a peer's memory: over TCP, UCX emulates writes in software, which is \
             slower than messages and lets whoever is connected write anywhere in this process; use ucx-am, or add shm or an RDMA \
             transport to UCX_TLS",
            set.unwrap_or_default()
        )
    })
}

/// Where memory that peers write is to come from: what `UCX_ALLOC_PRIO` has to be.
pub(super) fn of_memory() -> String {
    without_heap(env::var("UCX_ALLOC_PRIO").ok().as_deref())
}

/// UCX_ALLOC_PRIO, as it is `set`, without the ways that take memory from this process's heap (`thp` does so too). UCX keeps
/// memory that it gave back registered with a device as long as the system does not take it, so that a late write of a peer, or
/// one of a peer that means harm, would land in whatever the heap had made of it.
fn without_heap(set: Option<&str>) -> String {
    let set = set.unwrap_or("md:sysv,md:posix,huge,md:*,mmap");
    let ways: Vec<_> =
        set.split(',').map(str::trim).filter(|way| !matches!(*way, "" | "heap" | "thp")).collect();
    if ways.is_empty() { "mmap".to_owned() } else { ways.join(",") }
}

/// UCX_TLS, as it is `set`, without some transports: a list of names, one with `^` before it that names what is left out, or
/// `all`. `None` if nothing is left that reaches another process.
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
        // A name may have a modifier: `tcp:aux`.
        .filter(|name| !left_out.contains(&name.split(':').next().unwrap_or(name)))
        .filter(|name| !(left_out.contains(&DEVICES) && is_device(name)))
        // UCX's names for all that works within a machine, `cma` included.
        .map(|name| if matches!(name, "sm" | "shm" | "mm") { "posix,sysv" } else { name })
        .collect();
    kept.iter().any(|name| *name != "self").then(|| kept.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_without_tcp_where_that_leaves_something_and_with_it_where_it_was_wanted() {
        for (set, near, far) in [
            (None, Some("^tcp,cma"), Some("^cma")),
            (Some("posix,tcp"), Some("posix"), Some("posix,tcp")),
            (Some("posix"), Some("posix"), None),
            (Some("^tcp"), Some("^tcp,cma"), None),
            (Some("tcp,self"), None, Some("tcp,self")),
            (Some("cma"), None, Some("cma")),
            (Some(""), None, Some("")),
            (Some("nonsense"), Some("nonsense"), None),
        ] {
            assert_eq!(messages(set, Reach::Near).as_deref(), near, "{set:?}");
            assert_eq!(messages(set, Reach::Far).as_deref(), far, "{set:?}");
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
    fn what_is_left_out_is_left_out_of_whatever_is_wanted_and_the_rest_stays() {
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
