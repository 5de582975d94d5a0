//! The code store: linked images by code id and domain.

mod ages;
mod capacity;
mod compiled;
mod copied;
mod id_hash;
mod usage;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farjump_core::code::{CodeKind, CodeView};
use farjump_core::cpu::Cpu;
use farjump_core::icache;
use farjump_core::image::{CodeId, FamilyId, ImageError, ImageView, PlaceError, Platform};
use farjump_os::cpu::detected;

use crate::address_map::Listing;
use crate::arena::{Arena, Block, Need};
use crate::code_id::code_id;
use crate::debugger::{Shown, Symbols};
use crate::domain::{CodeKey, Domain};
use crate::error::Error;
use crate::library::MainRoutine;
use crate::library::bundle::name_in;
use crate::resolve::{Offer, Resolver};

use self::ages::{Age, Ages};
pub use self::capacity::Capacity;
pub use self::compiled::Compilation;
pub use self::copied::Copied;
use self::id_hash::IdHashes;
pub use self::usage::Usage;
pub use crate::resolve::refusal::Refused;
use crate::resolve::refusal::check_cpu;

/// A linked image, ready to be called.
///
/// Its statics live as long as this value, in one copy. A thread that may run the code holds an `Arc` of it. Dropping
/// the last `Arc` frees the space and turns the code into traps.
pub struct LinkedImage {
    key: CodeKey,
    main: MainRoutine,
    payload_align_log2: u8,
    link_time: Duration,
    /// The image, followed by the name.
    bytes: Vec<u8>,
    image_len: usize,
    usage: Usage,
    origin: Option<Arc<str>>,
    family: OnceLock<FamilyId>,
    /// `None` for an image that travelled as such.
    compilation: Option<Box<Compilation>>,
    /// Before the block, so that it is dropped first: listed code must still exist.
    listing: OnceLock<Listing>,
    /// Likewise.
    shown: OnceLock<Shown>,
    block: Block,
}

impl LinkedImage {
    /// Its code id.
    pub fn id(&self) -> CodeId {
        self.key.id
    }

    /// The domain that may call it.
    pub fn domain(&self) -> Domain {
        self.key.domain
    }

    /// Its identity in the store.
    pub fn key(&self) -> CodeKey {
        self.key
    }

    /// The name under which it first arrived, for messages: two sources may use one name for different code, and two
    /// names for the same code.
    pub fn name(&self) -> &str {
        // The bytes behind the image were a string when they were put there.
        std::str::from_utf8(&self.bytes[self.image_len..]).unwrap_or("")
    }

    /// `NAME_main` of the placed image. Valid as long as this value exists. Calling it runs another author's native
    /// code. The caller must want that, pass a payload that is valid for its length and aligned to
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

    /// Records the family that a frame named. The first one stays.
    pub fn set_family(&self, family: FamilyId) {
        self.family.get_or_init(|| family);
    }

    /// The family that a frame named first: a claim of its source. `None` if the code is the only one of its library.
    pub fn family(&self) -> Option<&FamilyId> {
        self.family.get()
    }

    /// The kind of the code that arrived.
    pub fn kind(&self) -> Option<CodeKind> {
        // The bytes were checked before placing, so this succeeds.
        CodeView::new_checked(self.image()).ok().map(|view| view.kind())
    }

    /// The kind of the code that arrived, as text; for bitcode followed by its compilation.
    pub fn label(&self) -> String {
        let kind = self.kind().map_or_else(String::new, |kind| kind.to_string());
        match &self.compilation {
            Some(compilation) => format!("{kind} {compilation}"),
            None => kind,
        }
    }

    /// Its compilation here; `None` for an image that travelled as such.
    pub fn compilation(&self) -> Option<&Compilation> {
        self.compilation.as_deref()
    }

