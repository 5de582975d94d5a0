//! The endpoints that a process describes to its peer, and the choice of one.
//!
//! A target describes its endpoints before it knows the source. It opens an endpoint on each of its ports that is in
//! another network. The source connects to the endpoint that it reaches best, and the target closes the others
//! (`docs/design/verbs.md`).

use std::cell::OnceCell;
use std::iter::once;
use std::sync::Arc;

use farjump_core::transport::{Cause, Operation};

use super::device::Device;
use super::options::Options;
use super::queue::Queue;
use crate::verbs::device::address::{Backend, EndpointAddress, Offer};
use crate::verbs::device::towards::{best_pair, in_other_networks};

/// An unconnected endpoint of a backend.
pub(super) trait PortEndpoint: Sized {
    const BACKEND: Backend;

    /// Opens an endpoint like this on another device or port.
    fn on(&self, device: &Arc<Device>) -> Result<Self, Cause>;

    fn queue(&self) -> &Queue;

    fn address(&self) -> EndpointAddress;
}

/// The endpoints of a process.
pub(super) struct OfferedEndpoints<E> {
    /// The endpoint on the port that the process prefers.
    first: E,
    /// The endpoints on other ports. Opened when this process describes its endpoints, unless it knows the peer's by
    /// then.
    others: OnceCell<Vec<E>>,
    /// The options that choose ports.
    wished: Options,
    /// Number of the peer's endpoint that this process chose.
    chosen: u8,
}

impl<E: PortEndpoint> OfferedEndpoints<E> {
    pub(super) fn new(first: E, wished: Options) -> OfferedEndpoints<E> {
        OfferedEndpoints { first, others: OnceCell::new(), wished, chosen: 0 }
    }

    /// The endpoint on the port that this process prefers, or has chosen for its peer.
    pub(super) fn first(&self) -> &E {
        &self.first
    }

    /// The bytes that describe the endpoints to the peer.
    pub(super) fn describe(&self) -> Vec<u8> {
        let others = self.others.get_or_init(|| self.open_others());
        let endpoints = once(&self.first).chain(others).map(PortEndpoint::address).collect();
        Offer { chosen: self.chosen, endpoints }.to_bytes(E::BACKEND)
    }

    fn open_others(&self) -> Vec<E> {
        let opened = |device: Arc<Device>| match self.first.on(&device) {
            Ok(end) => Some(end),
            Err(cause) => {
                log::debug!("{}:{} is not offered: {cause}", device.name, device.port.number);
                None
            }
        };
        in_other_networks(&self.first.queue().device, &self.wished).into_iter().filter_map(opened).collect()
    }

    /// Chooses one of the peer's endpoints, and the port of this process that reaches it best.
    ///
    /// # Errors
    /// The failed operation, and its cause.
    pub(super) fn adapt_to(&mut self, peer: &[u8]) -> Result<EndpointAddress, (Operation, Cause)> {
        let offer = Offer::from_bytes(peer, E::BACKEND).map_err(|cause| (Operation::Connect, cause))?;
        let (number, better) = best_pair(&self.first.queue().device, &self.wished, &offer.endpoints);
        if let Some(device) = better {
            self.first = self.first.on(&device).map_err(|cause| (Operation::Open, cause))?;
        }
        self.chosen = number;
        self.others = OnceCell::from(Vec::new());
        offer.endpoint(number).map_err(|cause| (Operation::Connect, cause))
    }

    /// The two endpoints of the link: this process's, and the peer's. Closes the others.
    pub(super) fn pair_with(self, peer: &[u8]) -> Result<(E, EndpointAddress), Cause> {
        let offer = Offer::from_bytes(peer, E::BACKEND)?;
        let theirs = offer.endpoint(self.chosen)?;
        let mut own: Vec<E> = once(self.first).chain(self.others.into_inner().unwrap_or_default()).collect();
        let (number, count) = (usize::from(offer.chosen), own.len());
        if number >= count {
            return Err(Cause::Address(format!("it answers endpoint {number} of {count}, counted from 0")));
        }
        Ok((own.swap_remove(number), theirs))
    }
}
