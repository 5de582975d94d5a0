//! Code that commands call, in memory and in an ordinary key.
//!
//! The key [`KEY`](crate::code_key::KEY), or one in a slot of each node of a cluster, is a hash with two fields for each
//! name: `c:NAME` has the library, `s:NAME` its seal, or that of its deletion. Any client that may write keys may write
//! these. So code in it runs if its seal is made with the module's own key, and is the newest of its name that this
//! server has seen. Otherwise it runs only if its id is on the list of permitted ids. Commands about data can remove
//! such a key. So the server also keeps sealed code in memory, and writes it again: only FJ.DELETE ends it
//! ([`restore`]).

mod restore;
mod seals;
mod store;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::mem::take;
use std::path::Path;
use std::rc::Rc;

use farjump::{CodeId, Cpu, Library};

pub(crate) use self::restore::Happened;
use self::seals::{Content, Named, Newest, PURPOSE, Seal};
use self::store::{LEAST_BETWEEN, Place, Store, field, present, refuse_together, seal_in};
use crate::api::{self, Context, Key, Str};
use crate::causes::with_causes;

/// Least number of bytes of that file.
const LEAST_KEY: usize = 16;
/// Maximum number of bytes of that file that count.
const MOST_KEY: u64 = 4096;

/// Loaded code.
#[derive(Default)]
pub(crate) struct Code {
    /// The key of seals, if the configuration names one.
    key: Option<[u8; 32]>,
    newest: Newest,
    store: Store,
    /// The checks that [`Code::look`] is to make, and the time of its last one, by the server's clock.
    wants_check: bool,
    wants_all: bool,
    checked: Option<u64>,
    /// The name for which all keys were last searched.
    sought: Option<Vec<u8>>,
    /// The events of keys with code.
    happened: Rc<Happened>,
    /// The time of the last writing of keys, by the server's clock, and whether the log reports that this failed.
    restored: Option<u64>,
    has_complained: bool,
    loaded: BTreeMap<Vec<u8>, Loaded>,
}

/// A library, ready to be called.
pub(crate) struct Loaded {
    pub(crate) library: Library,
    /// The key that has the library. `None` if it is only in memory.
    origin: Option<Origin>,
    pub(crate) figures: Figures,
}

/// The key that has a library.
struct Origin {
    /// The seal in the key. `None` for code that runs because its id is on the list.
    seal: Option<Seal>,
    /// Whether a newer seal was seen.
    is_old: bool,
    database: i32,
    place: Place,
}

/// Figures of calls by commands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) microseconds: u64,
}

/// The place of loaded code.
pub(crate) enum Kept {
    /// In the key of this name.
    Key(Vec<u8>),
    /// In memory.
    Memory,
    /// In memory, because the node of a cluster has no slot.
    Node,
}

impl Loaded {
    fn in_memory(library: Library) -> Loaded {
        Loaded { library, origin: None, figures: Figures::default() }
    }
}

impl Origin {
    fn new(context: &Context<'_>, seal: Option<Seal>, place: Place) -> Origin {
        Origin { seal, is_old: false, database: context.database(), place }
    }
}

impl Code {
    /// Makes a `Code` without code. Its seals are made with the key in `file`.
    ///
    /// # Errors
    /// The reason why the file has no key.
    pub(crate) fn new(file: Option<&Path>) -> Result<Code, String> {
        let Some(file) = file else { return Ok(Code::default()) };
        let mut contents = Vec::new();
        let read = File::open(file).and_then(|open| open.take(MOST_KEY).read_to_end(&mut contents));
        read.map_err(|error| format!("code-key {}: {error}", file.display()))?;
        if contents.len() < LEAST_KEY {
            return Err(format!(
                "code-key {} has {} bytes: put at least {LEAST_KEY} random ones there",
                file.display(),
                contents.len()
            ));
        }
        let key = blake3::derive_key(PURPOSE, &contents);
        Ok(Code { key: Some(key), ..Code::default() })
    }

    /// Number of libraries in memory.
    pub(crate) fn len(&self) -> usize {
        self.loaded.len()
    }

