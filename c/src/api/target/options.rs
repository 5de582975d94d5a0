//! A target's choices: arguments, exports, destinations and callbacks.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;

use farjump::core::image::MAX_SYMBOL;
use farjump::{
    CodeId, Data, FamilyId, ForwardLimits, Key, Library, Mode, Rights, Target, TargetBuilder, WaitPolicy,
};
use farjump_handles::Store;

use crate::api::catch::{c_text, duration, give, guarded, object, path, take, text, variable};
use crate::api::last_error::Failure;
use crate::api::library::{farjump_code_id_t, farjump_library_t};
use crate::api::shared_options::{Peer, User, cause_number, change, farjump_peer_t, set};
use crate::api::status::farjump_status_t::{self, *};

/// Any function, to be offered to injected code: cast it to this.
pub type farjump_function_t = Option<unsafe extern "C" fn()>;

/// Runs for each refused call of a source: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and its kin. `peer` and
/// `text` belong to the library, and are valid until the callback returns.
pub type farjump_target_refused_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t, cause: c_int, text: *const c_char),
>;

/// Runs each time the target requests the code `id` from a source. `peer` and `id` belong to the library, and
/// are valid until the callback returns.
pub type farjump_target_code_missing_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t, id: *const farjump_code_id_t),
>;

/// Runs for each source that has connected. `peer` belongs to the library, and is valid until the callback
/// returns.
pub type farjump_target_joined_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t)>;

/// Runs for each source that is gone. `peer` and `why` belong to the library, and are valid until the
/// callback returns.
pub type farjump_target_gone_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t, why: *const c_char)>;

/// An address that C offers to injected code.
#[derive(Clone, Copy)]
struct Address(*const c_void);

// SAFETY: nothing here dereferences it. The header requires that it may be used on any thread that polls the target.
unsafe impl Send for Address {}
// SAFETY: nothing here does more than copy it.
unsafe impl Sync for Address {}

/// The third argument of injected functions.
#[derive(Clone)]
pub(crate) enum Args {
    /// Memory of the caller's.
    Lent(User),
    Data(Arc<Data>),
}

impl Args {
    fn address(&self) -> *mut c_void {
        match self {
            Args::Lent(args) => args.pointer(),
            // Functions get it as a pointer to const.
            Args::Data(data) => Arc::as_ptr(data).cast_mut().cast(),
        }
    }
}

/// Choices for targets, each of which but the exports has a usable default. One thread changes them at a
/// time; any number may make targets with them at once. They are copied when a target is made.
#[derive(Default)]
pub struct farjump_target_options_t {
    pub(crate) args: Option<Args>,
    exports: Vec<(String, Address)>,
    libraries: Vec<PathBuf>,
    wanted: Vec<String>,
    process_symbols: bool,
    pub(crate) rights: Option<Rights>,
    pub(crate) allow_export: bool,
    pub(crate) modes: Option<Vec<Mode>>,
    local: Vec<Library>,
    perf_map: bool,
    crash_report: bool,
    bitcode: Option<bool>,
    compiler: Option<PathBuf>,
    bitcode_cache: Option<PathBuf>,
    debug: Option<bool>,
    debug_symbols: Vec<PathBuf>,
    pub(crate) arena_size: Option<usize>,
    pub(crate) store: Option<(usize, usize)>,
    pub(crate) mailbox: Option<usize>,
    pub(crate) prefault: bool,
    pub(crate) wait: Option<WaitPolicy>,
    pub(crate) stall_timeout: Option<u64>,
    pub(crate) handshake_timeout: Option<u64>,
    pub(crate) control_interval: Option<u64>,
    pub(crate) max_sources: Option<usize>,
    pub(crate) allowed: Option<Vec<CodeId>>,
    pub(crate) max_frame: Option<usize>,
    pub(crate) max_image: Option<usize>,
    pub(crate) max_payload: Option<usize>,
    pub(crate) max_source_memory: Option<usize>,
    pub(crate) program: Option<String>,
    pub(crate) transport: Option<String>,
    pub(crate) ucx_tcp: bool,
    pub(crate) clear: bool,
    destinations: Vec<(String, String)>,
    forward_limits: ForwardLimits,
    makes: bool,
    pub(crate) key: Option<Key>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) peer_timeout: Option<u64>,
    pub(crate) objects: Option<Store>,
    on_refused:
        Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, c_int, *const c_char), User)>,
    on_code_missing:
        Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, *const farjump_code_id_t), User)>,
    on_joined: Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t), User)>,
    on_gone: Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, *const c_char), User)>,
}

