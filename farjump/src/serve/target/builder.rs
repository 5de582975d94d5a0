//! A target's choices.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "bitcode")]
use farjump_compiler::{Compiler, Options as CompilerOptions};
use farjump_control::{
    Key, KeyFile, Limits, Listener, MAX_NAME, PeerAddress, PeerIdentity, Rights, TcpOptions, plain,
};
#[cfg(feature = "bitcode")]
use farjump_core::cpu::Forms;
use farjump_core::image::{CodeId, FamilyId, Level};
use farjump_core::transport::Transport;
use farjump_core::wait::WaitPolicy;
use farjump_transports::BackendOptions;

#[cfg(feature = "bitcode")]
use crate::ServeError;
#[cfg(feature = "bitcode")]
use crate::executor::BitcodeUse;
use crate::executor::{ExecutorBuilder, Export, ExportFn};
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
use crate::{Error, ForwardLimits, Library, Mailbox, Mode, Refusal};

/// Returns whether forwarded calls bring their code with each message.
///
/// # Errors
/// [`ServeError::ForwardMode`] for a mode in which no call is forwarded.
fn brings_code(mode: Mode) -> Result<bool, Error> {
    match mode {
        Mode::Cached => Ok(false),
        Mode::Always => Ok(true),
        Mode::Local | Mode::InPlace => Err(Error::Serve(crate::ServeError::ForwardMode { mode })),
    }
}

/// Time for the compiler to be ready: on a busy machine it reads 100 MB of LLVM first.
#[cfg(feature = "bitcode")]
const COMPILER_START: Duration = Duration::from_secs(20);

