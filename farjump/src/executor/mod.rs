//! Running injected code: finds the code that a frame names, places it if it is new, and calls it.
//!
//! All targets share [`Executor`], whatever brings their frames. A [`CodeTable`] belongs to one source.

mod builder;
mod callers;
mod coarse_clock;
mod code;
mod context;
mod crash;
mod direct_call;
mod domain_exports;
mod enter;
mod export;
mod fork;
mod forward_requests;
mod lent_bytes;
mod perf_map;
mod run;
mod services;

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use farjump_control::{RefusalCause, plain};
use farjump_core::frame::MAX_NAME;
use farjump_core::icache;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{
    CodeKey, Copied, Domain, Library, LibraryImage, LinkedImage, Need, Resolver, Store, Symbols, Usage,
};

use self::coarse_clock::Clock;
use self::domain_exports::DomainExports;
use self::perf_map::PerfMap;
#[cfg(doc)]
use crate::CallError;
use crate::Error;
use crate::mode::{Allowed, Mode};
use crate::objects::{self, Bell, Objects, Postponed};
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::stats::{Stats, StoreStats};

pub(crate) use crate::executor::code::bind::Supplied;
#[cfg(feature = "bitcode")]
pub(crate) use crate::executor::code::bitcode::{Finished, Settled};
pub use crate::executor::code::own::OwnCode;
pub(crate) use crate::executor::code::own::{Chosen, refused};
pub use crate::executor::code::table::CodeTable;
pub(crate) use crate::executor::code::table::{Callable, Named, Ready, Unbound};
pub use builder::ExecutorBuilder;
pub use callers::LastCall;
pub(crate) use context::{Context, Ended, running};
pub use context::{at_call_end, caller, caller_number, hold_reply, principal, principal_number, reply};
pub use direct_call::{CallOutcome, DirectCaller};
pub use export::{Export, ExportFn};
pub(crate) use forward_requests::{CallHistory, ForwardRequest, Forwarding, Gate, Recipient, Requests};

/// Holds linked code and calls it. Used by one thread at a time.
#[derive(Debug)]
// The fields that every call uses come first: the first line of the context, and the line behind it. The address of the
// context is that of the target, which a poll has at hand.
#[repr(C, align(64))]
pub struct Executor {
    context: Context,
    epoch: u64,
    pub(crate) clock: Clock,
    pub(crate) stats: Stats,
    store: Store,
    exports: DomainExports,
    /// Number of timed calls that returned with other modes of arithmetic.
    strays: u32,
    pub(crate) policy: Policy,
    modes: Allowed,
    reply_limit: usize,
    perf_map: Option<PerfMap>,
    crash_report: bool,
    /// The symbols of code, for debuggers; `None` without debug mode.
    debug: Option<HashMap<CodeId, Symbols>>,
    /// The calls of code that runs in place.
    in_place: Box<Usage>,
    /// The requests to the target's store.
    object_requests: Box<Usage>,
    /// Functions of the target's own, by name.
    local: BTreeMap<Arc<str>, Local>,
    /// The local function that was called last.
    recent_local: Option<(Arc<str>, Callable)>,
    #[cfg(feature = "bitcode")]
    bitcode: Box<crate::executor::code::bitcode::BitcodeJobs>,
}

/// A function of the target's own.
#[derive(Debug)]
struct Local {
    linked: Arc<LinkedImage>,
    /// Its library, if that has images for other machines.
    others: Option<Library>,
}

// SAFETY: the one field that is not Send is the pointer handed to injected code. The caller of
// `set_target_args` guarantees that it may be used from whichever thread runs the executor.
unsafe impl Send for Executor {}

impl Executor {
    /// Returns a builder of an executor: its exports and limits.
    pub fn builder() -> ExecutorBuilder {
        ExecutorBuilder::default()
    }

    /// Sets the third argument of injected functions.
    ///
    /// # Safety
    /// `args` must be null, or valid for whatever the injected functions of this target do with it, on the
    /// thread that runs the executor, until it is set again or the executor is dropped.
    pub unsafe fn set_target_args(&mut self, args: *mut c_void) {
        self.context.target_args = args;
    }

