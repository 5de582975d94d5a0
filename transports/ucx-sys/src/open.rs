//! Loading the library: once, never unloaded, and without changing the program's signal handlers.

use std::cell::UnsafeCell;
use std::env;
use std::ffi::{OsStr, c_int, c_uint};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use libloading::os::unix::{Library as File, RTLD_LOCAL, RTLD_NOW};

use crate::forked;
use crate::memory_events;
use crate::named::{self, path_of};
use crate::open_error::{OpenError, Version, not_loaded, said};
use crate::{API, FILE, Library, log};

/// UCX. Its functions are those of [`Library`], to which it dereferences.
// The functions lie on the same lines of memory in every program, those of each frame on as few lines as possible.
#[repr(C, align(64))]
pub struct Ucx {
    /// Changes only in forked children.
    library: UnsafeCell<Library>,
    version: Version,
    file: PathBuf,
}

impl Ucx {
    /// Loads the library at the first call; later calls return the same result. The library is never unloaded, because
    /// it may have threads.
    ///
    /// Uses a `libucp.so.0` that is already in the process. Otherwise loads the file that the environment variable
    /// `FARJUMP_UCX` names, together with the UCX libraries beside it; otherwise the library that the dynamic linker
    /// finds (`LD_LIBRARY_PATH`, then the system's). A program with more rights than its user ignores `FARJUMP_UCX`.
    ///
    /// Loading would replace the program's handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGHUP. This function
    /// restores them, unless the environment requests UCX's (`UCX_HANDLE_ERRORS`, `UCX_ERROR_SIGNALS` or
    /// `UCX_DEBUG_SIGNO`). A handler that another thread sets at the same time may be lost.
    ///
    /// If the process has other threads, UCX is loaded without memory events, unless the environment has
    /// `UCX_MEM_EVENTS`: its hooks are written over functions of the C library which these threads may be running.
    ///
    /// # Errors
    /// There is no UCX, it is older than 1.13, or it lacks functions. `FARJUMP_UCX` names a file that is no UCX, or not
    /// the one in the process.
    pub fn open() -> Result<&'static Ucx, OpenError> {
        static UCX: OnceLock<Result<Ucx, OpenError>> = OnceLock::new();
        UCX.get_or_init(|| Ucx::load(OsStr::new(FILE), named::named_file().as_deref()))
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The library's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The file of the library.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Loads the file `named`, otherwise the one that the dynamic linker finds by `name`.
    fn load(name: &OsStr, named: Option<&Path>) -> Result<Ucx, OpenError> {
        let asked = ["UCX_HANDLE_ERRORS", "UCX_ERROR_SIGNALS", "UCX_DEBUG_SIGNO"];
        let kept = if asked.iter().any(|name| env::var_os(name).is_some()) { Vec::new() } else { handlers() };
        let file = memory_events::without(|| match named {
            Some(named) => named::open(named),
            // SAFETY: loading runs UCX's initialisers, which are made to run when a program starts or loads
            // it. They leave signal handlers in this process, which `put_back` undoes.
            None => unsafe { File::open(Some(name), RTLD_NOW | RTLD_LOCAL) }
                .map_err(|error| not_loaded(said(&error))),
        });
        put_back(&kept);
        let found = file.and_then(Ucx::of);
        found.map_err(|error| match (error, named) {
            (error @ OpenError::Named { .. }, _) | (error, None) => error,
            (error, Some(named)) => named::refused(named, &error),
        })
    }

    /// The functions of a loaded library.
    fn of(library: File) -> Result<Ucx, OpenError> {
        let version = version_of(&library)?;
        if version.major != API.0 || version.minor < API.1 {
            return Err(OpenError::Version { found: version });
        }
        let file = path_of(&library).unwrap_or_else(|| PathBuf::from(FILE));
        log::thin_out(&library);
        // SAFETY: the library states this version of UCX or a later one with the same binary interface, so
        // the symbols are functions of the types in the bindings.
        let library = unsafe { Library::from_library(library) };
        let library =
            library.map_err(|error| OpenError::Incomplete { found: version, said: said(&error) })?;
        Ok(Ucx { library: UnsafeCell::new(library), version, file })
    }

    /// Ends all use of UCX in a forked child: its functions then do nothing, and fail if they can. The child leaks the
    /// parent's objects of UCX.
    ///
    /// # Safety
    /// The caller is a handler of `pthread_atfork` in the child, and the thread that forked runs no function of UCX.
    pub unsafe fn end_in_child(&self) {
        // SAFETY: the child has no other thread, and no function of this one uses the table (see Safety).
        forked::replace(unsafe { &mut *self.library.get() });
    }
}

// SAFETY: the table changes only in `end_in_child`, while the process has one thread.
unsafe impl Sync for Ucx {}

impl Deref for Ucx {
    type Target = Library;

    fn deref(&self) -> &Library {
        // SAFETY: `end_in_child` demands that nothing uses the table.
        unsafe { &*self.library.get() }
    }
}

impl fmt::Debug for Ucx {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Ucx");
        out.field("version", &self.version).field("file", &self.file).finish_non_exhaustive()
    }
}

/// The library's version. Read first, because an old library lacks functions, and its version explains that.
fn version_of(file: &File) -> Result<Version, OpenError> {
    type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
    // SAFETY: every UCX has had this function with this type since 1.0.
    let get = unsafe { file.get::<GetVersion>(b"ucp_get_version\0") }
        .map_err(|error| OpenError::Foreign { said: said(&error) })?;
    let mut found = Version { major: 0, minor: 0, release: 0 };
    // SAFETY: the function writes three numbers, and each output is valid.
    unsafe { get(&mut found.major, &mut found.minor, &mut found.release) };
    Ok(found)
}

