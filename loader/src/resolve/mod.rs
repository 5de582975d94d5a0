//! Resolution of imports. The order: symbols that were interposed while the target ran; exports; libraries and symbols
//! that the target's policy adds; last, libraries that an image wants and the target opens.

mod exports;
pub(crate) mod import_causes;
mod libraries;
pub(crate) mod refusal;

use std::ffi::{OsStr, c_void};
use std::sync::OnceLock;

use farjump_core::image::{ImageView, Import, is_soname};
use libloading::os::unix;

use crate::error::Error;
use crate::resolve::import_causes::{MissingImports, import_causes};
use crate::resolve::refusal::Refused;
use crate::shared_library::{Loaded, find};
pub use exports::Exports;
use libraries::{Allowed, Interposed, Wanted, exposed};

/// Least similarity of a suggested name (0: nothing in common, 1: equal).
const LIKENESS: f64 = 0.4;
/// The same for names that every target offers, which are less likely to be meant.
const LIKENESS_OF_ALWAYS: f64 = 0.6;
/// Most names in a message.
const LISTED: usize = 12;

/// Prefix of the services that every target offers (`farjump_reply`): the resolver searches only the exports for them.
const SERVICES: &str = "farjump_";
/// Symbols that the linker makes in every library that it builds: they are no functions or data of the library.
const LINKER_SYMBOLS: [&str; 5] = ["_init", "_fini", "_edata", "_end", "__bss_start"];

/// Resolves imports. Searches interposed symbols, the latest first; then the exports; then each allowed library, in the
/// order of permission. After these it searches, if allowed, the symbols of the whole process, and last the libraries
/// that the image wants ([`Resolver::allow_wanted`]).
#[derive(Debug, Default)]
pub struct Resolver {
    /// Oldest first.
    interposed: Vec<Interposed>,
    exports: Exports,
    libraries: Vec<Allowed>,
    process: Option<unix::Library>,
    wanted: Vec<Wanted>,
    /// Addresses in libraries and the process, and their replacements.
    substitutes: Vec<(u64, u64)>,
}

/// The symbols that a target offers to one image.
#[derive(Debug)]
pub(crate) struct Offer<'a> {
    resolver: &'a Resolver,
    /// The libraries that the image wants, if its imports need them.
    wanted: Vec<&'a Allowed>,
}

/// Returns whether the C library defines this name.
fn is_of_libc(name: &str) -> bool {
    // SAFETY: each process has its C library open, so `Loaded::open` loads nothing and runs no constructor.
    let libc = unsafe { Loaded::open(OsStr::new("libc.so.6")) };
    libc.is_ok_and(|libc| libc.symbol(name).is_some())
}

impl Offer<'_> {
    /// The address of `import`, without its addend; `None` if it is not offered.
    pub(crate) fn resolve(&self, import: &Import<'_>) -> Option<u64> {
        self.resolver.resolve(import).or_else(|| self.resolve_wanted(import.name))
    }

    /// The refusal of an image that imports a symbol not offered here.
    #[cold]
    pub(crate) fn refuse(&self, image: &ImageView<'_>, ifunc: String) -> Refused {
        let missing: Vec<_> = image
            .imports()
            .filter(|import| !import.weak && self.resolve(import).is_none())
            .map(|import| import.name)
            .collect();
        let suggestion = missing.iter().find_map(|import| {
            let name = self.resolver.suggestion(import)?;
            import_causes([*import]).is_empty().then(|| Box::new(((*import).to_owned(), name.to_owned())))
        });
        let offered = self.resolver.offered();
        Refused::UnresolvedImport {
            ifunc,
            missing: Box::new(MissingImports::new(missing, is_of_libc)),
            suggestion,
            offered,
        }
    }

    #[cold]
    fn resolve_wanted(&self, name: &str) -> Option<u64> {
        self.wanted.iter().find_map(|library| library.address(name))
    }
}

impl Resolver {
    /// Makes a resolver with these exports and nothing else.
    pub fn new(exports: Exports) -> Resolver {
        Resolver { exports, ..Resolver::default() }
    }

