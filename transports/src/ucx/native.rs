//! Whether UCX of this machine can write a peer's memory without the peer: tried once, on a page of this process's own.

use std::ptr;
use std::sync::OnceLock;

use farjump_ucx_sys::UCS_OK;

use super::context::Context;
use super::lanes::printed;
use super::region::{PAGE, Region};
use super::worker::Worker;

/// In which ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ways {
    /// Memory of processes of this machine can be mapped.
    pub(super) map: bool,
}

/// The ways there are; why there is none, and the mend, as a sentence.
pub(super) fn ways() -> Result<Ways, String> {
    static WAYS: OnceLock<Result<Ways, String>> = OnceLock::new();
    WAYS.get_or_init(look).clone()
}

fn look() -> Result<Ways, String> {
    let context = Context::for_memory()?;
    let map = can_map(context)?;
    if !map && !has_rdma(context) {
        return Err(format!(
            "UCX {} finds neither memory that processes of this machine can share (is /dev/shm there, with room? do UCX_TLS or \
             UCX_ALLOC_PRIO leave shm out?) nor an RDMA device: use transport tcp",
            context.ucx.version()
        ));
    }
    Ok(Ways { map })
}

/// Whether a context has a transport of an RDMA device's that writes the memory of peers.
fn has_rdma(context: &Context) -> bool {
    has(context, is_rdma)
}

/// Whether a context has a transport of this kind.
pub(super) fn has(context: &Context, is_meant: impl Fn(&str) -> bool) -> bool {
    // SAFETY: the context is there, and the stream is one that `printed` made.
    let text = printed(|stream| unsafe { context.ucx.ucp_context_print_info(context.handle, stream) });
    text.lines().filter_map(transport).any(is_meant)
}

/// Whether a region of this process is one that others could map.
fn can_map(context: &'static Context) -> Result<bool, String> {
    let text = |cause: farjump_core::transport::Cause| cause.to_string();
    let worker = Worker::create(context).map_err(text)?;
    let region = Region::create(context, PAGE).map_err(text)?;
    let own = worker.address().map_err(text)?;
    let unreachable = || "UCX does not reach this process itself: UCX_TLS lacks self and shm".to_owned();
    let end = worker.connect(&own, unreachable).map_err(text)?;
    let packed = region.key().map_err(text)?;
    let ucx = context.ucx;
    let (mut key, mut start) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the end is connected, and the key is one that this process's UCX has just made.
    if unsafe { ucx.ucp_ep_rkey_unpack(end, packed.as_ptr().cast(), &mut key) } != UCS_OK {
        return Ok(false);
    }
    // SAFETY: unpacked above; the region's address is its own.
    let status = unsafe { ucx.ucp_rkey_ptr(key, region.base().addr().get() as u64, &mut start) };
    // SAFETY: unpacked above, and used no more.
    unsafe { ucx.ucp_rkey_destroy(key) };
    // SAFETY: the end is connected, and used no more.
    unsafe { worker.close(end) };
    Ok(status == UCS_OK && !start.is_null())
}

/// The transport that a line of `ucp_context_print_info` names: `#    resource 3  :  md 2  dev 1  flags -- sysv/memory`.
fn transport(line: &str) -> Option<&str> {
    let (resource, _) = line.rsplit_once('/')?;
    if !line.contains("resource") {
        return None;
    }
    resource.split_whitespace().last()
}

/// Whether it is one of an RDMA device's that writes the memory of peers.
fn is_rdma(transport: &str) -> bool {
    ["rc", "dc", "gga", "ugni"].iter().any(|name| transport.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_read_from_what_ucx_prints_of_a_context() {
        let line = "#            resource 3  :  md 2  dev 1  flags -- rc_verbs/rxe0:1";
        assert_eq!(transport(line), Some("rc_verbs"));
        assert!(is_rdma("rc_verbs") && is_rdma("dc_mlx5"));
        for line in ["", "# md 0 : self", "# memory: 0.01MB, file descriptors: 2 / resource"] {
            assert!(!transport(line).is_some_and(is_rdma), "{line}");
        }
        assert!(!is_rdma("sysv") && !is_rdma("tcp") && !is_rdma("ud_verbs"));
    }
}
