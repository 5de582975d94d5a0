//! The code store: linked images by their identity.

mod capacity;
mod usage;

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farjump_core::icache;
use farjump_core::image::{CodeId, ImageView, PlaceError};

use crate::address_map::Listing;
use crate::arena::{Arena, Block};
use crate::bundle::is_name;
use crate::code_id::code_id;
use crate::error::Error;
use crate::library::MainRoutine;
use crate::resolve::Resolver;

pub use self::capacity::{Capacity, Need};
pub use self::usage::Usage;
pub use crate::refusal::Refused;

/// Code that was placed and can be called.
///
/// Its statics live as long as this value does, and there is one copy of them. Whoever may be running the code holds an
/// `Arc` of it: the last one dropped frees the room and turns the code into traps.
pub struct Linked {
    id: CodeId,
    main: MainRoutine,
    payload_align_log2: u8,
    link_time: Duration,
    /// The image, and behind it the name.
    bytes: Box<[u8]>,
    image_len: usize,
    usage: Usage,
    origin: OnceLock<Box<str>>,
    /// Before the block: what is listed is there.
    listing: OnceLock<Listing>,
    block: Block,
}

impl Linked {
    /// Its identity.
    pub fn id(&self) -> CodeId {
        self.id
    }

    /// The name it came by first. For people: two sources may call different code by one name, and the same code by two.
    pub fn name(&self) -> &str {
        // What follows the image was a string when it was put there.
        std::str::from_utf8(&self.bytes[self.image_len..]).unwrap_or("")
    }

    /// `NAME_main`, where it was placed. Valid as long as this value is held. Calling it runs native code that somebody
    /// else wrote: the caller vouches that this is wanted, that the payload is valid for its length and aligned to
    /// [`Linked::payload_align_log2`], and that the target's arguments are what the code was told to expect.
    #[inline]
    pub fn main(&self) -> MainRoutine {
        self.main
    }

    /// log2 of the alignment that the payload needs, in bytes: 3 to 12, or 0 for the default rule.
    #[inline]
    pub fn payload_align_log2(&self) -> u8 {
        self.payload_align_log2
    }

    /// The image as it came, before its sites were patched.
    pub fn image(&self) -> &[u8] {
        &self.bytes[..self.image_len]
    }

    /// How long it took from the copy of the image to code that can be called.
    pub fn link_time(&self) -> Duration {
        self.link_time
    }

    /// Enters it into the [`address_map`](crate::address_map), where it stays until this value is dropped.
    pub fn list(&self) {
        let len = self.block.code_len() as u64;
        self.listing.get_or_init(|| Listing::new(self.block.address(), len, self.id, self.name()));
    }

    /// How it was called.
    #[inline]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Who brought it, in words for people; empty if nobody said.
    pub fn origin(&self) -> &str {
        self.origin.get().map_or("", |origin| origin)
    }

    /// Says who brought it. What was said first stays.
    pub fn set_origin(&self, origin: &str) {
        self.origin.get_or_init(|| origin.into());
    }

    /// Where it was placed.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

impl fmt::Debug for Linked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Linked")
            .field("name", &self.name())
            .field("id", &self.id)
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

/// What a target holds, by identity, up to a capacity. One thread uses a store at a time; several stores may share an arena.
///
/// Nothing is dropped to make room unless [`Store::make_room`] is called for it, and nothing that somebody holds an `Arc` of
/// is dropped there.
#[derive(Debug)]
pub struct Store {
    arena: Arena,
    capacity: Capacity,
    held: HashMap<CodeId, Held>,
    /// When each was last known to be used, oldest first. Calls do not keep it up to date: whoever looks does.
    ages: BTreeSet<Age>,
    bytes: usize,
    evictions: u64,
    /// Calls of what is held no longer.
    past_calls: u64,
}

/// When code was last known to be used, and which.
type Age = (u64, CodeId);

#[derive(Debug)]
struct Held {
    linked: Arc<Linked>,
    /// The first part of its entry in `ages`: at most when it was last used.
    listed: u64,
}

impl Store {
    /// An empty store that places code in `arena`, and has no other bound.
    pub fn new(arena: Arena) -> Store {
        Store::bounded(arena, Capacity::UNBOUNDED)
    }

    /// An empty store that places code in `arena`, and holds at most so much.
    pub fn bounded(arena: Arena, capacity: Capacity) -> Store {
        Store {
            arena,
            capacity,
            held: HashMap::new(),
            ages: BTreeSet::new(),
            bytes: 0,
            evictions: 0,
            past_calls: 0,
        }
    }

