//! A store whose memory several processes map.
//!
//! Sources get memory and objects of a store by requests of their own making, and map its memory. They leave in
//! order, as killed processes do, or with a forked child. Or they stay when the owner ends their links, and continue
//! to read and write, as a process does that was stopped meanwhile. This module records the blocks that each source
//! uses. So it compares each block that the owner gives away with all that are in use, and each object with the bytes
//! that were written into it.

mod flood;
mod objects;
mod peer;
mod process;
mod requests;
mod step;
mod topics;

use std::collections::BTreeMap;
use std::time::Duration;

use farjump::admin::Admin;
use farjump::objects::{ObjectState, StoredObject};
use farjump::{Library, Link, Mode, Target};
use farjump_handles::{Store, View};
use tempfile::TempDir;

use crate::alongside::{PATIENCE, alongside, until};
use peer::{Block, Memory, Peer, contents, sockets};
pub use process::play;
use requests::{DONE, Key};
pub use step::{Leaving, PEERS, Script, StoreStep};

/// Turns in which the target frees everything that sources have left.
const TURNS_OF_ENDS: usize = 50;
/// Most objects, claims, leases, entries and blocks that a turn of a store visits.
const MOST_VISITS: u32 = 64;
/// Bytes of the file for objects, if there is one.
const FILE: u64 = 1 << 20;

/// The result of a conversation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Blocks that sources got.
    pub granted: u64,
    /// Objects whose bytes were compared.
    pub compared: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Objects that came back from the file.
    pub recalled: u64,
    /// Links that the owner ended.
    pub ended: u64,
    /// Entries of topics that subscribers got.
    pub entries: u64,
}

/// An object, as its users know it.
struct Object {
    number: u64,
    key: Key,
    len: u64,
    word: u64,
    /// True if it was evicted.
    is_gone: bool,
    /// True if its lease may have ended.
    is_leased: bool,
}

struct Conversation {
    store: Store,
    target: Option<Target<'static>>,
    memory: Memory,
    library: Library,
    peers: [Option<Peer>; PEERS],
    /// Sources whose links are over, and that still have descriptors.
    lingering: Vec<Peer>,
    objects: Vec<Object>,
    /// Views of the owner, and the words of their objects.
    views: Vec<(View, u64)>,
    /// Topics, each with whether an entry was published there.
    topics: BTreeMap<String, bool>,
    /// Number of objects that killed processes may have left.
    strays: usize,
    /// The word of the last object.
    last: u64,
    epoch: u64,
    path: String,
    outcome: Outcome,
    _folder: TempDir,
}

/// Executes a conversation.
///
/// # Panics
/// When a guarantee is broken.
pub fn share_store(seed: u64, script: &Script) -> Outcome {
    let mut conversation = Conversation::new(seed, script);
    for step in &script.steps {
        conversation.carry_out(step);
        conversation.compare();
        conversation.visited_few();
    }
    conversation.end()
}

impl Conversation {
    fn new(seed: u64, script: &Script) -> Conversation {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("owner.sock").display().to_string();
        let mut options = Store::options().capacity(script.capacity);
        if script.spills {
            options = options.spill(folder.path(), FILE);
        }
        let store = options.build().expect("a store");
        let first = store.put(b"first").expect("memory for it");
        let mut target = serve(&store, &path);
        let address = format!("unix:{path}");
        let handed_out =
            alongside(|| turn(&mut target), || Admin::new(&address).and_then(|admin| admin.object_memory()));
        let memory = Memory::map(&handed_out.expect("the store's memory"));
        store.evict(&first).expect("its own object");
        Conversation {
            epoch: first.epoch(),
            store,
            target: Some(target),
            memory,
            library: Library::by_name(farjump::objects::NAME).expect("a name"),
            peers: std::array::from_fn(|_| None),
            lingering: Vec::new(),
            objects: Vec::new(),
            views: Vec::new(),
            topics: BTreeMap::new(),
            strays: 0,
            last: seed << 16,
            path,
            outcome: Outcome::default(),
            _folder: folder,
        }
    }

    fn turn(&mut self) {
        if let Some(target) = &mut self.target {
            turn(target);
        }
    }

    /// Takes turns until `is_so` returns true. Returns `false` if it never does.
    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> bool {
        until(|| {
            self.turn();
            is_so(self)
        })
    }