type Builder = TargetBuilder<'static>;

impl farjump_target_options_t {
    /// Starts the builder of a target with these options.
    ///
    /// # Safety
    /// Exports and arguments, also [`Self::data`], must be valid for whatever injected functions do with them
    /// until the target is dropped.
    pub(crate) unsafe fn builder(&self, address: &str) -> Builder {
        let builder = Target::listen(address);
        // SAFETY: this function's caller guarantees it.
        let builder =
            set(builder, self.args.as_ref(), |builder, args| unsafe { builder.args_raw(args.address()) });
        // SAFETY: this function's caller guarantees it.
        let export = |builder: Builder, (name, address): &(String, Address)| unsafe {
            builder.export_raw(name, address.0)
        };
        let builder = self.exports.iter().fold(builder, export);
        // SAFETY: the header says that they are loaded; its caller is responsible for their constructors.
        let load = |builder: Builder, path| unsafe { builder.export_library(path) };
        let builder = self.libraries.iter().fold(builder, load);
        // SAFETY: the header says when they are loaded; its caller is responsible for their constructors.
        let want = |builder: Builder, soname| unsafe { builder.wanted_library(soname) };
        let builder = self.wanted.iter().fold(builder, want);
        let builder = self.local.iter().fold(builder, TargetBuilder::local);
        let builder = builder
            .process_symbols(self.process_symbols)
            .allow_export(self.allow_export)
            .prefault(self.prefault)
            .ucx_tcp(self.ucx_tcp)
            .clear(self.clear)
            .perf_map(self.perf_map)
            .crash_report(self.crash_report);
        #[cfg(feature = "bitcode")]
        let builder = set(builder, self.bitcode, |builder, preferred| {
            let mut options = farjump::CompilerOptions::default();
            options.program.clone_from(&self.compiler);
            options.cache.clone_from(&self.bitcode_cache);
            let when = if preferred { farjump::BitcodeUse::Preferred } else { farjump::BitcodeUse::Fallback };
            builder.compiler(options, when)
        });
        let builder = set(builder, self.debug, TargetBuilder::debug);
        let builder = self.debug_symbols.iter().fold(builder, TargetBuilder::debug_symbols);
        let builder = set(builder, self.rights, TargetBuilder::rights);
        let builder = set(builder, self.modes.as_deref(), TargetBuilder::modes);
        let builder = set(builder, self.arena_size, TargetBuilder::arena_size);
        let builder =
            set(builder, self.store, |builder, (bytes, images)| builder.store_capacity(bytes, images));
        let builder = set(builder, self.mailbox, TargetBuilder::mailbox_size);
        let builder = set(builder, self.wait, TargetBuilder::wait_policy);
        let builder = set(builder, self.stall_timeout.map(duration), TargetBuilder::stall_timeout);
        let builder = set(builder, self.handshake_timeout.map(duration), TargetBuilder::handshake_timeout);
        let builder = set(builder, self.control_interval.map(duration), TargetBuilder::control_interval);
        let builder = set(builder, self.max_sources, TargetBuilder::max_sources);
        let families =
            self.allowed.as_ref().map(|ids| ids.iter().map(|id| FamilyId(id.0)).collect::<Vec<_>>());
        let builder = set(builder, self.allowed.clone(), TargetBuilder::allow_code);
        let builder = set(builder, families, TargetBuilder::allow_family);
        let builder = set(builder, self.max_frame, TargetBuilder::max_frame);
        let builder = set(builder, self.max_image, TargetBuilder::max_image);
        let builder = set(builder, self.max_payload, TargetBuilder::max_payload);
        let builder = set(builder, self.max_source_memory, TargetBuilder::max_source_memory);
        let builder = set(builder, self.program.as_deref(), TargetBuilder::program);
        let builder = set(builder, self.transport.as_deref(), TargetBuilder::transport);
        let builder =
            self.destinations.iter().fold(builder, |builder, (name, at)| builder.destination(name, at));
        let builder = builder.forward_limits(self.forward_limits).allow_making(self.makes);
        let builder = set(builder, self.key.clone(), TargetBuilder::key);
        let builder = set(builder, self.key_file.as_deref(), TargetBuilder::key_file);
        let builder = set(builder, self.peer_timeout.map(duration), TargetBuilder::peer_timeout);
        let builder = set(builder, self.objects.as_ref().map(Store::service), TargetBuilder::objects);
        self.callbacks(builder)
    }

