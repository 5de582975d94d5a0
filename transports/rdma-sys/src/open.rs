//! Loading the library: once, never unloaded, with each function in the version of the bindings.

use std::error::Error;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use libloading::os::unix::{Library as File, RTLD_LOCAL, RTLD_NOW};

use crate::{Library, ibv_qp, ibv_wr_opcode};

/// The library's file. Its number is the version of the binary interface, the same since 2005.
const FILE: &str = "libibverbs.so.1";

/// Functions that the library has in several versions, the older ones with other structures: names are not
/// enough to find them. All others have one version.
const VERSIONED: [&CStr; 18] = [
    c"ibv_ack_async_event",
    c"ibv_ack_cq_events",
    c"ibv_alloc_pd",
    c"ibv_close_device",
    c"ibv_create_cq",
    c"ibv_create_qp",
    c"ibv_dealloc_pd",
    c"ibv_dereg_mr",
    c"ibv_destroy_cq",
    c"ibv_destroy_qp",
    c"ibv_free_device_list",
    c"ibv_get_async_event",
    c"ibv_get_cq_event",
    c"ibv_get_device_list",
    c"ibv_modify_qp",
    c"ibv_open_device",
    c"ibv_query_device",
    c"ibv_reg_mr",
];
/// Their version in the bindings.
const VERSION: &CStr = c"IBVERBS_1.1";

/// The reason why verbs are not available on this machine. The text names the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library, or one of its dependencies, is missing.
    #[error(
        "the verbs library is not installed ({said}): install packages libibverbs1 and ibverbs-providers of Debian and Ubuntu, libibverbs of Fedora"
    )]
    Missing {
        /// The dynamic linker's message.
        said: String,
    },
    /// The library lacks functions, or has them only in other versions.
    #[error(
        "this {FILE} cannot be used ({said}): install rdma-core 28 or later, packages libibverbs1 and ibverbs-providers of Debian and Ubuntu"
    )]
    Incomplete {
        /// The dynamic linker's message.
        said: String,
    },
}

/// The type of `ibv_query_qp_data_in_order`.
pub type DataInOrder = unsafe extern "C" fn(*mut ibv_qp, ibv_wr_opcode, u32) -> c_int;

/// Result of `ibv_is_fork_initialized`: the kernel copies registered pages at a fork (`IBV_FORK_UNNEEDED` of the
/// header).
const FORK_UNNEEDED: c_int = 2;

/// The verbs library. Its functions are those of [`Library`], to which it dereferences.
pub struct Verbs {
    library: Library,
    optional: Optional,
}

/// Functions that a library may lack. Existing ones have the types and rules of the header.
#[derive(Clone, Copy, Default)]
pub struct Optional {
    /// `ibv_query_qp_data_in_order`, since rdma-core 41.
    pub data_in_order: Option<DataInOrder>,
    /// `ibv_is_fork_initialized`, since rdma-core 35.
    pub is_fork_initialized: Option<unsafe extern "C" fn() -> c_int>,
    /// `ibv_fork_init`.
    pub fork_init: Option<unsafe extern "C" fn() -> c_int>,
}

