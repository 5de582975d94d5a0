//! UCX's active messages as a contestant, and its gets. The handler of a message is the injected function itself,
//! placed in this process, and its `farjump_forward` sends another message.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::{Arc, mpsc};

use farjump::{Library, Machine, Platform};
use farjump_loader::{Arena, Exports, LinkedImage, Resolver, Store};

use super::client::Client;
use super::gets::Reads;
use super::message::{self, Ended, Message, Place};
use super::server::{Make, Shards};
use super::table::Table;
use super::wire;
use crate::perf::experiments::baselines::ucx::{Hop, Hopper, Post, WordGets, Words};
use crate::perf::process::child_protocol::Offer;
use crate::program::failure::Failure;

/// Bytes of memory for one function's code, the least possible.
const CAPACITY: usize = 64 << 10;

thread_local! {
    /// The sending side of the worker whose handler runs.
    static POST: Cell<*const Post> = const { Cell::new(ptr::null()) };
}

/// The handler: the function with the arguments of a place.
struct Handler {
    linked: Arc<LinkedImage>,
    place: Box<Place>,
}

impl Handler {
    fn new(library: &Library, place: Place) -> Result<Handler, Failure> {
        let mut exports = Exports::new();
        // SAFETY: all are functions of this program, of the types that `chase.c` declares.
        unsafe {
            exports.insert("farjump_forward", forward as *const c_void);
            exports.insert("perf_wire_stamp", wire::stamp as *const c_void);
            exports.insert("perf_wire_wait", wire::wait as *const c_void);
            exports.insert("perf_chase_ended", message::perf_chase_ended as *const c_void);
            exports.insert("perf_chase_lost", message::perf_chase_lost as *const c_void);
        }
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(format!("`chase` cannot be placed here: {error}"));
        let machine = Machine::native().ok_or_else(|| failed(&"there is no code for this machine"))?;
        let image = library.image_for(Platform::baseline(machine)).map_err(|error| failed(&error))?;
        let mut codes = Store::new(Arena::new(CAPACITY).map_err(|error| failed(&error))?);
        let linked = codes
            .insert(image.bytes(), image.id(), library.name(), &Resolver::new(exports))
            .map_err(|error| failed(&error))?;
        Ok(Handler { linked, place: Box::new(place) })
    }
}

impl Hop for Handler {
    #[inline]
    unsafe fn came(&self, data: *mut c_void, len: usize, post: &Post) {
        POST.set(post);
        // SAFETY: the function is this program's own, and stays placed as long as `self` lives. The message is
        // one of `chase`, which reads it, and the place is as `chase` expects. On x86-64 and aarch64 it may lie at
        // any address.
        unsafe { (self.linked.main())(data, len, self.place.as_args()) };
    }
}

/// `farjump_forward`, but by an active message.
unsafe extern "C" fn forward(peer: *const c_char, _len: usize, payload: *const c_void, size: usize) -> c_int {
    // SAFETY: `chase` passes a name of two digits and its message, and runs in a handler, whose post stays valid
    // until it returns.
    let (name, message, post) =
        unsafe { (*peer.cast::<[u8; 2]>(), slice::from_raw_parts(payload.cast::<u8>(), size), &*POST.get()) };
    // SAFETY: as above.
    let slot = unsafe { (*payload.cast::<Message>()).slot };
    match post.send(message::place_of(name), slot as usize, message) {
        Ok(()) => 0,
        Err(_) => -1,
    }
}

/// The workers of the shards.
struct Workers {
    // Dropped before the table.
    workers: Vec<Hopper<Handler>>,
    _table: Arc<Table>,
}

impl Shards for Workers {
    #[inline]
    fn poll(&mut self) -> Result<(), Failure> {
        self.workers.iter().try_for_each(Hopper::progress)
    }

    fn handled(&self) -> Result<u64, Failure> {
        Ok(self.workers.iter().map(Hopper::handled).sum())
    }
}

/// Addresses of the shards' workers.
type Addresses = Vec<Vec<u8>>;

/// The client.
pub(super) struct Messages {
    worker: Hopper<Handler>,
}

impl Messages {
    /// Makes the client, which has so many chases under way at most.
    pub(super) fn new(table: &Table, library: &Library, slots: usize) -> Result<Messages, Failure> {
        let handler = Handler::new(library, Place::of_client(table))?;
        Ok(Messages { worker: Hopper::create(slots, handler)? })
    }

    /// Returns the function that makes the shards, and the receiver of their addresses.
    pub(super) fn shards(
        &self,
        table: Arc<Table>,
        library: &Library,
        slots: usize,
    ) -> Result<(Make, mpsc::Receiver<Addresses>), Failure> {
        let (client, library) = (self.worker.address()?, library.clone());
        let (sender, receiver) = mpsc::channel();
        let make: Make = Box::new(move || {
            let worker =
                |shard| Hopper::create(slots, Handler::new(&library, Place::of_shard(&table, shard))?);
            let workers = (0..table.shards()).map(worker).collect::<Result<Vec<_>, Failure>>()?;
            let addresses = workers.iter().map(Hopper::address).collect::<Result<Vec<_>, _>>()?;
            let all = [&addresses[..], &[client]].concat();
            workers.iter().try_for_each(|worker| worker.connect(&all))?;
            // The client waits for them.
            let _ = sender.send(addresses);
            Ok(Box::new(Workers { workers, _table: table }))
        });
        Ok((make, receiver))
    }

    /// Connects to the shards' workers.
    pub(super) fn connect(&self, addresses: &[Vec<u8>]) -> Result<(), Failure> {
        self.worker.connect(addresses)
    }
}

impl Client for Messages {
    #[inline]
    fn begin(&mut self, shard: usize, message: Message) -> Result<(), Failure> {
        self.worker.post().send(shard, message.slot as usize, &message.to_bytes())
    }

    #[inline]
    fn look(&mut self, ended: &mut Vec<Ended>) -> Result<(), Failure> {
        self.worker.progress()?;
        self.worker.handler().place.take_ended(ended);
        Ok(())
    }

    fn lane(&self) -> Option<String> {
        self.worker.lanes()
    }
}

/// The shards' memory.
struct Memories(Vec<Words>);

impl Shards for Memories {
    fn poll(&mut self) -> Result<(), Failure> {
        self.0.iter().for_each(Words::progress);
        Ok(())
    }

    fn handled(&self) -> Result<u64, Failure> {
        Ok(0)
    }
}

/// Returns the function that makes memory with the shards' parts, and the receiver of the offers.
pub(super) fn memories(table: Arc<Table>) -> (Make, mpsc::Receiver<Vec<Offer>>) {
    let (sender, receiver) = mpsc::channel();
    let make: Make = Box::new(move || {
        let parts = (0..table.shards()).map(|shard| Words::copy(table.part(shard)));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let offers = parts.iter().map(Words::offer).collect::<Result<Vec<_>, _>>()?;
        // The client waits for them.
        let _ = sender.send(offers);
        Ok(Box::new(Memories(parts)))
    });
    (make, receiver)
}

impl Reads for WordGets {
    #[inline]
    fn read(&mut self, shard: usize, word: usize) -> Result<u64, Failure> {
        self.get(shard, word)
    }

    fn lane(&self) -> Option<String> {
        self.lanes()
    }
}

/// Returns gets from memories of `len` bytes.
pub(super) fn gets(offers: &[Offer], len: usize) -> Result<WordGets, Failure> {
    WordGets::connect(offers, len)
}