    /// This executor's epoch: a random number that distinguishes it from every earlier one at the same
    /// address.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The names of the exports, in no order.
    pub fn exports(&self) -> impl Iterator<Item = &str> {
        self.exports.names()
    }

    /// The exports against which code of a domain is linked from now on.
    pub(crate) fn exports_of(&mut self, domain: Domain) -> &mut Resolver {
        self.exports.of(domain)
    }

    /// The code in the store.
    pub fn images(&self) -> impl Iterator<Item = &Arc<LinkedImage>> {
        self.store.iter()
    }

    /// The code with this key, if it is in the store.
    pub(crate) fn image(&self, key: CodeKey) -> Option<&Arc<LinkedImage>> {
        self.store.get(key)
    }

    /// Returns whether `linked` is a function of the target's own.
    pub(crate) fn is_local(&self, linked: &Arc<LinkedImage>) -> bool {
        self.local.values().any(|own| Arc::ptr_eq(&own.linked, linked))
    }

    /// The libraries of the target's own functions that have several images.
    fn local_libraries(&self) -> impl Iterator<Item = &Library> {
        self.local.values().filter_map(|local| local.others.as_ref())
    }

    /// The target's own library whose images are of this family.
    pub(crate) fn local_of_family(&self, family: &FamilyId) -> Option<&Library> {
        let of = |library: &&Library| library.manifest().is_some_and(|manifest| manifest.id() == *family);
        self.local_libraries().find(of)
    }

    /// An image of one of the target's own libraries.
    pub(crate) fn local_image(&self, id: &CodeId) -> Option<&LibraryImage> {
        self.local_libraries().flat_map(|library| library.images()).find(|image| image.id() == *id)
    }

    /// The family of a function of the target's own.
    pub(crate) fn local_family(&self, linked: &LinkedImage) -> Option<FamilyId> {
        let has = |library: &&Library| library.images().iter().any(|image| image.id() == linked.id());
        Some(self.local_libraries().find(has)?.manifest()?.id())
    }

    /// The executor's statistics.
    pub(crate) fn counted(&self) -> Stats {
        let store = &self.store;
        let capacity = store.capacity();
        let mut stats = self.stats.clone();
        stats.calls = store.calls() + self.in_place.calls() + self.object_requests.calls();
        stats.store = StoreStats {
            images: store.len(),
            bytes: store.bytes(),
            evictions: store.evictions(),
            capacity_images: capacity.images,
            capacity_bytes: capacity.bytes,
            arena_used: store.arena().used(),
            arena_capacity: store.arena().capacity(),
        };
        stats
    }

    /// Drops code, the least recently used first, until there is capacity for `need` or nothing more can go. Calls
    /// `release` with each image before it goes: after that, no table may bind it. Functions set by
    /// [`Executor::set_local`] stay.
    ///
    /// The next attempt to bind the same code has to know of it (`space_was_made`).
    pub(crate) fn make_space(&mut self, need: &Need, mut release: impl FnMut(&Arc<LinkedImage>)) {
        let local = &self.local;
        let before = self.store.evictions();
        self.store.make_space(need, |linked| {
            if !local.values().any(|own| Arc::ptr_eq(&own.linked, linked)) {
                release(linked);
            }
        });
        let dropped = (self.store.evictions() - before) as usize;
        log::debug!("dropped {} to free capacity", farjump_core::counted(dropped, "image"));
    }

    /// Drops code from the store; `false` if it is not there. Its statics are lost.
    pub(crate) fn drop_code(&mut self, key: CodeKey) -> bool {
        self.store.drop_code(key)
    }

    /// Adds the function of `library` to this process, in place of one of the same name, for calls in which
    /// only the name travels ([`Mode::Local`]).
    ///
    /// # Errors
    /// [`crate::CallError::Refused`] when its image cannot be linked with the exports; the old function stays
    /// then. Also when it has no image for this machine.
    pub fn set_local(&mut self, library: &Library) -> Result<(), Error> {
        self.set_local_with(library, |_| {})
    }

