//! Endpoints of `ucx-put` whose peer is not known yet.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farjump_core::transport::{
    Address, ArrivalRules, Cause, Endpoint, LocalAddress, OpenRequest, Operation, TransportError,
    UnconnectedEndpoint,
};

use super::proof::{Post, Proof};
use super::region::Region;
use super::remote_region::Peer;
use super::write_queue::{DOORBELL, WriteQueue, on_doorbell};
use super::{PutLocal, PutRemote, error, probe};
use crate::membarrier::{self, Barriers};
use crate::ucx::address::{EndpointAddress, PutAddress};
use crate::ucx::context::Context;
use crate::ucx::locality::Locality;
use crate::ucx::worker::Worker;

/// An unconnected endpoint.
pub(super) struct UnconnectedPut {
    // Dropped in this order: the peer before the worker that reaches it, and the worker before the region.
    pub(super) reached: Option<(Vec<u8>, Peer)>,
    pub(super) worker: Worker,
    /// Data of the worker's callbacks.
    post: Post,
    pub(super) region: Region,
    /// The worker's descriptor, open as long as the worker.
    descriptor: RawFd,
    barriers: Barriers,
    pub(super) address: Vec<u8>,
    /// True for a second endpoint of a link whose first endpoints have proven that puts are native.
    is_proven: bool,
}

// SAFETY: the peer belongs to the worker, which is `Send`; both are owned here.
unsafe impl Send for UnconnectedPut {}

impl UnconnectedPut {
    pub(super) fn open(request: &OpenRequest) -> Result<UnconnectedPut, Cause> {
        let context = Context::for_memory().map_err(Cause::System)?;
        // Declared before the worker, which is dropped first if anything fails.
        let post = Post::new();
        let worker = Worker::create(context)?;
        // SAFETY: the callback uses no argument.
        unsafe { worker.handle(DOORBELL, Some(on_doorbell), ptr::null_mut())? };
        // SAFETY: the worker is dropped before `post` in here, in `UnconnectedPut` and in `WriteQueue`.
        unsafe { post.listen(&worker)? };
        let len = request.region_len;
        let mut region = Region::create(context, len)?;
        region.become_mailbox();
        let barriers = Barriers::of_this_process();
        let own_address = PutAddress {
            address: region.base().addr().get() as u64,
            len: len as u64,
            barriers: barriers.bits(),
            key: region.key()?,
            place: Locality::own(),
            worker: worker.address()?,
        };
        let address = own_address.to_bytes(context.ucx.version())?;
        let descriptor = worker.descriptor()?;
        let is_proven = request.is_second;
        Ok(UnconnectedPut { reached: None, worker, post, region, descriptor, barriers, address, is_proven })
    }

    /// Makes both processes prove within `deadline_ms` that any puts of this link are native.
    fn prove(&mut self, reached: Peer, theirs: &[u8], deadline_ms: u32) -> Result<Peer, TransportError> {
        let puts = reached.mapped.is_none();
        // The peer decides in the same way, by its own values.
        let has_part = puts || !probe::write_methods().is_ok_and(|write_methods| write_methods.map);
        if self.is_proven || !has_part {
            return Ok(reached);
        }
        let within = Duration::from_millis(u64::from(deadline_ms));
        // SAFETY: this endpoint's region starts on a page and has one or more; only the peer writes it now.
        let own = unsafe { AtomicU64::from_ptr(self.region.base().cast().as_ptr()) };
        let mut proof = Proof {
            worker: &self.worker,
            peer: &reached,
            post: &mut self.post,
            own,
            is_first: *self.address < *theirs,
            queries: puts,
            shows: puts,
            until: Instant::now() + within,
            idle: Cell::new(0),
        };
        match proof.run() {
            Ok(()) => Ok(reached),
            Err(unproven) => {
                let cause = unproven.cause(&reached, within);
                // SAFETY: the UCX endpoint is connected, and not used again.
                unsafe { self.worker.close(reached.endpoint) };
                Err(error(Operation::Connect, cause))
            }
        }
    }

    /// Returns the peer whose address has these bytes.
    fn reach(&mut self, bytes: &[u8]) -> Result<Peer, TransportError> {
        if let Some((_, peer)) = self.reached.take_if(|(known, _)| known == bytes) {
            return Ok(peer);
        }
        let failed = |cause| error(Operation::Connect, cause);
        let peer_address = PutAddress::from_bytes(bytes, self.worker.ucx.version()).map_err(failed)?;
        Peer::reach(&self.worker, &peer_address).map_err(failed)
    }
}

impl UnconnectedEndpoint for UnconnectedPut {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.address.clone(), descriptors: Vec::new() }
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let reached = self.reach(peer)?;
        let mut rules = ArrivalRules::all();
        rules.set(ArrivalRules::STORES, reached.mapped.is_some());
        self.reached = Some((peer.to_vec(), reached));
        Ok(rules)
    }

    fn connect(mut self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        if !peer.descriptors.is_empty() {
            let what = "descriptors came with it, and it has none".to_owned();
            return Err(error(Operation::Connect, Cause::Address(what)));
        }
        let reached = self.reach(&peer.bytes)?;
        let reached = self.prove(reached, &peer.bytes, deadline_ms)?;
        let UnconnectedPut { worker, post, region, descriptor, barriers: ours, .. } = *self;
        let theirs = Barriers::from_bits_truncate(reached.barriers);
        let (len, mapped) = (reached.len, reached.mapped);
        let queue = Arc::new(Mutex::new(WriteQueue::new(reached, worker, post)));
        Ok(Endpoint::OneSided {
            local: Box::new(PutLocal {
                alias: None,
                region,
                descriptor,
                queue: Arc::clone(&queue),
                is_mapped: mapped.is_some(),
                // The peer decides by the same two flags whether it omits its fence.
                peer_has_no_fence: membarrier::spares_fence(theirs, ours),
            }),
            remote: Box::new(PutRemote {
                queue,
                mapped,
                len,
                no_fence: mapped.is_some() && membarrier::spares_fence(ours, theirs),
            }),
        })
    }
}
