//! The executor: a target's code store, its exports, and the calling of what frames name.

pub(super) mod in_place;

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farjump_control::{RefusalCause, plain};
use farjump_core::frame::MAX_NAME;
use farjump_core::icache;
use farjump_core::image::CodeId;
use farjump_loader::{Arena, Capacity, Exports, Library, Linked, Need, Refused, Resolver, Store, Usage};

use super::clock::Clock;
use super::code_table::{Binding, Callable, CodeTable, Named, Ready, Unbound, again};
use super::export::ExportFn;
use super::perf_map::PerfMap;
use super::{Context, Ended, Forwarding, services};
use crate::mode::{Allowed, Mode};
use crate::policy::{Budget, Policy};
use crate::refusal::Refusal;
use crate::stats::{Stats, StoreStats};
use crate::{Error, crash};

/// Room for code, in bytes, unless asked for otherwise: thousands of images.
const DEFAULT_ARENA: usize = 16 << 20;
/// Most images held, unless asked for otherwise: as many as the default room takes of 2 KiB each.
const DEFAULT_IMAGES: usize = 8192;

/// What an executor offers and how much it holds.
#[derive(Debug)]
pub struct ExecutorBuilder {
    pub(crate) exports: Exports,
    libraries: Vec<std::path::PathBuf>,
    wanted: Vec<String>,
    process_symbols: bool,
    perf_map: bool,
    crash_report: bool,
    arena: usize,
    store: Option<Capacity>,
    pub(crate) reply_limit: usize,
    modes: Allowed,
    policy: Policy,
    local: Vec<Library>,
}

impl Default for ExecutorBuilder {
    fn default() -> Self {
        let mut exports = Exports::new();
        services::offer(&mut exports);
        ExecutorBuilder {
            exports,
            libraries: Vec::new(),
            wanted: Vec::new(),
            process_symbols: false,
            perf_map: false,
            crash_report: false,
            arena: DEFAULT_ARENA,
            store: None,
            reply_limit: usize::MAX,
            modes: Allowed::default(),
            policy: Policy::default(),
            local: Vec::new(),
        }
    }
}

impl ExecutorBuilder {
    /// Offers a function under `name`. Names that begin with `farjump_` are the services', and stay theirs; so do `memcpy`,
    /// `memmove`, `memset` and `memcmp`.
    #[must_use]
    pub fn export<F: ExportFn>(mut self, name: &str, function: F) -> Self {
        if !services::is_reserved(name) {
            // SAFETY: a function stays as long as the code that is compiled into this process. What it is taken for is said by
            // the injected function that imports it, in a declaration that is unsafe there.
            unsafe { self.exports.insert(name, function.address()) };
        }
        self
    }

    /// Offers an address under `name`, of a function or of data, as C gives it.
    ///
    /// # Safety
    /// `address` must be valid for whatever injected functions that import `name` do with it, for as long as the executor lives.
    #[must_use]
    pub unsafe fn export_raw(mut self, name: &str, address: *const c_void) -> Self {
        // SAFETY: the caller's promise.
        unsafe { self.exports.insert(name, address) };
        self
    }

    /// Offers the address of data under `name`: `extern T name;` in C.
    #[must_use]
    pub fn export_data<T: Sync>(mut self, name: &str, data: &'static T) -> Self {
        if !services::is_reserved(name) {
            // SAFETY: the data stays for ever; for the rest as in `export`.
            unsafe { self.exports.insert(name, (&raw const *data).cast()) };
        }
        self
    }

    /// Offers every symbol of a shared library, by path or soname, after the exports. It is loaded when the executor is built.
    ///
    /// # Safety
    /// The library's constructors must be sound to run in this process when the executor is built, and those of the libraries
    /// that it depends on; so must its destructors when the process ends. What it defines must be what the authors of injected
    /// functions were told it is.
    #[must_use]
    pub unsafe fn library(mut self, path: impl AsRef<Path>) -> Self {
        self.libraries.push(path.as_ref().to_owned());
        self
    }