    /// As [`Executor::set_local`]; `release` as in [`Executor::make_space`].
    pub(crate) fn set_local_with(
        &mut self,
        library: &Library,
        release: impl FnMut(&Arc<LinkedImage>),
    ) -> Result<(), Error> {
        let refused = |refusal| refused(library.name(), refusal);
        icache::supported()
            .map_err(|why| refused(Refusal { cause: RefusalCause::WrongMachine, text: why.to_owned() }))?;
        let image = library.native_image_for_cpu(self.store.cpu())?;
        // The target's own functions are of the default domain, and all call them by name.
        let key = CodeKey::from(&image.id());
        if self.store.get(key).is_none()
            && let Some(need) = Need::of(image.bytes())
        {
            self.store.make_space(&need, release);
        }
        let mut copied = Copied::new(image.bytes(), library.name().as_bytes());
        let linked = self
            // There is no later attempt, so what does not fit now is refused.
            .install(key, &mut copied, &Arc::from("the target itself"), true)
            .map_err(|unbound| refused(unbound.into()))?;
        let others = (library.images().len() > 1).then(|| library.clone());
        self.local.insert(library.name().into(), Local { linked, others });
        self.recent_local = None;
        Ok(())
    }

    /// Offers a function as `name` from now on, before all earlier exports of that name. Code linked before
    /// keeps its addresses.
    ///
    /// # Errors
    /// [`ServeError::ReservedExport`](crate::ServeError::ReservedExport) for a name that [`ExecutorBuilder::export`] does
    /// not take.
    pub fn export<F: ExportFn>(&mut self, name: &str, function: F) -> Result<(), Error> {
        services::check_name(name)?;
        // SAFETY: the function stays as long as this process's code, as in `ExecutorBuilder::export`.
        unsafe { self.exports_of(Domain::default()).interpose(name, function.address()) };
        Ok(())
    }

    /// As [`Executor::export`], for an address of a function or of data, as in C.
    ///
    /// # Safety
    /// As for [`ExecutorBuilder::export_raw`].
    pub unsafe fn export_raw(&mut self, name: &str, address: *const c_void) {
        // SAFETY: this function's caller guarantees it.
        unsafe { self.exports_of(Domain::default()).interpose(name, address) };
    }

    /// As [`Executor::export`], for the address of data.
    ///
    /// # Errors
    /// As [`Executor::export`].
    pub fn export_data<T: Sync>(&mut self, name: &str, data: &'static T) -> Result<(), Error> {
        services::check_name(name)?;
        // SAFETY: the data is `'static`, as in `ExecutorBuilder::export_data`.
        unsafe { self.exports_of(Domain::default()).interpose(name, (&raw const *data).cast()) };
        Ok(())
    }

    /// As [`Executor::export`], for every symbol that a shared library itself defines, by path or soname. It
    /// is loaded now, which runs its constructors, and stays until the process ends. Returns the names
    /// that it replaces, exports and those of earlier libraries, in alphabetical order.
    ///
    /// # Errors
    /// [`Error::Library`] when it cannot be loaded.
    ///
    /// # Safety
    /// As for [`ExecutorBuilder::export_library`]; its constructors run now.
    pub unsafe fn export_library(&mut self, path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        // SAFETY: this function's caller guarantees it.
        Ok(unsafe { self.exports_of(Domain::default()).interpose_library(path.as_ref()) }?)
    }

    /// As [`Executor::export_library`], for a library without a file here: `name` is its name in messages.
    ///
    /// # Errors
    /// As [`Executor::export_library`].
    ///
    /// # Safety
    /// As for [`Executor::export_library`].
    pub unsafe fn export_library_bytes(&mut self, name: &str, library: &[u8]) -> Result<Vec<String>, Error> {
        // SAFETY: this function's caller guarantees it.
        Ok(unsafe { self.exports_of(Domain::default()).interpose_bytes(name, library) }?)
    }