    /// The code as it arrived: an image before its sites were patched, or bitcode.
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
        self.listing.get_or_init(|| Listing::new(self.block.address(), len, self.id(), self.name()));
    }

    /// Shows the code to debuggers until this value is dropped, with `symbols` if they are those of its image.
    /// Otherwise only with the name of its main function.
    pub fn show(&self, symbols: Option<&Symbols>) {
        let (start, len, entry) = (self.block.address(), self.block.code_len() as u64, self.block.entry());
        let symbols = symbols.filter(|symbols| symbols.id() == self.id());
        self.shown.get_or_init(|| Shown::new(self.name(), start, len, entry, symbols));
    }

    /// Its calls.
    #[inline]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The peer that sent it, as text for messages; empty if unknown.
    pub fn origin(&self) -> &str {
        self.origin.as_deref().unwrap_or("")
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
            .field("id", &self.id())
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

/// The linked images of a target, by code id and domain, up to a capacity. One thread uses a store at a time; several
/// stores may share an arena.
///
/// Only [`Store::make_space`] drops code to make space, and it never drops code of which an `Arc` exists
/// elsewhere.
#[derive(Debug)]
pub struct Store {
    arena: Arena,
    capacity: Capacity,
    /// The platform of `Next::cpu`.
    platform: Platform,
    stored: HashMap<CodeKey, Stored, IdHashes>,
    // Boxed, with all state that only a new image needs: a store lies among the fields that each call uses.
    next: Box<Next>,
    bytes: usize,
    /// Calls of images that have left the store.
    past_calls: u64,
}

/// State that only a new image uses, and the search for the oldest.
#[derive(Debug)]
struct Next {
    /// The CPU that runs the code.
    cpu: Arc<Cpu>,
    ages: Ages,
    /// Memory for the image, allocated ahead.
    spare: Option<Arc<MaybeUninit<LinkedImage>>>,
    evictions: u64,
}

#[derive(Debug)]
struct Stored {
    linked: Arc<LinkedImage>,
    /// The first part of its entry in the order of `ages`, not later than its last use. `None` before it has an entry.
    listed: Option<u64>,
}

/// Code in the store, after [`Store::insert_copied`].
#[derive(Debug)]
pub enum Inserted {
    /// The code was in the store before.
    Stored(Arc<LinkedImage>),
    /// The code is new.
    New(Arc<LinkedImage>),
}

impl Store {
    /// Makes an empty store that places code in `arena`, without a limit besides the arena's.
    pub fn new(arena: Arena) -> Store {
        Store::bounded(arena, Capacity::UNBOUNDED)
    }

    /// Makes an empty store that places code in `arena`, with this capacity.
    pub fn bounded(arena: Arena, capacity: Capacity) -> Store {
        let cpu = detected();
        Store {
            arena,
            capacity,
            platform: cpu.platform(),
            stored: HashMap::with_hasher(IdHashes::new()),
            next: Box::new(Next { cpu, ages: Ages::default(), spare: None, evictions: 0 }),
            bytes: 0,
            past_calls: 0,
        }
    }

    /// Makes the store refuse code that does not run on this CPU. By default, it refuses code that this process's CPU
    /// cannot run.
    #[must_use]
    pub fn for_cpu(mut self, cpu: Arc<Cpu>) -> Store {
        self.platform = cpu.platform();
        self.next.cpu = cpu;
        self
    }

    /// The CPU whose code it accepts.
    pub fn cpu(&self) -> &Arc<Cpu> {
        &self.next.cpu
    }

    /// The store's capacity.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The arena in which it places code.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Links an image: copies it, compares its code id with the claimed one, checks it, places it, and patches its
    /// sites by `resolver`. It becomes code of the default domain. If the store already has this code in that domain,
    /// returns that code, without using `name` and `resolver`. The new code counts as never used until [`Usage::touch`]
    /// or [`Usage::count`].
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
        let mut copied = Copied::new(image, name.as_bytes());
        match self.insert_copied(&mut copied, CodeKey::from(&claimed), resolver, None)? {
            Inserted::Stored(linked) | Inserted::New(linked) => Ok(linked),
        }
    }

    /// As [`Store::insert`], for code of any domain, and without another copy: new code keeps the bytes of `copied`,
    /// which is then empty. `origin` is the peer that sent it, as text for messages.
    ///
    /// # Errors
    /// See [`Refused`]. Store and copy are then unchanged.
    pub fn insert_copied(
        &mut self,
        copied: &mut Copied,
        claimed: CodeKey,
        resolver: &Resolver,
        origin: Option<&Arc<str>>,
    ) -> Result<Inserted, Refused> {
        let start = Instant::now();
        let name = name_of(copied)?;
        let image = copied.image();
        let len = image.len();
        let has_capacity = self.has_capacity_for(len);
        let vacant = match self.stored.entry(claimed) {
            Entry::Vacant(vacant) => vacant,
            Entry::Occupied(stored) if stored.get().linked.image() == image => {
                return Ok(Inserted::Stored(Arc::clone(&stored.get().linked)));
            }
            Entry::Occupied(_) => return Err(mismatch(name, claimed.id, code_id(image))),
        };
        let found = code_id(image);
        if found != claimed.id {
            return Err(mismatch(name, claimed.id, found));
        }
        let view = ImageView::new_checked(image).map_err(|source| bad_image(name, source))?;
        icache::supported().map_err(|reason| unsupported(name, reason))?;
        check_cpu(&view, name, self.platform, &self.next.cpu)?;
        if !has_capacity {
            let (images, bytes) = (self.stored.len(), self.bytes);
            return Err(store_full(name, len, self.capacity.bytes, images, bytes));
        }
        let offer = resolver.offer(&view, name)?;
        let (block, main) = place(&mut self.arena, &view, name, &offer)?;
        let payload_align_log2 = view.payload_align_log2();
        let (bytes, image_len) = copied.take();
        self.bytes += len;
        // Written in place, which saves a copy.
        let mut linked = self.next.spare.take().unwrap_or_else(Arc::new_uninit);
        debug_assert!(Arc::get_mut(&mut linked).is_some(), "the spare one is shared with nothing");
        let place = Arc::as_ptr(&linked).cast_mut().cast::<LinkedImage>();
        // SAFETY: this is the only reference to the memory, which is that of a `LinkedImage`: nothing clones the spare
        // `Arc`. The write initialises the memory.
        let linked = unsafe {
            place.write(LinkedImage {
                key: claimed,
                main,
                payload_align_log2,
                link_time: start.elapsed(),
                bytes,
                image_len,
                usage: Usage::new(),
                origin: origin.cloned(),
                family: OnceLock::new(),
                compilation: None,
                listing: OnceLock::new(),
                shown: OnceLock::new(),
                block,
            });
            linked.assume_init()
        };
        vacant.insert(Stored { linked: Arc::clone(&linked), listed: None });
        if self.next.ages.add(claimed) {
            self.sort_ages();
        }
        Ok(Inserted::New(linked))
    }

    /// Allocates memory for the next image, so that its first call allocates none.
    pub fn prepare(&mut self) {
        self.next.spare.get_or_insert_with(Arc::new_uninit);
        self.stored.reserve(1);
        self.next.ages.reserve();
    }

    /// Returns whether an image of this length would keep within the capacity.
    fn has_capacity_for(&self, len: usize) -> bool {
        self.len() < self.capacity.images && len <= self.capacity.bytes - self.bytes
    }

    /// Returns whether an image with this need would be placed now.
    pub fn has_space(&self, need: &Need) -> bool {
        self.has_capacity_for(need.image) && self.arena.fits(need)
    }

    /// Drops code, the least recently used first, until an image with this need would be placed, or no code is left to
    /// drop. Calls `release` with each image before dropping it: owners of an `Arc` must drop theirs then, otherwise
    /// the image stays. Drops nothing for an image that an empty store would refuse. Returns whether there is space.
    pub fn make_space(&mut self, need: &Need, mut release: impl FnMut(&Arc<LinkedImage>)) -> bool {
        if need.image > self.capacity.bytes || self.capacity.images == 0 || !self.arena.ever_fits(need) {
            return false;
        }
        self.sort_ages();
        let mut behind = Bound::Unbounded;
        while !self.has_space(need) {
            let Some(age @ (_, key)) = self.oldest(behind) else { return false };
            let Some(stored) = self.stored.get(&key) else { return false };
            release(&stored.linked);
            if Arc::strong_count(&stored.linked) == 1 {
                self.drop_code(key);
                self.next.evictions += 1;
            } else {
                behind = Bound::Excluded(age);
            }
        }
        true
    }

    /// The least recently used entry behind `behind`.
    fn oldest(&mut self, behind: Bound<Age>) -> Option<Age> {
        loop {
            let age @ (listed, key) = self.next.ages.next(behind)?;
            let stored = self.stored.get_mut(&key)?;
            let last = stored.linked.usage().last();
            if last <= listed {
                return Some(age);
            }
            // Used since the recorded time.
            stored.listed = Some(last);
            self.next.ages.update(age, last);
        }
    }

    /// Moves new images into the order of use.
    #[cold]
    fn sort_ages(&mut self) {
        let stored = &mut self.stored;
        self.next.ages.sort(|key| {
            let stored = stored.get_mut(key).filter(|stored| stored.listed.is_none())?;
            Some(*stored.listed.insert(stored.linked.usage().last()))
        });
    }

    /// The code with this key, or with this id in the default domain.
    #[inline]
    pub fn get(&self, key: impl Into<CodeKey>) -> Option<&Arc<LinkedImage>> {
        self.stored.get(&key.into()).map(|stored| &stored.linked)
    }

    /// Removes the code with this key, or with this id in the default domain; `false` if it is not in the store. It
    /// stays placed until its last `Arc` is dropped. If a source sends it again, the store links it anew, with its
    /// initial statics.
    pub fn drop_code(&mut self, key: impl Into<CodeKey>) -> bool {
        let key = key.into();
        let Some(Stored { linked, listed }) = self.stored.remove(&key) else { return false };
        if let Some(listed) = listed {
            self.next.ages.remove(&(listed, key));
        }
        self.bytes -= linked.image_len;
        self.past_calls += linked.usage().calls();
        true
    }

    /// Number of images in the store.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Returns whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// Total length of the stored images as they travelled, in bytes. Their space in the arena is
    /// [`Arena::used`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The linked images, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<LinkedImage>> {
        self.stored.values().map(|stored| &stored.linked)
    }

    /// Number of images evicted.
    pub fn evictions(&self) -> u64 {
        self.next.evictions
    }

    /// Calls of all images that are or were in the store.
    pub fn calls(&self) -> u64 {
        self.past_calls + self.iter().map(|linked| linked.usage().calls()).sum::<u64>()
    }
}