    /// Lets code that wants the library with this soname find what it defines, after all else that is offered. It is opened when the
    /// first such code comes that imports something that is not offered otherwise.
    ///
    /// # Safety
    /// As for [`ExecutorBuilder::library`], with constructors that run at any time.
    #[must_use]
    pub unsafe fn wanted_library(mut self, soname: impl Into<String>) -> Self {
        self.wanted.push(soname.into());
        self
    }

    /// Whether the process's own dynamic symbols are offered, last: all of libc, and what the program was linked with.
    #[must_use]
    pub fn process_symbols(mut self, offered: bool) -> Self {
        self.process_symbols = offered;
        self
    }

    /// Whether `/tmp/perf-PID.map` says where code lies, so that perf can name it. Off unless set. The file stays when the
    /// process ends.
    #[must_use]
    pub fn perf_map(mut self, written: bool) -> Self {
        self.perf_map = written;
        self
    }

    /// Whether a crash of injected code is reported on standard error, see
    /// [`TargetBuilder::crash_report`](crate::TargetBuilder::crash_report). Off unless set.
    #[must_use]
    pub fn crash_report(mut self, reported: bool) -> Self {
        self.crash_report = reported;
        self
    }

    /// Room for code in bytes, 16 MiB unless set. Reserved and touched once.
    #[must_use]
    pub fn code_room(mut self, bytes: usize) -> Self {
        self.arena = bytes;
        self
    }

    /// How much code is held, in bytes of images as they travel and in images; the least recently used goes when more comes.
    /// Twice as many bytes as there is room for code, because its data has as much, and 8192 images, unless set.
    #[must_use]
    pub fn store_capacity(mut self, bytes: usize, images: usize) -> Self {
        self.store = Some(Capacity { bytes, images });
        self
    }

    /// Most bytes that one call may reply in all.
    #[must_use]
    pub fn reply_limit(mut self, bytes: usize) -> Self {
        self.reply_limit = bytes;
        self
    }

    /// Allows these modes and no others. [`Mode::DEFAULT`] unless set.
    #[must_use]
    pub fn modes(mut self, modes: &[Mode]) -> Self {
        self.modes = Allowed::only(modes);
        self
    }

    /// Lets in code with one of these identities and no other; called again, also these. All code unless called. The functions
    /// of [`ExecutorBuilder::local`] do not come in, and need not be among them; sent by a source they do.
    #[must_use]
    pub fn allow_code(mut self, ids: impl IntoIterator<Item = CodeId>) -> Self {
        self.policy.allow(ids);
        self
    }

    /// Largest image that may come in, in bytes. No limit but the room for code unless set.
    #[must_use]
    pub fn max_image(mut self, bytes: usize) -> Self {
        self.policy.limit_image(bytes);
        self
    }

    /// Largest payload that is run, in bytes. No limit but the frame's length unless set.
    #[must_use]
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.policy.limit_payload(bytes);
        self
    }

    /// Has the function of `library` here, for calls in which only its name travels ([`Mode::Local`]).
    #[must_use]
    pub fn local(mut self, library: &Library) -> Self {
        self.local.push(library.clone());
        self
    }

    /// Makes the executor.
    ///
    /// # Errors
    /// When a limit lets nothing in, memory cannot be made executable, the architecture is not supported, a library or the perf map cannot be opened,
    /// the system takes no handler for crashes, or a local function cannot be linked with what is offered.
    pub fn build(self) -> Result<Executor, Error> {
        self.policy.check(self.modes)?;
        let mut resolver = Resolver::new(self.exports);
        for path in &self.libraries {
            // SAFETY: what `ExecutorBuilder::library` asks of whoever named it.
            unsafe { resolver.allow_library(path) }?;
        }
        for soname in &self.wanted {
            // SAFETY: what `ExecutorBuilder::wanted_library` asks of its caller.
            unsafe { resolver.allow_wanted(soname) }?;
        }
        if self.process_symbols {
            resolver.allow_process_symbols();
        }
        let perf_map = if self.perf_map { Some(PerfMap::open()?) } else { None };
        if self.crash_report {
            crash::install()?;
        }
        let mut epoch = [0; 8];
        crate::random(&mut epoch)?;
        let arena = Arena::new(self.arena)?;
        let both_spans = 2 * arena.capacity();
        let capacity = self.store.unwrap_or(Capacity { bytes: both_spans, images: DEFAULT_IMAGES });
        let mut executor = Executor {
            store: Store::bounded(arena, capacity),
            clock: Clock::new(),
            resolver,
            target_args: std::ptr::null_mut(),
            epoch: u64::from_le_bytes(epoch),
            context: Context::new(),
            reply_limit: self.reply_limit,
            perf_map,
            crash_report: self.crash_report,
            stats: Stats::default(),
            modes: self.modes,
            policy: self.policy,
            in_place: Box::new(Usage::new()),
            room_was_made: false,
            local: HashMap::new(),
            recent_local: None,
        };
        for library in &self.local {
            executor.set_local(library)?;
        }
        Ok(executor)
    }
}

