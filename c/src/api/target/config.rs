//! A target's choices: options, arguments, exports and callbacks.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use farjump::core::image::MAX_SYMBOL;
use farjump::{Data, Key, Library, Target, TargetBuilder, TargetConfig};
use farjump_handles::Store;

use crate::api::c_text::c_text;
use crate::api::catch::{object, text};
use crate::api::config::{self, Options, apply, change, configuration};
use crate::api::last_error::Failure;
use crate::api::library::{farjump_code_id_t, farjump_library_t};
use crate::api::shared::{Peer, User, cause_number, farjump_peer_t, key_of};
use crate::api::status::farjump_status_t;

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

/// Options, arguments, exports and callbacks for targets. Only the exports have no usable default. One thread
/// changes it at a time; any number may make targets with it at once. It is copied when a target is made.
#[derive(Default)]
pub struct farjump_target_config_t {
    pub(crate) options: Options<TargetConfig>,
    pub(crate) args: Option<Args>,
    exports: Vec<(String, Address)>,
    local: Vec<Library>,
    key: Option<Key>,
    pub(crate) objects: Option<Store>,
    on_refused:
        Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, c_int, *const c_char), User)>,
    on_code_missing:
        Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, *const farjump_code_id_t), User)>,
    on_joined: Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t), User)>,
    on_gone: Option<(unsafe extern "C" fn(*mut c_void, *const farjump_peer_t, *const c_char), User)>,
}

configuration!(farjump_target_config_t of TargetConfig);

type Builder = TargetBuilder<'static>;

impl farjump_target_config_t {
    /// Starts the builder of a target of this configuration.
    ///
    /// # Safety
    /// Exports and arguments, also [`Self::data`], must be valid for whatever injected functions do with them
    /// until the target is dropped.
    pub(crate) unsafe fn builder(&self, address: &str) -> Builder {
        let config = &self.options.config;
        let builder = Target::listen(address).config(config.clone());
        // SAFETY: the header says when libraries are loaded; its caller is responsible for their constructors.
        let builder = unsafe { builder.load_libraries() };
        // SAFETY: this function's caller guarantees it.
        let builder =
            apply(builder, self.args.as_ref(), |builder, args| unsafe { builder.args_raw(args.address()) });
        // SAFETY: this function's caller guarantees it.
        let export = |builder: Builder, (name, address): &(String, Address)| unsafe {
            builder.export_raw(name, address.0)
        };
        let builder = self.exports.iter().fold(builder, export);
        let builder = self.local.iter().fold(builder, TargetBuilder::local);
        // A file that was named after the key was set replaces it, also for destinations.
        let key = self.key.clone().filter(|_| config.key_file.is_none());
        let builder = apply(builder, key, TargetBuilder::key);
        let builder = apply(builder, self.objects.as_ref().map(Store::service), TargetBuilder::objects);
        self.callbacks(builder)
    }

    /// Returns the data that a target of this configuration uses.
    pub(crate) fn data(&self) -> Option<Arc<Data>> {
        match &self.args {
            Some(Args::Data(data)) => Some(Arc::clone(data)),
            _ => None,
        }
    }