/// Places an image that was checked, and returns its function.
#[inline(always)]
fn place(
    arena: &mut Arena,
    view: &ImageView<'_>,
    name: &str,
    offer: &Offer<'_>,
) -> Result<(Block, MainRoutine), Refused> {
    let block = match arena.place(view, |import| offer.resolve(import)) {
        Ok(block) => block,
        Err(error) => return Err(refusal(error, view, name, offer)),
    };
    // SAFETY: the entry lies inside the code just placed, which was linked for this machine: its code id shows that it
    // is the source linker's output, or this process had it made. The image claims that the function has this
    // signature, which the caller of `LinkedImage::main` must trust.
    let main =
        unsafe { std::mem::transmute::<*const c_void, MainRoutine>(block.entry() as usize as *const c_void) };
    Ok((block, main))
}

/// The name received with code.
fn name_of(copied: &Copied) -> Result<&str, Refused> {
    match name_in(copied.name()) {
        Some(name) => Ok(name),
        None => Err(no_name(copied.name())),
    }
}

#[cold]
fn no_name(name: &[u8]) -> Refused {
    Refused::Name { name: String::from_utf8_lossy(name).chars().take(64).collect() }
}

#[cold]
fn mismatch(name: &str, claimed: CodeId, found: CodeId) -> Refused {
    Refused::IdMismatch { ifunc: name.to_owned(), claimed, found }
}

#[cold]
fn bad_image(name: &str, source: ImageError) -> Refused {
    Refused::BadImage { ifunc: name.to_owned(), source }
}

#[cold]
fn unsupported(name: &str, reason: &'static str) -> Refused {
    Refused::UnsupportedMachine { ifunc: name.to_owned(), reason }
}

/// The refusal of an image of `len` bytes by a store that has `images`.
#[cold]
fn store_full(name: &str, len: usize, capacity: usize, images: usize, bytes: usize) -> Refused {
    let ifunc = name.to_owned();
    match len > capacity {
        true => Refused::LargerThanStore { ifunc, len, capacity },
        false => Refused::StoreFull { ifunc, images, bytes },
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