/// Holds linked code and calls it. Used by one thread at a time.
#[derive(Debug)]
pub struct Executor {
    store: Store,
    pub(crate) clock: Clock,
    resolver: Resolver,
    target_args: *mut c_void,
    epoch: u64,
    context: Context,
    reply_limit: usize,
    perf_map: Option<PerfMap>,
    crash_report: bool,
    pub(crate) stats: Stats,
    modes: Allowed,
    pub(crate) policy: Policy,
    /// The calls of code that runs in place.
    in_place: Box<Usage>,
    /// [`Executor::make_room`] was called for what is bound next.
    room_was_made: bool,
    /// The functions that are here without having come, by name.
    local: HashMap<Arc<str>, Arc<Linked>>,
    /// That of these that was called last.
    recent_local: Option<(Arc<str>, Callable)>,
}

// SAFETY: the one field that is not Send is the pointer handed to injected code; who sets it vouches that it may be used
// from whichever thread runs the executor (`set_target_args`).
unsafe impl Send for Executor {}

impl Executor {
    /// What to offer and how much to hold.
    pub fn builder() -> ExecutorBuilder {
        ExecutorBuilder::default()
    }

    /// What injected functions get as their third argument.
    ///
    /// # Safety
    /// `args` must be null, or valid for whatever the injected functions of this target do with it, on the thread that runs
    /// the executor, until it is set anew or the executor is dropped.
    pub unsafe fn set_target_args(&mut self, args: *mut c_void) {
        self.target_args = args;
    }

    /// This executor's epoch: a random number that tells it apart from every one before it at the same address.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The symbols offered as exports, in no order.
    pub fn exports(&self) -> impl Iterator<Item = &str> {
        self.resolver.exports().names()
    }

    /// The code held.
    pub fn images(&self) -> impl Iterator<Item = &Arc<Linked>> {
        self.store.iter()
    }

    /// The code `id`, if it is held.
    pub(crate) fn image(&self, id: &CodeId) -> Option<&Arc<Linked>> {
        self.store.get(id)
    }

    /// Whether `linked` is a function of the target's own.
    pub(crate) fn is_local(&self, linked: &Arc<Linked>) -> bool {
        self.local.values().any(|own| Arc::ptr_eq(own, linked))
    }

    /// What was counted.
    pub(crate) fn counted(&self) -> Stats {
        let store = &self.store;
        let capacity = store.capacity();
        let mut stats = self.stats.clone();
        stats.calls = store.calls() + self.in_place.calls();
        stats.store = StoreStats {
            images: store.len(),
            bytes: store.bytes(),
            evictions: store.evictions(),
            capacity_images: capacity.images,
            capacity_bytes: capacity.bytes,
            room_used: store.arena().used(),
            room: store.arena().capacity(),
        };
        stats
    }