    /// The exports.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// The exports, for additions. Code placed before keeps its addresses.
    pub fn exports_mut(&mut self) -> &mut Exports {
        &mut self.exports
    }

    /// Allows imports of symbols that this shared library defines *itself*, not those of its dependencies. A name with
    /// a slash is a path; for one without, the dynamic linker searches (`libm.so.6`). This call loads the library,
    /// which runs its constructors. The library stays loaded until the process ends.
    ///
    /// Functions that a library takes from the kernel's vDSO instead of defining them (`time` and `gettimeofday` of
    /// glibc) are not allowed this way; export them.
    ///
    /// # Errors
    /// [`Error::Load`].
    ///
    /// # Safety
    /// The constructors of the library and its dependencies must be sound to run in this process now, and its
    /// destructors when the process ends. Its symbols must have the types that the authors of ifuncs declare.
    pub unsafe fn allow_library(&mut self, name: impl AsRef<OsStr>) -> Result<(), Error> {
        // SAFETY: the caller trusts the library (see Safety).
        self.libraries.push(unsafe { Allowed::open(name.as_ref()) }?);
        Ok(())
    }

    /// [`Resolver::allow_library`] that also allows the symbols of the library's dependencies.
    ///
    /// # Errors
    /// [`Error::Load`].
    ///
    /// # Safety
    /// The conditions of [`Resolver::allow_library`].
    pub unsafe fn allow_library_and_its_own(&mut self, name: impl AsRef<OsStr>) -> Result<(), Error> {
        // SAFETY: the caller trusts the library (see Safety).
        let mut library = unsafe { Allowed::open(name.as_ref()) }?;
        library.dependencies = true;
        self.libraries.push(library);
        Ok(())
    }

    /// Allows images to want the library with this soname. The first image that wants it and imports a symbol not
    /// offered otherwise opens it. It stays open until the process ends. Only such images then find the symbols that it
    /// defines *itself*, after all other offers.
    ///
    /// # Errors
    /// [`Error::Soname`] for a path, and for other names that are no sonames.
    ///
    /// # Safety
    /// The conditions of [`Resolver::allow_library`], at any time from now on.
    pub unsafe fn allow_wanted(&mut self, soname: &str) -> Result<(), Error> {
        if !is_soname(soname) {
            return Err(Error::Soname { name: soname.to_owned() });
        }
        if !self.wanted.iter().any(|wanted| wanted.soname == soname) {
            self.wanted.push(Wanted { soname: soname.to_owned(), library: OnceLock::new() });
        }
        Ok(())
    }

    /// Opens the libraries that images may want and that are not open. Their constructors run during this call; without
    /// it, they run while an image is linked.
    ///
    /// # Errors
    /// [`Error::Load`] for the first one that cannot be opened.
    pub fn open_wanted(&self) -> Result<(), Error> {
        self.wanted.iter().try_for_each(|wanted| wanted.open().map(drop))
    }

