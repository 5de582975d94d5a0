//! Handles of ifuncs, and the names registered for each context.
//!
//! A handle's memory is never freed, so that a deregistered one can be distinguished from a valid one; a few
//! hundred bytes each.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use farjump_core::frame::MAX_NAME;
use farjump_core::image::{CodeId, Machine, Platform};
use farjump_loader::{Library, bundle};
use farjump_ucx_sys::{UCS_ERR_CANCELED, UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_INVALID_PARAM, UCS_ERR_IO_ERROR};

use super::Refused;
use super::frame::Key;
use super::registry::{self, Function};

/// End of messages that concern a library's file.
pub(super) const WHERE: &str = "UCX_IFUNC_LIB_DIR names the directory";
/// Directory of libraries, unless `UCX_IFUNC_LIB_DIR` names another.
const DIRECTORY: &str = "/usr/lib";

/// Target of `ucp_ifunc_h`.
#[derive(Debug)]
pub(super) struct Ifunc {
    name: String,
    source: Mutex<Option<Source>>,
}

/// Source of an ifunc's payloads and code.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Its library.
    Library(Library),
    /// Code that came in a frame. There are no payload routines: the arguments are the payload.
    Came(&'static Function),
}

impl Source {
    /// The code that travels; `None` if only the name can.
    pub(super) fn image(&self) -> Option<(CodeId, &[u8])> {
        match self {
            Source::Library(library) => {
                let image = library.image_for(Platform::baseline(Machine::native()?)).ok()?;
                Some((image.id(), image.bytes()))
            }
            Source::Came(function) => function.image(),
        }
    }

    /// log2 of the payload alignment that the code requires, 0 if the default will do.
    pub(super) fn payload_align_log2(&self) -> u8 {
        match self {
            Source::Library(library) => Machine::native()
                .and_then(|machine| library.image_for(Platform::baseline(machine)).ok())
                .map_or(0, |image| image.payload_align_log2()),
            Source::Came(function) => function.payload_align_log2(),
        }
    }

    /// The key in its frames.
    pub(super) fn key(&self, name: &str) -> Key {
        self.image().map_or_else(|| Key::of_name(name), |(id, _)| Key::of_code(&id))
    }
}

impl Ifunc {
    /// An ifunc that is registered nowhere yet.
    pub(super) fn new(name: &str, source: Source) -> Ifunc {
        Ifunc { name: name.to_owned(), source: Mutex::new(Some(source)) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The source for messages.
    ///
    /// # Errors
    /// [`UCS_ERR_INVALID_PARAM`] once it was deregistered.
    pub(super) fn source(&self) -> Result<Source, Refused> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        source.clone().ok_or_else(|| {
            Refused::new(UCS_ERR_INVALID_PARAM, format!("`{}` was deregistered by this handle", self.name))
        })
    }
}

/// The names of each context, which is identified by its address.
static REGISTERED: Mutex<Option<HashMap<usize, HashMap<String, &'static Ifunc>>>> = Mutex::new(None);

/// Registers `name` for a context: from its library in the directory or, where there is none, from code that
/// came in a frame. A name that is registered already gives the existing handle.
///
/// # Errors
/// [`UCS_ERR_INVALID_PARAM`] and [`UCS_ERR_EXCEEDS_LIMIT`] for an invalid name; [`UCS_ERR_IO_ERROR`] where
/// its library cannot be opened.
pub(super) fn register(context: usize, name: &str) -> Result<&'static Ifunc, Refused> {
    check_name(name)?;
    let registered = |name: &str| -> Option<&'static Ifunc> {
        let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        all.as_ref()?.get(&context)?.get(name).copied()
    };
    if let Some(ifunc) = registered(name) {
        return Ok(ifunc);
    }
    // Without the lock: a library's constructors may do anything.
    let source = match (from_directory(name), registry::named(name)) {
        (Ok(library), _) => Source::Library(library),
        (Err(_), Some(function)) => Source::Came(function),
        (Err(refused), None) => return Err(Refused { status: UCS_ERR_IO_ERROR, ..refused }),
    };
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let names = all.get_or_insert_default().entry(context).or_default();
    let ifunc = names.entry(name.to_owned()).or_insert_with(|| Box::leak(Box::new(Ifunc::new(name, source))));
    Ok(ifunc)
}

/// Deregisters a handle, and drops its library, unless that is called here by name.
///
/// # Errors
/// [`UCS_ERR_INVALID_PARAM`] if it is none of this context's, or was deregistered before.
pub(super) fn deregister(context: usize, ifunc: &Ifunc) -> Result<(), Refused> {
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let names = all.get_or_insert_default().entry(context).or_default();
    if !names.get(&ifunc.name).is_some_and(|registered| std::ptr::eq(*registered, ifunc)) {
        let text = format!("`{}` is not registered for this context by this handle", ifunc.name);
        return Err(Refused::new(UCS_ERR_INVALID_PARAM, text));
    }
    names.remove(&ifunc.name);
    if names.is_empty() {
        all.get_or_insert_default().remove(&context);
    }
    drop(all);
    // Unloading runs destructors, which may do anything: no lock is held here.
    let source = ifunc.source.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(source);
    Ok(())
}

fn check_name(name: &str) -> Result<(), Refused> {
    if name.len() > MAX_NAME {
        let text = format!("an ifunc's name of {} bytes: it has at most {MAX_NAME}", name.len());
        return Err(Refused::new(UCS_ERR_EXCEEDS_LIMIT, text));
    }
    if !bundle::is_name(name) {
        let text = format!(
            "`{name}` is no ifunc's name: it has letters, digits and `_`, and does not begin with a digit"
        );
        return Err(Refused::new(UCS_ERR_INVALID_PARAM, text));
    }
    Ok(())
}

/// The library of this name in the directory: `NAME.so` there.
///
/// # Errors
/// [`UCS_ERR_CANCELED`], where it does not exist, or is no ifunc library.
pub(super) fn from_directory(name: &str) -> Result<Library, Refused> {
    check_name(name).map_err(|refused| Refused { status: UCS_ERR_CANCELED, ..refused })?;
    let path = path(name);
    // SAFETY: registering loads, as the papers' interface says; the program names the directory and the
    // library in it.
    unsafe { Library::load_named(&path, name) }
        .map_err(|error| Refused::new(UCS_ERR_CANCELED, format!("{error} ({WHERE})")))
}

/// The path of the library of this name, whether it exists or not.
pub(super) fn path(name: &str) -> PathBuf {
    let directory = std::env::var_os("UCX_IFUNC_LIB_DIR").filter(|directory| !directory.is_empty());
    PathBuf::from(directory.unwrap_or_else(|| OsString::from(DIRECTORY))).join(format!("{name}.so"))
}