    /// Sends a request of a source, and returns the reply. Returns `None` if there is no link, or the link has no
    /// credit.
    fn request(&mut self, peer: usize, request: &[u8]) -> Option<Vec<u8>> {
        self.connect(peer);
        let link = self.peers[peer].as_ref()?.link.as_ref()?;
        let number = link.try_inject(&self.library, request).ok()?.into_raw();
        let mut reply = None;
        let came = self.until(|all| {
            let link = all.peers[peer].as_ref().and_then(|peer| peer.link.as_ref());
            let Some(mut pending) = link.and_then(|link| link.pending_from_raw(number)) else { return true };
            match pending.poll() {
                Ok(None) => {
                    pending.into_raw();
                    return false;
                }
                Ok(Some(came)) => reply = Some(came.into_vec()),
                Err(error) => panic!("a proper request failed: {error}"),
            }
            true
        });
        assert!(came, "a request has no answer");
        if reply.as_ref().is_some_and(|reply| reply[0] != DONE) {
            self.outcome.refused += 1;
        }
        reply
    }

    fn carry_out(&mut self, step: &StoreStep) {
        match *step {
            StoreStep::Connect(peer) => self.connect(peer),
            StoreStep::Put(peer, len) => self.put(peer, len),
            StoreStep::Allocate(peer, len) => self.allocate(peer, len),
            StoreStep::Write => self.write(),
            StoreStep::Commit(peer, which) => self.commit(peer, which),
            StoreStep::Abandon(peer, which) => self.abandon(peer, which),
            StoreStep::Claim(peer, which) => self.claim(peer, which),
            StoreStep::Release(peer, which) => self.release(peer, which),
            StoreStep::Evict(peer, which) => self.evict(peer, which),
            StoreStep::Lease(peer, which, time) => self.lease(peer, which, time),
            StoreStep::OwnerPuts(len) => self.owner_puts(len),
            StoreStep::OwnerGets(which) => self.owner_gets(which),
            StoreStep::OwnerDrops(which) if !self.views.is_empty() => {
                let which = which % self.views.len();
                drop(self.views.swap_remove(which));
            }
            StoreStep::OwnerDrops(_) => {}
            StoreStep::OwnerEvicts(which) => self.owner_evicts(which),
            StoreStep::Race(which, time) => self.race(which, time),
            StoreStep::Pass(peer, which) => self.pass(peer, which),
            StoreStep::Open(peer, how) => self.open(peer, how),
            StoreStep::Publish(peer, which, is_owned) => self.publish(peer, which, is_owned),
            StoreStep::Finish(peer, which) => self.finish(peer, which),
            StoreStep::Subscribe(peer, how) => self.subscribe(peer, how),
            StoreStep::Next(peer, which) => self.next(peer, which),
            StoreStep::Unsubscribe(peer, which) => self.unsubscribe(peer, which),
            StoreStep::Crowd(peer, how) => self.crowd(peer, how),
            StoreStep::Flood => self.flood(),
            StoreStep::Process(how) => self.process(how),
            StoreStep::EndLinks(noticed) => {
                if let Some(target) = &mut self.target {
                    target.end_links("the owner ends its links");
                }
                self.links_are_over(noticed);
            }
            StoreStep::EndTarget(noticed) => {
                self.target = None;
                self.links_are_over(noticed);
                self.target = Some(serve(&self.store, &self.path));
            }
            StoreStep::Leave(peer, how) => self.leave(peer, how),
            StoreStep::LetGo(which) if !self.lingering.is_empty() => {
                let which = which % self.lingering.len();
                drop(self.lingering.swap_remove(which));
            }
            StoreStep::LetGo(_) => {}
            StoreStep::Turns(count) => (0..count).for_each(|_| self.turn()),
        }
    }

    fn connect(&mut self, peer: usize) {
        if self.peers[peer].is_some() {
            return;
        }
        let Some(target) = &mut self.target else { return };
        let builder = Link::builder(&target.address()).connect_timeout(PATIENCE).mode(Mode::Local);
        let before = sockets(&self.path);
        match alongside(|| turn(target), || builder.connect()) {
            Ok(link) => {
                let socket = sockets(&self.path).into_iter().find(|socket| !before.contains(socket));
                self.peers[peer] = Some(Peer::new(link, socket.expect("a link has a socket")));
            }
            // Lingering sources may have all places.
            Err(error) => assert!(error.to_string().contains("at a time"), "no link: {error}"),
        }
    }

    /// All blocks that any source uses.
    fn used(&self) -> impl Iterator<Item = &Block> {
        let peers = self.peers.iter().flatten().chain(&self.lingering);
        peers.filter(|peer| peer.is_there()).flat_map(|peer| &peer.blocks)
    }

