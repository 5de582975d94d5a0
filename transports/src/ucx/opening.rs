//! An end of `ucx-am` before its peer is known: it has a worker without TCP and one with it, and keeps the one that joins the two
//! sides, the former if it does (`docs/decisions/ucx-am.md`).

use std::env;

use farjump_core::frame::LINE;
use farjump_core::transport::{
    Address, ArrivalRules, Cause, Endpoint, LocalAddress, OpenRequest, Opening, Operation, TransportError,
};
use farjump_ucx_sys::{Version, ucp_ep_h};

use super::address::{Inbox as ToldInbox, Told};
use super::am::{Post, error};
use super::choice::Reach;
use super::context::Context;
use super::parting;
use super::place::Place;
use super::station::{Station, window};

/// The end. One of the two is there, or both.
pub(super) struct AmOpening {
    near: Option<Station>,
    far: Option<Station>,
    version: Version,
    window: u64,
    max_frame: u64,
    /// What the peer is told.
    address: Vec<u8>,
    /// The peer whose address has these bytes, if it was tried.
    reached: Option<(Vec<u8>, Reached)>,
}

/// A peer, and the way there.
struct Reached {
    reach: Reach,
    end: ucp_ep_h,
    told: ToldInbox,
    /// Why it may share no memory with this process.
    apart: String,
}

// SAFETY: the way to the peer belongs to a worker of a station, which may move between threads and is owned here.
unsafe impl Send for AmOpening {}

impl AmOpening {
    pub(super) fn open(request: &OpenRequest) -> Result<AmOpening, Cause> {
        parting::tend();
        let station = |reach| {
            let context = Context::for_messages(reach).map_err(Cause::System)?;
            context.map(|context| Station::open(context, request)).transpose()
        };
        let (near, far) = (station(Reach::Near)?, station(Reach::Far)?);
        let Some(one) = near.as_ref().or(far.as_ref()) else {
            return Err(Cause::System("UCX_TLS leaves no transport of UCX's".to_owned()));
        };
        let version = one.inbox().worker().ucx.version();
        let max_frame = request.max_frame.max(LINE) as u64;
        let window = window(request);
        let (address, reached) = (Vec::new(), None);
        let mut opening = AmOpening { near, far, version, window, max_frame, address, reached };
        opening.address = opening.told()?;
        Ok(opening)
    }

    /// What the peer is told of the workers that there are.
    fn told(&self) -> Result<Vec<u8>, Cause> {
        let address =
            |station: &Option<Station>| station.as_ref().map_or_else(Vec::new, |one| one.address.clone());
        ToldInbox {
            window: self.window,
            max_frame: self.max_frame,
            place: Place::own(),
            near: address(&self.near),
            far: address(&self.far),
        }
        .to_bytes(self.version)
    }

    /// Reaches the peer whose address has these bytes: without TCP if that can be.
    fn reach(&mut self, bytes: &[u8]) -> Result<Reached, TransportError> {
        if let Some((_, reached)) = self.reached.take_if(|(known, _)| known == bytes) {
            return Ok(reached);
        }
        let failed = |cause| error(Operation::Connect, cause);
        let told = ToldInbox::from_bytes(bytes, self.version).map_err(failed)?;
        let set = env::var("UCX_TLS").ok();
        let own = Place::own();
        let apart = own.apart(&told.place, set.as_deref());
        let unreachable = || {
            format!(
                "UCX has no transport by which both sides reach each other (compare UCX_TLS and UCX_NET_DEVICES): {apart}"
            )
        };
        let near = self.near.as_ref().filter(|_| !told.near.is_empty());
        let far = self.far.as_ref().filter(|_| !told.far.is_empty());
        // Where both have TCP, the way without it is only tried if it can lead anywhere: UCX complains when it does not.
        let near = near
            .filter(|near| far.is_none() || own.may_share(&told.place) || near.inbox().worker().has_rdma());
        let try_one =
            |station: &Station, worker: &[u8]| station.inbox().worker().connect(worker, unreachable);
        let tried = match (near, far) {
            (Some(near), None) => try_one(near, &told.near).map(|end| (Reach::Near, end)),
            (Some(near), Some(far)) => match try_one(near, &told.near) {
                Ok(end) => Ok((Reach::Near, end)),
                Err(_) => try_one(far, &told.far).map(|end| (Reach::Far, end)),
            },
            (None, Some(far)) => try_one(far, &told.far).map(|end| (Reach::Far, end)),
            (None, None) => Err(Cause::System(unreachable())),
        };
        let (reach, end) = tried.map_err(failed)?;
        Ok(Reached { reach, end, told, apart })
    }

    pub(super) fn join(mut self, peer: Address) -> Result<Post, TransportError> {
        if !peer.descriptors.is_empty() {
            let what = "descriptors came with it, and it has none".to_owned();
            return Err(error(Operation::Connect, Cause::Address(what)));
        }
        let Reached { reach, end, told, apart } = self.reach(&peer.bytes)?;
        let station = match reach {
            Reach::Near => self.near,
            Reach::Far => self.far,
        };
        let failed = |cause| error(Operation::Connect, cause);
        let gone = || failed(Cause::System("the worker for this way is gone".to_owned()));
        Post::new(station.ok_or_else(gone)?, end, &told, apart).map_err(failed)
    }
}

impl Opening for AmOpening {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.address.clone(), descriptors: Vec::new() }
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let reached = self.reach(peer)?;
        // The peer is told of this way alone, so both take it.
        match reached.reach {
            Reach::Near => self.far = None,
            Reach::Far => self.near = None,
        }
        self.reached = Some((peer.to_vec(), reached));
        self.address = self.told().map_err(|cause| error(Operation::Connect, cause))?;
        Ok(ArrivalRules::all())
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        Ok(Endpoint::TwoSided(Box::new(self.join(peer)?)))
    }
}