    /// How much it holds at most.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The arena that code is placed in.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Links an image: copies it, compares its identity with the one claimed, checks it, places it, patches its sites with what
    /// `resolver` offers. It counts as never used until [`Usage::touch`] or [`Usage::count`] says otherwise. If the store already
    /// holds code of that identity, that is returned, and neither `name` nor `resolver` matters.
    ///
    /// # Errors
    /// See [`Refused`]. Nothing is held afterwards that was not held before.
    pub fn insert(
        &mut self,
        image: &[u8],
        claimed: CodeId,
        name: &str,
        resolver: &Resolver,
    ) -> Result<Arc<Linked>, Refused> {
        let start = Instant::now();
        if !is_name(name) {
            return Err(Refused::Name { name: name.chars().take(64).collect() });
        }
        let len = image.len();
        match self.held.get(&claimed) {
            Some(held) if held.linked.image() == image => return Ok(Arc::clone(&held.linked)),
            Some(_) => {
                return Err(Refused::IdMismatch { ifunc: name.to_owned(), claimed, found: code_id(image) });
            }
            None => {}
        }
        let found = code_id(image);
        if found != claimed {
            return Err(Refused::IdMismatch { ifunc: name.to_owned(), claimed, found });
        }
        let view = ImageView::new_checked(image)
            .map_err(|source| Refused::BadImage { ifunc: name.to_owned(), source })?;
        let machine = icache::supported()
            .map_err(|reason| Refused::UnsupportedMachine { ifunc: name.to_owned(), reason })?;
        if view.machine() != machine {
            return Err(Refused::WrongMachine {
                ifunc: name.to_owned(),
                image: view.machine(),
                target: machine,
            });
        }
        if len > self.capacity.bytes {
            return Err(Refused::LargerThanStore {
                ifunc: name.to_owned(),
                len,
                capacity: self.capacity.bytes,
            });
        }
        if !self.holds_besides(len) {
            let (images, bytes) = (self.len(), self.bytes);
            return Err(Refused::StoreFull { ifunc: name.to_owned(), images, bytes });
        }
        let offer = resolver.offer(&view, name)?;
        let block = match self.arena.place(&view, |import| offer.resolve(import)) {
            Ok(block) => block,
            Err(error) => return Err(refusal(error, &view, name, resolver)),
        };
        // SAFETY: the entry lies inside the code just placed, which was linked for this machine, and its identity says
        // that it is what the source's linker made. That it is a function of this signature is what an image promises;
        // whoever calls it vouches for that (`Linked::main`).
        let main = unsafe {
            std::mem::transmute::<*const c_void, MainRoutine>(block.entry() as usize as *const c_void)
        };
        let payload_align_log2 = view.payload_align_log2();
        let bytes = [image, name.as_bytes()].concat();
        self.bytes += len;
        let linked = Linked {
            id: claimed,
            main,
            payload_align_log2,
            link_time: start.elapsed(),
            bytes: bytes.into_boxed_slice(),
            image_len: len,
            usage: Usage::new(),
            origin: OnceLock::new(),
            listing: OnceLock::new(),
            block,
        };
        let linked = Arc::new(linked);
        self.held.insert(claimed, Held { linked: Arc::clone(&linked), listed: 0 });
        self.ages.insert((0, claimed));
        Ok(linked)
    }

    /// Whether an image of this length would not exceed the capacity.
    fn holds_besides(&self, len: usize) -> bool {
        self.len() < self.capacity.images && len <= self.capacity.bytes - self.bytes
    }

    /// Whether an image with this need would be placed now.
    pub fn has_room(&self, need: &Need) -> bool {
        self.holds_besides(need.image) && self.arena.fits(need)
    }

    /// Drops code, the least recently used first, until an image with this need would be placed, or nothing is left that can
    /// go. `release` is called with each before it goes: whoever holds it to call it has to let go of it then, and if anybody
    /// does not, it stays. Nothing is dropped for an image that an empty store would not take. Returns whether there is room.
    pub fn make_room(&mut self, need: &Need, mut release: impl FnMut(&Arc<Linked>)) -> bool {
        if need.image > self.capacity.bytes || self.capacity.images == 0 || !self.arena.ever_fits(need) {
            return false;
        }
        let mut behind = Bound::Unbounded;
        while !self.has_room(need) {
            let Some(age @ (_, id)) = self.oldest(behind) else { return false };
            let Some(held) = self.held.get(&id) else { return false };
            release(&held.linked);
            if Arc::strong_count(&held.linked) == 1 {
                self.forget(&id);
                self.evictions += 1;
            } else {
                behind = Bound::Excluded(age);
            }
        }
        true
    }

    /// The least recently used of those behind `behind`.
    fn oldest(&mut self, behind: Bound<Age>) -> Option<Age> {
        loop {
            let age @ (listed, id) = *self.ages.range((behind, Bound::Unbounded)).next()?;
            let held = self.held.get_mut(&id)?;
            let last = held.linked.usage().last();
            if last <= listed {
                return Some(age);
            }
            // Used since: it is younger than it was thought to be.
            held.listed = last;
            self.ages.remove(&age);
            self.ages.insert((last, id));
        }
    }

    /// The code with this identity.
    pub fn get(&self, id: &CodeId) -> Option<&Arc<Linked>> {
        self.held.get(id).map(|held| &held.linked)
    }

    /// Gives the code with this identity up; `false` if it is not held. It stays placed until the last `Arc` of it is
    /// dropped. Sent again, it is linked anew, with statics as they were at first.
    pub fn forget(&mut self, id: &CodeId) -> bool {
        let Some(Held { linked, listed }) = self.held.remove(id) else { return false };
        self.ages.remove(&(listed, *id));
        self.bytes -= linked.image_len;
        self.past_calls += linked.usage().calls();
        true
    }

    /// How many images are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Length of the images held, as they travelled, in bytes. What they take of the arena is [`Arena::used`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is held, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Linked>> {
        self.held.values().map(|held| &held.linked)
    }

    /// How often code was dropped to make room.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Calls of all that is or was held.
    pub fn calls(&self) -> u64 {
        self.past_calls + self.iter().map(|linked| linked.usage().calls()).sum::<u64>()
    }
}

/// What the source is told when an image could not be placed.
#[cold]
pub(crate) fn refusal(error: Error, view: &ImageView<'_>, name: &str, resolver: &Resolver) -> Refused {
    let ifunc = name.to_owned();
    match error {
        Error::ArenaFull { needed, largest, .. } => Refused::ArenaFull { ifunc, needed, largest },
        Error::Place(PlaceError::Unresolved(index)) => {
            let symbol = view.imports().nth(index).map_or("", |import| import.name);
            Refused::UnresolvedImport {
                ifunc,
                symbol: symbol.to_owned(),
                suggestion: resolver.suggestion(symbol).map(str::to_owned),
                offered: resolver.offered(),
            }
        }
        source => Refused::Arena { ifunc, source },
    }
}
