//! What a target may choose.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use farjump::core::image::MAX_SYMBOL;
use farjump::{CodeId, Key, Library, Mode, Rights, Target, TargetBuilder, WaitPolicy};

use crate::api::choices::{Peer, User, cause_number, change, farjump_peer_t, set};
use crate::api::library::{farjump_code_id_t, farjump_library_t};
use crate::api::status::farjump_status_t::{self, *};
use crate::boundary::{c_text, duration, give, guarded, object, path, take, text, variable};
use crate::failure::Failure;

/// Any function, to be offered to injected code: cast it to this.
pub type farjump_function_t = Option<unsafe extern "C" fn()>;

/// Runs for each call of a source that is refused: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and its kin. `peer` and `text` are
/// the library's, valid until the callback returns.
pub type farjump_target_refused_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t, cause: c_int, text: *const c_char),
>;

/// Runs each time a source is asked for the code `id`. `peer` and `id` are the library's, valid until the callback returns.
pub type farjump_target_code_missing_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t, id: *const farjump_code_id_t),
>;

/// Runs for each source that has connected. `peer` is the library's, valid until the callback returns.
pub type farjump_target_joined_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t)>;

/// Runs for each source that is gone. `peer` and `why` are the library's, valid until the callback returns.
pub type farjump_target_gone_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, peer: *const farjump_peer_t, why: *const c_char)>;

/// An address that C offers to injected code.
#[derive(Clone, Copy)]
struct Address(*const c_void);

// SAFETY: nothing here looks at what it points to. The header asks that it may be used on whichever thread polls the target.
unsafe impl Send for Address {}
// SAFETY: as above: it is only copied.
unsafe impl Sync for Address {}

/// Choices for targets, each of which but the exports has a default that suits. One thread changes them at a time; any number may
/// make targets with them at once. They are copied when a target is made.
#[derive(Default)]
pub struct farjump_target_options_t {
    args: Option<User>,
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
    pub(crate) code_room: Option<usize>,
    pub(crate) store: Option<(usize, usize)>,
    pub(crate) mailbox: Option<usize>,
    pub(crate) wait: Option<WaitPolicy>,
    pub(crate) stall_limit: Option<u64>,
    pub(crate) meeting_limit: Option<u64>,
    pub(crate) control_interval: Option<u64>,
    pub(crate) max_sources: Option<usize>,
    pub(crate) allowed: Option<Vec<CodeId>>,
    pub(crate) max_frame: Option<usize>,
    pub(crate) max_image: Option<usize>,
    pub(crate) max_payload: Option<usize>,
    pub(crate) max_source_memory: Option<usize>,
    pub(crate) transport: Option<String>,
    pub(crate) ucx_tcp: bool,
    pub(crate) clear: bool,
    peers: Vec<(String, String)>,
    pub(crate) key: Option<Key>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) peer_timeout: Option<u64>,
    on_refused:
        Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, c_int, *const c_char), User)>,
    on_code_missing:
        Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, *const farjump_code_id_t), User)>,
    on_joined: Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t), User)>,
    on_gone: Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, *const c_char), User)>,
}

type Builder = TargetBuilder<'static>;

