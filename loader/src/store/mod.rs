//! The code store: linked images by code id.

mod capacity;
mod id_hasher;
mod usage;

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farjump_core::icache;
use farjump_core::image::{CodeId, ImageView, PlaceError};

use crate::address_map::Listing;
use crate::arena::{Arena, Block, Need};
use crate::bundle::is_name;
use crate::code_id::code_id;
use crate::debugger::{Shown, Symbols};
use crate::error::Error;
use crate::library::MainRoutine;
use crate::resolve::{Offer, Resolver};

pub use self::capacity::Capacity;
use self::id_hasher::IdHasher;
pub use self::usage::Usage;
pub use crate::refusal::Refused;

/// A linked image, ready to be called.
///
/// Its statics live as long as this value, in one copy. A thread that may run the code holds an `Arc` of it.
/// Dropping the last one frees the space and turns the code into traps.
pub struct LinkedImage {
    id: CodeId,
    main: MainRoutine,
    payload_align_log2: u8,
    link_time: Duration,
    /// The image, followed by the name.
    bytes: Box<[u8]>,
    image_len: usize,
    usage: Usage,
    origin: OnceLock<Arc<str>>,
    /// Before the block: listed code must still exist.
    listing: OnceLock<Listing>,
    /// Likewise.
    shown: OnceLock<Shown>,
    block: Block,
}

impl LinkedImage {
    /// Its code id.
    pub fn id(&self) -> CodeId {
        self.id
    }

    /// The name under which it first arrived. For people: two sources may use one name for different code,
    /// and two names for the same code.
    pub fn name(&self) -> &str {
        // The bytes behind the image were a string when they were put there.
        std::str::from_utf8(&self.bytes[self.image_len..]).unwrap_or("")
    }

    /// `NAME_main` of the placed image. Valid as long as this value exists. Calling it runs native code of
    /// another author. The caller must want that, pass a payload that is valid for its length and aligned to
    /// [`LinkedImage::payload_align_log2`], and pass the target arguments that the code expects.
    #[inline]
    pub fn main(&self) -> MainRoutine {
        self.main
    }

    /// log2 of the alignment that the payload needs, in bytes: 3 to 12, or 0 for the default rule.
    #[inline]
    pub fn payload_align_log2(&self) -> u8 {
        self.payload_align_log2
    }

    /// The image as it arrived, before its sites were patched.
    pub fn image(&self) -> &[u8] {
        &self.bytes[..self.image_len]
    }

    /// Time from the copy of the image to callable code.
    pub fn link_time(&self) -> Duration {
        self.link_time
    }

    /// Enters the code into the [`address_map`](crate::address_map) until this value is dropped.
    pub fn list(&self) {
        let len = self.block.code_len() as u64;
        self.listing.get_or_init(|| Listing::new(self.block.address(), len, self.id, self.name()));
    }

    /// Shows the code to debuggers until this value is dropped, with `symbols` if they are those of its
    /// image. Without, with the name of its main function alone.
    pub fn show(&self, symbols: Option<&Symbols>) {
        let (start, len, entry) = (self.block.address(), self.block.code_len() as u64, self.block.entry());
        let symbols = symbols.filter(|symbols| symbols.id() == self.id);
        self.shown.get_or_init(|| Shown::new(self.name(), start, len, entry, symbols));
    }

    /// Its calls.
    #[inline]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The peer that brought it, in words for people; empty if unknown.
    pub fn origin(&self) -> &str {
        self.origin.get().map_or("", |origin| origin)
    }

    /// Records the peer that brought it. The first record stays.
    pub fn set_origin(&self, origin: &Arc<str>) {
        self.origin.get_or_init(|| Arc::clone(origin));
    }

    /// Its space in the arena.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

impl fmt::Debug for LinkedImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LinkedImage")
            .field("name", &self.name())
            .field("id", &self.id)
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

/// The linked images of a target, by code id, up to a capacity. One thread uses a store at a time; several
/// stores may share an arena.
///
/// Only [`Store::make_space`] drops code to make space, and it never drops code of which an `Arc` exists
/// elsewhere.
#[derive(Debug)]
pub struct Store {
    arena: Arena,
    capacity: Capacity,
    held: HashMap<CodeId, Held, BuildHasherDefault<IdHasher>>,
    /// The last known use of each image, oldest first. Calls do not update it: readers do.
    ages: BTreeSet<Age>,
    bytes: usize,
    evictions: u64,
    /// Calls of images that are no longer in the store.
    past_calls: u64,
}

/// Time of the last known use, and code id.
type Age = (u64, CodeId);

#[derive(Debug)]
struct Held {
    linked: Arc<LinkedImage>,
    /// The first part of its entry in `ages`: not later than its last use.
    listed: u64,
}

impl Store {
    /// Makes an empty store that places code in `arena`, without another limit.
    pub fn new(arena: Arena) -> Store {
        Store::bounded(arena, Capacity::UNBOUNDED)
    }

    /// Makes an empty store that places code in `arena`, with this capacity.
    pub fn bounded(arena: Arena, capacity: Capacity) -> Store {
        Store {
            arena,
            capacity,
            held: HashMap::default(),
            ages: BTreeSet::new(),
            bytes: 0,
            evictions: 0,
            past_calls: 0,
        }
    }

