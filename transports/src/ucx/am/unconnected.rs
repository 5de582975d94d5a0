//! The unconnected endpoint of `ucx-am`.

use std::env;

use farjump_core::frame::LINE;
use farjump_core::transport::{
    Address, ArrivalRules, Cause, Endpoint, LocalAddress, OpenRequest, Operation, TransportError,
    UnconnectedEndpoint,
};
use farjump_ucx_sys::{Version, ucp_ep_h};

use super::closing;
use super::worker::{AmWorker, window};
use super::{AmMessages, error};
use crate::ucx::address::{AmAddress, EndpointAddress};
use crate::ucx::context::Context;
use crate::ucx::locality::Locality;
#[cfg(test)]
use crate::ucx::worker::Worker;

/// An unconnected endpoint.
pub(super) struct UnconnectedAm {
    // Dropped before the worker to which it belongs.
    /// The peer with this address, if this endpoint has tried to reach one.
    reached: Option<(Vec<u8>, Reached)>,
    worker: AmWorker,
    version: Version,
    /// Whether its worker has TCP.
    tcp: bool,
    /// The endpoint address.
    address: Vec<u8>,
}

/// A peer, and the UCX endpoint to it.
struct Reached {
    endpoint: ucp_ep_h,
    peer_address: AmAddress,
    /// The reason why the peer may share no memory with this process.
    apart: String,
}

// SAFETY: the UCX endpoint to the peer belongs to the UCX worker, which is `Send` and owned here.
unsafe impl Send for UnconnectedAm {}

impl UnconnectedAm {
    /// Opens an endpoint with a worker that has TCP if `tcp`.
    pub(super) fn open(request: &OpenRequest, tcp: bool) -> Result<UnconnectedAm, Cause> {
        closing::check()?;
        let context = Context::for_messages(tcp).map_err(Cause::System)?;
        let worker = AmWorker::open(context, request, tcp)?;
        let version = context.ucx.version();
        let own_address = AmAddress {
            window: window(request),
            max_frame: request.max_frame.max(LINE) as u64,
            place: Locality::own(),
            worker: worker.address.clone(),
        };
        let address = own_address.to_bytes(version)?;
        Ok(UnconnectedAm { reached: None, worker, version, tcp, address })
    }

    #[cfg(test)]
    pub(super) fn worker(&self) -> &Worker {
        self.worker.inbox().worker()
    }

    /// Reaches the peer whose address has these bytes.
    fn reach(&mut self, bytes: &[u8]) -> Result<Reached, TransportError> {
        if let Some((_, reached)) = self.reached.take_if(|(known, _)| known == bytes) {
            return Ok(reached);
        }
        let failed = |cause| error(Operation::Connect, cause);
        let peer_address = AmAddress::from_bytes(bytes, self.version).map_err(failed)?;
        let set = env::var("UCX_TLS").ok();
        let apart = Locality::own().apart(&peer_address.place, set.as_deref());
        let without_tcp = match self.tcp {
            true => "",
            false => {
                "; UCX's TCP is used only if both processes allow it (BackendOptions::with_ucx_tcp): between machines use transport tcp"
            }
        };
        let defect = if self.tcp { defect_of_tcp(self.version) } else { String::new() };
        let unreachable = || {
            format!(
                "UCX has no transport by which both processes reach each other (compare UCX_TLS and UCX_NET_DEVICES): {apart}{without_tcp}{defect}"
            )
        };
        let endpoint =
            self.worker.inbox().worker().connect(&peer_address.worker, unreachable).map_err(failed)?;
        Ok(Reached { endpoint, peer_address, apart })
    }

    pub(super) fn join(mut self, peer: Address) -> Result<AmMessages, TransportError> {
        if !peer.descriptors.is_empty() {
            let what = "descriptors came with it, and it has none".to_owned();
            return Err(error(Operation::Connect, Cause::Address(what)));
        }
        let Reached { endpoint, peer_address, apart } = self.reach(&peer.bytes)?;
        let post = AmMessages::new(self.worker, endpoint, &peer_address, apart);
        let mut post = post.map_err(|cause| error(Operation::Connect, cause))?;
        post.greet()?;
        Ok(post)
    }
}

/// Returns a note on TCP of UCX 1.20.0 and 1.20.1, which misread addresses on `lo` ("no route to …").
fn defect_of_tcp(version: Version) -> String {
    match (version.major, version.minor, version.release) {
        (1, 20, 0 | 1) => format!(
            "; UCX {version} cannot use TCP on lo, by a defect of its own: take another UCX (FARJUMP_UCX), or name another device in \
             UCX_NET_DEVICES"
        ),
        _ => String::new(),
    }
}

impl UnconnectedEndpoint for UnconnectedAm {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.address.clone(), descriptors: Vec::new() }
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let reached = self.reach(peer)?;
        self.reached = Some((peer.to_vec(), reached));
        Ok(ArrivalRules::all())
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        Ok(Endpoint::TwoSided(Box::new(self.join(peer)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ucx_versions_that_cannot_use_tcp_on_lo_are_named() {
        for (minor, release, named) in
            [(20, 0, true), (20, 1, true), (20, 2, false), (19, 0, false), (21, 0, false)]
        {
            let text = defect_of_tcp(Version { major: 1, minor, release });
            assert_eq!(
                text.contains(&format!("UCX 1.{minor}.{release} cannot use TCP on lo")),
                named,
                "{text}"
            );
        }
    }
}
