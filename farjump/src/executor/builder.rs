//! Making an executor: its exports and its capacity.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{Arena, Capacity, Exports, Library, Resolver, Store, Symbols, Usage, debugger};

use farjump_os::cpu::detected;

use super::coarse_clock::Clock;
use super::domain_exports::DomainExports;
use super::export::ExportFn;
use super::perf_map::PerfMap;
use super::{Context, DirectCaller, Executor, crash, services};
use crate::config::TargetConfig;
use crate::mode::Allowed;
use crate::policy::Policy;
use crate::stats::Stats;
use crate::{Error, ServeError};

/// The variable that turns on debug mode for programs that do not choose it.
const DEBUG_VARIABLE: &str = "FARJUMP_DEBUG";

/// The options of a configuration that concern an executor.
#[derive(Debug)]
struct Options {
    process_symbols: bool,
    perf_map: bool,
    crash_report: bool,
    debug: Option<bool>,
    debug_symbols: Vec<PathBuf>,
    arena_size: usize,
    store: (Option<usize>, usize),
    modes: Allowed,
}

impl Options {
    fn of(config: &TargetConfig) -> Options {
        Options {
            process_symbols: config.process_symbols,
            perf_map: config.perf_map,
            crash_report: config.crash_report,
            debug: config.debug,
            debug_symbols: config.debug_symbols.clone(),
            arena_size: config.arena_size,
            store: (config.store_bytes, config.store_images),
            modes: Allowed::only(&config.modes),
        }
    }
}

/// Exports and limits of an executor to be built.
#[derive(Debug)]
pub struct ExecutorBuilder {
    pub(crate) exports: Exports,
    /// The first export whose name safe code may not offer.
    refused: Option<ServeError>,
    libraries: Vec<PathBuf>,
    wanted: Vec<String>,
    options: Options,
    /// The CPU of the code that comes in. `None`: that of this process.
    pub(crate) cpu: Option<Arc<Cpu>>,
    pub(crate) reply_limit: usize,
    pub(crate) policy: Policy,
    local: Vec<Library>,
    #[cfg(feature = "bitcode")]
    pub(crate) compiler: Option<farjump_compiler::Compiler>,
}

impl Default for ExecutorBuilder {
    fn default() -> Self {
        ExecutorBuilder {
            exports: DirectCaller::exports(),
            refused: None,
            libraries: Vec::new(),
            wanted: Vec::new(),
            options: Options::of(&TargetConfig::default()),
            cpu: None,
            reply_limit: usize::MAX,
            policy: Policy::default(),
            local: Vec::new(),
            #[cfg(feature = "bitcode")]
            compiler: None,
        }
    }
}

impl ExecutorBuilder {
    /// Offers a function under `name`. Names that begin with `farjump_` are reserved for the services. The names of
    /// functions that compilers call on their own, such as `memcpy`, `strlen` and all that begin with two underscores,
    /// take [`ExecutorBuilder::export_raw`]. With such a name [`ExecutorBuilder::build`] fails.
    #[must_use]
    pub fn export<F: ExportFn>(mut self, name: &str, function: F) -> Self {
        if self.takes(name) {
            // SAFETY: a function stays as long as the code that is compiled into this process. The injected
            // function that imports it says its type, in a declaration that is unsafe there.
            unsafe { self.exports.insert(name, function.address()) };
        }
        self
    }

    /// Returns whether safe code may offer `name`. If not, building fails.
    fn takes(&mut self, name: &str) -> bool {
        let checked = services::check_name(name);
        let is_taken = checked.is_ok();
        self.refused = self.refused.take().or(checked.err());
        is_taken
    }

    /// Offers an address under `name`, of a function or of data, as in C.
    ///
    /// # Safety
    /// `address` must have the meaning that compilers expect of `name`, if they call it on their own. It must be valid
    /// for whatever injected functions that import `name` do with it, for as long as the executor lives.
    #[must_use]
    pub unsafe fn export_raw(mut self, name: &str, address: *const c_void) -> Self {
        // SAFETY: this function's caller guarantees it.
        unsafe { self.exports.insert(name, address) };
        self
    }

    /// Offers the address of data under `name`: `extern T name;` in C.
    #[must_use]
    pub fn export_data<T: Sync>(mut self, name: &str, data: &'static T) -> Self {
        if self.takes(name) {
            // SAFETY: the data is `'static`; for its type see `export`.
            unsafe { self.exports.insert(name, (&raw const *data).cast()) };
        }
        self
    }

    /// Offers every symbol of a shared library, by path or soname, after the exports. It is loaded when the
    /// executor is built.
    ///
    /// # Safety
    /// The library's constructors must be sound to run in this process when the executor is built, and those
    /// of the libraries that it depends on; so must its destructors when the process ends. Its symbols must
    /// be as the authors of injected functions expect.
    #[must_use]
    pub unsafe fn export_library(mut self, path: impl AsRef<Path>) -> Self {
        self.libraries.push(path.as_ref().to_owned());
        self
    }

    /// Lets code that wants the library with this soname find its symbols, after all other exports. The first such code
    /// that imports a symbol found nowhere else opens the library.
    ///
    /// # Safety
    /// As for [`ExecutorBuilder::export_library`], with constructors that run at any time.
    #[must_use]
    pub unsafe fn wanted_library(mut self, soname: impl Into<String>) -> Self {
        self.wanted.push(soname.into());
        self
    }