/// The present handler of each signal.
fn handlers() -> Vec<(c_int, libc::sigaction)> {
    (1..=libc::SIGRTMAX()).filter_map(|signal| Some((signal, handler(signal)?))).collect()
}

fn handler(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: with a null new action the call only writes the old one, and the output is valid.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call succeeded, so it wrote `action`.
    (asked == 0).then(|| unsafe { action.assume_init() })
}

/// Restores the handlers that have changed.
fn put_back(kept: &[(c_int, libc::sigaction)]) {
    for (signal, before) in kept {
        if handler(*signal).is_some_and(|now| now.sa_sigaction != before.sa_sigaction) {
            // SAFETY: `before` was in force before the loading, and its handler belongs to the program and still
            // exists.
            unsafe { libc::sigaction(*signal, before, ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use farjump_tools::all_work;

    use super::*;

    /// A library of this C code, or `None`, with a message, without a compiler.
    fn stub(folder: &Path, code: &str) -> Option<PathBuf> {
        let (source, library) = (folder.join("stub.c"), folder.join(FILE));
        std::fs::write(&source, code).unwrap();
        if !all_work(&["cc"]) {
            return None;
        }
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.unwrap().success(), "{code}");
        Some(library)
    }

    /// Signal handlers and variables belong to the process: tests that read them, or load a library, run one after the
    /// other.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn actions() -> Vec<usize> {
        handlers().into_iter().map(|(_, action)| action.sa_sigaction).collect()
    }

    fn version(major: u32, minor: u32) -> String {
        format!(
            "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) {{ *a = {major}; *b = {minor}; *c = 2; }}"
        )
    }

    fn refused(path: &Path, _alone: &MutexGuard<'_, ()>) -> OpenError {
        Ucx::load(path.as_os_str(), None).expect_err("it is no UCX that can be used")
    }

    #[test]
    fn a_missing_libucp_error_names_the_file_and_its_package() {
        let error = refused(Path::new("libucp.so.not-there"), &alone());
        assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("libucp.so.not-there") && text.contains("libucx0"), "{text}");
    }

    #[test]
    fn ucx_before_1_13_or_of_another_major_is_refused_by_number() {
        for (major, minor) in [(1, 12), (0, 99), (2, 13)] {
            let folder = tempfile::tempdir().unwrap();
            let Some(library) = stub(folder.path(), &version(major, minor)) else { return };
            let error = refused(&library, &alone());
            assert_eq!(error, OpenError::Version { found: Version { major, minor, release: 2 } });
            let text = error.to_string();
            assert!(text.contains(&format!("{major}.{minor}.2")) && text.contains("1.13 or later"), "{text}");
            assert!(text.contains("install a newer UCX"), "{text}");
        }
    }

    #[test]
    fn a_library_that_lacks_a_function_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = stub(folder.path(), &version(1, 13)) else { return };
        let error = refused(&library, &alone());
        assert!(matches!(error, OpenError::Incomplete { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("undefined symbol: uc") && text.contains("reinstall UCX"), "{text}");
    }

    #[test]
    fn a_library_that_is_no_ucx_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = stub(folder.path(), "int other;") else { return };
        let error = refused(&library, &alone());
        assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("undefined symbol: ucp_get_version") && text.contains("install UCX"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_library_is_foreign_and_not_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        for (bytes, words) in [(&[b'x'; 4096][..], "invalid ELF header"), (&[], "file too short")] {
            std::fs::write(&file, bytes).unwrap();
            let error = refused(&file, &alone());
            assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("install UCX"), "{text}");
        }
    }

    #[test]
    fn a_library_that_takes_signals_has_them_taken_back() {
        let alone = alone();
        let folder = tempfile::tempdir().unwrap();
        // Its release is the number of signals, of two, that it got.
        let greedy = "#include <signal.h>\n\
                      static unsigned got;\n\
                      static void mine(int s) { (void)s; }\n\
                      static void take(int s) { signal(s, mine); got += signal(s, mine) == mine; }\n\
                      __attribute__((constructor)) static void init(void) { take(SIGHUP); take(SIGSEGV); }\n\
                      void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = 12; *c = got; }\n";
        let Some(library) = stub(folder.path(), greedy) else { return };
        let before = actions();
        let error = refused(&library, &alone);
        assert_eq!(error, OpenError::Version { found: Version { major: 1, minor: 12, release: 2 } });
        assert_eq!(before, actions());
    }

    #[test]
    fn the_ucx_of_this_machine_is_opened_once_and_leaves_signals_alone() {
        let _alone = alone();
        let before = actions();
        let ucx = match Ucx::open() {
            Ok(ucx) => ucx,
            Err(OpenError::Missing { said }) => return println!("skipped: no UCX: {said}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(before, actions());
        assert!(ucx.version() >= Version { major: 1, minor: 13, release: 0 });
        assert!(ucx.file().is_file(), "{}", ucx.file().display());
        // The tests of several versions name the expected one.
        if let Some(wanted) = env::var_os("FARJUMP_TEST_UCX") {
            let (version, wanted) = (ucx.version().to_string(), wanted.to_string_lossy());
            assert!(
                version == *wanted || version.starts_with(&format!("{wanted}.")),
                "{version}, not {wanted}"
            );
        }
        assert!(ptr::eq(ucx, Ucx::open().unwrap()));
    }
}