    /// The offer to this image of `ifunc`. Opens the libraries that the image wants, if it imports a symbol not offered
    /// otherwise.
    ///
    /// # Errors
    /// [`Refused::WantedLibraries`] if no opened library has such an import, and the image wants others.
    /// [`Refused::WantedUnopened`] if one of the permitted libraries cannot be opened.
    #[inline]
    pub(crate) fn offer(&self, image: &ImageView<'_>, ifunc: &str) -> Result<Offer<'_>, Refused> {
        match image.wants_libraries() {
            true => self.offer_wanted(image, ifunc),
            false => Ok(Offer { resolver: self, wanted: Vec::new() }),
        }
    }

    /// [`Resolver::offer`] for an image that wants libraries.
    #[inline(never)]
    fn offer_wanted(&self, image: &ImageView<'_>, ifunc: &str) -> Result<Offer<'_>, Refused> {
        let mut offer = Offer { resolver: self, wanted: Vec::new() };
        let mut missing: Vec<Import<'_>> =
            image.imports().filter(|import| self.resolve(import).is_none()).collect();
        if missing.is_empty() {
            return Ok(offer);
        }
        let (mut unlisted, mut unopened) = (Vec::new(), None);
        for soname in image.wanted() {
            match self.wanted.iter().find(|wanted| wanted.soname == soname).map(Wanted::open) {
                Some(Ok(library)) => offer.wanted.push(library),
                Some(Err(source)) => unopened = unopened.or(Some(source)),
                None => unlisted.push(soname.to_owned()),
            }
        }
        missing.retain(|import| !import.weak && offer.resolve_wanted(import.name).is_none());
        if missing.is_empty() {
            return Ok(offer);
        }
        let missing = Box::new(MissingImports::new(missing.iter().map(|import| import.name), |_| false));
        let ifunc = ifunc.to_owned();
        match unopened {
            Some(source) => Err(Refused::WantedUnopened { ifunc, source }),
            None if !unlisted.is_empty() => {
                Err(Refused::WantedLibraries { ifunc, missing, libraries: unlisted })
            }
            None => Ok(offer),
        }
    }

    /// Interposes the symbols that this shared library defines itself: they take precedence over everything
    /// offered until now, except the services of every target (`farjump_reply` and others). Code placed
    /// before keeps its addresses. Otherwise like [`Resolver::allow_library`].
    ///
    /// Returns the replaced names, in alphabetical order: those that were in the exports, or in libraries allowed or
    /// interposed earlier.
    ///
    /// # Errors
    /// [`Error::Load`].
    ///
    /// # Safety
    /// The conditions of [`Resolver::allow_library`].
    pub unsafe fn interpose_library(&mut self, name: impl AsRef<OsStr>) -> Result<Vec<String>, Error> {
        let name = name.as_ref();
        // SAFETY: the caller trusts the library (see Safety).
        let library = unsafe { Allowed::open(name) }?;
        Ok(self.interposed(library))
    }

    /// [`Resolver::interpose_library`] for a library without a file: copies its `bytes` into memory that stays, with a
    /// descriptor, until the process ends. Messages call it `name`.
    ///
    /// # Errors
    /// [`Error::Load`]; also if the system makes no file in memory, or if `/proc`, from which it is loaded, is not
    /// mounted.
    ///
    /// # Safety
    /// The conditions of [`Resolver::allow_library`].
    pub unsafe fn interpose_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<Vec<String>, Error> {
        // SAFETY: the caller trusts the library (see Safety).
        let library = unsafe { Allowed::open_bytes(name, bytes) }?;
        Ok(self.interposed(library))
    }

    fn interposed(&mut self, library: Allowed) -> Vec<String> {
        let names = library.defined_names().into_iter();
        let replaced = names.filter(|name| self.is_replaced_by(&library, name)).map(str::to_owned).collect();
        self.interposed.push(Interposed::Library(library));
        replaced
    }

    /// Returns whether interposing `library` changes the address of `name`.
    fn is_replaced_by(&self, library: &Allowed, name: &str) -> bool {
        if name.starts_with(SERVICES) || LINKER_SYMBOLS.contains(&name) {
            return false;
        }
        let opened = || self.wanted.iter().filter_map(|wanted| wanted.library.get());
        let old = self.find(name).or_else(|| opened().find_map(|library| library.address(name)));
        let new = library.address(name);
        new.is_some() && old.is_some() && new != old
    }

    /// Interposes `address`: it takes precedence over everything offered as `name` until now.
    ///
    /// # Safety
    /// The conditions of [`Exports::insert`].
    pub unsafe fn interpose(&mut self, name: impl Into<String>, address: *const c_void) {
        self.interposed.push(Interposed::Symbol(name.into(), address.expose_provenance() as u64));
    }

    /// Gives the address `instead` to imports whose address in an allowed library or in the process is `function`,
    /// whatever their name. Does not replace exports and interposed symbols.
    ///
    /// # Safety
    /// `instead` must be usable wherever `function` is, as long as code exists that is linked from now on.
    pub unsafe fn substitute(&mut self, function: *const c_void, instead: *const c_void) {
        self.substitutes.push((function.expose_provenance() as u64, instead.expose_provenance() as u64));
    }

    /// Allows imports of every symbol that the program and its loaded libraries export, including all of libc. Imports
    /// find the program's own functions if it was linked with `-rdynamic` (`-C link-args=-rdynamic`).
    pub fn allow_process_symbols(&mut self) {
        self.process = Some(unix::Library::this());
    }

    /// The address of `import`, without its addend; `None` if it is not offered.
    pub fn resolve(&self, import: &Import<'_>) -> Option<u64> {
        self.find(import.name)
    }

    /// The address offered as `name`.
    fn find(&self, name: &str) -> Option<u64> {
        let interposed = match name.starts_with(SERVICES) {
            true => None,
            false => self.interposed.iter().rev().find_map(|interposed| interposed.get(name)),
        };
        interposed.or_else(|| self.exports.get(name)).or_else(|| self.resolve_elsewhere(name))
    }

    #[cold]
    fn resolve_elsewhere(&self, name: &str) -> Option<u64> {
        let mut libraries = self.libraries.iter();
        let address = libraries
            .find_map(|allowed| allowed.address(name))
            .or_else(|| self.process.as_ref().and_then(|process| find(process, name).map(exposed)))?;
        let substitute = self.substitutes.iter().find(|(function, _)| *function == address);
        Some(substitute.map_or(address, |(_, instead)| *instead))
    }

    /// The export with the most similar name, if one is similar.
    pub fn suggestion(&self, name: &str) -> Option<&str> {
        let likeness = |other: &str| strsim::normalized_damerau_levenshtein(name, other);
        let least = |other: &str| match Exports::ALWAYS.contains(&other) {
            true => LIKENESS_OF_ALWAYS,
            false => LIKENESS,
        };
        let near = self.exports.names().map(|other| (likeness(other), other));
        let near = near.filter(|(likeness, other)| *likeness >= least(other));
        near.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, other)| other)
    }

