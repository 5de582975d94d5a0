//! The executor: a target's code store, its exports, and the calling of what frames name.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farjump_core::frame::INLINE_ALIGN_LOG2;
use farjump_core::image::CodeId;
use farjump_loader::{Arena, Exports, Linked, Resolver, Store};
use farjump_transports::meet::RefusalCause;

use super::call::Main;
use super::{Context, Ended, services};
use crate::refusal::Refusal;
use crate::{Error, stats::Stats};

/// Room for code, in bytes, unless asked for otherwise: thousands of images.
const DEFAULT_ARENA: usize = 16 << 20;

/// A function that a target can offer to injected code: any `extern "C"` function of up to eight arguments.
///
/// It is given as a function pointer, because the type of the bare name does not tell the calling convention:
/// `store_get as extern "C" fn(_, _) -> _`.
///
/// The injected code must declare it with the same types; nothing checks that, as nothing does between two C files.
pub trait ExportFn: Copy + private::Sealed {
    /// The address that imports are patched with.
    fn address(self) -> *const c_void;
}

mod private {
    pub trait Sealed {}
}

macro_rules! export_fn {
    ($($argument:ident)*) => {
        impl<Result, $($argument),*> private::Sealed for extern "C" fn($($argument),*) -> Result {}
        impl<Result, $($argument),*> ExportFn for extern "C" fn($($argument),*) -> Result {
            fn address(self) -> *const c_void {
                self as *const c_void
            }
        }
        impl<Result, $($argument),*> private::Sealed for unsafe extern "C" fn($($argument),*) -> Result {}
        impl<Result, $($argument),*> ExportFn for unsafe extern "C" fn($($argument),*) -> Result {
            fn address(self) -> *const c_void {
                self as *const c_void
            }
        }
    };
}
export_fn!();
export_fn!(A);
export_fn!(A B);
export_fn!(A B C);
export_fn!(A B C D);
export_fn!(A B C D E);
export_fn!(A B C D E F);
export_fn!(A B C D E F G);
export_fn!(A B C D E F G H);

/// What an executor offers and how much it holds.
#[derive(Debug)]
pub struct ExecutorBuilder {
    pub(crate) exports: Exports,
    libraries: Vec<std::path::PathBuf>,
    process_symbols: bool,
    arena: usize,
    pub(crate) reply_limit: usize,
}

impl Default for ExecutorBuilder {
    fn default() -> Self {
        let mut exports = Exports::new();
        services::offer(&mut exports);
        ExecutorBuilder {
            exports,
            libraries: Vec::new(),
            process_symbols: false,
            arena: DEFAULT_ARENA,
            reply_limit: usize::MAX,
        }
    }
}

impl ExecutorBuilder {
    /// Offers a function under `name`.
    #[must_use]
    pub fn export<F: ExportFn>(mut self, name: &str, function: F) -> Self {
        self.exports.insert(name, function.address());
        self
    }

    /// Offers the address of data under `name`: `extern T name;` in C.
    #[must_use]
    pub fn export_data<T: Sync>(mut self, name: &str, data: &'static T) -> Self {
        self.exports.insert(name, (&raw const *data).cast());
        self
    }

    /// Offers every symbol of a shared library, by path or soname, after the exports.
    #[must_use]
    pub fn library(mut self, path: impl AsRef<Path>) -> Self {
        self.libraries.push(path.as_ref().to_owned());
        self
    }

    /// Whether the process's own dynamic symbols are offered, last: all of libc, and what the program was linked with.
    #[must_use]
    pub fn process_symbols(mut self, offered: bool) -> Self {
        self.process_symbols = offered;
        self
    }

    /// Room for code in bytes, 16 MiB unless set. Reserved and touched once.
    #[must_use]
    pub fn code_room(mut self, bytes: usize) -> Self {
        self.arena = bytes;
        self
    }

    /// Most bytes that one call may reply in all.
    #[must_use]
    pub fn reply_limit(mut self, bytes: usize) -> Self {
        self.reply_limit = bytes;
        self
    }