    fn callbacks(&self, builder: Builder) -> Builder {
        let builder = apply(builder, self.on_refused, |builder, (function, user)| {
            builder.on_refused(move |peer, refusal| {
                let (peer, text) = (Peer::of(peer), c_text(&refusal.text));
                // SAFETY: the header requires a function of this type, which takes this pointer.
                unsafe { function(user.pointer(), peer.as_c(), cause_number(refusal.cause), text.as_ptr()) }
            })
        });
        let builder = apply(builder, self.on_code_missing, |builder, (function, user)| {
            builder.on_code_missing(move |peer, id| {
                // SAFETY: as above.
                unsafe { function(user.pointer(), Peer::of(peer).as_c(), &farjump_code_id_t { bytes: id.0 }) }
            })
        });
        let builder = apply(builder, self.on_joined, |builder, (function, user)| {
            // SAFETY: as above.
            builder.on_peer_joined(move |peer| unsafe { function(user.pointer(), Peer::of(peer).as_c()) })
        });
        apply(builder, self.on_gone, |builder, (function, user)| {
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

/// Makes a configuration, all of its options the defaults. farjump_target_config_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_new(
    config: *mut *mut farjump_target_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable for a pointer.
    unsafe { config::new(config) }
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_free(
    config: *mut *mut farjump_target_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with one of `farjump_target_config_new`, which nothing else uses.
    unsafe { config::free(config) }
}

/// Sets the option `name` to `value`. docs/reference/options.md lists the options of targets. The top of this
/// header says how values are written. Shared libraries that options name run their constructors when they
/// are loaded: those of `export-library` when a target is made, those of `wanted-library` when code wants
/// them.
///
/// FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_set(
    config: *mut farjump_target_config_t,
    name: *const c_char,
    value: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_target_config_new` that nothing else uses, and texts.
    unsafe { config::set(config, name, value) }
}

/// Gives the value of the option `name`, as farjump_target_config_set() takes it; otherwise it does the
/// same as farjump_link_config_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_get(
    config: *mut farjump_target_config_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_target_config_new` that nothing else uses, a text, and a
    // variable for a pointer.
    unsafe { config::get(config, name, value) }
}

/// Sets the third argument of every injected function. It stays the caller's. Until the target is closed, it
/// must be valid for every use by the functions, on the thread that polls the target. Default: NULL.
/// farjump_target_config_set_data() passes a file or bytes instead; the last of the two calls counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_set_args(
    config: *mut farjump_target_config_t,
    args: *mut c_void,
) -> farjump_status_t {
    change!(config, config.args = Some(Args::Lent(User::new(args))))
}

/// Offers a function to injected code, under `name`; code can be linked against exports only. The code must
/// declare it with the same types: nothing checks that. The last of two exports of one name counts. Exports
/// win over libraries and the process's symbols.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_export_function(
    config: *mut farjump_target_config_t,
    name: *const c_char,
    function: farjump_function_t,
) -> farjump_status_t {
    change!(config, {
        let name = symbol(text(name, "name")?)?;
        let function = function.ok_or_else(|| Failure::null("function"))?;
        config.exports.push((name, Address(function as *const c_void)));
    })
}

/// Offers the address of data to injected code, under `name`: `extern T name;` in C. It must be valid until
/// the target is closed. Otherwise it does the same as farjump_target_config_export_function().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_export_data(
    config: *mut farjump_target_config_t,
    name: *const c_char,
    data: *const c_void,
) -> farjump_status_t {
    change!(config, {
        let name = symbol(text(name, "name")?)?;
        if data.is_null() {
            return Err(Failure::null("data"));
        }
        config.exports.push((name, Address(data)));
    })
}

/// Adds the function of `library` to the target, for sources that choose FARJUMP_MODE_LOCAL: only its name
/// travels then. Making a target links it with the exports of that target, like code that travels. The option
/// `local` does the same for files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_add_local(
    config: *mut farjump_target_config_t,
    library: *const farjump_library_t,
) -> farjump_status_t {
    change!(config, config.local.push(object(library, "library")?.rust().clone()))
}

/// Sets the key that sources have too, for a target at `tcp:HOST:PORT`, and that destinations at such
/// addresses have: 32 bytes, as hard to guess as random ones. The target admits processes that have the key.
/// Without a key a target listens on this machine's loopback only. No effect on Unix sockets. The last one of
/// this function and the option `key-file` counts. The bytes are copied, and wiped when the configuration is
/// freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_set_key(
    config: *mut farjump_target_config_t,
    key: *const u8,
) -> farjump_status_t {
    change!(config, (config.key, config.options.config.key_file) = (Some(key_of(key)?), None))
}

/// Has `callback` run, with `user`, for each call that is refused. It runs inside calls on the target, on
/// their thread, and cannot use the target: such a call returns FARJUMP_ERROR_BUSY. NULL for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_on_refused(
    config: *mut farjump_target_config_t,
    callback: farjump_target_refused_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(config, config.on_refused = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, each time the target requests code from a source. Otherwise it does the
/// same as farjump_target_config_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_on_code_missing(
    config: *mut farjump_target_config_t,
    callback: farjump_target_code_missing_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(config, config.on_code_missing = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, for each source that has connected. Otherwise it does the same as
/// farjump_target_config_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_on_joined(
    config: *mut farjump_target_config_t,
    callback: farjump_target_joined_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(config, config.on_joined = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, for each source that is gone. Otherwise it does the same as
/// farjump_target_config_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_on_gone(
    config: *mut farjump_target_config_t,
    callback: farjump_target_gone_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(config, config.on_gone = callback.map(|callback| (callback, User::new(user))))
}