impl farjump_target_options_t {
    /// A target to be made with them.
    ///
    /// # Safety
    /// What is exported, and the arguments, must be valid for whatever injected functions do with it until the target is dropped.
    pub(crate) unsafe fn builder(&self, address: &str) -> Builder {
        let builder = Target::listen(address);
        // SAFETY: the caller's promise.
        let builder = set(builder, self.args, |builder, args| unsafe { builder.args_raw(args.pointer()) });
        // SAFETY: the caller's promise.
        let export = |builder: Builder, (name, address): &(String, Address)| unsafe {
            builder.export_raw(name, address.0)
        };
        let builder = self.exports.iter().fold(builder, export);
        // SAFETY: the header says that they are loaded, by whoever named them.
        let load = |builder: Builder, path| unsafe { builder.export_library(path) };
        let builder = self.libraries.iter().fold(builder, load);
        // SAFETY: the header says when they are loaded, by whoever named them.
        let want = |builder: Builder, soname| unsafe { builder.wanted_library(soname) };
        let builder = self.wanted.iter().fold(builder, want);
        let builder = self.local.iter().fold(builder, TargetBuilder::local);
        let builder = builder
            .process_symbols(self.process_symbols)
            .allow_export(self.allow_export)
            .ucx_tcp(self.ucx_tcp)
            .clear(self.clear)
            .perf_map(self.perf_map)
            .crash_report(self.crash_report);
        let builder = set(builder, self.rights, TargetBuilder::rights);
        let builder = set(builder, self.modes.as_deref(), TargetBuilder::modes);
        let builder = set(builder, self.code_room, TargetBuilder::code_room);
        let builder =
            set(builder, self.store, |builder, (bytes, images)| builder.store_capacity(bytes, images));
        let builder = set(builder, self.mailbox, TargetBuilder::mailbox);
        let builder = set(builder, self.wait, TargetBuilder::wait_policy);
        let builder = set(builder, self.stall_limit.map(duration), TargetBuilder::stall_limit);
        let builder = set(builder, self.meeting_limit.map(duration), TargetBuilder::meeting_limit);
        let builder = set(builder, self.control_interval.map(duration), TargetBuilder::control_interval);
        let builder = set(builder, self.max_sources, TargetBuilder::max_sources);
        let builder = set(builder, self.allowed.clone(), TargetBuilder::allow_code);
        let builder = set(builder, self.max_frame, TargetBuilder::max_frame);
        let builder = set(builder, self.max_image, TargetBuilder::max_image);
        let builder = set(builder, self.max_payload, TargetBuilder::max_payload);
        let builder = set(builder, self.max_source_memory, TargetBuilder::max_source_memory);
        let builder = set(builder, self.transport.as_deref(), TargetBuilder::transport);
        let builder = self.peers.iter().fold(builder, |builder, (name, at)| builder.peer(name, at));
        let builder = set(builder, self.key.clone(), TargetBuilder::key);
        let builder = set(builder, self.key_file.as_deref(), TargetBuilder::key_file);
        let builder = set(builder, self.peer_timeout.map(duration), TargetBuilder::peer_timeout);
        self.callbacks(builder)
    }

    fn callbacks(&self, builder: Builder) -> Builder {
        let builder = set(builder, self.on_refused, |builder, (function, user)| {
            builder.on_refused(move |peer, refusal| {
                let (peer, text) = (Peer::of(peer), c_text(&refusal.text));
                // SAFETY: the header asks for a function of this type, which takes this pointer.
                unsafe { function(user.pointer(), peer.told(), cause_number(refusal.cause), text.as_ptr()) }
            })
        });
        let builder = set(builder, self.on_code_missing, |builder, (function, user)| {
            builder.on_code_missing(move |peer, id| {
                // SAFETY: as above.
                unsafe { function(user.pointer(), Peer::of(peer).told(), &farjump_code_id_t { bytes: id.0 }) }
            })
        });
        let builder = set(builder, self.on_joined, |builder, (function, user)| {
            // SAFETY: as above.
            builder.on_peer_joined(move |peer| unsafe { function(user.pointer(), Peer::of(peer).told()) })
        });
        set(builder, self.on_gone, |builder, (function, user)| {
            builder.on_peer_gone(move |peer, why| {
                // SAFETY: as above.
                unsafe { function(user.pointer(), Peer::of(peer).told(), c_text(why).as_ptr()) }
            })
        })
    }
}

/// A name that injected code could import.
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

/// A name that injected code could forward itself by.
pub(crate) fn peer_name(name: &str) -> Result<String, Failure> {
    if name.is_empty() {
        return Err(Failure::argument("a peer without a name cannot be forwarded to: give it one"));
    }
    Ok(name.to_owned())
}

/// Makes choices, all of them the defaults. farjump_target_options_free() ends them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_new(
    options: *mut *mut farjump_target_options_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a place for a pointer.
        let made = unsafe { variable(options, "options")? };
        *made = give(farjump_target_options_t::default());
        Ok(FARJUMP_OK)
    })
}

/// Frees them, and sets the variable to NULL. One that is NULL already is none to be freed, and no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_free(
    options: *mut *mut farjump_target_options_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a variable with one of `farjump_target_options_new`, used by nobody else.
        drop(unsafe { take(options, "options", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// What every injected function gets as its third argument. It stays the caller's, and must be valid for whatever they do with it, on
/// the thread that polls the target, until the target is closed. NULL unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_args(
    options: *mut farjump_target_options_t,
    args: *mut c_void,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.args = Some(User::new(args));
            Ok(())
        })
    }
}

/// Offers a function to injected code, under `name`; nothing but what is offered can be linked against. The code must declare it with
/// the same types: nothing checks that. Of two under one name the last one is meant. Exports win over libraries and the process's
/// symbols.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_export_function(
    options: *mut farjump_target_options_t,
    name: *const c_char,
    function: farjump_function_t,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for texts.
    unsafe {
        change(options, |options| {
            let name = symbol(text(name, "name")?)?;
            let function = function.ok_or_else(|| Failure::null("function"))?;
            options.exports.push((name, Address(function as *const c_void)));
            Ok(())
        })
    }
}