    /// Makes the executor.
    ///
    /// # Errors
    /// When memory cannot be made executable, the architecture is not supported, or a library cannot be opened.
    pub fn build(self) -> Result<Executor, Error> {
        let mut resolver = Resolver::new(self.exports);
        for path in &self.libraries {
            resolver.allow_library(path)?;
        }
        if self.process_symbols {
            resolver.allow_process_symbols();
        }
        let mut epoch = [0; 8];
        crate::random(&mut epoch)?;
        Ok(Executor {
            store: Store::new(Arena::new(self.arena)?),
            resolver,
            target_args: std::ptr::null_mut(),
            epoch: u64::from_le_bytes(epoch),
            context: Context::new(),
            reply_limit: self.reply_limit,
            stats: Stats::default(),
        })
    }
}

/// Holds linked code and calls it. Used by one thread at a time.
#[derive(Debug)]
pub struct Executor {
    store: Store,
    resolver: Resolver,
    target_args: *mut c_void,
    epoch: u64,
    context: Context,
    reply_limit: usize,
    pub(crate) stats: Stats,
}

// SAFETY: the one field that is not Send is the pointer handed to injected code; who sets it vouches that it may be used
// from whichever thread runs the executor (`set_target_args`).
unsafe impl Send for Executor {}

/// The code that one source has bound to indices.
#[derive(Debug, Default)]
pub struct CodeTable {
    bindings: Vec<Binding>,
}

/// What an index stands for.
#[derive(Debug)]
enum Binding {
    /// Nothing yet.
    Nothing,
    /// Code that can run, and what keeps it in its place.
    Linked(Callable, Arc<Linked>),
    /// Code that the store does not hold, or no longer, and its name.
    Missing(CodeId, Box<str>),
    /// Code that was refused: whatever calls it by its index is refused for the same reason.
    Refused(Refusal),
}

impl CodeTable {
    /// A table in which nothing is bound.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops what is bound to `id`, so that its next call asks for the code again.
    pub(crate) fn forget(&mut self, id: &CodeId) {
        for binding in &mut self.bindings {
            if let Binding::Linked(_, linked) = binding
                && linked.id() == *id
            {
                *binding = Binding::Missing(*id, linked.name().into());
            }
        }
    }

    /// Refuses every index that misses the code `id`.
    pub(crate) fn withhold(&mut self, id: &CodeId, refusal: &Refusal) {
        self.fill(id, || Binding::Refused(refusal.clone()));
    }

    fn fill(&mut self, id: &CodeId, with: impl Fn() -> Binding) {
        for binding in &mut self.bindings {
            if matches!(binding, Binding::Missing(missing, _) if missing == id) {
                *binding = with();
            }
        }
    }

    fn bind(&mut self, index: u16, binding: Binding) {
        let index = usize::from(index);
        if self.bindings.len() <= index {
            self.bindings.resize_with(index + 1, || Binding::Nothing);
        }
        self.bindings[index] = binding;
    }

    /// The code bound to `index`, if it can run.
    #[inline(always)]
    pub(crate) fn callable(&self, index: u16) -> Option<Callable> {
        match self.bindings.get(usize::from(index)) {
            Some(Binding::Linked(callable, _)) => Some(*callable),
            _ => None,
        }
    }
}

/// What is needed to call code, out of the table that holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable {
    main: Main,
    /// Alignment in bytes that it needs for its payload; at least that of a word.
    pub(crate) align: usize,
}

impl Callable {
    fn of(linked: &Linked) -> Self {
        Callable { main: linked.main(), align: 1 << linked.payload_align_log2().max(INLINE_ALIGN_LOG2) }
    }
}

/// The code that a frame names, in memory that nobody else writes.
#[derive(Debug)]
pub(crate) struct Named<'a> {
    pub(crate) id: CodeId,
    pub(crate) epoch: u64,
    pub(crate) name: &'a [u8],
    /// The whole image; empty if only the id came.
    pub(crate) image: &'a [u8],
}

