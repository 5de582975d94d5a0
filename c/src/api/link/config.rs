//! A source's choices for a link.

use std::ffi::{c_char, c_int, c_void};

use farjump::{Key, Link, LinkBuilder, LinkConfig};

use crate::api::c_text::c_text;
use crate::api::config::{self, Options, apply, change, configuration};
use crate::api::shared::{User, cause_number, key_of};
use crate::api::status::farjump_status_t;

/// Runs when the target refuses a one-way call: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and its kin, `text`
/// says more, belongs to the library, and is valid until the callback returns.
pub type farjump_link_refused_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, cause: c_int, text: *const c_char)>;

/// Runs once when the target is gone. `why` belongs to the library, and is valid until the callback returns.
pub type farjump_link_gone_fn = Option<unsafe extern "C" fn(user: *mut c_void, why: *const c_char)>;

/// Runs when the target requests the code of the ifunc called `name` again. The text belongs to the library,
/// and is valid until the callback returns.
pub type farjump_link_code_missing_fn = Option<unsafe extern "C" fn(user: *mut c_void, name: *const c_char)>;

/// Options and callbacks for links. The defaults suit a program on the same machine as its target. One thread
/// changes it at a time; any number may connect with it at once. It is copied when a link is made.
#[derive(Default)]
pub struct farjump_link_config_t {
    pub(crate) options: Options<LinkConfig>,
    key: Option<Key>,
    on_refused: Option<(unsafe extern "C" fn(*mut c_void, c_int, *const c_char), User)>,
    on_gone: Option<(unsafe extern "C" fn(*mut c_void, *const c_char), User)>,
    on_code_missing: Option<(unsafe extern "C" fn(*mut c_void, *const c_char), User)>,
}

configuration!(farjump_link_config_t of LinkConfig);

impl farjump_link_config_t {
    /// Starts the builder of a link of this configuration.
    pub(crate) fn builder(&self, address: &str) -> LinkBuilder {
        let builder = Link::builder(address).config(self.options.config.clone());
        let builder = apply(builder, self.key.clone(), LinkBuilder::key);
        let builder = apply(builder, self.on_refused, |builder, (function, user)| {
            builder.on_refused(move |refusal| {
                // SAFETY: the header requires a function of this type, which takes this pointer.
                unsafe {
                    function(user.pointer(), cause_number(refusal.cause), c_text(&refusal.text).as_ptr())
                }
            })
        });
        let builder = apply(builder, self.on_gone, |builder, (function, user)| {
            // SAFETY: as above.
            builder.on_peer_gone(move |why| unsafe { function(user.pointer(), c_text(why).as_ptr()) })
        });
        apply(builder, self.on_code_missing, |builder, (function, user)| {
            // SAFETY: as above.
            builder.on_code_missing(move |name| unsafe { function(user.pointer(), c_text(name).as_ptr()) })
        })
    }
}

/// Makes a configuration, all of its options the defaults. farjump_link_config_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_new(
    config: *mut *mut farjump_link_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable for a pointer.
    unsafe { config::new(config) }
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_free(
    config: *mut *mut farjump_link_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with one of `farjump_link_config_new`, which nothing else uses.
    unsafe { config::free(config) }
}

/// Sets the option `name` to `value`. docs/reference/options.md lists the options of links. The top of this
/// header says how values are written.
///
/// FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_set(
    config: *mut farjump_link_config_t,
    name: *const c_char,
    value: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_link_config_new` that nothing else uses, and texts.
    unsafe { config::set(config, name, value) }
}

/// Gives the value of the option `name`, as farjump_link_config_set() takes it: NULL if it has none, so that
/// its default depends on other options or the machine. The text belongs to the configuration, and is valid
/// until the next call of this function for it.
///
/// FARJUMP_ERROR_ARGUMENT if no option has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_get(
    config: *mut farjump_link_config_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_link_config_new` that nothing else uses, a text, and a variable
    // for a pointer.
    unsafe { config::get(config, name, value) }
}

/// Sets the key that the target has too, for a target at `tcp:HOST:PORT`: 32 bytes, as hard to guess as
/// random ones. The control connection is then encrypted with it; of the transports, only `tcp` encrypts
/// frames. No effect on Unix sockets. The last one of this function and the option `key-file` counts. The
/// bytes are copied, and wiped when the configuration is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_set_key(
    config: *mut farjump_link_config_t,
    key: *const u8,
) -> farjump_status_t {
    // A file that is named later goes before the key.
    change!(config, (config.key, config.options.config.key_file) = (Some(key_of(key)?), None))
}

/// Has `callback` run, with `user`, for each one-way call that the target refuses. It runs inside calls on
/// the link, on their thread, and cannot use the link: such a call returns FARJUMP_ERROR_BUSY. NULL for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_on_refused(
    config: *mut farjump_link_config_t,
    callback: farjump_link_refused_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(config, config.on_refused = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, once when the target is gone. Otherwise it does the same as
/// farjump_link_config_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_on_gone(
    config: *mut farjump_link_config_t,
    callback: farjump_link_gone_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(config, config.on_gone = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, each time the target requests code again. Otherwise it does the same as
/// farjump_link_config_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_config_on_code_missing(
    config: *mut farjump_link_config_t,
    callback: farjump_link_code_missing_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(config, config.on_code_missing = callback.map(|callback| (callback, User::new(user))))
}
