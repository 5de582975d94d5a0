//! A target's choices.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "bitcode")]
use std::time::Duration;

#[cfg(feature = "bitcode")]
use farjump_compiler::{Compiler, Options as CompilerOptions};
use farjump_control::{Key, KeyFile, Keys, Listener, PeerAddress, PeerIdentity, TcpOptions};
#[cfg(feature = "bitcode")]
use farjump_core::cpu::Forms;
use farjump_core::image::{CodeId, FamilyId};
use farjump_core::transport::Transport;
use farjump_transports::BackendOptions;

#[cfg(feature = "bitcode")]
use crate::config::BitcodeUse;
use crate::config::{Config, ConfigError, ConfigFault, Origin, TargetConfig};
use crate::executor::{ExecutorBuilder, Export, ExportFn};
use crate::forward_limits::ForwardLimits;
use crate::objects::Objects;
use crate::open_channel::ring_len;
use crate::principals::Principal;
use crate::serve::Target;
use crate::serve::epoll::Event;
use crate::serve::forward::Choices;
use crate::serve::handlers::Handlers;
use crate::serve::resources;
use crate::serve::settings::Settings;
use crate::serve::target_args::TargetArgs;
use crate::transports::transports_for;
use crate::{Data, Error, Library, Mailbox, Mode, Refusal, ServeError};

/// Returns whether forwarded calls bring their code with each message.
///
/// # Errors
/// [`ServeError::ForwardMode`] for a mode in which no call is forwarded.
fn brings_code(mode: Mode) -> Result<bool, Error> {
    match mode {
        Mode::Cached => Ok(false),
        Mode::Always => Ok(true),
        Mode::Local | Mode::InPlace => Err(Error::Serve(ServeError::ForwardMode { mode })),
    }
}

/// Time for the compiler to be ready: on a busy machine it reads 100 MB of LLVM first.
#[cfg(feature = "bitcode")]
const COMPILER_START: Duration = Duration::from_secs(20);

/// A target to be built: a configuration, and what is no plain value. The methods that are named after options set those
/// of the configuration ([`TargetConfig`]). `'a` is the life of the value that [`TargetBuilder::args`] borrows.
#[must_use]
pub struct TargetBuilder<'a> {
    address: String,
    pub(crate) config: TargetConfig,
    executor: ExecutorBuilder,
    target_args: TargetArgs,
    /// True once the caller has vouched for the libraries that the configuration names.
    loads_libraries: bool,
    handlers: Handlers,
    transports: Vec<Box<dyn Transport>>,
    key: Option<Key>,
    peer_key: Option<Key>,
    objects: Option<Box<dyn Objects>>,
    args: PhantomData<&'a mut ()>,
}