/// Whether the code bound to an index can run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    Yes,
    /// The source must send the code first.
    Needs(CodeId),
}

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

    /// Drops the code `id` from the store; `false` if it is not there. Its statics are gone with it.
    pub(crate) fn forget(&mut self, id: &CodeId) -> bool {
        self.store.forget(id)
    }

    /// Binds `index` to the code that a frame names, placing its image if it came and is new.
    pub(crate) fn bind(
        &mut self,
        table: &mut CodeTable,
        index: u16,
        named: &Named<'_>,
    ) -> Result<Ready, Refusal> {
        match self.find(named) {
            Ok(Some(linked)) => {
                table.bind(index, Binding::Linked(Callable::of(&linked), linked));
                Ok(Ready::Yes)
            }
            Ok(None) => {
                let name = String::from_utf8_lossy(named.name);
                table.bind(index, Binding::Missing(named.id, name.into()));
                Ok(Ready::Needs(named.id))
            }
            Err(refusal) => {
                table.bind(index, Binding::Refused(refusal.clone()));
                Err(refusal)
            }
        }
    }

    fn find(&mut self, named: &Named<'_>) -> Result<Option<Arc<Linked>>, Refusal> {
        if named.epoch != self.epoch {
            return Err(Refusal::new(
                RefusalCause::StaleEpoch,
                "the code index was bound at another target, or before this one restarted: connect again",
            ));
        }
        if named.image.is_empty() {
            return Ok(self.store.get(&named.id).cloned());
        }
        self.install(named.id, &String::from_utf8_lossy(named.name), named.image).map(Some)
    }

    /// Places `image`, whose code id should be `id`. `image` is in memory that nobody else writes.
    pub(crate) fn install(&mut self, id: CodeId, name: &str, image: &[u8]) -> Result<Arc<Linked>, Refusal> {
        let held = self.store.get(&id).is_some();
        let linked = self.store.insert(image, id, name, &self.resolver)?;
        if !held {
            self.stats.linked(linked.link_time());
        }
        Ok(linked)
    }

    /// Whether the code bound to `index` can run.
    #[inline]
    pub(crate) fn ready(&self, table: &CodeTable, index: u16) -> Result<Ready, Refusal> {
        match table.bindings.get(usize::from(index)) {
            Some(Binding::Linked(..)) => Ok(Ready::Yes),
            Some(Binding::Missing(id, _)) => Ok(Ready::Needs(*id)),
            Some(Binding::Refused(refusal)) => Err(refusal.clone()),
            Some(Binding::Nothing) | None => {
                let text = format!("no code is bound to index {index} on this link");
                Err(Refusal::new(RefusalCause::UnknownIndex, text))
            }
        }
    }

    /// Places code that a table waits for, and binds it to every index that misses it. If it is refused, so is what those
    /// indices call.
    pub(crate) fn supply(&mut self, table: &mut CodeTable, id: CodeId, image: &[u8]) {
        let name = table.bindings.iter().find_map(|binding| match binding {
            Binding::Missing(missing, name) if *missing == id => Some(name.clone()),
            _ => None,
        });
        let Some(name) = name else { return };
        let supplied = self.install(id, &name, image);
        table.fill(&id, || match &supplied {
            Ok(linked) => Binding::Linked(Callable::of(linked), Arc::clone(linked)),
            Err(refusal) => Binding::Refused(refusal.clone()),
        });
    }

    /// Time that placing the code bound to `index` took: zero if nothing is bound.
    pub(crate) fn link_time(&self, table: &CodeTable, index: u16) -> Duration {
        match table.bindings.get(usize::from(index)) {
            Some(Binding::Linked(_, linked)) => linked.link_time(),
            _ => Duration::ZERO,
        }
    }

    /// Calls code. Its reply, of at most `reply_limit` bytes, is then in [`Executor::reply`].
    ///
    /// # Safety
    /// `code` must come from a table that still holds it. `payload` must be valid for reads and writes of `len` bytes during
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
        self.stats.called();
        // SAFETY: `main` is the entry of an image that was checked and placed, and stays placed while the table holds it; the
        // arguments are as this function's caller vouches.
        unsafe { self.context.call(code.main, payload, len, self.target_args, reply_limit) }
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