    /// Drops code, the least recently used first, until there is room for `need` or nothing more can go. `release` is called
    /// with each before it goes: no table may bind it any more. Functions set by [`Executor::set_local`] stay.
    ///
    /// The next time that code is bound it is placed or refused, whatever it needs: asking for room again would bring none.
    pub(crate) fn make_room(&mut self, need: &Need, mut release: impl FnMut(&Arc<Linked>)) {
        let local = &self.local;
        let before = self.store.evictions();
        self.store.make_room(need, |linked| {
            if !local.values().any(|own| Arc::ptr_eq(own, linked)) {
                release(linked);
            }
        });
        self.room_was_made = true;
        log::debug!("dropped {} images to make room", self.store.evictions() - before);
    }

    /// Drops the code `id` from the store; `false` if it is not there. Its statics are gone with it.
    pub(crate) fn forget(&mut self, id: &CodeId) -> bool {
        self.store.forget(id)
    }

    /// Has the function of `library` here from now on, in place of one of the same name, for calls in which only the name
    /// travels ([`Mode::Local`]).
    ///
    /// # Errors
    /// [`Error::Refused`] when its image cannot be linked with what is offered; the function there was stays then. When it has
    /// no image for this machine.
    pub fn set_local(&mut self, library: &Library) -> Result<(), Error> {
        self.set_local_with(library, |_| {})
    }

    /// As [`Executor::set_local`]; `release` as in [`Executor::make_room`].
    pub(crate) fn set_local_with(
        &mut self,
        library: &Library,
        release: impl FnMut(&Arc<Linked>),
    ) -> Result<(), Error> {
        let refused = |cause, text| Error::Refused { ifunc: library.name().to_owned(), cause, text };
        let machine =
            icache::supported().map_err(|why| refused(RefusalCause::WrongMachine, why.to_owned()))?;
        let image = library.image_for(machine)?;
        if self.store.get(&image.id()).is_none()
            && let Some(need) = Need::of(image.bytes())
        {
            self.store.make_room(&need, release);
        }
        let linked = self
            .install(image.id(), library.name(), image.bytes(), &"the target itself")
            .map_err(Refusal::from)
            .map_err(|refusal| refused(refusal.cause, refusal.text))?;
        self.local.insert(library.name().into(), linked);
        self.recent_local = None;
        Ok(())
    }

    /// Offers a function as `name` from now on, before all that was offered by that name until now. Code that was linked before
    /// keeps what it had. Names that begin with `farjump_` are the services', and stay theirs; so do `memcpy`, `memmove`, `memset`
    /// and `memcmp`.
    pub fn export<F: ExportFn>(&mut self, name: &str, function: F) {
        if !services::is_reserved(name) {
            // SAFETY: as in `ExecutorBuilder::export`.
            unsafe { self.resolver.interpose(name, function.address()) };
        }
    }

    /// As [`Executor::export`], an address of a function or of data, as C gives it.
    ///
    /// # Safety
    /// `address` must be valid for whatever injected functions that import `name` do with it, for as long as the executor lives.
    pub unsafe fn export_raw(&mut self, name: &str, address: *const c_void) {
        // SAFETY: the caller's promise.
        unsafe { self.resolver.interpose(name, address) };
    }

    /// As [`Executor::export`], the address of data.
    pub fn export_data<T: Sync>(&mut self, name: &str, data: &'static T) {
        if !services::is_reserved(name) {
            // SAFETY: as in `ExecutorBuilder::export_data`.
            unsafe { self.resolver.interpose(name, (&raw const *data).cast()) };
        }
    }