    /// Takes the options of `config` that concern an executor: what it offers, which code it admits, its memory, and what
    /// it reports.
    #[must_use]
    pub fn configured(mut self, config: &TargetConfig) -> Self {
        self.options = Options::of(config);
        if let Some(ids) = &config.allow_code {
            self.policy.allow(ids.iter().copied());
            // An id may be a family's as well.
            self.policy.allow_families(ids.iter().map(|id| FamilyId(id.0)));
        }
        self.policy.limits = config.limits();
        self
    }

    /// Loads the libraries that `config` names.
    ///
    /// # Safety
    /// As for [`ExecutorBuilder::export_library`] and [`ExecutorBuilder::wanted_library`].
    #[must_use]
    pub unsafe fn with_libraries(mut self, config: &TargetConfig) -> Self {
        self.libraries.extend(config.export_library.iter().cloned());
        self.wanted.extend(config.wanted_library.iter().cloned());
        self
    }

    /// Most bytes that one call may reply in all.
    #[must_use]
    pub fn reply_limit(mut self, bytes: usize) -> Self {
        self.reply_limit = bytes;
        self
    }

    /// Adds the function of `library` to this process, for calls in which only its name travels
    /// ([`Mode::Local`](crate::Mode::Local)).
    #[must_use]
    pub fn local(mut self, library: &Library) -> Self {
        self.local.push(library.clone());
        self
    }

    /// Makes the executor.
    /// # Errors
    /// In each of these cases: a limit admits nothing; memory cannot be made executable; the architecture is not
    /// supported; a library or the perf map cannot be opened; a library has no symbols to show; the system takes no
    /// handler for crashes; a local function cannot be linked with the exports.
    pub fn build(self) -> Result<Executor, Error> {
        if let Some(refused) = self.refused {
            return Err(refused.into());
        }
        self.policy.check(self.options.modes)?;
        let mut resolver = Resolver::new(self.exports);
        for path in &self.libraries {
            // SAFETY: the caller of `ExecutorBuilder::export_library` guarantees it.
            unsafe { resolver.allow_library(path) }?;
        }
        for soname in &self.wanted {
            // SAFETY: the caller of `ExecutorBuilder::wanted_library` guarantees it.
            unsafe { resolver.allow_wanted(soname) }?;
        }
        if self.options.process_symbols {
            resolver.allow_process_symbols();
        }
        let perf_map = if self.options.perf_map { Some(PerfMap::open()?) } else { None };
        if self.options.crash_report {
            crash::install()?;
            for (function, instead) in crash::substitutes() {
                // SAFETY: both end the process with the status that they get, and `instead` stays as long as
                // this library.
                unsafe { resolver.substitute(function, instead) };
            }
        }
        let mut epoch = [0; 8];
        crate::random(&mut epoch)?;
        let debug = self.options.debug.unwrap_or_else(|| debug_variable(std::env::var_os(DEBUG_VARIABLE)));
        let debug = if debug { Some(symbols(&self.options.debug_symbols, &self.local)?) } else { None };
        let arena_size = self.options.arena_size;
        let arena = if debug.is_some() { Arena::for_debuggers(arena_size) } else { Arena::new(arena_size) }?;
        let cpu = self.cpu.unwrap_or_else(detected);
        let both_spans = 2 * arena.capacity();
        let (bytes, images) = self.options.store;
        let capacity = Capacity { bytes: bytes.unwrap_or(both_spans), images };
        let mut executor = Executor {
            clock: Clock::new(),
            stats: Stats::default(),
            store: Store::bounded(arena, capacity).for_cpu(cpu),
            exports: DomainExports::new(resolver),
            epoch: u64::from_le_bytes(epoch),
            context: Context::new(),
            reply_limit: self.reply_limit,
            perf_map,
            crash_report: self.options.crash_report,
            debug,
            modes: self.options.modes,
            policy: self.policy,
            in_place: Box::new(Usage::new()),
            object_requests: Box::new(Usage::new()),
            strays: 0,
            local: BTreeMap::new(),
            recent_local: None,
            #[cfg(feature = "bitcode")]
            bitcode: Box::new(crate::executor::code::bitcode::BitcodeJobs::new(self.compiler)),
        };
        for library in &self.local {
            executor.set_local(library)?;
        }
        Ok(executor)
    }
}

/// Returns whether a value of `FARJUMP_DEBUG` requests debug mode: any but the empty one, 0, `no`, `false` and `off`.
fn debug_variable(value: Option<std::ffi::OsString>) -> bool {
    value.is_some_and(|value| !["", "0", "no", "false", "off"].iter().any(|no| value == *no))
}

/// The symbols in these libraries, by code id. Functions of `local` libraries without symbols are known by
/// name.
fn symbols(libraries: &[PathBuf], local: &[Library]) -> Result<HashMap<CodeId, Symbols>, Error> {
    if let Err(why) = debugger::check() {
        log::warn!("{why}");
    }
    let named = libraries.iter().map(Symbols::read).collect::<Result<Vec<_>, _>>()?;
    let local = local.iter().filter_map(|library| Symbols::read(library.path()).ok());
    Ok(named.into_iter().chain(local).flatten().map(|symbols| (symbols.id(), symbols)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_switches_debugging_on_and_off() {
        for (value, on) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(debug_variable(value.map(Into::into)), on, "{value:?}");
        }
    }
}