/// A target to be built. `'a` is the life of the value that [`TargetBuilder::args`] borrows.
#[must_use]
pub struct TargetBuilder<'a> {
    address: String,
    executor: ExecutorBuilder,
    target_args: TargetArgs,
    settings: Settings,
    cpu_level: Option<Level>,
    #[cfg(feature = "bitcode")]
    compiler: Option<(CompilerOptions, BitcodeUse)>,
    handlers: Handlers,
    transports: Vec<Box<dyn Transport>>,
    only: Option<String>,
    backends: BackendOptions,
    destinations: Vec<(String, String)>,
    forward_limits: ForwardLimits,
    makes: bool,
    forward_mode: Mode,
    tcp: TcpOptions,
    key_file: Option<PathBuf>,
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
            executor: ExecutorBuilder::default(),
            target_args: TargetArgs::raw(std::ptr::null_mut()),
            settings: Settings::default(),
            cpu_level: None,
            #[cfg(feature = "bitcode")]
            compiler: None,
            handlers: Handlers::default(),
            transports: Vec::new(),
            only: None,
            backends: BackendOptions::new(),
            destinations: Vec::new(),
            forward_limits: ForwardLimits::default(),
            makes: false,
            forward_mode: Mode::default(),
            tcp: TcpOptions::default(),
            key_file: None,
            peer_key: None,
            objects: None,
            args: PhantomData,
        }
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

    /// Sets whether the target offers the process's own dynamic symbols, after everything else: all of libc, and the
    /// libraries that the program was linked with. Default: no.
    pub fn process_symbols(mut self, offered: bool) -> Self {
        self.executor = self.executor.process_symbols(offered);
        self
    }

    /// Rights of processes that may connect: those of the target's user, or those that hold the key. Default:
    /// [`Rights::default`], which is to observe, to call and to inject, but neither to drop code nor to
    /// export libraries. Each process learns its rights when it connects
    /// ([`Link::rights`](crate::Link::rights)), and a request without the right is refused
    /// ([`RefusalCause::Rights`]).
    ///
    /// [`RefusalCause::Rights`]: crate::RefusalCause::Rights
    pub fn rights(mut self, rights: Rights) -> Self {
        self.settings.rights = rights;
        self
    }

    /// Sets whether processes that may connect may also make the target load libraries while it runs, whose symbols go
    /// before all other exports ([`Admin::export`](crate::admin::Admin::export)). The short form of adding
    /// [`Rights::EXPORT`] to [`TargetBuilder::rights`]. Default: no. A process restricted to the code that
    /// [`TargetBuilder::allow_code`] lists could run any code by this.
    pub fn allow_export(mut self, allowed: bool) -> Self {
        self.settings.allow_export = allowed;
        self
    }

    /// Allows these modes and no others. Default: [`Mode::DEFAULT`], which is all but [`Mode::InPlace`].
    pub fn modes(mut self, modes: &[Mode]) -> Self {
        self.executor = self.executor.modes(modes);
        self
    }

    /// Adds the function of `library` to the target, for sources that choose [`Mode::Local`]: only its name
    /// travels then. It is linked with the target's exports, as code that travels is, when the target is
    /// built.
    pub fn local(mut self, library: &Library) -> Self {
        self.executor = self.executor.local(library);
        self
    }

    /// Sets whether `/tmp/perf-PID.map` lists the addresses of injected code, so that `perf report` shows it as
    /// `ifunc:NAME`. Default: no. perf reads the file when it reports: it stays when the process ends. One file serves
    /// all targets of a process; the first one replaces an existing file.
    pub fn perf_map(mut self, written: bool) -> Self {
        self.executor = self.executor.perf_map(written);
        self
    }

    /// Sets whether standard error names the injected code that ended the process, also when it crashed in a function
    /// that the code had called. The report has the signal, the ifunc, the offset in its image and its code id. Then
    /// the process ends as it would have. Default: no.
    ///
    /// The report covers faults and `abort`; signals that the code sends to its own process, by `raise` or `kill`; and
    /// `exit`, `quick_exit`, and `_exit` if the code imports it. It does not cover events that the system shows to no
    /// process (`SIGKILL`, `_exit` as a system call). Nor does it cover the end of a thread that the code made, and
    /// ends in functions that a library calls. A report from a forked child names its parent. A fault in the file of
    /// [`Data`](crate::Data) names the file.
    ///
    /// The first target of the process with this option installs handlers for faults, and for signals that end a
    /// process and are not ignored. The handlers stay. Handlers installed before are called after the report; handlers
    /// installed later take their place. Signals that have nothing to do with injected code are passed on silently.
    pub fn crash_report(mut self, reported: bool) -> Self {
        self.executor = self.executor.crash_report(reported);
        self
    }

    /// Sets whether a debugger can set breakpoints in injected code, and finds that code by itself. Default: no, unless
    /// the environment variable `FARJUMP_DEBUG` has a value other than 0.
    ///
    /// Each image then lies in pages of its own, which ptrace(2) can write: 4 KiB at least of
    /// [`TargetBuilder::arena_size`]. It is registered by GDB's JIT interface, under the name of its main
    /// function, or with the symbols of [`TargetBuilder::debug_symbols`]. Placing an image costs more, and
    /// some milliseconds while gdb is attached; calls cost the same. Code of mode in place runs in the
    /// mailbox, and takes hardware breakpoints alone.
    ///
    /// Debuggers find the interface in the symbol table of the program: not if that is stripped.
    pub fn debug(mut self, shown: bool) -> Self {
        self.executor = self.executor.debug(shown);
        self
    }

    /// Shows debuggers the functions, lines and variables of the code of the ifunc library at `path` whenever that code
    /// comes, if the target is [debugged](TargetBuilder::debug). The library is the one that the source sends, built
    /// with `farjump build -g`. The target reads it when it is built, and runs nothing of it. May be repeated.
    pub fn debug_symbols(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.executor = self.executor.debug_symbols(path);
        self
    }

    /// Claims a CPU with exactly what this level guarantees, however much more the CPU has: no further features
    /// and no name. Sources then send images of this level or a lower one, and compile for no more. Default:
    /// everything that the CPU has ([`Target::cpu`]).
    ///
    /// So sources can send the same code to all machines of a fleet whose CPUs differ, and one machine can stand for
    /// several in tests. [`Level::parse`] takes a level by its name.
    pub fn cpu_level(mut self, level: Level) -> Self {
        self.cpu_level = Some(level);
        self
    }

    /// Accepts bitcode (`farjump build --bitcode`), which a program of farjump's compiles for this CPU: for libraries
    /// without an image for it, or also for others. The program, `farjump_compiler`, is started with the target and
    /// ends with it; it opens LLVM. A first, unoptimised image comes within milliseconds; an optimised one replaces it
    /// between two calls. Other frames of a source wait for the first image of its next one; other sources do not.
    ///
    /// The program is the one that `options` or `FARJUMP_COMPILER` names. Otherwise the target looks for it beside the
    /// running program, and in `../libexec/farjump` from the folder of the library or program that farjump is in. There
    /// it must be one that only root, this user or the owner of that library can have put there.
    #[cfg(feature = "bitcode")]
    pub fn compiler(mut self, options: CompilerOptions, when: BitcodeUse) -> Self {
        self.compiler = Some((options, when));
        self
    }

    /// Capacity for placed code in bytes. Default: 16 MiB.
    pub fn arena_size(mut self, bytes: usize) -> Self {
        self.executor = self.executor.arena_size(bytes);
        self.settings.arena_size = bytes;
        self
    }

    /// Capacity of the code store, in bytes of images as they travel and in images. When more comes, the target drops
    /// the least recently called code, with its statics. It requests the code again from a source that calls it.
    /// Default: twice the capacity for placed code, because its data has as much, and 8192 images. Functions given by
    /// [`TargetBuilder::local`] count, and are not dropped.
    pub fn store_capacity(mut self, bytes: usize, images: usize) -> Self {
        self.executor = self.executor.store_capacity(bytes, images);
        self
    }

    /// Bytes of frames that one source may have written and this target not yet run, rounded up to a power of
    /// two, and at most 2 GiB. Each source has its own mailbox. A frame that exceeds it gets a large mailbox,
    /// or comes alone where the transport delivers whole frames, see [`TargetBuilder::max_payload`]. Default:
    /// 4 MiB.
    pub fn mailbox_size(mut self, bytes: usize) -> Self {
        self.settings.mailbox = bytes;
        self
    }

    /// Sets whether a mailbox has all of its memory when its link is made. Default: no. Over `shm` it takes memory as
    /// frames first come to it, from 256 KiB up to its size. This costs the source of a stream a page fault for each 4
    /// KiB of the first lap. Where the system counts what it promises (`vm.overcommit_memory` 2), the mailbox has all
    /// in any case.
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.settings.prefault = prefault;
        self
    }

    /// Sets whether exported functions may query the principal of the running call ([`principal`](crate::principal())),
    /// and the program the caller of the last one ([`Target::last_call`]). Default: no, which saves some instructions
    /// of each poll.
    pub fn expose_callers(mut self, tell: bool) -> Self {
        self.settings.exposes_callers = tell;
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

    /// The spinning before sleep when there is nothing to do. Where this machine's timer sends no events, or while there
    /// is more than one source, turns that wait for one ([`WaitPolicy::events_only`]) pause instead.
    pub fn wait_policy(mut self, policy: WaitPolicy) -> Self {
        self.settings.wait = crate::wait::followed_here(policy);
        self
    }

    /// Time limit for the rest of a frame after its signal. The target cuts the link of a source that exceeds it. A
    /// frame in a large mailbox ([`TargetBuilder::max_payload`]) has another second for each MiB. Default: 1 second.
    pub fn stall_timeout(mut self, limit: Duration) -> Self {
        self.settings.stall_timeout = limit;
        self
    }

    /// Limit for a connecting process to make its link, for a source to connect to the large mailbox that it
    /// requested, and for a link to a destination. Default: 2 seconds.
    ///
    /// `ucx-put` between machines connects in an exchange with the source, which may take as long again. The target
    /// does nothing else meanwhile, so the limit also bounds the delay of other sources if one falls silent then.
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.settings.handshake_timeout = limit;
        self
    }

    /// Shortest interval at which a busy target looks for new connections. Default: 1 millisecond. Sources
    /// that need attention sooner set a notice in memory that the target reads anyway.
    pub fn control_interval(mut self, interval: Duration) -> Self {
        self.settings.control_interval = interval;
        self
    }

    /// All limits at once, in place of earlier ones. Each has its own method, with more details.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Most sources at a time, including those in the handshake; more are rejected. Default: 256. A process
    /// may be several sources.
    pub fn max_sources(mut self, sources: usize) -> Self {
        self.settings.limits.sources = sources;
        self
    }

    /// Admits code with one of these ids and no other, whatever the mode; further calls add ids. Default:
    /// all code. The functions of [`TargetBuilder::local`] do not come in, and need not be listed to be
    /// called by their name ([`Mode::Local`]); the same code from a source is refused.
    pub fn allow_code(mut self, ids: impl IntoIterator<Item = CodeId>) -> Self {
        self.executor = self.executor.allow_code(ids);
        self
    }

    /// Admits the code of these families and no other, besides that of [`TargetBuilder::allow_code`]: the images of a
    /// library for all of its platforms (`farjump inspect` shows the id). The target requests the list of a library's
    /// images from a source. The family id is the hash of that list. Code that a source compiled for this CPU is in no
    /// list.
    pub fn allow_family(mut self, ids: impl IntoIterator<Item = FamilyId>) -> Self {
        self.executor = self.executor.allow_family(ids);
        self
    }

    /// Largest frame in bytes, with header and code, rounded down to a multiple of 64. Default: bounded only by the
    /// largest payload and code. Sources learn it when they connect, and send no longer one; the target cuts the link
    /// of a source that does.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.settings.limits.frame = bytes;
        self
    }

    /// Largest image in bytes that may come in. Default: the capacity for placed code is the only limit.
    /// Sources learn it when they connect.
    pub fn max_image(mut self, bytes: usize) -> Self {
        self.settings.limits.image = bytes;
        self
    }

    /// Largest payload in bytes that is run. Default: 64 MiB, or the mailbox's capacity if that is more. A
    /// source whose payload does not fit its mailbox gets a large mailbox while it needs it, which takes two
    /// to four times as many bytes of memory, at this limit about twice as many. With code a payload may have
    /// up to 1 GiB; a larger limit is taken as that. Where the transport delivers whole frames, such a
    /// payload takes as many bytes as it has, and comes when nothing else of its source is under way. Sources
    /// learn an explicit limit when they connect. A limit below 40 bytes makes small calls slower, which
    /// otherwise need no check of their length.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        (self.settings.limits.payload, self.settings.limits.large_payload) = (bytes, bytes);
        self
    }

    /// Memory in bytes that one source may take here. Default: no limit. It counts:
    /// * its mailbox and the control page of 4096 bytes before it;
    /// * a large mailbox while it has one;
    /// * where the transport delivers whole frames, the longest frame that it may send if that is more than
    ///   the mailbox, which then has at most half of the rest;
    /// * code that it was the first to bring, for as long as that is in the store: the image as it came, and
    ///   the space of its code and its statics;
    /// * a reply that waits for credit, or is held ([`hold_reply`](crate::hold_reply)), also one of a destination or of a call that
    ///   ran again;
    /// * replies of destinations that are gathered for a call.
    ///
    /// Requests over the limit are refused.
    pub fn max_source_memory(mut self, bytes: usize) -> Self {
        self.settings.limits.source_memory = bytes;
        self
    }

    /// The name under which sources, destinations and `farjump stats` show this target: 64 characters of it. Default:
    /// the name of the program's executable, which may say little where that is one file under several names.
    pub fn program(mut self, name: &str) -> Self {
        self.settings.program = plain(name, MAX_NAME).into();
        self
    }

    /// Uses this transport and no other, by the name that `farjump transports` shows; `ucx` stands for all
    /// UCX transports that are usable here. Default: `shm`.
    pub fn transport(mut self, name: &str) -> Self {
        self.only = Some(name.to_owned());
        self
    }

    /// Sets whether `ucx-am` may use UCX's TCP, to sources and to destinations. **A process that reaches a UCX port may
    /// then write any address of this process without any check, and a source may as long as its link lasts**
    /// (`docs/security.md`): `tcp` reaches other machines without that. Default: no. Sources have to allow it too
    /// ([`LinkBuilder::ucx_tcp`](crate::LinkBuilder::ucx_tcp)).
    pub fn ucx_tcp(mut self, allowed: bool) -> Self {
        self.backends = self.backends.with_ucx_tcp(allowed);
        self
    }

    /// Names the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`) as destination `name`:
    /// injected code may forward itself there, by `farjump_forward`. The first call makes a link, over one of
    /// the built-in transports; so does the first call after a link has ended. [`Target::set_destination`]
    /// does the same later.
    ///
    /// Processes that may inject into this target may then run code at the destination too.
    pub fn destination(mut self, name: &str, address: &str) -> Self {
        self.destinations.push((name.to_owned(), address.to_owned()));
        self
    }

    /// Limits for functions that forward themselves, to destinations or to this target again.
    pub fn forward_limits(mut self, limits: ForwardLimits) -> Self {
        self.forward_limits = limits;
        self
    }

    /// Sets whether functions may make code, as images or bitcode, and send it messages here and at destinations
    /// (`farjump_make`, `farjump_inject`). The target treats the code like code that a source brings, with the same
    /// checks and limits, except that no source pays for its memory. Default: no.
    pub fn allow_making(mut self, allowed: bool) -> Self {
        self.makes = allowed;
        self
    }

    /// The mode in which functions that forward themselves reach destinations: [`Mode::Cached`], or [`Mode::Always`] if
    /// each message brings the code. Default: cached. The mode of the call that came here does not matter. A
    /// destination where this target may bring no code gets its id instead.
    pub fn forward_mode(mut self, mode: Mode) -> Self {
        self.forward_mode = mode;
        self
    }

    /// Sets the key that sources share with a target at `tcp:HOST:PORT`, and that destinations at such addresses have
    /// ([`TargetBuilder::destination`]). The target admits a process that holds it, and that process may do anything
    /// that this target may do. The key encrypts the control connection; of the transports, only `tcp` encrypts frames
    /// (`docs/security.md`). Without a key a target listens on this machine's loopback only, and takes sources of its
    /// own user. No effect on Unix sockets.
    pub fn key(mut self, key: Key) -> Self {
        self.tcp.key = Some(key);
        self
    }

    /// The keys of sources, for a target at `tcp:HOST:PORT`, in a file with a line for each: 64 at most, each with a
    /// name and optionally its own rights ([`TargetBuilder::rights`] otherwise; `docs/guide/operations.md`). It takes
    /// precedence over [`TargetBuilder::key`]. If it holds one key alone, destinations at such addresses use it
    /// ([`TargetBuilder::peer_key`] otherwise). The target reads the file only if it listens at such an address.
    ///
    /// The target checks the file while it runs: changes count within about a second. Removing a key ends its
    /// links, and so does a change of its rights; their sources get the reason. While the file cannot be read
    /// or parsed, the last valid contents stay in force. If it is gone, or holds no key, all links by its
    /// keys end.
    pub fn key_file(mut self, path: impl AsRef<Path>) -> Self {
        self.key_file = Some(path.as_ref().to_owned());
        self
    }

    /// The key for destinations at `tcp:HOST:PORT` ([`TargetBuilder::destination`]). Default: that of
    /// [`TargetBuilder::key`].
    pub fn peer_key(mut self, key: Key) -> Self {
        self.peer_key = Some(key);
        self
    }

    /// Longest silence of the machine of a source or destination over TCP before the peer counts as gone.
    /// Default: 10 seconds; from 1 second to 32,767. A source whose machine responds may leave its link idle
    /// for any time.
    pub fn peer_timeout(mut self, timeout: Duration) -> Self {
        self.tcp.peer_timeout = timeout;
        self
    }

    /// Sets whether frames may travel in the clear although both processes have a key, on a network that you trust.
    /// They do over transport `tcp`, if the source allows it too ([`LinkBuilder::clear`](crate::LinkBuilder::clear)),
    /// and to a destination that does. Control connections are encrypted in any case. Default: no.
    pub fn clear(mut self, clear: bool) -> Self {
        self.tcp.clear = clear;
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

    /// Builds the target and starts to listen. [`Target::poll`] serves sources that connect.
    ///
    /// # Errors
    /// In each of these cases: the address is taken; it or that of a destination is malformed; a limit admits nothing;
    /// the CPU has not the level of [`TargetBuilder::cpu_level`]; memory cannot be made executable; a library or the
    /// perf map cannot be opened; no transport is usable. Also when the transport of [`TargetBuilder::transport`] may
    /// not lock the memory that a source needs.
    pub fn build(mut self) -> Result<Target<'a>, Error> {
        let built_in = |name: &String| self.transports.iter().all(|own| own.name() != name);
        let address: PeerAddress = self.address.parse()?;
        let mut key_file = None;
        if let (Some(path), PeerAddress::Tcp { .. }) = (&self.key_file, &address) {
            let (file, keys) = KeyFile::open(path)?;
            self.tcp.key = keys.only().cloned().or(self.tcp.key);
            self.tcp.keys = Some(keys);
            key_file = Some(file);
        }
        // Links to destinations keep no data of a source's key.
        let mut peers_tcp = self.tcp.clone();
        peers_tcp.keys = None;
        peers_tcp.key = self.peer_key.take().or(peers_tcp.key);
        let choices = Choices {
            transport: self.only.clone().filter(built_in),
            mailbox_size: ring_len(Mailbox::Calls, self.settings.mailbox)?,
            patience: self.settings.handshake_timeout,
            program: self.settings.program.to_string(),
            tcp: peers_tcp,
            limits: self.forward_limits,
            makes: self.makes.then_some(self.settings.limits.image),
            brings_code: brings_code(self.forward_mode)?,
            backends: self.backends,
        };
        let (only, own) = (self.only.as_deref(), self.transports);
        let chosen = transports_for(&address, only, own, self.backends)?;
        self.transports = chosen.transports;
        self.settings.mailbox = choices.mailbox_size;
        self.settings.ucx_tcp = self.backends.ucx_tcp;
        self.settings.check()?;
        if let Some(level) = self.cpu_level {
            self.settings.limit_level(level)?;
        }
        #[cfg(feature = "bitcode")]
        if let Some((options, when)) = self.compiler {
            let mut compiler = Compiler::new(options);
            compiler.start(COMPILER_START).map_err(|why| ServeError::Compiler { why })?;
            self.executor.compiler = Some(compiler);
            let preferred = when == BitcodeUse::Preferred;
            let forms = Forms::NATIVE
                | Forms::BITCODE
                | if preferred { Forms::PREFERS_BITCODE } else { Forms::empty() };
            self.settings.cpu = Arc::new((*self.settings.cpu).clone().with_forms(forms));
        }
        self.executor.cpu = Some(Arc::clone(&self.settings.cpu));
        self.executor.policy.limits = self.settings.limits;
        let mut executor = self.executor.build()?;
        // SAFETY: `args` borrowed the value for as long as the target may live, which owns that of
        // `args_owned`; `args_raw`'s caller guarantees the rest.
        unsafe { executor.set_target_args(self.target_args.address()) };
        if choices.transport.as_deref().is_some_and(farjump_transports::locks_memory) {
            // Reports the limit to the user who starts the target, not only to connecting sources.
            self.settings.arrival(executor.epoch()).keep_openable(&mut self.transports)?;
        }
        let (mut settings, handlers) = (self.settings, self.handlers);
        settings.peer_timeout = self.tcp.peer_timeout;
        let listener = Listener::bind_with(&address, self.tcp)?;
        let mut target =
            Target::new(listener, self.transports, executor, settings, handlers, self.target_args, choices)?;
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
        for (name, address) in &self.destinations {
            target.set_destination(name, address)?;
        }
        Ok(target)
    }
}