impl Optional {
    fn prepare_for_forks(&self) -> std::io::Result<()> {
        // SAFETY: the function takes no argument, and may be called at any time.
        if self.is_fork_initialized.is_some_and(|ask| unsafe { ask() } == FORK_UNNEEDED) {
            return Ok(());
        }
        // SAFETY: the function takes no argument, and may be called at any time.
        match self.fork_init.map_or(0, |init| unsafe { init() }) {
            0 => Ok(()),
            errno => Err(std::io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Verbs {
    /// Loads the library at the first call; later calls return the same result. It is never unloaded, because
    /// the providers that it loads do not support that.
    ///
    /// # Errors
    /// The library is missing or lacks functions.
    pub fn open() -> Result<&'static Verbs, OpenError> {
        static VERBS: OnceLock<Result<Verbs, OpenError>> = OnceLock::new();
        VERBS.get_or_init(|| Verbs::load(OsStr::new(FILE))).as_ref().map_err(Clone::clone)
    }

    /// Returns whether the device guarantees that data of operations of this kind becomes visible in ascending order in
    /// the process of `qp`. Also `false` if the library lacks the query (before rdma-core 41), and where it knows only
    /// the device and not the machine's memory: on all architectures but x86.
    ///
    /// # Safety
    /// The rules of `ibv_query_qp_data_in_order` in the header: `qp` is valid.
    pub unsafe fn query_qp_data_in_order(&self, qp: *mut ibv_qp, operation: ibv_wr_opcode) -> bool {
        // SAFETY: the caller keeps the header's rules (see Safety).
        self.optional.data_in_order.is_some_and(|ask| unsafe { is_in_order(ask, qp, operation) })
    }

    /// Makes the table of these functions, for a test with fake devices.
    pub fn of_functions(library: Library, optional: Optional) -> Verbs {
        Verbs { library, optional }
    }

    /// Keeps the memory that a device uses with this process when the process forks. Queries the library first
    /// (`ibv_is_fork_initialized`): since Linux 5.12 the kernel copies registered pages at a fork, and this does
    /// nothing. With an older kernel, or a library without that query (before rdma-core 35), calls `ibv_fork_init`:
    /// registered pages are then missing in a child. Does not keep memory that was registered before the call.
    ///
    /// # Errors
    /// That of `ibv_fork_init`: `EINVAL` if this process has registered memory before.
    pub fn prepare_for_forks(&self) -> std::io::Result<()> {
        self.optional.prepare_for_forks()
    }

    fn load(path: &OsStr) -> Result<Verbs, OpenError> {
        // SAFETY: loading runs the library's initialisers, which are made to run when a program starts or
        // loads it.
        let file = unsafe { File::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let file = file.map_err(|error| OpenError::Missing { said: said(&error) })?;
        let incomplete = |said| OpenError::Incomplete { said };
        let file = has_versions(file).map_err(incomplete)?;
        // SAFETY: the functions have always had these types.
        let optional = unsafe {
            Optional {
                data_in_order: file.get(b"ibv_query_qp_data_in_order\0").ok().map(|found| *found),
                is_fork_initialized: file.get(b"ibv_is_fork_initialized\0").ok().map(|found| *found),
                fork_init: file.get(b"ibv_fork_init\0").ok().map(|found| *found),
            }
        };
        // SAFETY: the functions exist in the version of the bindings, and the number in the file's name guarantees the
        // usual types of those with one version.
        let library = unsafe { Library::from_library(file) }.map_err(|error| incomplete(said(&error)))?;
        Ok(Verbs { library, optional })
    }
}

/// Queries with flags of 0, which request a yes or no for device and machine together. With
/// `IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY` the library would respond for the device only, whatever the order in which
/// the machine's memory shows its writes.
///
/// # Safety
/// That of [`Verbs::query_qp_data_in_order`].
unsafe fn is_in_order(ask: DataInOrder, qp: *mut ibv_qp, operation: ibv_wr_opcode) -> bool {
    // SAFETY: the caller keeps the header's rules (see Safety).
    unsafe { ask(qp, operation, 0) == 1 }
}

impl Deref for Verbs {
    type Target = Library;

    fn deref(&self) -> &Library {
        &self.library
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Verbs")
            .field("data_in_order", &self.optional.data_in_order.is_some())
            .finish_non_exhaustive()
    }
}

/// Checks that the name of each versioned function finds the version of the bindings. Returns the file.
fn has_versions(file: File) -> Result<File, String> {
    let handle = file.into_raw();
    let wrong = VERSIONED.into_iter().find_map(|name| {
        // SAFETY: the handle is that of an open library, and the names are C strings.
        let (named, versioned) =
            unsafe { (libc::dlsym(handle, name.as_ptr()), versioned(handle, name, VERSION)) };
        let shown = name.to_string_lossy();
        if versioned.is_null() {
            Some(format!("it has no {shown} of version {}", VERSION.to_string_lossy()))
        } else if named != versioned {
            Some(format!("its {shown} is of a later version than {}", VERSION.to_string_lossy()))
        } else {
            None
        }
    });
    // SAFETY: from `into_raw` above.
    let file = unsafe { File::from_raw(handle) };
    wrong.map_or(Ok(file), Err)
}

/// Finds a function in a certain version; null if there is none.
///
/// # Safety
/// The rules of dlvsym(3): `handle` is that of an open library.
unsafe fn versioned(handle: *mut c_void, name: &CStr, version: &CStr) -> *mut c_void {
    // SAFETY: the caller keeps the library open (see Safety).
    unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) }
}

/// The dynamic linker's message, which is the source of libloading's error.
fn said(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use farjump_tools::all_work;

    use super::*;

    /// A library of this C code with these versions, or `None`, with a message, without a compiler.
    fn stub(folder: &Path, code: &str, versions: &str) -> Option<PathBuf> {
        let [source, script, library] = ["stub.c", "stub.map", FILE].map(|name| folder.join(name));
        std::fs::write(&source, code).unwrap();
        std::fs::write(&script, versions).unwrap();
        let script = format!("-Wl,--version-script={}", script.display());
        if !all_work(&["cc"]) {
            return None;
        }
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(script).arg(&source);
        assert!(cc.status().unwrap().success(), "{code}");
        Some(library)
    }

    /// C code that has every versioned function.
    fn all() -> String {
        VERSIONED.iter().map(|name| format!("void {}(void) {{}}\n", name.to_string_lossy())).collect()
    }

    fn refused(path: &Path) -> String {
        Verbs::load(path.as_os_str()).expect_err("it cannot be used").to_string()
    }

    #[test]
    fn a_missing_libibverbs_error_names_the_file_and_its_package() {
        let text = refused(Path::new("libibverbs.so.not-there"));
        assert!(text.contains("libibverbs.so.not-there") && text.contains("libibverbs1"), "{text}");
    }

    #[test]
    fn a_libibverbs_with_older_symbol_versions_is_refused_by_function_name() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = stub(folder.path(), &all(), "IBVERBS_1.0 { global: *; };") else { return };
        let text = refused(&library);
        assert!(text.contains("it has no ibv_ack_async_event of version IBVERBS_1.1"), "{text}");
    }

    #[test]
    fn a_function_that_has_a_later_version_too_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let code = all().replace("ibv_reg_mr(", "old_reg_mr(")
            + "void new_reg_mr(void) {}\n\
               __asm__(\".symver old_reg_mr,ibv_reg_mr@IBVERBS_1.1\");\n\
               __asm__(\".symver new_reg_mr,ibv_reg_mr@@IBVERBS_9.9\");\n";
        let versions = "IBVERBS_1.1 { global: ibv_*; local: *; };\nIBVERBS_9.9 { } IBVERBS_1.1;\n";
        let Some(library) = stub(folder.path(), &code, versions) else { return };
        let text = refused(&library);
        assert!(text.contains("ibv_reg_mr is of a later version than IBVERBS_1.1"), "{text}");
    }