    /// Returns the data that a target made with them uses.
    pub(crate) fn data(&self) -> Option<Arc<Data>> {
        match &self.args {
            Some(Args::Data(data)) => Some(Arc::clone(data)),
            _ => None,
        }
    }

    fn callbacks(&self, builder: Builder) -> Builder {
        let builder = set(builder, self.on_refused, |builder, (function, user)| {
            builder.on_refused(move |peer, refusal| {
                let (peer, text) = (Peer::of(peer), c_text(&refusal.text));
                // SAFETY: the header requires a function of this type, which takes this pointer.
                unsafe { function(user.pointer(), peer.as_c(), cause_number(refusal.cause), text.as_ptr()) }
            })
        });
        let builder = set(builder, self.on_code_missing, |builder, (function, user)| {
            builder.on_code_missing(move |peer, id| {
                // SAFETY: as above.
                unsafe { function(user.pointer(), Peer::of(peer).as_c(), &farjump_code_id_t { bytes: id.0 }) }
            })
        });
        let builder = set(builder, self.on_joined, |builder, (function, user)| {
            // SAFETY: as above.
            builder.on_peer_joined(move |peer| unsafe { function(user.pointer(), Peer::of(peer).as_c()) })
        });
        set(builder, self.on_gone, |builder, (function, user)| {
            builder.on_peer_gone(move |peer, why| {
                // SAFETY: as above.
                unsafe { function(user.pointer(), Peer::of(peer).as_c(), c_text(why).as_ptr()) }
            })
        })
    }
}

/// Checks a name that injected code could import.
pub(crate) fn symbol(name: &str) -> Result<String, Failure> {
    match (1..=MAX_SYMBOL).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(name.to_owned()),
        false => {
            let shown: String = name.chars().take(64).collect();
            let text = format!(
                "no code can import `{}` of {} bytes: give 1 to {MAX_SYMBOL} visible ASCII characters",
                shown.escape_debug(),
                name.len()
            );
            Err(Failure::argument(text))
        }
    }
}

/// Checks a name that injected code could forward itself by.
pub(crate) fn destination_name(name: &str) -> Result<String, Failure> {
    if name.is_empty() {
        return Err(Failure::argument("a destination without a name cannot be forwarded to: give it one"));
    }
    Ok(name.to_owned())
}

/// Makes choices, all of them the defaults. farjump_target_options_free() ends them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_new(
    options: *mut *mut farjump_target_options_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer.
        let made = unsafe { variable(options, "options")? };
        *made = give(farjump_target_options_t::default());
        Ok(FARJUMP_OK)
    })
}