impl std::fmt::Debug for TargetBuilder<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TargetBuilder").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<'a> TargetBuilder<'a> {
    pub(in crate::serve) fn new(address: &str) -> Self {
        TargetBuilder {
            address: address.to_owned(),
            config: TargetConfig::default(),
            executor: ExecutorBuilder::default(),
            target_args: TargetArgs::raw(std::ptr::null_mut()),
            loads_libraries: false,
            handlers: Handlers::default(),
            transports: Vec::new(),
            key: None,
            peer_key: None,
            objects: None,
            args: PhantomData,
        }
    }

    /// Takes these options, in place of all that were set before. [`TargetConfig::listen`] has no effect here.
    ///
    /// Shared libraries that it names are loaded only with [`TargetBuilder::load_libraries`]; otherwise
    /// [`TargetBuilder::build`] fails. Its [`objects`](TargetConfig::objects) need a store
    /// ([`TargetBuilder::objects`]).
    pub fn config(mut self, config: TargetConfig) -> Self {
        (self.config, self.loads_libraries) = (config, false);
        self
    }

    /// Loads the shared libraries that the configuration names by now, [`TargetConfig::export_library`] and
    /// [`TargetConfig::wanted_library`].
    ///
    /// # Safety
    /// As for [`TargetBuilder::export_library`] and [`TargetBuilder::wanted_library`].
    pub unsafe fn load_libraries(mut self) -> Self {
        self.loads_libraries = true;
        self
    }

    /// Sets the third argument of every injected function: the address of `args`, which the target borrows. The loop
    /// around [`Target::poll`] reaches it by [`Target::args_mut`].
    pub fn args<T: Send + 'static>(mut self, args: &'a mut T) -> TargetBuilder<'a> {
        self.target_args = TargetArgs::borrowed(args);
        self
    }

    /// As [`TargetBuilder::args`], for a value that the target owns: it may then go to a thread or a task
    /// ([`Target::spawn`]). [`Target::into_args`] returns the value.
    ///
    /// ```
    /// # fn main() -> Result<(), farjump::Error> {
    /// # let socket = std::env::temp_dir().join(format!("farjump-doc-owned-{}", std::process::id()));
    /// # let address = format!("unix:{}", socket.display());
    /// let rows = vec![1_u64, 2, 3];
    /// let served = farjump::Target::listen(&address).args_owned(rows).build()?.spawn()?;
    /// // ...
    /// let rows: Vec<u64> = served.stop()?.into_args().expect("it owns them");
    /// # assert_eq!(rows, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn args_owned<T: Send + 'static>(mut self, args: T) -> Self {
        self.target_args = TargetArgs::owned(args);
        self
    }

    /// As [`TargetBuilder::args`], for a pointer from C.
    ///
    /// # Safety
    /// `args` must be valid for whatever injected functions do with it, on the thread that polls the target,
    /// until the target is dropped.
    pub unsafe fn args_raw(mut self, args: *mut c_void) -> Self {
        self.target_args = TargetArgs::raw(args);
        self
    }

    /// Offers a function to injected code, which can be linked against exports only. Exports take precedence over
    /// libraries and the process's symbols.
    ///
    /// Injected code declares the types of the functions that it imports, except for those that compilers call on their
    /// own: every target offers `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp` and `strlen`. These, names that begin
    /// with two underscores and a few others take [`TargetBuilder::export_raw`], and names that begin with `farjump_`
    /// are the target's own. With such a name [`TargetBuilder::build`] fails
    /// ([`ServeError::ReservedExport`](crate::ServeError::ReservedExport)).
    ///
    /// ```
    /// # fn main() -> Result<(), farjump::Error> {
    /// extern "C" fn twice(x: u64) -> u64 {
    ///     2 * x
    /// }
    /// # let socket = std::env::temp_dir().join(format!("farjump-doc-export-{}", std::process::id()));
    /// # let address = format!("unix:{}", socket.display());
    /// let target = farjump::Target::listen(&address).export("twice", twice as extern "C" fn(_) ->
    /// _).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn export<F: ExportFn>(mut self, name: &str, function: F) -> Self {
        self.executor = self.executor.export(name, function);
        self
    }

    /// As [`TargetBuilder::export`], for functions under their own names.
    ///
    /// ```
    /// use farjump::export;
    ///
    /// extern "C" fn twice(x: u64) -> u64 {
    ///     2 * x
    /// }
    /// unsafe extern "C" fn sum_of(numbers: *const u64, count: usize) -> u64 {
    ///     // SAFETY: the injected function passes `count` numbers.
    ///     unsafe { std::slice::from_raw_parts(numbers, count) }.iter().sum()
    /// }
    /// # fn main() -> Result<(), farjump::Error> {
    /// # let socket = std::env::temp_dir().join(format!("farjump-doc-exports-{}", std::process::id()));
    /// # let address = format!("unix:{}", socket.display());
    /// let target =
    ///     farjump::Target::listen(&address).exports([export!(twice(_)), export!(sum_of(_, _))]).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exports(self, functions: impl IntoIterator<Item = Export>) -> Self {
        functions.into_iter().fold(self, |target, function| target.export(function.name(), function))
    }

    /// Offers an address to injected code, of a function or of data, as in C.
    ///
    /// # Safety
    /// `address` must be valid for whatever injected functions that import `name` do with it, until the
    /// target is dropped. It must have the meaning that compilers expect of `name`, if they call it on their own.
    pub unsafe fn export_raw(mut self, name: &str, address: *const c_void) -> Self {
        // SAFETY: this function's caller guarantees it; the executor lives no longer than the target.
        self.executor = unsafe { self.executor.export_raw(name, address) };
        self
    }

    /// Offers the address of data to injected code: `extern T name;` in C.
    pub fn export_data<T: Sync>(mut self, name: &str, data: &'static T) -> Self {
        self.executor = self.executor.export_data(name, data);
        self
    }

    /// Offers every symbol of a shared library, by path or soname. It is loaded when the target is built.
    ///
    /// # Safety
    /// The library's constructors must be sound to run in this process when the target is built, and those of
    /// the libraries that it depends on; so must its destructors when the process ends. Its symbols must be
    /// as the authors of injected functions expect.
    pub unsafe fn export_library(mut self, path: impl AsRef<Path>) -> Self {
        // SAFETY: this function's caller guarantees it; the executor is built when the target is.
        self.executor = unsafe { self.executor.export_library(path) };
        self
    }

    /// Lets injected code that wants the library with this soname (`libz.so.1`) find its symbols, after all
    /// other exports. Default: no library. An image names the libraries that it wants; one that is not among
    /// these is never opened, and a name with a slash is an error.
    ///
    /// The first code that wants the library and imports a symbol found nowhere else opens it. It stays open until the
    /// process ends. The dynamic linker searches for it as for any program's libraries.
    ///
    /// # Safety
    /// The library's constructors must be sound to run in this process at any time while the target runs, and
    /// those of the libraries that it depends on; so must its destructors when the process ends. Its symbols
    /// must be as the authors of injected functions expect.
    pub unsafe fn wanted_library(mut self, soname: impl Into<String>) -> Self {
        // SAFETY: this function's caller guarantees it.
        self.executor = unsafe { self.executor.wanted_library(soname) };
        self
    }

    /// Adds the function of `library` to the target, for sources that choose [`Mode::Local`]: only its name
    /// travels then. It is linked with the target's exports, as code that travels is, when the target is
    /// built.
    pub fn local(mut self, library: &Library) -> Self {
        self.executor = self.executor.local(library);
        self
    }

    /// Shows debuggers the functions, lines and variables of the code of the ifunc library at `path` whenever that code
    /// comes, if the target is [debugged](TargetBuilder::debug). The library is the one that the source sends, built
    /// with `farjump build -g`. The target reads it when it is built, and runs nothing of it. May be repeated.
    pub fn debug_symbols(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.config.debug_symbols.push(path.as_ref().to_owned());
        self
    }

    /// Runs `handler` for each source that connects. It returns the host's word on the source's calls: exported
    /// functions read it from the running call's [`principal`](crate::principal()) ([`Principal::word`]). Includes
    /// [`TargetBuilder::expose_callers`].
    pub fn host_word<T: Any + Send + Sync>(
        mut self,
        mut handler: impl FnMut(&Principal) -> T + Send + 'static,
    ) -> Self {
        self.handlers.word = Some(Box::new(move |principal| Box::new(handler(principal))));
        self.expose_callers(true)
    }

    /// Admits code with one of these ids and no other, whatever the mode; further calls add ids. Default:
    /// all code. The functions of [`TargetBuilder::local`] do not come in, and need not be listed to be
    /// called by their name ([`Mode::Local`]); the same code from a source is refused. [`TargetConfig::allow_code`] takes
    /// ids of families too.
    pub fn allow_code(mut self, ids: impl IntoIterator<Item = CodeId>) -> Self {
        self.executor.policy.allow(ids);
        self
    }

    /// Admits the code of these families and no other, besides that of [`TargetBuilder::allow_code`]: the images of a
    /// library for all of its platforms (`farjump inspect` shows the id). The target requests the list of a library's
    /// images from a source. The family id is the hash of that list. Code that a source compiled for this CPU is in no
    /// list.
    pub fn allow_family(mut self, ids: impl IntoIterator<Item = FamilyId>) -> Self {
        self.executor.policy.allow_families(ids);
        self
    }

    /// Names the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`) as destination `name`:
    /// injected code may forward itself there, by `farjump_forward`. The first call makes a link, over one of
    /// the built-in transports; so does the first call after a link has ended. [`Target::set_destination`]
    /// does the same later.
    ///
    /// Processes that may inject into this target may then run code at the destination too.
    pub fn destination(mut self, name: &str, address: &str) -> Self {
        self.config.destination.push((name.to_owned(), address.to_owned()));
        self
    }

    /// Sets the key that sources share with a target at `tcp:HOST:PORT`, and that destinations at such addresses have
    /// ([`TargetBuilder::destination`]). The target admits a process that holds it, and that process may do anything
    /// that this target may do. The key encrypts the control connection; of the transports, only `tcp` encrypts frames
    /// (`docs/security.md`). Without a key a target listens on this machine's loopback only, and takes sources of its
    /// own user. No effect on Unix sockets.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// The key for destinations at `tcp:HOST:PORT` ([`TargetBuilder::destination`]). It goes before
    /// [`TargetConfig::peer_key_file`]. Default: the only one of [`TargetConfig::key_file`], or that of
    /// [`TargetBuilder::key`].
    pub fn peer_key(mut self, key: Key) -> Self {
        self.peer_key = Some(key);
        self
    }

    /// Adds a transport of the caller's.
    pub fn with_transport(mut self, transport: Box<dyn Transport>) -> Self {
        self.transports.push(transport);
        self
    }

    /// Runs `handler` for each frame refused.
    pub fn on_refused(mut self, handler: impl FnMut(&PeerIdentity, &Refusal) + Send + 'static) -> Self {
        self.handlers.refused = Some(Box::new(handler));
        self
    }

    /// Runs `handler` each time the target requests code from a source.
    pub fn on_code_missing(mut self, handler: impl FnMut(&PeerIdentity, &CodeId) + Send + 'static) -> Self {
        self.handlers.code_missing = Some(Box::new(handler));
        self
    }

    /// Runs `handler` for each source that has connected.
    pub fn on_peer_joined(mut self, handler: impl FnMut(&PeerIdentity) + Send + 'static) -> Self {
        self.handlers.peer_joined = Some(Box::new(handler));
        self
    }

    /// Gives the target a store of objects, for sources and injected functions: one of `farjump-handles`.
    pub fn objects(mut self, objects: impl Objects + 'static) -> Self {
        self.objects = Some(Box::new(objects));
        self
    }

    /// Runs `handler` for each source that is gone, with the reason.
    pub fn on_peer_gone(mut self, handler: impl FnMut(&PeerIdentity, &str) + Send + 'static) -> Self {
        self.handlers.peer_gone = Some(Box::new(handler));
        self
    }

    /// Returns the configuration, and the parts of the target that come of it alone.
    ///
    /// # Errors
    /// Its values do not fit each other, or this build.
    fn checked(&mut self) -> Result<Settings, Error> {
        let config = &self.config;
        config.check(|_| Origin::Program)?;
        let libraries = [
            ("export-library", !config.export_library.is_empty()),
            ("wanted-library", !config.wanted_library.is_empty()),
        ];
        let named = libraries.into_iter().find(|(_, named)| *named && !self.loads_libraries);
        if let Some((name, _)) = named {
            return Err(fault(name, "is loaded only with TargetBuilder::load_libraries"));
        }
        if config.objects.is_some() && self.objects.is_none() {
            return Err(fault("objects", "needs a store: give one by TargetBuilder::objects"));
        }
        #[cfg(feature = "verbs")]
        if let Some(device) = &config.device {
            farjump_transports::verbs::choose_device(device).map_err(|why| fault("device", why))?;
        }
        Ok(Settings::of(config))
    }

    /// The key for destinations between machines.
    ///
    /// # Errors
    /// A key file that cannot be read.
    fn key_for_peers(&mut self) -> Result<Option<Key>, Error> {
        if let Some(key) = self.peer_key.take() {
            return Ok(Some(key));
        }
        if let Some(file) = &self.config.peer_key_file {
            return Ok(Some(Key::read(file)?));
        }
        let is_tcp = |(_, address): &(String, String)| address.starts_with("tcp:");
        match &self.config.key_file {
            Some(file) if self.config.destination.iter().any(is_tcp) => {
                match (Keys::read(file)?.only(), &self.key) {
                    (Some(key), _) | (None, Some(key)) => Ok(Some(key.clone())),
                    // The error says that the file has several.
                    (None, None) => Ok(Some(Key::read(file)?)),
                }
            }
            _ => Ok(None),
        }
    }

    /// Builds the target and starts to listen. [`Target::poll`] serves sources that connect.
    ///
    /// # Errors
    /// In each of these cases: an option is out of range, or has no effect without another; the address is taken; it or
    /// that of a destination is malformed; a limit admits nothing; the CPU has not the level of
    /// [`TargetConfig::cpu_level`]; memory cannot be made executable; a file, a library or the perf map cannot be opened;
    /// no transport is usable. Also when the transport of [`TargetConfig::transport`] may not lock the memory that a source
    /// needs.
    pub fn build(mut self) -> Result<Target<'a>, Error> {
        let address: PeerAddress = self.address.parse()?;
        let mut settings = self.checked()?;
        settings.exposes_callers |= self.handlers.word.is_some();
        let listens = matches!(address, PeerAddress::Tcp { .. });
        let peer_key = self.key_for_peers()?;
        let config = &self.config;
        let mut tcp = TcpOptions::default().with_key(self.key);
        (tcp.peer_timeout, tcp.clear) = (config.peer_timeout, config.clear);
        let mut key_file = None;
        if let (Some(path), true) = (&config.key_file, listens) {
            let (file, keys) = KeyFile::open(path)?;
            tcp.key = keys.only().cloned().or(tcp.key);
            tcp.keys = Some(keys);
            key_file = Some(file);
        }
        // Links to destinations keep no data of a source's key.
        let mut peers_tcp = tcp.clone();
        peers_tcp.keys = None;
        peers_tcp.key = peer_key.or(peers_tcp.key);
        let backends = BackendOptions::new().with_ucx_tcp(config.ucx_tcp);
        let built_in = |name: &String| self.transports.iter().all(|own| own.name() != name);
        let choices = Choices {
            transport: config.transport.clone().filter(built_in),
            mailbox_size: ring_len(Mailbox::Calls, settings.mailbox)?,
            patience: config.handshake_timeout,
            program: settings.program.to_string(),
            tcp: peers_tcp,
            limits: ForwardLimits::of(config),
            makes: config.allow_making.then_some(settings.limits.image),
            brings_code: brings_code(config.forward_mode)?,
            backends,
        };
        let only = config.transport.as_deref();
        let mut transports = transports_for(&address, only, self.transports, backends)?.transports;
        settings.mailbox = choices.mailbox_size;
        settings.check()?;
        if let Some(level) = config.cpu_level {
            settings.limit_level(level)?;
        }
        let mut executor = self.executor.configured(config);
        if self.loads_libraries {
            // SAFETY: the caller of `load_libraries` guarantees it.
            executor = unsafe { executor.with_libraries(config) };
        }
        for path in &config.local {
            executor = executor.local(&Library::open(path)?);
        }
        #[cfg(feature = "bitcode")]
        if let Some(when) = config.bitcode {
            let mut compiler = Compiler::new(compiler_options(config));
            compiler.start(COMPILER_START).map_err(|why| ServeError::Compiler { why })?;
            executor.compiler = Some(compiler);
            let preferred = when == BitcodeUse::Preferred;
            let forms = Forms::NATIVE
                | Forms::BITCODE
                | if preferred { Forms::PREFERS_BITCODE } else { Forms::empty() };
            settings.cpu = Arc::new((*settings.cpu).clone().with_forms(forms));
        }
        executor.cpu = Some(Arc::clone(&settings.cpu));
        executor.policy.limits = settings.limits;
        let mut target_args = self.target_args;
        if let Some(path) = &config.data {
            if !target_args.address().is_null() {
                return Err(fault("data", "is for targets without arguments of their own"));
            }
            target_args = TargetArgs::owned(Data::open(path)?);
        }
        let mut executor = executor.build()?;
        // SAFETY: `args` borrowed the value for as long as the target may live, which owns that of
        // `args_owned`; `args_raw`'s caller guarantees the rest.
        unsafe { executor.set_target_args(target_args.address()) };
        if choices.transport.as_deref().is_some_and(farjump_transports::locks_memory) {
            // Reports the limit to the user who starts the target, not only to connecting sources.
            settings.arrival(executor.epoch()).keep_openable(&mut transports)?;
        }
        let listener = Listener::bind_with(&address, tcp)?;
        let mut target =
            Target::new(listener, transports, executor, settings, self.handlers, target_args, choices)?;
        target.config =
            Box::new(TargetConfig { program: Some(target.settings.program.to_string()), ..config.clone() });
        target.key_file = key_file;
        resources::check(only)?;
        if let Some(mut objects) = self.objects {
            objects.listening(&target.address());
            let bell = objects.bell()?;
            if let Some(bell) = &bell {
                target.watch.add(bell.as_fd(), Event::Store, false)?;
            }
            target.shared.executor.set_bell(bell);
            target.shared.executor.set_objects(objects);
        }
        for (name, address) in &config.destination {
            target.set_destination(name, address)?;
        }
        Ok(target)
    }
}

/// The error of an option of the configuration.
fn fault(name: &str, why: impl Into<String>) -> Error {
    let fault = ConfigFault::Malformed(why.into());
    Error::from(ConfigError { origin: Origin::Program, name: name.to_owned(), fault })
}

/// The options of the program that compiles bitcode.
#[cfg(feature = "bitcode")]
fn compiler_options(config: &TargetConfig) -> CompilerOptions {
    let mut options = CompilerOptions::default();
    options.program.clone_from(&config.compiler);
    options.llvm.clone_from(&config.llvm);
    options.cache.clone_from(&config.bitcode_cache);
    (options.deadline, options.memory) = (config.compile_timeout, config.compile_memory as u64);
    options
}