    /// The store's capacity.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The arena that code is placed in.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Links an image: copies it, compares its code id with the claimed one, checks it, places it, and
    /// patches its sites by `resolver`. If the store already has this code, returns that; `name` and
    /// `resolver` are then unused. The new code counts as never used until [`Usage::touch`] or
    /// [`Usage::count`].
    ///
    /// # Errors
    /// See [`Refused`]. The store is then unchanged.
    pub fn insert(
        &mut self,
        image: &[u8],
        claimed: CodeId,
        name: &str,
        resolver: &Resolver,
    ) -> Result<Arc<LinkedImage>, Refused> {
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
            Err(error) => return Err(refusal(error, &view, name, &offer)),
        };
        // SAFETY: the entry lies inside the code just placed, which was linked for this machine, and its code
        // id says that it is the source linker's output. An image claims that the function has this
        // signature; the caller of `LinkedImage::main` must trust that.
        let main = unsafe {
            std::mem::transmute::<*const c_void, MainRoutine>(block.entry() as usize as *const c_void)
        };
        let payload_align_log2 = view.payload_align_log2();
        let mut bytes = Vec::with_capacity(len + name.len());
        bytes.extend_from_slice(image);
        bytes.extend_from_slice(name.as_bytes());
        self.bytes += len;
        let linked = LinkedImage {
            id: claimed,
            main,
            payload_align_log2,
            link_time: start.elapsed(),
            bytes: bytes.into_boxed_slice(),
            image_len: len,
            usage: Usage::new(),
            origin: OnceLock::new(),
            listing: OnceLock::new(),
            shown: OnceLock::new(),
            block,
        };
        let linked = Arc::new(linked);
        self.held.insert(claimed, Held { linked: Arc::clone(&linked), listed: 0 });
        self.ages.insert((0, claimed));
        Ok(linked)
    }

    /// Whether an image of this length would keep within the capacity.
    fn holds_besides(&self, len: usize) -> bool {
        self.len() < self.capacity.images && len <= self.capacity.bytes - self.bytes
    }

    /// Whether an image with this need would be placed now.
    pub fn has_space(&self, need: &Need) -> bool {
        self.holds_besides(need.image) && self.arena.fits(need)
    }

    /// Drops code, the least recently used first, until an image with this need would be placed, or nothing
    /// is left to drop. `release` is called with each image before it is dropped: owners of an `Arc` must
    /// drop it then, otherwise the image stays. Drops nothing for an image that an empty store would not
    /// take. Returns whether there is space.
    pub fn make_space(&mut self, need: &Need, mut release: impl FnMut(&Arc<LinkedImage>)) -> bool {
        if need.image > self.capacity.bytes || self.capacity.images == 0 || !self.arena.ever_fits(need) {
            return false;
        }
        let mut behind = Bound::Unbounded;
        while !self.has_space(need) {
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

    /// The least recently used entry behind `behind`.
    fn oldest(&mut self, behind: Bound<Age>) -> Option<Age> {
        loop {
            let age @ (listed, id) = *self.ages.range((behind, Bound::Unbounded)).next()?;
            let held = self.held.get_mut(&id)?;
            let last = held.linked.usage().last();
            if last <= listed {
                return Some(age);
            }
            // Used since: younger than recorded.
            held.listed = last;
            self.ages.remove(&age);
            self.ages.insert((last, id));
        }
    }

    /// The code with this id.
    pub fn get(&self, id: &CodeId) -> Option<&Arc<LinkedImage>> {
        self.held.get(id).map(|held| &held.linked)
    }

    /// Removes the code with this id; `false` if it is not in the store. It stays placed until its last `Arc`
    /// is dropped. If it is sent again it is linked anew, with its initial statics.
    pub fn forget(&mut self, id: &CodeId) -> bool {
        let Some(Held { linked, listed }) = self.held.remove(id) else { return false };
        self.ages.remove(&(listed, *id));
        self.bytes -= linked.image_len;
        self.past_calls += linked.usage().calls();
        true
    }

    /// Number of images in the store.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Total length of the stored images as they travelled, in bytes. Their space in the arena is
    /// [`Arena::used`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The linked images, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<LinkedImage>> {
        self.held.values().map(|held| &held.linked)
    }

    /// Number of images evicted.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Calls of all images that are or were in the store.
    pub fn calls(&self) -> u64 {
        self.past_calls + self.iter().map(|linked| linked.usage().calls()).sum::<u64>()
    }
}

/// The refusal for an image that could not be placed.
#[cold]
pub(crate) fn refusal(error: Error, view: &ImageView<'_>, name: &str, offer: &Offer<'_>) -> Refused {
    let ifunc = name.to_owned();
    match error {
        Error::ArenaFull { needed, largest, .. } => Refused::ArenaFull { ifunc, needed, largest },
        Error::Place(PlaceError::Unresolved(_)) => offer.refuse(view, ifunc),
        source => Refused::Arena { ifunc, source },
    }
}
