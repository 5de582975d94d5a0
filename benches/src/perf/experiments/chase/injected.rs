//! farjump as a contestant: a target for each shard, and one at the client for the results.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use farjump::{Library, Link, Mode, Target, TargetBuilder};

use super::client::Client;
use super::message::{self, Ended, Message, Place};
use super::server::Shards;
use super::table::Table;
use super::wire;
use crate::perf::experiments::bitcode::takes_bitcode;
use crate::perf::process::liveness::CONNECTING;
use crate::perf::process::place;
use crate::program::failure::Failure;

/// Bytes for placed code at each target, which has one function.
const ARENA: usize = 1 << 20;
/// Looks for results between those at the links. Over shared memory a message needs none, but UCX connects only in its
/// own calls.
const LOOKS: u32 = 64;
/// Hops of a chase: more than the deepest one makes.
const HOPS: u32 = 1 << 20;

/// One way for the function to travel.
#[derive(Clone)]
pub(super) struct Variant {
    pub(super) transport: String,
    pub(super) mode: Mode,
    /// Whether targets take bitcode, and compile it.
    pub(super) is_bitcode: bool,
    pub(super) folder: PathBuf,
    /// Bytes of each mailbox: N targets have N sources each.
    pub(super) mailbox: usize,
    /// Distinguishes the sockets of this contestant.
    pub(super) number: usize,
}

impl Variant {
    /// Returns the way with machine code, which stays at each target.
    pub(super) fn cached(transport: &str, folder: &Path, mailbox: usize, number: usize) -> Variant {
        let (transport, folder) = (transport.to_owned(), folder.to_owned());
        Variant { transport, mode: Mode::Cached, is_bitcode: false, folder, mailbox, number }
    }

    fn socket(&self, place: usize) -> String {
        format!("c{}.{place}", self.number)
    }

    /// Returns a target that knows all other places by name, for the shard or the client with number `own`.
    /// Functions wait for the modelled wire by `wait`.
    pub(super) fn builder(
        &self,
        shards: usize,
        own: usize,
        refused: &Refused,
        wait: extern "C" fn(u64),
    ) -> Result<TargetBuilder<'static>, Failure> {
        let refused = refused.clone();
        let mut builder = place::target(&self.folder, "", &self.socket(own), &self.transport)?
            .mailbox_size(self.mailbox)
            .arena_size(ARENA)
            .handshake_timeout(CONNECTING)
            .max_hops(HOPS)
            .forward_mode(self.mode)
            .on_refused(move |_, refusal| refused.note(refusal.to_string()))
            .export("perf_wire_stamp", wire::stamp as extern "C" fn() -> _)
            .export("perf_wire_wait", wait)
            .export("perf_chase_ended", message::perf_chase_ended as unsafe extern "C" fn(_, _))
            .export("perf_chase_lost", message::perf_chase_lost as extern "C" fn(_));
        for other in (0..=shards).filter(|other| *other != own) {
            let address = place::unix(&self.folder, &self.socket(other));
            builder = builder.destination(&message::name(other), &address);
        }
        Ok(if self.is_bitcode { takes_bitcode(builder) } else { builder })
    }

    /// Makes the targets of the shards.
    pub(super) fn shards(&self, table: Arc<Table>) -> Result<Box<dyn Shards>, Failure> {
        let refused = Refused::default();
        let places: Vec<_> = (0..table.shards()).map(|shard| Place::of_shard(&table, shard)).collect();
        let target = |(shard, place): (usize, &Place)| {
            let builder = self.builder(table.shards(), shard, &refused, wire::wait)?;
            // SAFETY: `chase` reads it on the thread that polls the target, which is dropped before it.
            Ok(unsafe { builder.args_raw(place.as_args()) }.build()?)
        };
        let targets = places.iter().enumerate().map(target).collect::<Result<Vec<_>, Failure>>()?;
        let is_bitcode = self.is_bitcode;
        Ok(Box::new(Targets { targets, is_bitcode, refused, _places: places, _table: table }))
    }

    /// Makes the client's target.
    pub(super) fn client(&self, table: &Table, library: &Library) -> Result<Hopping, Failure> {
        let place = Box::new(Place::of_client(table));
        let refused = Refused::default();
        let builder = self.builder(table.shards(), table.shards(), &refused, wire::wait)?;
        // SAFETY: as in `Variant::shards`.
        let target = unsafe { builder.args_raw(place.as_args()) }.build()?;
        Ok(Hopping { links: Vec::new(), looks: 0, target, library: library.clone(), place })
    }

    /// Connects the client to the shards, while they are polled.
    pub(super) fn connect(&self, hopping: &mut Hopping, shards: usize) -> Result<(), Failure> {
        for shard in 0..shards {
            let link = place::link(&self.folder, &self.socket(shard), &self.transport)?;
            hopping.links.push(link.mode(self.mode).connect()?);
        }
        Ok(())
    }
}

/// The first refusal of any of several targets.
#[derive(Clone, Default)]
pub(super) struct Refused(Arc<Mutex<Option<String>>>);

impl Refused {
    fn note(&self, why: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// # Errors
    /// There was a refusal.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(Failure::new(format!("a shard refused a message: {why}"))),
            None => Ok(()),
        }
    }
}

/// The shards.
struct Targets {
    // Dropped first: they use the others.
    targets: Vec<Target<'static>>,
    is_bitcode: bool,
    refused: Refused,
    _places: Vec<Place>,
    _table: Arc<Table>,
}

impl Shards for Targets {
    #[inline]
    fn poll(&mut self) -> Result<(), Failure> {
        for target in &mut self.targets {
            target.poll()?;
        }
        Ok(())
    }

    fn handled(&self) -> Result<u64, Failure> {
        self.refused.check()?;
        Ok(self.targets.iter().map(|target| target.stats().calls).sum())
    }

    fn is_settled(&self) -> bool {
        !self.is_bitcode || self.targets.iter().all(is_optimised)
    }
}

/// Returns whether the target's code is compiled with all optimisations.
fn is_optimised(target: &Target<'_>) -> bool {
    target.images().iter().all(|image| image.platform.ends_with("O2"))
}

/// The client.
pub(super) struct Hopping {
    links: Vec<Link>,
    /// Looks for results so far.
    looks: u32,
    // Dropped before its place.
    target: Target<'static>,
    library: Library,
    place: Box<Place>,
}

impl Client for Hopping {
    #[inline]
    fn begin(&mut self, shard: usize, message: Message) -> Result<(), Failure> {
        Ok(self.links[shard].send(&self.library, &message.to_bytes())?)
    }

    #[inline]
    fn look(&mut self, ended: &mut Vec<Ended>) -> Result<(), Failure> {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS) {
            self.links.iter().try_for_each(Link::progress)?;
        }
        self.target.poll()?;
        self.place.take_ended(ended);
        Ok(())
    }

    fn lane(&self) -> Option<String> {
        self.links.first().and_then(place::lane)
    }
}