/// Frees them, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_free(
    options: *mut *mut farjump_target_options_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_target_options_new`, which
        // nothing else uses.
        drop(unsafe { take(options, "options", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Sets the third argument of every injected function. It stays the caller's. Until the target is closed, it
/// must be valid for every use by the functions, on the thread that polls the target. Default: NULL.
/// farjump_target_options_set_data() passes a file or bytes instead; the last of the two calls counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_args(
    options: *mut farjump_target_options_t,
    args: *mut c_void,
) -> farjump_status_t {
    change!(options, options.args = Some(Args::Lent(User::new(args))))
}

/// Offers a function to injected code, under `name`; code can be linked against exports only. The code must
/// declare it with the same types: nothing checks that. The last of two exports of one name counts. Exports
/// win over libraries and the process's symbols.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_export_function(
    options: *mut farjump_target_options_t,
    name: *const c_char,
    function: farjump_function_t,
) -> farjump_status_t {
    change!(options, {
        let name = symbol(text(name, "name")?)?;
        let function = function.ok_or_else(|| Failure::null("function"))?;
        options.exports.push((name, Address(function as *const c_void)));
    })
}

/// Offers the address of data to injected code, under `name`: `extern T name;` in C. It must be valid until
/// the target is closed. Otherwise it does the same as farjump_target_options_export_function().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_export_data(
    options: *mut farjump_target_options_t,
    name: *const c_char,
    data: *const c_void,
) -> farjump_status_t {
    change!(options, {
        let name = symbol(text(name, "name")?)?;
        if data.is_null() {
            return Err(Failure::null("data"));
        }
        options.exports.push((name, Address(data)));
    })
}

/// Offers every symbol of a shared library, by path or soname. The library is loaded when a target is made,
/// which runs its constructors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_export_library(
    options: *mut farjump_target_options_t,
    path: *const c_char,
) -> farjump_status_t {
    change!(options, options.libraries.push(self::path(path, "path")?.to_owned()))
}

/// Lets injected code that wants the library with this soname (`libz.so.1`) find its symbols, after all other
/// exports. Default: no library. An image names the libraries that it wants; the target never opens one that
/// is not among these. It opens the library when the first code comes that wants it and imports a symbol
/// found nowhere else. Opening runs its constructors. The library stays open until the process ends. A name
/// with a slash is an error when a target is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_wanted_library(
    options: *mut farjump_target_options_t,
    soname: *const c_char,
) -> farjump_status_t {
    change!(options, options.wanted.push(text(soname, "soname")?.to_owned()))
}

/// Sets whether the process's own dynamic symbols are offered, after everything else: all of libc, and the
/// libraries that the program was linked with, including this library's functions. Default: no.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_process_symbols(
    options: *mut farjump_target_options_t,
    offered: bool,
) -> farjump_status_t {
    change!(options, options.process_symbols = offered)
}

/// Adds the function of `library` to the target, for sources that choose FARJUMP_MODE_LOCAL: only its name
/// travels then. Making a target links it with the exports of that target, like code that travels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_add_local(
    options: *mut farjump_target_options_t,
    library: *const farjump_library_t,
) -> farjump_status_t {
    change!(options, options.local.push(object(library, "library")?.rust().clone()))
}

/// Sets whether `/tmp/perf-PID.map` lists the addresses of injected code, so that `perf report` shows it as
/// `ifunc:NAME`. Default: no. The file stays when the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_perf_map(
    options: *mut farjump_target_options_t,
    written: bool,
) -> farjump_status_t {
    change!(options, options.perf_map = written)
}

/// Sets whether standard error names the injected code that ended the process: by a fault, by a signal that
/// it sent to its own process, or by exit(). The process then ends as it would without the report. Default:
/// no. The first target of the process with this option installs handlers for faults, and for signals that
/// end a process and are not ignored. These handlers stay, and call the handlers installed before them after
/// the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_crash_report(
    options: *mut farjump_target_options_t,
    reported: bool,
) -> farjump_status_t {
    change!(options, options.crash_report = reported)
}

/// Has the target take bitcode (`farjump build --bitcode`), which the program `farjump_compiler` compiles for
/// this CPU. With `preferred` it takes the bitcode of all libraries that carry any, otherwise only of those
/// without an image for this CPU. Default: it takes no bitcode. Making a target starts the program, and fails
/// if that cannot compile. The program ends with the target. It opens LLVM: the library in the environment
/// variable `FARJUMP_LIBLLVM`, otherwise the newest that the dynamic linker finds, 17 or newer. If `RUSTC`
/// names a compiler of Rust, the library of its toolchain counts too.
///
/// FARJUMP_ERROR_ARGUMENT if this library was built without the compiler's client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_take_bitcode(
    options: *mut farjump_target_options_t,
    preferred: bool,
) -> farjump_status_t {
    if !cfg!(feature = "bitcode") {
        let text = "this libfarjump takes no bitcode: build it with the feature `bitcode`";
        return guarded(|| Err(Failure::argument(text)));
    }
    change!(options, options.bitcode = Some(preferred))
}

/// Sets the program of farjump_target_options_take_bitcode(). Default: the one in the environment variable
/// `FARJUMP_COMPILER`, otherwise `farjump_compiler` beside the program, or in `../libexec/farjump` from this
/// library's folder. A program that was not named runs only under two conditions: it and its folder belong to
/// root, this user or the owner of this library, and no other user can write them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_compiler(
    options: *mut farjump_target_options_t,
    program: *const c_char,
) -> farjump_status_t {
    change!(options, options.compiler = Some(self::path(program, "program")?.to_owned()))
}

/// Keeps the images that farjump_target_options_take_bitcode() has compiled in this folder, for later
/// targets. The folder has to be this user's, and no other user may be able to write it. Default: the target
/// keeps them in memory, until it ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_bitcode_cache(
    options: *mut farjump_target_options_t,
    folder: *const c_char,
) -> farjump_status_t {
    change!(options, options.bitcode_cache = Some(self::path(folder, "folder")?.to_owned()))
}

/// Sets whether a debugger can set breakpoints in injected code, and finds that code by itself. Default: no,
/// unless the environment variable `FARJUMP_DEBUG` has a value other than 0.
///
/// Each image then lies in pages of its own, which ptrace(2) can write: 4 KiB at least of
/// farjump_target_options_set_arena_size(). It is registered by GDB's JIT interface, under the name of its
/// main function, or with the symbols of farjump_target_options_add_debug_symbols(). Placing an image costs
/// more, and some milliseconds while gdb is attached; calls cost the same. Code of FARJUMP_MODE_IN_PLACE runs
/// in the mailbox, and takes hardware breakpoints alone. Debuggers find the interface in the symbol table of
/// this library, or of a program that was linked with it: not if that is stripped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_debug(
    options: *mut farjump_target_options_t,
    shown: bool,
) -> farjump_status_t {
    change!(options, options.debug = Some(shown))
}

/// Gives debuggers the functions, lines and variables of the ifunc library at `path` whenever its code comes,
/// if farjump_target_options_set_debug() is on. The library is the one that the source sends, built with
/// `farjump build -g`. It is read when a target is made, and none of its code runs. If it has no symbols,
/// farjump_target_listen() returns FARJUMP_ERROR_LIBRARY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_add_debug_symbols(
    options: *mut farjump_target_options_t,
    path: *const c_char,
) -> farjump_status_t {
    change!(options, options.debug_symbols.push(self::path(path, "path")?.to_owned()))
}

/// Names the target at `address` as destination `name`: injected code may forward itself there, by
/// farjump_forward(). The first call that goes there makes a link. Processes that may inject into this target
/// may then run code at the destination too. farjump_target_set_destination() does the same later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_add_destination(
    options: *mut farjump_target_options_t,
    name: *const c_char,
    address: *const c_char,
) -> farjump_status_t {
    change!(options, {
        let name = destination_name(text(name, "name")?)?;
        options.destinations.push((name, text(address, "address")?.to_owned()));
    })
}

/// Sets limits for functions that forward themselves, by farjump_forward() and farjump_again(). `messages`:
/// messages that one call may send (default 64). `hops`: targets that may forward a call, one after the
/// other, before it comes to an end here (256). `bytes`: payload that may wait for one destination, or to run
/// again here (a mailbox's capacity). `repeats`: times that a call may run again here (1,048,576). 0 for the
/// default of each. A call that would go farther fails at its source with FARJUMP_ERROR_INCOMPLETE, or with
/// FARJUMP_ERROR_REFUSED if it led to nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_forward_limits(
    options: *mut farjump_target_options_t,
    messages: usize,
    hops: u32,
    bytes: usize,
    repeats: u32,
) -> farjump_status_t {
    change!(options, {
        let mut limits = ForwardLimits::default();
        limits.messages = if messages == 0 { limits.messages } else { messages };
        limits.hops = if hops == 0 { limits.hops } else { hops };
        limits.bytes = if bytes == 0 { limits.bytes } else { Some(bytes) };
        limits.repeats = if repeats == 0 { limits.repeats } else { repeats };
        options.forward_limits = limits;
    })
}

/// Lets functions make code, as images or bitcode, and send it messages here and at destinations:
/// farjump_make(), farjump_inject(). The target treats the code like code that a source brings, with the same
/// checks and limits, except that its memory counts for no source. Default: no.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_allow_making(
    options: *mut farjump_target_options_t,
    allowed: bool,
) -> farjump_status_t {
    change!(options, options.makes = allowed)
}

/// Has `callback` run, with `user`, for each call that is refused. It runs inside calls on the target, on
/// their thread, and cannot use the target: such a call returns FARJUMP_ERROR_BUSY. NULL for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_refused(
    options: *mut farjump_target_options_t,
    callback: farjump_target_refused_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(options, options.on_refused = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, each time the target requests code from a source. Otherwise it does the
/// same as farjump_target_options_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_code_missing(
    options: *mut farjump_target_options_t,
    callback: farjump_target_code_missing_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(options, options.on_code_missing = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, for each source that has connected. Otherwise it does the same as
/// farjump_target_options_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_joined(
    options: *mut farjump_target_options_t,
    callback: farjump_target_joined_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(options, options.on_joined = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, for each source that is gone. Otherwise it does the same as
/// farjump_target_options_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_gone(
    options: *mut farjump_target_options_t,
    callback: farjump_target_gone_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(options, options.on_gone = callback.map(|callback| (callback, User::new(user))))
}
