//! A shared library in this process, and the symbols that it defines itself.

pub(crate) mod elf_file;
pub(crate) mod sealed;
pub(crate) mod symbols;

use std::collections::BTreeSet;
use std::ffi::{OsStr, c_int, c_void};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farjump_core::image::CodeId;
use farjump_os::PerProcess;
use libloading::os::unix;

use crate::library::carried_source::CarriedSource;
use crate::shared_library::sealed::{LibraryFile, said};
use crate::shared_library::symbols::LoadedTables;

/// An open library. `dlsym` also finds symbols of its *dependencies*; [`Loaded::symbol`] does not. So a library named
/// in a policy does not offer all of libc with it.
#[derive(Clone, Debug)]
pub(crate) struct Loaded(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    library: unix::Library,
    place: LoadAddress,
    /// The source in its file, if it is an ifunc library.
    source: Option<CarriedSource>,
}

/// The addresses at which the dynamic linker loaded a library.
#[derive(Debug)]
struct LoadAddress {
    /// The load bias: the difference from the addresses in the file.
    bias: usize,
    /// Address of its dynamic section.
    dynamic: usize,
    /// The addresses of its loaded segments.
    segments: Vec<Range<usize>>,
}

/// A library that was opened by its path.
struct ByPath {
    path: PathBuf,
    /// The hash of the file's contents.
    id: CodeId,
    opened: Weak<Opened>,
}

/// The libraries opened by their paths, and some that are closed. The dynamic linker identifies a library by its path,
/// and would return the old library for a rebuilt file.
static BY_PATH: Mutex<Vec<ByPath>> = Mutex::new(Vec::new());

fn by_path() -> MutexGuard<'static, Vec<ByPath>> {
    // Nothing panics while it holds the lock.
    let mut all = BY_PATH.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() == all.capacity() {
        all.retain(|library| library.opened.strong_count() != 0);
    }
    all
}

impl Opened {
    fn of(library: unix::Library, source: Option<CarriedSource>) -> Result<Opened, String> {
        let handle = library.into_raw();
        // SAFETY: `handle` is from `into_raw` just above, and nothing else has it.
        let library = unsafe { unix::Library::from_raw(handle) };
        let place = address_of(handle).ok_or("the dynamic linker does not say where it put it")?;
        Ok(Opened { library, place, source })
    }
}

/// The libraries that stay until the process ends, each once.
static KEPT: PerProcess<Mutex<Vec<Loaded>>> = PerProcess::new();

impl Loaded {
    /// Keeps it loaded until the process ends. A library that is already kept gets no second handle.
    pub(crate) fn keep(&self) {
        // Nothing panics while it holds the lock.
        let mut kept = KEPT.get().lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.iter().any(|other| other.0.place.dynamic == self.0.place.dynamic) {
            kept.push(self.clone());
        }
    }

    /// Opens a library, with all symbols bound at once and none offered to other libraries. Runs its constructors. For
    /// a name with a slash, a path, this loads a sealed copy of the file ([`sealed`]). For a name without, `dlopen`
    /// searches the system.
    ///
    /// # Errors
    /// The reason, or the dynamic linker's message.
    ///
    /// # Safety
    /// The constructors of the library and its dependencies must be sound to run now, and its destructors when the last
    /// handle on it is dropped.
    pub(crate) unsafe fn open(name: &OsStr) -> Result<Loaded, String> {
        if name.as_encoded_bytes().contains(&b'/') {
            // SAFETY: the caller trusts the library (see Safety).
            return unsafe { Loaded::open_file(Path::new(name)) };
        }
        // SAFETY: the caller trusts the library (see Safety).
        let library = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        Ok(Loaded(Arc::new(Opened::of(library.map_err(said)?, None)?)))
    }

    /// Opens the library at a path. Files with the same path and contents are one library while it is open.
    ///
    /// # Errors
    /// The reason.
    ///
    /// # Safety
    /// The conditions of [`Loaded::open`].
    unsafe fn open_file(path: &Path) -> Result<Loaded, String> {
        let file = LibraryFile::read(path)?;
        let (path, id) = file.identity();
        let path = path.to_owned();
        let of_path: Vec<_> = by_path()
            .iter()
            .filter(|library| library.path == path)
            .filter_map(|library| Some((library.id, library.opened.upgrade()?)))
            .collect();
        if let Some((_, opened)) = of_path.iter().find(|(other, _)| *other == id) {
            return Ok(Loaded(Arc::clone(opened)));
        }
        // Not under the lock: constructors may load libraries.
        let source = file.source();
        // SAFETY: the caller trusts the library (see Safety).
        let opened = Opened::of(unsafe { file.load(!of_path.is_empty()) }?, source)?;
        let loaded = Loaded(Arc::new(opened));
        by_path().push(ByPath { path, id, opened: Arc::downgrade(&loaded.0) });
        Ok(loaded)
    }

    /// Opens the library of these bytes, from a copy that nothing can change. `name` is for `/proc/PID/maps`.
    /// As long as the file returned is open, gdb can read the library.
    ///
    /// # Errors
    /// The reason, or the dynamic linker's message.
    ///
    /// # Safety
    /// The conditions of [`Loaded::open`].
    pub(crate) unsafe fn open_bytes(name: &str, bytes: &[u8]) -> Result<(Loaded, File), String> {
        // SAFETY: the caller trusts the library (see Safety).
        let (library, file) = unsafe { sealed::load_bytes(name, bytes) }?;
        let opened = Opened::of(library, sealed::source_in(bytes, Path::new(name)))?;
        Ok((Loaded(Arc::new(opened)), file))
    }