    /// As [`Executor::export`], every symbol that a shared library defines itself, by path or soname. It is loaded now, which runs
    /// its constructors, and stays until the process ends. Returns the names of exports that it takes the place of.
    ///
    /// # Errors
    /// [`Error::Library`] when it cannot be loaded.
    ///
    /// # Safety
    /// As for [`ExecutorBuilder::library`]; its constructors run now.
    pub unsafe fn export_library(&mut self, path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.resolver.interpose_library(path.as_ref()) }?)
    }

    /// As [`Executor::export_library`], of a library that is no file here: `name` is what messages call it.
    ///
    /// # Errors
    /// As [`Executor::export_library`].
    ///
    /// # Safety
    /// As for [`Executor::export_library`].
    pub unsafe fn export_library_bytes(&mut self, name: &str, library: &[u8]) -> Result<Vec<String>, Error> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.resolver.interpose_bytes(name, library) }?)
    }

    /// No longer has a function of this name here; `false` if there was none.
    pub fn remove_local(&mut self, name: &str) -> bool {
        self.recent_local = None;
        self.local.remove(name).is_some()
    }

    /// The function of this name that is here.
    #[inline]
    pub(crate) fn local(&mut self, name: &[u8]) -> Result<Callable, Refusal> {
        match &self.recent_local {
            Some((recent, callable)) if recent.as_bytes() == name => Ok(*callable),
            _ => self.look_local_up(name),
        }
    }

    fn look_local_up(&mut self, name: &[u8]) -> Result<Callable, Refusal> {
        self.allow(Mode::Local)?;
        let held = std::str::from_utf8(name).ok().and_then(|name| self.local.get_key_value(name));
        let Some((name, linked)) = held else {
            let name = plain(&String::from_utf8_lossy(name), MAX_NAME);
            return Err(Refusal::new(
                RefusalCause::CodeMissing,
                format_args!(
                    "it has no function `{name}` of its own: give the target the library (--local), or send the code (mode cached)"
                ),
            ));
        };
        let callable = Callable::of(linked);
        self.recent_local = Some((Arc::clone(name), callable));
        Ok(callable)
    }

    /// Whether calls in this mode are allowed.
    #[inline]
    pub(crate) fn allow(&self, mode: Mode) -> Result<(), Refusal> {
        if self.modes.has(mode) { Ok(()) } else { Err(self.forbidden(mode)) }
    }

    #[cold]
    fn forbidden(&self, mode: Mode) -> Refusal {
        let text = format!(
            "it does not allow mode {mode}, only {}: choose one of these, or start the target with --mode {mode}",
            self.modes
        );
        Refusal::new(RefusalCause::Policy, text)
    }

    /// Binds `index` to the code that a frame names, placing its image if it came and is new.
    pub(crate) fn bind(
        &mut self,
        table: &mut CodeTable,
        index: u16,
        named: &Named<'_>,
    ) -> Result<Ready, Refusal> {
        let found = self.find(table, index, named);
        let room_was_made = std::mem::take(&mut self.room_was_made);
        match found {
            Err(Unbound::NoRoom(_, need)) if !room_was_made => Ok(Ready::Crowded(need)),
            Ok(Some(linked)) => {
                let callable = Callable::of(&linked);
                let cached = self.modes.has(Mode::Cached);
                table.bind(
                    index,
                    if cached { Binding::Linked(callable, linked) } else { Binding::Once(callable, linked) },
                );
                Ok(Ready::Yes)
            }
            Ok(None) => {
                let name = String::from_utf8_lossy(named.name);
                table.miss(index, named.id, &name);
                Ok(Ready::Needs(named.id))
            }
            Err(Unbound::Refused(refusal) | Unbound::NoRoom(refusal, _)) => {
                table.refuse(index, &refusal);
                Err(refusal)
            }
        }
    }

    fn find(
        &mut self,
        table: &mut CodeTable,
        index: u16,
        named: &Named<'_>,
    ) -> Result<Option<Arc<Linked>>, Unbound> {
        // An image may be the first of many in mode always, and is that surely if it came before.
        let again = table.bound(index).is_some_and(|(_, linked)| linked.id() == named.id);
        match (named.image.is_empty(), again) {
            (true, _) => self.allow(Mode::Cached)?,
            (false, true) => self.allow(Mode::Always)?,
            (false, false) => self.allow(Mode::Cached).or_else(|_| self.allow(Mode::Always))?,
        }
        self.of_this_epoch(named.epoch)?;
        // Before it is asked for.
        self.policy.code(&named.id)?;
        if named.image.is_empty() {
            return Ok(self.store.get(&named.id).cloned());
        }
        let name = String::from_utf8_lossy(named.name);
        self.bring(&mut table.budget, named.id, &name, named.image, named.origin).map(Some)
    }

    /// Places an image that a source brought, if the policy lets it in and its source may take the memory.
    fn bring(
        &mut self,
        budget: &mut Budget,
        id: CodeId,
        name: &str,
        image: &[u8],
        origin: &dyn fmt::Display,
    ) -> Result<Arc<Linked>, Unbound> {
        self.policy.code(&id)?;
        self.policy.image(image.len())?;
        // What is here already was paid for, or is the target's own.
        let price = if self.store.get(&id).is_some() { 0 } else { budget.price(image) };
        budget.take("its code", price)?;
        match self.install(id, name, image, origin) {
            Ok(linked) => {
                budget.holds(Arc::downgrade(&linked), price);
                Ok(linked)
            }
            Err(unbound) => {
                budget.give_back(price);
                Err(unbound)
            }
        }
    }

    /// Whether a frame was made for this run of the target.
    fn of_this_epoch(&self, epoch: u64) -> Result<(), Refusal> {
        if epoch == self.epoch {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCause::StaleEpoch,
            "the code index was bound at another target, or before this one restarted: connect again",
        ))
    }

    /// Places `image`, whose code id should be `id`. `image` is in memory that nobody else writes.
    fn install(
        &mut self,
        id: CodeId,
        name: &str,
        image: &[u8],
        origin: &dyn fmt::Display,
    ) -> Result<Arc<Linked>, Unbound> {
        let held = self.store.get(&id).is_some();
        let linked = self.store.insert(image, id, name, &self.resolver).map_err(|why| {
            match (&why, Need::of(image)) {
                (Refused::StoreFull { .. } | Refused::ArenaFull { .. }, Some(need)) => {
                    Unbound::NoRoom(why.into(), need)
                }
                _ => Unbound::Refused(why.into()),
            }
        })?;
        if !held {
            linked.usage().touch(self.clock.tick());
            linked.set_origin(&origin.to_string());
            self.stats.linked(linked.link_time());
            self.show(&linked);
        }
        Ok(linked)
    }

    /// Tells those who look at this process what was placed where.
    fn show(&self, linked: &Linked) {
        let (address, len) = (linked.block().address(), linked.block().code_len());
        log::debug!("placed `{}` at {address:#x}, {len} bytes, code id {}", linked.name(), linked.id());
        if let Some(map) = &self.perf_map {
            map.add(linked);
        }
        if self.crash_report {
            linked.list();
            self.prepare_thread();
        }
    }

    /// Makes this thread, which calls code, fit to report a crash of it. Costs next to nothing once it is done.
    pub(crate) fn prepare_thread(&self) {
        if self.crash_report {
            crash::prepare_thread();
        }
    }

    /// Whether the code bound to `index` can run.
    #[inline]
    pub(crate) fn ready(&self, table: &CodeTable, index: u16) -> Result<Ready, Refusal> {
        match table.bindings.get(usize::from(index)) {
            Some(Binding::Linked(..)) => Ok(Ready::Yes),
            Some(Binding::Once(..)) => self.allow(Mode::Cached).map(|()| Ready::Yes),
            Some(Binding::Missing(id, _)) => Ok(Ready::Needs(*id)),
            Some(Binding::Refused(refusal)) => Err(again(refusal)),
            Some(Binding::Nothing) | None => {
                let text = format!("no code is bound to index {index} on this link");
                Err(Refusal::new(RefusalCause::UnknownIndex, text))
            }
        }
    }

    /// Places code that a table waits for, and binds it to every index that misses it. If it is refused, so is what those
    /// indices call. `Some` if other code must go first.
    pub(crate) fn supply(
        &mut self,
        table: &mut CodeTable,
        id: CodeId,
        image: &[u8],
        origin: &dyn fmt::Display,
    ) -> Option<Need> {
        // The name that was kept for any of them; none where the table had no room for it.
        let names = table.bindings.iter().filter_map(|binding| match binding {
            Binding::Missing(missing, name) if *missing == id => Some(name),
            _ => None,
        });
        let name = names.max_by_key(|name| name.len())?;
        let name = if name.is_empty() { id.to_string().into() } else { name.clone() };
        let supplied = self.bring(&mut table.budget, id, &name, image, origin);
        let room_was_made = std::mem::take(&mut self.room_was_made);
        match supplied {
            Err(Unbound::NoRoom(_, need)) if !room_was_made => return Some(need),
            Ok(linked) => table.fill(&id, || Binding::Linked(Callable::of(&linked), Arc::clone(&linked))),
            Err(unbound) => table.withhold(&id, &unbound.into()),
        }
        None
    }

    /// Time that placing the code bound to `index` took: zero if nothing is bound.
    pub(crate) fn link_time(&self, table: &CodeTable, index: u16) -> Duration {
        table.bound(index).map_or(Duration::ZERO, |(_, linked)| linked.link_time())
    }

    /// Calls code. Its reply, of at most `reply_limit` bytes, is then in [`Executor::reply`].
    ///
    /// # Safety
    /// `code` must come from a table that still holds it, or be this executor's own, or lie in a frame that is held. `payload` must be valid for reads and writes of `len` bytes during
    /// the call, and aligned as the code asks. What the code itself does is the business of who lets sources in: native code
    /// in a process is trusted code (`docs/security.md`).
    #[inline(always)]
    pub(crate) unsafe fn run(
        &mut self,
        code: Callable,
        payload: *mut c_void,
        len: usize,
        reply_limit: usize,
    ) -> Ended {
        // SAFETY: it is part of what the table holds.
        if unsafe { code.usage.as_ref() }.is_due() {
            // SAFETY: as the caller vouches.
            return unsafe { self.run_timed(code, payload, len, reply_limit) };
        }
        // SAFETY: `main` is the entry of an image that was checked and placed, and stays placed while the table holds it; the
        // arguments are as this function's caller vouches.
        unsafe { self.context.call(code.main, payload, len, self.target_args, reply_limit) }
    }

    /// Counts the call of `code` that was just made.
    ///
    /// # Safety
    /// As for the first argument of [`Executor::run`].
    #[inline(always)]
    pub(crate) unsafe fn count(&mut self, code: Callable) {
        // SAFETY: it is part of what the table holds.
        unsafe { code.usage.as_ref() }.count(self.clock.tick());
    }

    /// What keeps the code in its place that a call of `index`, or of a function of the target's own, has run.
    pub(crate) fn held(&self, table: &CodeTable, index: u16, code: Callable) -> Option<Arc<Linked>> {
        let bound = table.bound(index).map(|(_, linked)| linked);
        let mut all = bound.into_iter().chain(self.local.values());
        all.find(|linked| linked.main() as usize == code.main as usize).cloned()
    }

    /// Where calls may be forwarded to, and what the last call asked for.
    pub(crate) fn forwarding(&mut self) -> &mut Forwarding {
        self.context.forwarding()
    }

    /// Calls code, and notes how long it took.
    ///
    /// # Safety
    /// As [`Executor::run`].
    #[cold]
    #[inline(never)]
    unsafe fn run_timed(
        &mut self,
        code: Callable,
        payload: *mut c_void,
        len: usize,
        reply_limit: usize,
    ) -> Ended {
        let start = self.clock.set();
        // SAFETY: as in `run`.
        let ended = unsafe { self.context.call(code.main, payload, len, self.target_args, reply_limit) };
        // SAFETY: as in `run`; nothing was unbound meanwhile, for that takes this executor.
        unsafe { code.usage.as_ref() }.took(start.elapsed());
        ended
    }

    /// Most bytes that a call may reply.
    pub(crate) fn reply_limit(&self) -> usize {
        self.reply_limit
    }

    /// What the last call replied, or the message of its panic.
    pub(crate) fn reply(&self) -> &[u8] {
        self.context.reply()
    }
}