    #[test]
    fn a_library_that_lacks_a_function_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = stub(folder.path(), &all(), "IBVERBS_1.1 { global: *; };") else { return };
        let text = refused(&library);
        assert!(text.contains("undefined symbol: "), "{text}");
    }

    /// A library's answer on a machine of which it knows nothing (`libibverbs/verbs.c`), and a device that places whole
    /// messages in order.
    unsafe extern "C" fn elsewhere(_: *mut ibv_qp, _: ibv_wr_opcode, flags: u32) -> c_int {
        const DEVICE_ONLY: u32 = 1 << 1;
        c_int::from(flags & DEVICE_ONLY != 0)
    }

    /// Aligned blocks of 128 bytes in order, which is not the whole message.
    unsafe extern "C" fn blocks(_: *mut ibv_qp, _: ibv_wr_opcode, _: u32) -> c_int {
        2
    }

    unsafe extern "C" fn whole(_: *mut ibv_qp, _: ibv_wr_opcode, flags: u32) -> c_int {
        c_int::from(flags == 0)
    }

    #[test]
    fn writes_are_in_order_only_if_device_and_machine_order_whole_messages() {
        for (ask, expected) in [(elsewhere as DataInOrder, false), (blocks, false), (whole, true)] {
            // SAFETY: these functions look at no queue pair.
            let found = unsafe { is_in_order(ask, std::ptr::null_mut(), crate::IBV_WR_RDMA_WRITE) };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn forks_are_prepared_for_where_the_kernel_does_not_copy_registered_pages() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C" fn init() -> c_int {
            CALLS.fetch_add(1, Ordering::Relaxed);
            0
        }
        unsafe extern "C" fn too_late() -> c_int {
            libc::EINVAL
        }
        unsafe extern "C" fn disabled() -> c_int {
            0
        }
        unsafe extern "C" fn unneeded() -> c_int {
            2
        }
        let told = |ask: Option<unsafe extern "C" fn() -> c_int>| {
            let before = CALLS.load(Ordering::Relaxed);
            let optional =
                Optional { is_fork_initialized: ask, fork_init: Some(init), ..Optional::default() };
            optional.prepare_for_forks().unwrap();
            CALLS.load(Ordering::Relaxed) - before
        };
        assert_eq!(told(Some(unneeded)), 0, "Linux 5.12 and later copy them");
        assert_eq!(told(Some(disabled)), 1);
        assert_eq!(told(None), 1, "a library that cannot be asked");
        let late = Optional { fork_init: Some(too_late), ..Optional::default() };
        assert_eq!(late.prepare_for_forks().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(Optional::default().prepare_for_forks().is_ok(), "a library without the function");
    }

    #[test]
    fn the_library_of_this_machine_is_opened_once_and_is_whole() {
        let verbs = match Verbs::open() {
            Ok(verbs) => verbs,
            Err(OpenError::Missing { said }) => return println!("skipped: no libibverbs: {said}"),
            Err(error) => panic!("{error}"),
        };
        assert!(std::ptr::eq(verbs, Verbs::open().unwrap()));
        // SAFETY: every number is accepted.
        let words = unsafe { CStr::from_ptr(verbs.ibv_wc_status_str(crate::IBV_WC_RETRY_EXC_ERR)) };
        assert_eq!(words.to_string_lossy(), "transport retry counter exceeded");
    }
}