    /// Records a block that a source got.
    fn grant(&mut self, peer: usize, block: Block) {
        if let Some(other) = self.used().find(|other| block.clashes_with(other)) {
            panic!("the owner gave {block:?} away while a process that may go on uses {other:?}");
        }
        self.outcome.granted += 1;
        self.peers[peer].as_mut().expect("it asked").blocks.push(block);
    }

    fn next_word(&mut self) -> u64 {
        self.last += 1;
        self.last.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }

    fn add(&mut self, number: u64, key: Key, len: u64, word: u64) {
        self.objects.push(Object { number, key, len, word, is_gone: false, is_leased: false });
        if self.objects.len() > 64 {
            self.objects.retain(|object| !object.is_gone);
        }
    }

    /// Records that the owner has ended all links. The sources whose bits are set let go of everything.
    fn links_are_over(&mut self, noticed: u8) {
        for (at, place) in self.peers.iter_mut().enumerate() {
            let Some(peer) = place.take() else { continue };
            self.outcome.ended += 1;
            if noticed & (1 << at) == 0 {
                self.lingering.push(peer);
            }
        }
    }

    fn leave(&mut self, peer: usize, how: Leaving) {
        let before = self.target.as_ref().map_or(0, Target::sources);
        let Some(mut peer) = self.peers[peer].take() else { return };
        match how {
            Leaving::Well => drop(peer),
            Leaving::Killed => {
                peer.is_killed();
                drop(peer);
            }
            Leaving::Forked => {
                peer.fork();
                peer.link = None;
                self.lingering.push(peer);
            }
        }
        let left = self.until(|all| all.target.as_ref().is_none_or(|target| target.sources() < before));
        assert!(left, "a link does not end");
    }

    /// Checks the visits of each turn of the store since the last step.
    fn visited_few(&self) {
        let most = self.store.take_most_visits();
        assert!(most <= MOST_VISITS, "a turn of the store took {most} visits, and may take {MOST_VISITS}");
    }

    /// Compares the bytes that sources and the owner read with those that were written.
    fn compare(&mut self) {
        let mut compared = 0;
        for block in self.used().filter(|block| block.writes.is_none()) {
            if let Some(at) = self.memory.first_changed(block) {
                panic!("byte {at} of a claimed object has changed under its reader: {block:?}");
            }
            compared += 1;
        }
        for (view, word) in &self.views {
            assert!(**view == *contents(*word, view.len()), "an object has changed under its owner's view");
        }
        self.outcome.compared += compared + self.views.len() as u64;
    }

    /// Makes all sources leave. Later turns free everything that they leave.
    fn all_leave(&mut self) {
        self.peers = std::array::from_fn(|_| None);
        let are_over = |all: &mut Self| all.target.as_ref().is_none_or(|target| target.sources() == 0);
        assert!(self.until(are_over), "a link does not end");
        (0..TURNS_OF_ENDS).for_each(|_| self.turn());
    }

    /// Lets go of everything, and reads and evicts all objects. All memory has to be free then.
    fn end(mut self) -> Outcome {
        self.lingering.clear();
        self.views.clear();
        self.all_leave();
        self.discard_topics();
        self.all_leave();
        for which in 0..self.objects.len() {
            self.owner_gets(which);
            self.compare();
            self.views.clear();
            let (_, handle) = self.handle(which).expect("it is one of them");
            self.store.evict(&handle).expect("its own object");
        }
        let strays = self.strays;
        let is_free = self.until(|all| {
            let left = all.store.list(strays + 1);
            // Such an object may lie in the file.
            let is_stray = |object: &StoredObject| {
                matches!(object.state, ObjectState::Present | ObjectState::Spilled) && object.claims == 0
            };
            (left.used == 0 || strays != 0)
                && left.objects.len() <= strays
                && left.objects.iter().all(is_stray)
        });
        assert!(is_free, "all is gone, and memory is in use: {:?}", self.store.list(99));
        self.visited_few();
        self.outcome
    }
}

/// A target of the store at this path.
fn serve(store: &Store, path: &str) -> Target<'static> {
    let target = Target::listen(&format!("unix:{path}"))
        .arena_size(1 << 20)
        .mailbox_size(1 << 16)
        .control_interval(Duration::ZERO)
        .max_sources(16);
    target.objects(store.service()).build().expect("a target")
}

fn turn(target: &mut Target<'static>) {
    target.poll().expect("the target works");
    target.wait(Duration::ZERO).expect("the target waits");
}