    /// Names and libraries in memory.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Loaded)> {
        self.loaded.iter().map(|(name, loaded)| (&name[..], loaded))
    }

    /// Returns whether code in keys is sealed.
    pub(crate) fn has_seals(&self) -> bool {
        self.key.is_some()
    }

    /// Loads a library under this name, for this CPU. Returns its code id, and its place.
    ///
    /// # Errors
    /// The reason why it is not loaded.
    pub(crate) fn load(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        bytes: &[u8],
        cpu: &Cpu,
    ) -> Result<(CodeId, Kept), String> {
        refuse_together(context)?;
        let (library, id) = open(bytes, cpu)?;
        let mut loaded = Loaded::in_memory(library);
        let mut kept = Kept::Memory;
        if let Some(key) = self.key {
            kept = Kept::Node;
            let places = self.all(context);
            let of = named(context, name);
            places.iter().for_each(|place| self.learn_name(context, *place, &of));
            if let Some(place) = self.store.writable(context) {
                let seal = Seal::new(&key, &of, self.newest.next(&of), Some(bytes));
                place.put(context, name, bytes, &seal.to_bytes())?;
                self.newest.note(of, seal, Content::Library(bytes.into()));
                // If code of this name has come with slots of other nodes, this replaces it.
                for other in places.into_iter().filter(|other| *other != place) {
                    other.remove(context, name)?;
                }
                loaded.origin = Some(Origin::new(context, Some(seal), place));
                kept = Kept::Key(place.name());
            }
        }
        self.loaded.insert(name.to_vec(), loaded);
        Ok((id, kept))
    }

    /// Removes the code of this name. Returns `false` if there is none.
    ///
    /// # Errors
    /// The reason why it stays.
    pub(crate) fn delete(&mut self, context: &Context<'_>, name: &[u8]) -> Result<bool, String> {
        refuse_together(context)?;
        let mut deleted = false;
        if let Some(key) = self.key {
            let places = self.all(context);
            let of = named(context, name);
            places.iter().for_each(|place| self.learn_name(context, *place, &of));
            let seal = Seal::new(&key, &of, self.newest.next(&of), None);
            let mut places: Vec<Place> =
                places.into_iter().filter(|place| place.has(context, name)).collect();
            deleted = !places.is_empty() || self.newest.library(&of).is_some();
            if places.is_empty() && self.newest.knows(&of) {
                // Code that is in no key at present may later be written into one.
                places.extend(self.store.writable(context));
            }
            for place in &places {
                place.delete(context, name, &seal.to_bytes())?;
            }
            if deleted || !places.is_empty() {
                self.newest.note(of, seal, Content::Deleted);
            }
        }
        Ok(self.loaded.remove(name).is_some() | deleted)
    }

    /// Names of all code, sorted.
    pub(crate) fn names(&mut self, context: &Context<'_>) -> Vec<Vec<u8>> {
        let mut places = self.all(context);
        if self.happened.has_swapped(context.database()) {
            // The keys have the code of another database.
            places.clear();
        }
        let mut names: Vec<Vec<u8>> = places.into_iter().flat_map(|place| place.names(context)).collect();
        let in_memory = self.iter().filter(|(_, loaded)| loaded.origin.is_none()).map(|(name, _)| name);
        // Sealed code also counts when no key has it at present.
        names.extend(in_memory.chain(self.newest.names(context.database())).map(<[u8]>::to_vec));
        names.sort();
        names.dedup();
        names
    }

    /// Returns the library to run for this name. `None` if there is none. The present contents of the key count, and
    /// not earlier ones. In a cluster it is the library in memory: [`Code::look`] compares it with the keys.
    ///
    /// # Errors
    /// The reason why the code in the key does not run.
    pub(crate) fn find(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        cpu: &Cpu,
        allowed: &[CodeId],
    ) -> Result<Option<&mut Loaded>, String> {
        if !context.in_cluster() {
            self.refresh(context, name, cpu, allowed)?;
        } else if self.key.is_some() || !allowed.is_empty() {
            self.wants_check |= self.checked.is_none_or(|checked| api::now() - checked >= LEAST_BETWEEN);
            let was_sought = self.sought.take_if(|sought| sought == name).is_some() && !self.wants_all;
            if !self.loaded.contains_key(name) && !was_sought && self.store.is_due() {
                self.wants_all = true;
                self.sought = Some(name.to_vec());
                return Err("TRYAGAIN the node looks for code that has come with slots or from its primary"
                    .to_owned());
            }
        }
        Ok(self.loaded.get_mut(name))
    }

    /// Compares code in memory with the keys of a cluster's node, if a call has requested that, and repairs keys. Only
    /// for the hooks: inside a command with keys, Valkey looks for every key in the slot of the command's keys.
    pub(crate) fn look(&mut self, context: &Context<'_>, cpu: &Cpu, allowed: &[CodeId]) {
        let (wants_check, wants_all) = (take(&mut self.wants_check), take(&mut self.wants_all));
        if (wants_check || wants_all) && context.in_cluster() {
            self.compare(context, cpu, allowed, wants_all);
        }
        if self.happened.wants_look() {
            self.restore(context);
        }
    }

    fn compare(&mut self, context: &Context<'_>, cpu: &Cpu, allowed: &[CodeId], wants_all: bool) {
        self.checked = Some(api::now());
        let mut names: Vec<Vec<u8>> = self.loaded.keys().cloned().collect();
        if wants_all {
            let places = self.all(context);
            names.extend(places.into_iter().flat_map(|place| place.names(context)));
            // A replica does not run HKEYS for itself.
            names.extend(self.sought.clone());
        }
        for name in names {
            if let Err(error) = self.refresh(context, &name, cpu, allowed) {
                log::warn!("code {:?} does not run: {error}", String::from_utf8_lossy(&name));
            }
        }
    }

    /// Requests a look at all keys, because those of a server that has started are not known.
    pub(crate) fn want_all(&mut self) {
        self.wants_all = self.key.is_some();
    }

    /// Notes the seals in all keys with code, of all databases. A server that has started, or taken over the data of
    /// another server, does not know them. Code that was not among these data is gone.
    pub(crate) fn learn_all(&mut self, context: &Context<'_>) {
        if self.key.is_none() {
            return;
        }
        self.newest.drop_libraries();
        for database in 0.. {
            let learn = || present(context).for_each(|place| self.learn(context, &place.name()));
            if context.in_database(database, learn).is_none() {
                break;
            }
        }
    }

    /// Notes the seals in a key with code that other clients or servers have written.
    pub(crate) fn learn(&mut self, context: &Context<'_>, key: &[u8]) {
        if let Some(place) = Place::of_key(key).filter(|_| context.in_cluster()) {
            self.happened.arrived(place);
        }
        let key = Str::new(key);
        let Some(key) = context.open(&key).filter(Key::is_hash) else { return };
        for name in key.field_names(b"s:") {
            self.learn_field(&key, &named(context, &name));
        }
    }

    /// Notes the seal of a name in a key with code.
    fn learn_name(&mut self, context: &Context<'_>, place: Place, of: &Named) {
        if let Some(key) = context.open(&Str::new(&place.name())).filter(Key::is_hash) {
            self.learn_field(&key, of);
        }
    }

    fn learn_field(&mut self, key: &Key<'_>, of: &Named) {
        let Some(seals_key) = self.key else { return };
        let name = &of.1;
        let Some(seal) = seal_in(key, name).filter(|seal| self.newest.lacks(of, *seal)) else {
            return;
        };
        let library = key.field(&Str::new(&field(b"c:", name)));
        let is_deleted = seal.is_of(&seals_key, of, None);
        let content = match library.as_ref().map(Str::bytes) {
            _ if is_deleted => Content::Deleted,
            Some(library) if seal.is_of(&seals_key, of, Some(library)) => Content::Library(library.into()),
            _ => return,
        };
        self.newest.note(of.clone(), seal, content);
        let origin = self.loaded.get_mut(name).and_then(|loaded| loaded.origin.as_mut());
        let is_older = |origin: &&mut Origin| origin.seal.is_some_and(|older| older != seal);
        if let Some(origin) = origin.filter(|origin| is_older(origin) && origin.database == of.0) {
            origin.is_old = true;
            // Replaced code still runs until the next look at the keys of a cluster.
            if is_deleted {
                self.loaded.remove(name);
            }
        }
    }

    /// Makes the library in memory that of the key.
    fn refresh(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        cpu: &Cpu,
        allowed: &[CodeId],
    ) -> Result<(), String> {
        if self.is_current(context, name) {
            return Ok(());
        }
        let of = named(context, name);
        let places = self.store.find(context, name);
        if let Some((seal, library)) = self.newest.library(&of)
            && (places.is_empty() || self.happened.has_swapped(of.0))
        {
            self.happened.lost();
            return self.keep(context, name, seal, &library, cpu);
        }
        if self.is_now_in(context, name, &places) {
            return Ok(());
        }
        self.loaded.remove(name);
        let mut refused = Ok(());
        for place in places {
            match self.take(context, name, place, cpu, allowed) {
                Ok(loaded) => {
                    self.loaded.insert(name.to_vec(), loaded);
                    return Ok(());
                }
                Err(why) => refused = refused.and(Err(why)),
            }
        }
        refused
    }

    /// Returns whether the library in memory is the one to run.
    fn is_current(&self, context: &Context<'_>, name: &[u8]) -> bool {
        let Some(loaded) = self.loaded.get(name) else { return false };
        let Some(origin) = &loaded.origin else { return true };
        origin.seal.is_some()
            && !origin.is_old
            && origin.database == context.database()
            && origin.seal == origin.place.seal(context, name)
    }

    /// Returns whether the first of these keys has the library in memory, instead of its earlier key. If so, notes the
    /// new key.
    fn is_now_in(&mut self, context: &Context<'_>, name: &[u8], places: &[Place]) -> bool {
        let origin = self.loaded.get_mut(name).and_then(|loaded| loaded.origin.as_mut());
        let (Some(origin), Some(place)) = (origin, places.first()) else { return false };
        let is_same = origin.database == context.database() && !origin.is_old;
        if !is_same || origin.seal.is_none() || origin.seal != place.seal(context, name) {
            return false;
        }
        origin.place = *place;
        true
    }

    /// Makes this library, which no key has at present, the one in memory.
    fn keep(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        seal: Seal,
        library: &[u8],
        cpu: &Cpu,
    ) -> Result<(), String> {
        let origin = self.loaded.get(name).and_then(|loaded| loaded.origin.as_ref());
        if origin.is_some_and(|origin| origin.seal == Some(seal)) {
            return Ok(());
        }
        let mut loaded = Loaded::in_memory(open(library, cpu)?.0);
        loaded.origin = Some(Origin::new(context, Some(seal), Place::Key));
        self.loaded.insert(name.to_vec(), loaded);
        Ok(())
    }

    /// Takes the library that a key has under this name.
    fn take(
        &mut self,
        context: &Context<'_>,
        name: &[u8],
        place: Place,
        cpu: &Cpu,
        allowed: &[CodeId],
    ) -> Result<Loaded, String> {
        let stored =
            place.field(context, b"c:", name).ok_or("NOCODE the code went while it was read: try again")?;
        let bytes = stored.bytes();
        let of = named(context, name);
        let is_own = |seal: &Seal| self.key.is_some_and(|key| seal.is_of(&key, &of, Some(bytes)));
        let own = place.seal(context, name).filter(is_own);
        let seal = own.filter(|seal| self.newest.lets(&of, *seal));
        let (library, id) = open(bytes, cpu)?;
        if seal.is_none() && !allowed.contains(&id) {
            let why = match own {
                None => "was not put there by this server's FJ.LOAD",
                Some(_) => "is older than what FJ.LOAD or FJ.DELETE has put there since",
            };
            let key = place.name();
            return Err(format!(
                "BADCODE the code {id} in {} {why}: load it again, or allow its id",
                String::from_utf8_lossy(&key)
            ));
        }
        let mut loaded = Loaded::in_memory(library);
        if let Some(seal) = seal {
            self.newest.note(of, seal, Content::Library(bytes.into()));
        }
        // Without a seal the next call looks again.
        loaded.origin = Some(Origin::new(context, seal, place));
        Ok(loaded)
    }
}

/// The code of a name in the database that commands use.
fn named(context: &Context<'_>, name: &[u8]) -> Named {
    (context.database(), name.to_vec())
}

/// Opens a library, and finds its image for this CPU. No code of the library runs.
fn open(bytes: &[u8], cpu: &Cpu) -> Result<(Library, CodeId), String> {
    let named = |error: &dyn std::error::Error| with_causes(error).replace("<memory>", "the library");
    let library = Library::from_bytes(None, bytes);
    let library =
        library.map_err(|error| format!("{}: load what `farjump build` has made", named(&error)))?;
    if !library.payload_is_args() {
        return Err(format!(
            "the library {} has payload routines, which would have to run in the server: use FARJUMP_COPY_ARGS",
            library.name()
        ));
    }
    let id = library.image_for_cpu(cpu).map_err(|error| named(&error))?.id();
    Ok((library, id))
}
