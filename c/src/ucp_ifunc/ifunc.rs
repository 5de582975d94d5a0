//! Handles of ifuncs, and the names registered for each context.
//!
//! A handle's memory is never freed, so that a deregistered one can be distinguished from a valid one; a few
//! hundred bytes each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use farjump_loader::{Exports, Library, LibraryImage};
use farjump_ucx_sys::{UCS_ERR_ALREADY_EXISTS, UCS_ERR_INVALID_PARAM, UCS_ERR_IO_ERROR, UCS_ERR_REJECTED};

use super::bitcode::{self, Given, Libraries};
use super::codes::Codes;
use super::frame::{Key, Part};
use super::libraries::{check_name, directory, from_directory};
use super::registry::{self, Function};
use super::{Offer, Refused, WHERE};

/// Target of `ucp_ifunc_h`.
#[derive(Debug)]
pub(super) struct Ifunc {
    name: String,
    source: Mutex<Option<Source>>,
}

/// Source of an ifunc's payloads and code.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The library that makes the payloads. Without one, the arguments are the payload.
    library: Option<Library>,
    /// The code to send; `None` if frames carry the name only.
    codes: Option<Arc<Codes>>,
    /// log2 of the payload alignment that the code requires; 0 if the default suffices.
    payload_align_log2: u8,
}

impl Source {
    /// Makes a source of a library, whose payload routines are loaded if it has any.
    pub(super) fn of_library(library: Library) -> Source {
        let payload_align_log2 = library.images().first().map_or(0, LibraryImage::payload_align_log2);
        let codes = Codes::of_libraries(std::slice::from_ref(&library)).map(Arc::new);
        Source { library: Some(library), codes, payload_align_log2 }
    }

    /// Makes a source of the code of several libraries. The routines of one of them make the payloads.
    ///
    /// # Errors
    /// [`UCS_ERR_REJECTED`] if they require different alignments.
    fn of_libraries(Libraries { payloads, all }: Libraries) -> Result<Source, Refused> {
        let own = Source::of_library(payloads);
        let mut images = all.iter().flat_map(Library::images).map(LibraryImage::payload_align_log2);
        if images.any(|align| align != own.payload_align_log2) {
            let text = "the codes ask for different alignments of the payload: make them alike";
            return Err(Refused::new(UCS_ERR_REJECTED, text));
        }
        Ok(Source { codes: Codes::of_libraries(&all).map(Arc::new), ..own })
    }

    /// Makes a source of code that came in a frame. It has no payload routines: the arguments are the payload.
    fn of_function(function: &Function) -> Source {
        let payload_align_log2 = function.payload_align_log2();
        Source { library: None, codes: function.codes().cloned(), payload_align_log2 }
    }

    /// Returns the library that makes the payloads; `None` if the arguments are the payload.
    pub(super) fn library(&self) -> Option<&Library> {
        self.library.as_ref()
    }

    /// Returns log2 of the payload alignment that the code requires; 0 if the default suffices.
    pub(super) fn payload_align_log2(&self) -> u8 {
        self.payload_align_log2
    }

    /// Returns the code part of its frames.
    pub(super) fn part<'a>(&'a self, name: &'a str) -> Part<'a> {
        Part { name, images: self.codes.as_ref().map_or_else(Vec::new, |codes| codes.listed()) }
    }

    /// Returns the key in its frames.
    pub(super) fn key(&self, name: &str) -> Key {
        self.codes.as_ref().map_or_else(|| Key::of_name(name), |codes| Key::of_code(&codes.id()))
    }
}

