//! Tests once, on a page of this process, whether UCX on this machine can write a peer's memory without the peer.

use std::sync::OnceLock;

use farjump_core::transport::REGION_UNIT;

use super::region::Region;
use crate::ucx::context::Context;
use crate::ucx::inherited;
use crate::ucx::mappings::Mappings;
use crate::ucx::worker::Worker;

/// The available ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteMethods {
    /// True if memory of other processes of this machine can be mapped.
    pub(super) map: bool,
}

/// Returns the available ways; if there are none, the cause and the remedy as a sentence.
pub(super) fn write_methods() -> Result<WriteMethods, String> {
    static METHODS: OnceLock<Result<WriteMethods, String>> = OnceLock::new();
    inherited::check()?;
    METHODS.get_or_init(look).clone()
}

fn look() -> Result<WriteMethods, String> {
    let context = Context::for_memory()?;
    let map = can_map(context)?;
    if !map && !has_rdma(context) {
        return Err(format!(
            "UCX {} finds neither memory that processes of this machine can share (does /dev/shm exist, with free space? do UCX_TLS or \
             UCX_ALLOC_PRIO exclude shm?) nor an RDMA device: use transport tcp",
            context.ucx.version()
        ));
    }
    Ok(WriteMethods { map })
}

/// Returns whether a context has a transport over an RDMA device that writes the memory of peers.
fn has_rdma(context: &Context) -> bool {
    context.has_transport(is_rdma)
}

/// Returns whether UCX takes shared memory for a region, so that other processes could map it. A pointer from UCX
/// proves nothing: from 1.15 on, its transport `self` returns pointers to all memory of the process itself.
fn can_map(context: &'static Context) -> Result<bool, String> {
    let text = |cause: farjump_core::transport::Cause| cause.to_string();
    // An error that prevents this worker prevents all links.
    drop(Worker::create(context).map_err(text)?);
    let region = Region::create(context, REGION_UNIT).map_err(text)?;
    let start = region.base().addr().get();
    Ok(Mappings::now().map_err(text)?.share(&(start..start + region.len())))
}

/// Returns whether `transport` uses an RDMA device that writes the memory of peers.
fn is_rdma(transport: &str) -> bool {
    ["rc", "dc", "gga", "ugni"].iter().any(|name| transport.starts_with(name))
}

#[cfg(test)]
mod tests {
    use farjump_ucx_sys::{UCP_FEATURE_AM, UCP_FEATURE_RMA, UCP_FEATURE_WAKEUP};

    use super::*;

    #[test]
    fn memory_that_is_this_processs_alone_is_none_that_others_could_map() {
        let features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        for (memory, others_could) in [("mmap", false), ("md:sysv", true), ("md:posix", true)] {
            let settings = [(c"TLS", "posix,sysv,self"), (c"ALLOC_PRIO", memory)];
            match Context::make(features, &settings, false) {
                Ok(context) => {
                    assert_eq!(can_map(Box::leak(Box::new(context))), Ok(others_could), "{memory}");
                }
                Err(why) => println!("skipped: {why}"),
            }
        }
    }

    #[test]
    fn rdma_transports_are_known_by_their_names() {
        assert!(is_rdma("rc_verbs") && is_rdma("dc_mlx5"));
        assert!(!is_rdma("sysv") && !is_rdma("tcp") && !is_rdma("ud_verbs"));
    }
}