    /// The offers, for messages: `kv_get, bcmp, memcmp and the symbols of libkv.so`. The target's own come first.
    pub fn offered(&self) -> String {
        let is_own = |name: &&str| !name.starts_with(SERVICES) && !Exports::ALWAYS.contains(name);
        let (own, other): (Vec<&str>, Vec<&str>) = self.exports.names().partition(is_own);
        let mut names: Vec<&str> = own.into_iter().chain(other).take(LISTED).collect();
        let more = self.exports.names().len() - names.len();
        let more = format!("{more} more");
        if self.exports.names().len() > names.len() {
            names.push(&more);
        }
        let mut text = names.join(", ");
        for interposed in &self.interposed {
            match interposed {
                Interposed::Library(library) => text += &format!(" and the symbols of {}", library.name),
                Interposed::Symbol(name, _) => text += &format!(" and {name}"),
            }
        }
        for allowed in &self.libraries {
            let besides = if allowed.dependencies { " and its dependencies" } else { "" };
            text += &format!(" and the symbols of {}{besides}", allowed.name);
        }
        if self.process.is_some() {
            text += " and the symbols of its process";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farjump_core::image::Place;

    fn import(name: &str) -> Import<'_> {
        Import { site: Place::Span1(0), name, addend: 0, weak: false }
    }

    static DATUM: u64 = 7;

    fn datum() -> *const c_void {
        (&raw const DATUM).cast()
    }

    #[test]
    fn functions_that_compilers_call_are_always_exported_and_work() {
        let resolver = Resolver::default();
        let address = resolver.resolve(&import("memcpy")).unwrap();
        // SAFETY: this export is libc's memcpy, which has this signature.
        let memcpy: unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8 =
            unsafe { std::mem::transmute(address as usize) };
        let mut to = [0; 4];
        // SAFETY: both arrays are four bytes long.
        unsafe { memcpy(to.as_mut_ptr(), [1, 2, 3, 4].as_ptr(), 4) };
        assert_eq!(to, [1, 2, 3, 4]);
        let address = resolver.resolve(&import("strlen")).unwrap();
        // SAFETY: this export is libc's strlen, which has this signature.
        let strlen: unsafe extern "C" fn(*const u8) -> usize =
            unsafe { std::mem::transmute(address as usize) };
        // SAFETY: it ends with a zero byte.
        assert_eq!(unsafe { strlen(c"four".as_ptr().cast()) }, 4);
        assert_eq!(resolver.exports().names().collect::<Vec<_>>(), Exports::ALWAYS);
    }

    #[test]
    fn nothing_else_is_found_unless_allowed() {
        let mut resolver = Resolver::default();
        assert_eq!(resolver.resolve(&import("getpid")), None);
        assert_eq!(resolver.resolve(&import("log2")), None);
        // SAFETY: a library of the system, and no code is linked with it here.
        unsafe { resolver.allow_library("libm.so.6").unwrap() };
        assert!(resolver.resolve(&import("log2")).is_some());
        assert_eq!(resolver.resolve(&import("getpid")), None, "libm depends on libc and does not define it");
        resolver.allow_process_symbols();
        assert_eq!(resolver.resolve(&import("getpid")), Some((libc::getpid as *const c_void).addr() as u64));
        assert_eq!(resolver.resolve(&import("no_such_symbol")), None);
    }

    #[test]
    fn exports_come_first_then_libraries_in_order_then_the_process() {
        let mut resolver = Resolver::default();
        resolver.allow_process_symbols();
        let process = resolver.resolve(&import("log2")).or(resolver.resolve(&import("malloc"))).unwrap();
        assert_ne!(process, datum().addr() as u64);
        // SAFETY: a library of the system, and no code is linked with it here.
        unsafe { resolver.allow_library("libm.so.6").unwrap() };
        let libm = resolver.resolve(&import("log2")).unwrap();
        // SAFETY: no code is linked with it here.
        unsafe { resolver.exports_mut().insert("log2", datum()) };
        assert_eq!(resolver.resolve(&import("log2")), Some(datum().addr() as u64));
        assert_ne!(libm, datum().addr() as u64);
        // SAFETY: no code is linked with it here.
        unsafe { resolver.exports_mut().insert("memcpy", datum()) };
        assert_eq!(resolver.resolve(&import("memcpy")), Some(datum().addr() as u64));
    }

    #[test]
    fn the_latest_interposition_wins_over_exports_but_not_over_services() {
        static OTHER: u64 = 8;
        let other = (&raw const OTHER).cast::<c_void>();
        let mut resolver = Resolver::default();
        for name in ["log2", "cbrt", "farjump_reply"] {
            // SAFETY: no code is linked with it here.
            unsafe { resolver.exports_mut().insert(name, datum()) };
        }
        // SAFETY: a library of the system, and no code is linked with it here.
        let replaced = unsafe { resolver.interpose_library("libm.so.6") }.unwrap();
        assert_eq!(replaced, ["cbrt", "log2"]);
        let libm = resolver.resolve(&import("log2")).unwrap();
        assert_ne!(libm, datum().addr() as u64);
        assert!(resolver.resolve(&import("exp2")).is_some(), "what nobody exported");
        // SAFETY: no code is linked with it here.
        unsafe { resolver.interpose("log2", other) };
        // SAFETY: no code is linked with it here.
        unsafe { resolver.interpose("farjump_reply", other) };
        assert_eq!(resolver.resolve(&import("log2")), Some(other.addr() as u64));
        assert_eq!(resolver.resolve(&import("farjump_reply")), Some(datum().addr() as u64));
        // SAFETY: a library of the system, and no code is linked with it here.
        unsafe { resolver.interpose_library("libm.so.6") }.unwrap();
        assert_eq!(resolver.resolve(&import("log2")), Some(libm));
        assert!(resolver.offered().contains("the symbols of libm.so.6 and log2"), "{}", resolver.offered());
        // SAFETY: there is no such file, and the bytes contain nothing that could run.
        let (error, other) = unsafe {
            (
                resolver.interpose_library("./libno-such.so").unwrap_err(),
                resolver.interpose_bytes("codecs", &[7; 100]).unwrap_err().to_string(),
            )
        };
        assert!(error.to_string().starts_with("cannot load `./libno-such.so`: "), "{error}");
        assert!(other.starts_with("cannot load `codecs`: ") && other.contains("ELF"), "{other}");
    }

    #[test]
    fn interposing_a_library_lists_exactly_the_names_it_replaces() {
        let mut resolver = Resolver::default();
        // SAFETY: libraries of the system, and no code is linked with them here.
        unsafe {
            resolver.allow_library("libm.so.6").unwrap();
            assert_eq!(resolver.interpose_library("libm.so.6").unwrap(), [""; 0], "the same addresses");
        }
        for name in ["log2", "cbrt", "of_no_library"] {
            // SAFETY: no code is linked with it here.
            unsafe { resolver.interpose(name, datum()) };
        }
        // SAFETY: a library of the system, and no code is linked with it here.
        assert_eq!(unsafe { resolver.interpose_library("libm.so.6") }.unwrap(), ["cbrt", "log2"]);
    }

    #[test]
    fn a_second_copy_of_a_library_replaces_all_that_the_first_defined() {
        let path = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = path
            .lines()
            .find_map(|line| Some(&line[line.find('/')?..]).filter(|path| path.contains("/libc")));
        let bytes = std::fs::read(std::path::Path::new(path.unwrap()).with_file_name("libm.so.6")).unwrap();
        let mut resolver = Resolver::default();
        // SAFETY: a library of the system, twice, and no code is linked with it here.
        let (first, second) = unsafe {
            (
                resolver.interpose_bytes("libm", &bytes).unwrap(),
                resolver.interpose_bytes("libm", &bytes).unwrap(),
            )
        };
        assert_eq!(first, [""; 0]);
        assert!(second.len() > 100 && second.is_sorted(), "{second:?}");
        assert!(
            ["log2", "cbrt", "exp2"].iter().all(|name| second.contains(&(*name).to_owned())),
            "{second:?}"
        );
        assert!(!second.iter().any(|name| name == "malloc" || name == "_end"), "{second:?}");
    }

    #[test]
    fn a_library_that_is_not_there_is_an_error_that_names_it() {
        // SAFETY: there is no such file.
        let error = unsafe { Resolver::default().allow_library("./libno-such.so") }.unwrap_err();
        assert!(error.to_string().starts_with("cannot load `./libno-such.so`: "), "{error}");
    }

    #[test]
    fn the_nearest_export_is_suggested_and_a_strange_one_is_not() {
        let mut exports = Exports::new();
        // SAFETY: no code is linked with it here.
        unsafe { exports.insert("kv_get", datum()) };
        // SAFETY: no code is linked with it here.
        unsafe { exports.insert("kv_put", datum()) };
        let resolver = Resolver::new(exports);
        assert_eq!(resolver.suggestion("store_get"), Some("kv_get"));
        assert_eq!(resolver.suggestion("kv_ptu"), Some("kv_put"));
        assert_eq!(resolver.suggestion("printf"), None);
        assert_eq!(resolver.suggestion("strlem"), Some("strlen"));
        assert_eq!(Resolver::default().suggestion("store_get"), None, "strlen is nearest");
    }

    #[test]
    fn the_offer_is_listed_and_a_long_one_is_cut() {
        let mut resolver = Resolver::default();
        assert_eq!(resolver.offered(), "bcmp, memcmp, memcpy, memmove, memset, strlen");
        for number in 0..12 {
            // SAFETY: no code is linked with it here.
            unsafe { resolver.exports_mut().insert(format!("f{number:02}"), datum()) };
        }
        // SAFETY: a library of the system, and no code is linked with it here.
        unsafe { resolver.allow_library("libm.so.6").unwrap() };
        resolver.allow_process_symbols();
        assert_eq!(
            resolver.offered(),
            "f00, f01, f02, f03, f04, f05, f06, f07, f08, f09, f10, f11, 6 more and the symbols of libm.so.6 and the \
             symbols of its process"
        );
    }
}