    /// The source that it carried when it was opened by its path, or from memory.
    pub(crate) fn source(&self) -> Option<&CarriedSource> {
        self.0.source.as_ref()
    }

    /// Address of `name` if this library defines it itself.
    pub(crate) fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        let address = find(&self.0.library, name)?;
        self.segment_of(address.addr().get()).map(|_| address)
    }

    /// Address of `name` if this library or a dependency defines it.
    pub(crate) fn symbol_or_dependencies(&self, name: &str) -> Option<NonNull<c_void>> {
        find(&self.0.library, name)
    }

    /// The names of the symbols that this library defines itself. [`Loaded::symbol`] does not find the thread-local
    /// variables among them.
    pub(crate) fn defined_names(&self) -> BTreeSet<&str> {
        let LoadAddress { bias, dynamic, segments } = &self.0.place;
        // SAFETY: the dynamic linker named these segments of this library, which `self` keeps loaded. It wrote to these
        // tables only while it loaded the library, and since then reads them without a lock.
        unsafe { LoadedTables::new(*bias, *dynamic, segments) }.defined_names()
    }

    /// Bytes from `address`, a result of [`Loaded::symbol`], to the end of the mapped segment that holds it.
    pub(crate) fn bytes_from(&self, address: NonNull<c_void>) -> usize {
        let address = address.addr().get();
        self.segment_of(address).map_or(0, |segment| segment.end - address)
    }

    fn segment_of(&self, address: usize) -> Option<&Range<usize>> {
        self.0.place.segments.iter().find(|segment| segment.contains(&address))
    }
}

/// Address of `name` in a library or its dependencies. Names with a zero byte are never found.
pub(crate) fn find(library: &unix::Library, name: &str) -> Option<NonNull<c_void>> {
    // SAFETY: the symbol is not used as the named type; only its address is taken.
    let symbol = unsafe { library.get::<*mut c_void>(name) };
    NonNull::new(symbol.ok()?.as_raw_ptr())
}

/// The start of glibc's and musl's `struct link_map` (link.h).
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const libc::c_char,
    dynamic: *const c_void,
}

/// The addresses of the library with this handle.
fn address_of(handle: *mut c_void) -> Option<LoadAddress> {
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: `handle` is an open library, and RTLD_DI_LINKMAP stores one pointer where the third argument
    // points (dlinfo(3)).
    let failed = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if failed != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's description of a library stays valid and unchanged while the library is
    // open.
    let (bias, dynamic) = unsafe { ((*map).bias, (*map).dynamic.expose_provenance()) };
    let mut search = Search { address: dynamic, found: None };
    // SAFETY: `visit` uses its third argument as a `Search`, which `search` is until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    Some(LoadAddress { bias, dynamic, segments: search.found? })
}

struct Search {
    address: usize,
    found: Option<Vec<Range<usize>>>,
}

/// Stops at the object whose loaded segments contain the address.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: `address_of` passes a `Search` that only this call uses.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: dl_iterate_phdr(3) passes a valid description, with the address and number of the program
    // headers.
    let (bias, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr as usize, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let segments: Vec<Range<usize>> = loaded
        .map(|header| {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            start..start.wrapping_add(header.p_memsz as usize)
        })
        .collect();
    if !segments.iter().any(|segment| segment.contains(&search.address)) {
        return 0;
    }
    search.found = Some(segments);
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_offers_what_it_defines_and_not_what_its_dependencies_do() {
        // SAFETY: a library of the system.
        let libm = unsafe { Loaded::open(OsStr::new("libm.so.6")) }.unwrap();
        assert!(libm.symbol("log2").is_some());
        assert!(find(&libm.0.library, "getpid").is_some(), "dlsym looks into libc, which libm depends on");
        assert!(libm.symbol("getpid").is_none());
        assert!(libm.symbol("no_such_symbol").is_none());
        assert!(libm.symbol("log2\0").is_some(), "a name may carry its own end");
    }

    #[test]
    fn the_names_that_a_library_defines_are_those_that_it_offers() {
        // SAFETY: a library of the system.
        let libm = unsafe { Loaded::open(OsStr::new("libm.so.6")) }.unwrap();
        let names = libm.defined_names();
        for name in ["log2", "cbrt", "signgam"] {
            assert!(names.contains(name) && libm.symbol(name).is_some(), "{name}");
        }
        // libm imports one, and its dependency defines the other.
        assert!(!names.contains("fputs") && !names.contains("getpid"));
        assert!(names.iter().filter(|name| libm.symbol(name).is_some()).count() > 100, "{names:?}");
    }

    #[test]
    fn the_bytes_behind_a_symbol_end_with_its_segment() {
        // SAFETY: a library of the system.
        let libm = unsafe { Loaded::open(OsStr::new("libm.so.6")) }.unwrap();
        let log2 = libm.symbol("log2").unwrap();
        let behind = libm.bytes_from(log2);
        assert!(libm.0.place.segments.iter().any(|segment| log2.addr().get() + behind == segment.end));
        assert!(behind > 0);
    }

    #[test]
    fn a_library_that_is_opened_again_is_kept_once() {
        let kept = || KEPT.get().lock().unwrap().len();
        // SAFETY: a library of the system.
        let open = || unsafe { Loaded::open(OsStr::new("libm.so.6")) }.unwrap();
        open().keep();
        let before = kept();
        for _ in 0..10 {
            open().keep();
        }
        assert_eq!(kept(), before);
    }

    #[test]
    fn a_library_that_is_not_there_is_named_by_the_dynamic_linker() {
        // SAFETY: there is no such file.
        let error = unsafe { Loaded::open(OsStr::new("libno-such-library.so.7")) }.unwrap_err();
        assert!(error.contains("libno-such-library.so.7"), "{error}");
    }
}