impl Ifunc {
    /// Makes an ifunc that is not registered yet.
    pub(super) fn new(name: &str, source: Source) -> Ifunc {
        Ifunc { name: name.to_owned(), source: Mutex::new(Some(source)) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the source for messages.
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

/// Returns the functions that payload routines may call, besides those of the process.
fn offered(offer: Offer) -> Exports {
    let mut exports = Exports::new();
    offer(&mut exports);
    exports
}

/// Returns the handle that is registered for a context by this name.
fn registered(context: usize, name: &str) -> Option<&'static Ifunc> {
    let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.as_ref()?.get(&context)?.get(name).copied()
}

/// Registers a source for a context. `Err` has the handle that another thread has registered by this name meanwhile.
/// Drops a source that is not needed without the lock, because destructors of its library run.
fn add(context: usize, name: &str, source: Source) -> Result<&'static Ifunc, &'static Ifunc> {
    let ifunc = Ifunc::new(name, source);
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    match all.get_or_insert_default().entry(context).or_default().entry(name.to_owned()) {
        Entry::Vacant(place) => Ok(place.insert(Box::leak(Box::new(ifunc)))),
        Entry::Occupied(other) => {
            let other = *other.get();
            drop(all);
            drop(ifunc);
            Err(other)
        }
    }
}

/// Registers `name` for a context: from its library in the directory or, where there is none, from code that
/// came in a frame. A name that is registered already gives the existing handle.
///
/// # Errors
/// Those of [`check_name`]; [`UCS_ERR_IO_ERROR`] where its library cannot be opened.
pub(super) fn register(context: usize, name: &str) -> Result<&'static Ifunc, Refused> {
    check_name(name)?;
    if let Some(ifunc) = registered(context, name) {
        return Ok(ifunc);
    }
    // Without the lock: a library's constructors may do anything.
    let source = match (from_directory(name), registry::named(name)) {
        (Ok(library), _) => Source::of_library(library),
        (Err(_), Some(function)) => Source::of_function(function),
        (Err(refused), None) => return Err(Refused { status: UCS_ERR_IO_ERROR, ..refused }),
    };
    let (Ok(ifunc) | Err(ifunc)) = add(context, name, source);
    Ok(ifunc)
}

/// Registers `name` as [`register`] does, from bitcode in the directory in place of a library. The dependencies of a `pure`
/// function do not count. Payload routines may call the functions of `offer`, besides those of the process.
///
/// # Errors
/// Those of [`register`], and of [`bitcode::read`].
pub(super) fn register_bitcode(
    context: usize,
    name: &str,
    pure: bool,
    offer: Offer,
) -> Result<&'static Ifunc, Refused> {
    check_name(name)?;
    if let Some(ifunc) = registered(context, name) {
        return Ok(ifunc);
    }
    let directory = directory();
    let read = bitcode::read(&directory, name, pure, offered(offer))?;
    let source = match (read, registry::named(name)) {
        (Some(libraries), _) => Source::of_libraries(libraries)?,
        (None, Some(function)) => Source::of_function(function),
        (None, None) => {
            let text = format!(
                "there is no `{name}.TRIPLE.bc` in `{}`, as `{name}.x86_64-linux-gnu.bc` ({WHERE})",
                directory.display()
            );
            return Err(Refused::new(UCS_ERR_IO_ERROR, text));
        }
    };
    let (Ok(ifunc) | Err(ifunc)) = add(context, name, source);
    Ok(ifunc)
}

/// Registers `name` for a context, from code in memory. `deps` are the libraries that its code uses. Payload
/// routines may call the functions of `offer`, besides those of the process.
///
/// # Errors
/// [`UCS_ERR_ALREADY_EXISTS`] for a name that is registered; those for names of [`register`]; those of [`bitcode::libraries`].
pub(super) fn register_in_memory(
    context: usize,
    name: &str,
    given: &[Given<'_>],
    deps: &[&str],
    offer: Offer,
) -> Result<&'static Ifunc, Refused> {
    check_name(name)?;
    let taken = || {
        let text = format!(
            "`{name}` is registered for this context already: deregister it first, or use its handle"
        );
        Refused::new(UCS_ERR_ALREADY_EXISTS, text)
    };
    if registered(context, name).is_some() {
        return Err(taken());
    }
    let libraries = bitcode::libraries(name, given, deps, offered(offer))?;
    add(context, name, Source::of_libraries(libraries)?).map_err(|_| taken())
}

/// Deregisters a handle, and drops its library, unless a function of that library is called here by name.
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
