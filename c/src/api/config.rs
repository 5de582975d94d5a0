//! Options by name: the common part of C's configurations.

use std::ffi::{CString, c_char};
use std::ptr;

use farjump::config::{Config, Given, Interfaces, Origin};

use crate::api::c_text::c_text;
use crate::api::catch::{give, guarded, object_mut, place, take, text, variable};
use crate::api::last_error::Failure;
use crate::api::status::farjump_status_t::{self, *};

/// The options of one of C's configurations.
#[derive(Debug, Default)]
pub(crate) struct Options<C> {
    pub(crate) config: C,
    /// The value that C has read last.
    shown: CString,
}

/// A configuration of C's: options, and what is no plain value.
pub(crate) trait Configuration: Default {
    type Config: Config;

    fn options(&self) -> &Options<Self::Config>;
    fn options_mut(&mut self) -> &mut Options<Self::Config>;
}

/// Implements [`Configuration`] for one of C's types by its field `options`.
macro_rules! configuration {
    ($own:ident of $config:ident) => {
        impl $crate::api::config::Configuration for $own {
            type Config = farjump::config::$config;

            fn options(&self) -> &$crate::api::config::Options<farjump::config::$config> {
                &self.options
            }

            fn options_mut(&mut self) -> &mut $crate::api::config::Options<farjump::config::$config> {
                &mut self.options
            }
        }
    };
}
pub(crate) use configuration;

/// Makes a configuration, all of its options the defaults.
///
/// # Safety
/// Unless it is NULL, `config` must be writable for a pointer.
pub(crate) unsafe fn new<T: Configuration>(config: *mut *mut T) -> farjump_status_t {
    guarded(|| {
        // SAFETY: this function's caller guarantees it.
        let made = unsafe { variable(config, "config")? };
        *made = give(T::default());
        Ok(FARJUMP_OK)
    })
}

/// Frees a configuration.
///
/// # Safety
/// Unless it is NULL, `config` must hold NULL or the result of [`new`], which nothing else uses.
pub(crate) unsafe fn free<T: Configuration>(config: *mut *mut T) -> farjump_status_t {
    guarded(|| {
        // SAFETY: this function's caller guarantees it.
        drop(unsafe { take(config, "config", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Sets an option by its name.
///
/// # Safety
/// Each pointer must be NULL or valid: `config` the result of [`new`], which nothing else uses, the others texts.
pub(crate) unsafe fn set<T: Configuration>(
    config: *mut T,
    name: *const c_char,
    value: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: this function's caller guarantees it.
        let (config, name, value) =
            unsafe { (object_mut(config, "config")?, text(name, "name")?, text(value, "value")?) };
        let config = &mut config.options_mut().config;
        config.set_from(name, &Given::Text(value), Origin::Program, Interfaces::C)?;
        Ok(FARJUMP_OK)
    })
}

/// Gives C the value of an option. The configuration keeps the text until it gives the next one.
///
/// # Safety
/// As [`set`], and `value` must be NULL or writable for a pointer.
pub(crate) unsafe fn get<T: Configuration>(
    config: *mut T,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: this function's caller guarantees it.
        let options = unsafe { object_mut(config, "config")? }.options_mut();
        // SAFETY: this function's caller guarantees it.
        unsafe { show(&options.config, name, &mut options.shown, value) }
    })
}

/// Gives C the value of an option as a text in `shown`, or NULL if it has none.
///
/// # Errors
/// A pointer is NULL, or the option is unknown.
///
/// # Safety
/// Unless they are NULL, `name` must be a text, and `value` writable for a pointer.
pub(crate) unsafe fn show<C: Config>(
    config: &C,
    name: *const c_char,
    shown: &mut CString,
    value: *mut *const c_char,
) -> Result<farjump_status_t, Failure> {
    // SAFETY: this function's caller guarantees it.
    let given = unsafe { place(value, "value")? }.write(ptr::null());
    // SAFETY: this function's caller guarantees it.
    let name = unsafe { text(name, "name")? };
    if let Some(value) = config.get_from(name, Interfaces::C)? {
        *shown = c_text(&value);
        *given = shown.as_ptr();
    }
    Ok(FARJUMP_OK)
}

/// Returns the options of a configuration; those of NULL are the defaults.
///
/// # Safety
/// Unless it is NULL, `config` must be the result of [`new`], and nothing may change it meanwhile.
pub(crate) unsafe fn chosen<T: Configuration>(config: *const T) -> T::Config {
    // SAFETY: this function's caller guarantees it.
    unsafe { config.as_ref() }.map(|config| config.options().config.clone()).unwrap_or_default()
}

/// Applies a choice to a builder, if it was made.
pub(crate) fn apply<B, T>(builder: B, choice: Option<T>, with: impl FnOnce(B, T) -> B) -> B {
    match choice {
        Some(choice) => with(builder, choice),
        None => builder,
    }
}

/// The body of a function that changes what a configuration has beside its options: `$change` is run with
/// `$config` as a reference.
macro_rules! change {
    ($config:ident, $change:expr) => {
        $crate::api::catch::guarded(|| {
            // SAFETY: the header requires a configuration that nothing else uses, and valid texts, keys, data,
            // libraries and stores where the function has them as arguments.
            unsafe {
                let $config = $crate::api::catch::object_mut($config, "config")?;
                $change;
            }
            Ok($crate::api::status::farjump_status_t::FARJUMP_OK)
        })
    };
}
pub(crate) use change;