/// Offers the address of data to injected code, under `name`: `extern T name;` in C. It must be valid until the target is closed. As
/// farjump_target_options_export_function() otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_export_data(
    options: *mut farjump_target_options_t,
    name: *const c_char,
    data: *const c_void,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for texts.
    unsafe {
        change(options, |options| {
            let name = symbol(text(name, "name")?)?;
            if data.is_null() {
                return Err(Failure::null("data"));
            }
            options.exports.push((name, Address(data)));
            Ok(())
        })
    }
}

/// Offers every symbol of a shared library, by path or soname. It is loaded when a target is made, which runs its constructors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_export_library(
    options: *mut farjump_target_options_t,
    path: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for texts.
    unsafe {
        change(options, |options| {
            options.libraries.push(self::path(path, "path")?.to_owned());
            Ok(())
        })
    }
}

/// Lets injected code that wants the library with this soname (`libz.so.1`) find what it defines, after all else that is offered.
/// None unless set. An image names the libraries that it wants; one that is not among these is never opened. It is opened when
/// the first code that wants it comes and imports something that is not offered otherwise, which runs its constructors, and
/// stays open until the process ends. A name with a slash is an error when a target is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_wanted_library(
    options: *mut farjump_target_options_t,
    soname: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for texts.
    unsafe {
        change(options, |options| {
            options.wanted.push(text(soname, "soname")?.to_owned());
            Ok(())
        })
    }
}

/// Whether the process's own dynamic symbols are offered, after everything else: all of libc, and what the program was linked with,
/// this library's functions among it. Off unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_process_symbols(
    options: *mut farjump_target_options_t,
    offered: bool,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.process_symbols = offered;
            Ok(())
        })
    }
}

/// Has the function of `library` here, for sources that choose FARJUMP_MODE_LOCAL: only its name travels then. It is linked with what
/// the target offers, as code that travels is, when a target is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_add_local(
    options: *mut farjump_target_options_t,
    library: *const farjump_library_t,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for an open library.
    unsafe {
        change(options, |options| {
            options.local.push(object(library, "library")?.rust().clone());
            Ok(())
        })
    }
}

/// Whether `/tmp/perf-PID.map` says where injected code lies, so that `perf report` shows it as `ifunc:NAME`. Off unless set. The file
/// stays when the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_perf_map(
    options: *mut farjump_target_options_t,
    written: bool,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.perf_map = written;
            Ok(())
        })
    }
}

/// Whether standard error says which injected code it was that crashed. Then the process ends as it would have. Off unless set.
/// Handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT are installed by the first target of the process that asks
/// for it, and stay; what was installed before is called after the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_crash_report(
    options: *mut farjump_target_options_t,
    reported: bool,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.crash_report = reported;
            Ok(())
        })
    }
}

/// Knows the target at `address` by `name`: injected code may forward itself there, by farjump_forward(). A link is made when the first
/// call goes there. Who may inject into this target may then have code run at that one too. farjump_target_set_peer() does the same
/// later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_add_peer(
    options: *mut farjump_target_options_t,
    name: *const c_char,
    address: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for texts.
    unsafe {
        change(options, |options| {
            options.peers.push((peer_name(text(name, "name")?)?, text(address, "address")?.to_owned()));
            Ok(())
        })
    }
}

/// Has `callback` run, with `user`, for each call that is refused. It runs inside calls on the target, on their thread, and cannot use the
/// target: that is FARJUMP_ERROR_BUSY. NULL for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_refused(
    options: *mut farjump_target_options_t,
    callback: farjump_target_refused_fn,
    user: *mut c_void,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.on_refused = callback.map(|callback| (callback, User::new(user)));
            Ok(())
        })
    }
}

/// Has `callback` run, with `user`, each time a source is asked for code. As farjump_target_options_on_refused() otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_code_missing(
    options: *mut farjump_target_options_t,
    callback: farjump_target_code_missing_fn,
    user: *mut c_void,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.on_code_missing = callback.map(|callback| (callback, User::new(user)));
            Ok(())
        })
    }
}

/// Has `callback` run, with `user`, for each source that has connected. As farjump_target_options_on_refused() otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_joined(
    options: *mut farjump_target_options_t,
    callback: farjump_target_joined_fn,
    user: *mut c_void,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.on_joined = callback.map(|callback| (callback, User::new(user)));
            Ok(())
        })
    }
}

/// Has `callback` run, with `user`, for each source that is gone. As farjump_target_options_on_refused() otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_on_gone(
    options: *mut farjump_target_options_t,
    callback: farjump_target_gone_fn,
    user: *mut c_void,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.on_gone = callback.map(|callback| (callback, User::new(user)));
            Ok(())
        })
    }
}
