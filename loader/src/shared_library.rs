//! A shared library in this process, and the symbols that it defines itself.

use std::ffi::{OsStr, c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;

use libloading::os::unix;

/// An open library. `dlsym` also finds symbols of its *dependencies*; [`Loaded::symbol`] does not. So naming
/// a library in a policy offers that library, and not all of libc with it.
#[derive(Debug)]
pub(crate) struct Loaded {
    library: unix::Library,
    extent: Range<usize>,
}

impl Loaded {
    /// Opens a library by `dlopen`, with all symbols bound at once and none offered to other libraries. Runs
    /// its constructors.
    ///
    /// # Errors
    /// The dynamic linker's message.
    ///
    /// # Safety
    /// The constructors of the library and its dependencies must be sound to run now, and its destructors
    /// when the last handle on it goes.
    pub(crate) unsafe fn open(name: &OsStr) -> Result<Loaded, String> {
        // SAFETY: the caller trusts the library (see Safety).
        let library = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        let handle = library.map_err(said)?.into_raw();
        // SAFETY: `handle` is from `into_raw` just above, and nothing else has it.
        let library = unsafe { unix::Library::from_raw(handle) };
        let extent = extent_of(handle).ok_or("the dynamic linker does not say where it put it")?;
        Ok(Loaded { library, extent })
    }

    /// Address of `name` if this library defines it itself.
    pub(crate) fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        let address = find(&self.library, name)?;
        self.extent.contains(&address.addr().get()).then_some(address)
    }

    /// Address of `name` if this library or a dependency defines it.
    pub(crate) fn symbol_or_dependencies(&self, name: &str) -> Option<NonNull<c_void>> {
        find(&self.library, name)
    }

    /// Bytes of the library from `address`, a result of [`Loaded::symbol`], to its end.
    pub(crate) fn bytes_from(&self, address: NonNull<c_void>) -> usize {
        self.extent.end.saturating_sub(address.addr().get())
    }
}

/// The dynamic linker's message.
fn said(error: libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source } => source.to_string(),
        other => other.to_string(),
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
fn extent_of(handle: *mut c_void) -> Option<Range<usize>> {
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: `handle` is an open library, and RTLD_DI_LINKMAP stores one pointer where the third argument
    // points (dlinfo(3)).
    let failed = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if failed != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's description of a library stays valid and unchanged while the library is
    // open.
    let dynamic = unsafe { (*map).dynamic }.addr();
    let mut search = Search { address: dynamic, found: None };
    // SAFETY: `visit` takes its third argument for a `Search`, which `search` is until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct Search {
    address: usize,
    found: Option<Range<usize>>,
}

/// Stops at the object whose loaded segments contain the address.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: `extent_of` passes a `Search` that only this call uses.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: dl_iterate_phdr(3) passes a valid description, with the address and number of the program
    // headers.
    let (bias, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr as usize, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    let (mut start, mut end) = (usize::MAX, 0);
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let segment = bias.wrapping_add(header.p_vaddr as usize);
        start = start.min(segment);
        end = end.max(segment.wrapping_add(header.p_memsz as usize));
    }
    let extent = start..end;
    if !extent.contains(&search.address) {
        return 0;
    }
    search.found = Some(extent);
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
        assert!(find(&libm.library, "getpid").is_some(), "dlsym looks into libc, which libm depends on");
        assert!(libm.symbol("getpid").is_none());
        assert!(libm.symbol("no_such_symbol").is_none());
        assert!(libm.symbol("log2\0").is_some(), "a name may carry its own end");
    }

    #[test]
    fn the_bytes_behind_a_symbol_end_with_the_library() {
        // SAFETY: a library of the system.
        let libm = unsafe { Loaded::open(OsStr::new("libm.so.6")) }.unwrap();
        let log2 = libm.symbol("log2").unwrap();
        let behind = libm.bytes_from(log2);
        assert_eq!(log2.addr().get() + behind, libm.extent.end);
        assert!(behind > 0);
    }

    #[test]
    fn a_library_that_is_not_there_is_named_by_the_dynamic_linker() {
        // SAFETY: there is no such file.
        let error = unsafe { Loaded::open(OsStr::new("libno-such-library.so.7")) }.unwrap_err();
        assert!(error.contains("libno-such-library.so.7"), "{error}");
    }
}
