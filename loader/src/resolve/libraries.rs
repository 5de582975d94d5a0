//! Libraries that a resolver searches.

use std::collections::BTreeSet;
use std::ffi::{OsStr, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::error::Error;
use crate::shared_library::Loaded;

/// A library that an image may want. The first image that wants it opens it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) soname: String,
    pub(super) library: OnceLock<Allowed>,
}

impl Wanted {
    pub(super) fn open(&self) -> Result<&Allowed, Error> {
        if let Some(library) = self.library.get() {
            return Ok(library);
        }
        // SAFETY: the caller of `Resolver::allow_wanted` trusted this library (see Safety there).
        let library = unsafe { Allowed::open(self.soname.as_ref()) }?;
        Ok(self.library.get_or_init(|| library))
    }
}

/// A library that is never unloaded: code that outlives the resolver may contain addresses in it.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) name: String,
    loaded: Loaded,
    /// Whether it offers symbols of its dependencies too.
    pub(super) dependencies: bool,
}

/// An interposed symbol or library: takes precedence over everything offered before it.
#[derive(Debug)]
pub(super) enum Interposed {
    Library(Allowed),
    /// A name and its address.
    Symbol(String, u64),
}

impl Interposed {
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        match self {
            Interposed::Library(library) => library.address(name),
            Interposed::Symbol(other, address) => (other == name).then_some(*address),
        }
    }
}

impl Allowed {
    /// Loads the library of this name, or at this path.
    ///
    /// # Safety
    /// The conditions of [`Loaded::open`].
    pub(super) unsafe fn open(name: &OsStr) -> Result<Allowed, Error> {
        // SAFETY: the caller trusts the library (see Safety).
        let loaded = unsafe { Loaded::open(name) };
        let loaded = loaded.map_err(|message| Error::Load { path: Path::new(name).into(), message })?;
        Ok(Allowed::of(loaded, name.to_string_lossy().into_owned()))
    }

    /// Loads the library of these bytes; messages call it `name`.
    ///
    /// # Safety
    /// The conditions of [`Loaded::open`].
    pub(super) unsafe fn open_bytes(name: &str, bytes: &[u8]) -> Result<Allowed, Error> {
        // SAFETY: the caller trusts the library (see Safety).
        let loaded = unsafe { Loaded::open_bytes(name, bytes) };
        let (loaded, file) = loaded.map_err(|message| Error::Load { path: name.into(), message })?;
        // The library stays loaded, and its name is a path of this descriptor.
        std::mem::forget(file);
        Ok(Allowed::of(loaded, name.to_owned()))
    }

    fn of(loaded: Loaded, name: String) -> Allowed {
        loaded.keep();
        Allowed { name, loaded, dependencies: false }
    }

    /// The address that it offers as `name`.
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        let found = match self.dependencies {
            true => self.loaded.symbol_or_dependencies(name),
            false => self.loaded.symbol(name),
        };
        found.map(exposed)
    }
    /// The names of the symbols that it defines itself.
    pub(super) fn defined_names(&self) -> BTreeSet<&str> {
        self.loaded.defined_names()
    }
}

/// An address for code to use.
pub(super) fn exposed(address: NonNull<c_void>) -> u64 {
    address.as_ptr().expose_provenance() as u64
}