    /// Calls the local function of this name ([`Executor::set_local`]), without a link, and appends the reply to
    /// `reply`. Copies the payload. In the function, `farjump_forward` finds no destination, and `farjump_again` no
    /// target.
    ///
    /// # Errors
    /// [`CallError::Refused`] if there is no such function, or it replied more than the limit; [`CallError::Panicked`].
    ///
    /// # Safety
    /// The function is trusted code, which the caller has chosen: it must accept any payload, and the third argument
    /// ([`Executor::set_target_args`]).
    pub unsafe fn call_local(
        &mut self,
        name: &str,
        payload: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let code = self.local(name.as_bytes()).map_err(|refusal| refused(name, refusal))?;
        let mut copy: Vec<u8> = Vec::with_capacity(payload.len() + code.align);
        let skip = copy.as_ptr().align_offset(code.align);
        copy.resize(skip, 0);
        copy.extend_from_slice(payload);
        let start = copy[skip..].as_mut_ptr();
        // SAFETY: the code is this executor's own, and the payload is a copy with the alignment that the code needs;
        // the caller guarantees the rest.
        let ended = unsafe { self.run_alone(&code, start.cast(), payload.len(), self.reply_limit) };
        // SAFETY: nothing was unbound since the call.
        unsafe { self.count(code.usage) };
        self.check_ended(name, ended)?;
        self.forwarding().drop_requests();
        reply.extend_from_slice(self.reply());
        Ok(())
    }

    /// Removes the function of this name from the target's own; `false` if there was none.
    pub fn remove_local(&mut self, name: &str) -> bool {
        self.recent_local = None;
        self.local.remove(name).is_some()
    }

    /// Returns the function that handles requests to the target's store.
    fn object_requests(&mut self) -> Result<Callable, Refusal> {
        if self.context.objects.is_none() {
            let text = "it has no store of objects: have the target open one (TargetBuilder::objects)";
            return Err(Refusal::new(RefusalCause::CodeMissing, text));
        }
        let callable = Callable::of_service(services::request_objects, &self.object_requests);
        self.recent_local = Some((Arc::from(objects::NAME), callable));
        Ok(callable)
    }

    /// The target's store.
    pub(crate) fn objects(&mut self) -> Option<&mut (dyn Objects + 'static)> {
        self.context.objects.as_deref_mut()
    }

    /// Takes the state of the request that has just ended, if the store has not responded to it.
    pub(crate) fn take_postponed(&mut self) -> Option<Postponed> {
        self.context.postponed.take()
    }

    /// Sets the bell of a store that postpones requests.
    pub(crate) fn set_bell(&mut self, bell: Option<Arc<Bell>>) {
        self.context.bell = bell;
    }

    /// Returns the store's bell, if the store postpones requests.
    pub(crate) fn bell(&self) -> Option<&Bell> {
        self.context.bell.as_deref()
    }

    /// Gives a store of objects to the code that the executor runs.
    pub fn set_objects(&mut self, objects: Box<dyn Objects>) {
        self.context.objects = Some(objects);
    }

    /// Sets the source of the next request to the store.
    #[inline]
    pub(crate) fn set_source(&mut self, source: u64) {
        self.context.source = source;
    }

    /// The target's own function of this name.
    #[inline]
    pub(crate) fn local(&mut self, name: &[u8]) -> Result<Callable, Refusal> {
        match &self.recent_local {
            Some((recent, callable)) if recent.as_bytes() == name => Ok(*callable),
            _ => self.look_local_up(name),
        }
    }

    fn look_local_up(&mut self, name: &[u8]) -> Result<Callable, Refusal> {
        if name == objects::NAME.as_bytes() {
            return self.object_requests();
        }
        self.allow(Mode::Local)?;
        let held = std::str::from_utf8(name).ok().and_then(|name| self.local.get_key_value(name));
        let Some((name, linked)) = held else {
            let name = plain(&String::from_utf8_lossy(name), MAX_NAME);
            return Err(Refusal::new(
                RefusalCause::CodeMissing,
                format_args!(
                    "it has no function `{name}` of its own: give the target the library (TargetBuilder::local), or send the code (mode cached)"
                ),
            ));
        };
        let callable = Callable::of(&linked.linked);
        self.recent_local = Some((Arc::clone(name), callable));
        Ok(callable)
    }
}
