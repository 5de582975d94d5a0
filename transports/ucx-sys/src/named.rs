//! The library that `FARJUMP_UCX` names, with the other libraries of UCX beside it.
//!
//! `libucp.so.0` needs three more, by name. Unless it states their folder, the dynamic linker takes the system's, which
//! may be of another version. So this module first loads those beside the file, by path: the dynamic linker then finds
//! them by name.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fs;
use std::mem::forget;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library as File, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

use crate::open_error::{OpenError, not_loaded, said};
use crate::{API, FILE};

/// The variable.
const VARIABLE: &str = "FARJUMP_UCX";

/// The UCX libraries that `libucp.so.0` needs, each after its own dependencies.
const SISTERS: [&str; 3] = [LAZY, NEXT, "libuct.so.0"];
/// The library whose symbols are found only once the next one is loaded.
const LAZY: &str = "libucm.so.0";
const NEXT: &str = "libucs.so.0";
/// The variable that makes the dynamic linker bind all symbols of a library during loading (ld.so(8)). The dynamic
/// linker reads its variables when the process starts.
const BIND_NOW: &str = "LD_BIND_NOW";

/// The file named by the environment. A program with more rights than its user ignores its user's library.
pub(crate) fn named_file() -> Option<PathBuf> {
    // SAFETY: the call reads data that the system has passed to this process.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    env::var_os(VARIABLE).filter(|file| !is_privileged && !file.is_empty()).map(PathBuf::from)
}

/// The beginning of the dynamic linker's description of a library (`link_map` in link.h).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

/// The file of a loaded library, if the dynamic linker states it.
pub(crate) fn path_of(library: &File) -> Option<PathBuf> {
    let mut map = ptr::null::<LinkMap>();
    // SAFETY: the handle is that of an open library, and the output fits a pointer.
    let asked = unsafe { libc::dlinfo(handle(library), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if asked != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, and the description stays valid as long as the library.
    let name = unsafe { (*map).name };
    // SAFETY: the dynamic linker's own text, valid as long as the library.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
    let path = PathBuf::from(OsString::from_vec(name));
    Some(path.canonicalize().unwrap_or(path))
}

/// The handle of a library that stays open.
fn handle(library: &File) -> *mut c_void {
    // SAFETY: a second owner of the handle; `into_raw` releases it without closing it.
    unsafe { ptr::read(library) }.into_raw()
}

/// Loads the library `file`, after its sisters beside it.
pub(crate) fn open(file: &Path) -> Result<File, OpenError> {
    let refuse = |why: String| OpenError::Named { file: file.to_owned(), why };
    let path = file
        .canonicalize()
        .map_err(|error| refuse(format!("{error}: name the file {FILE} of a UCX, or unset the variable")))?;
    if path.is_dir() {
        return Err(refuse(format!("is a folder: name the file {FILE} in it")));
    }
    if let Some(present) = present(FILE) {
        let its = path_of(&present);
        if its.as_deref().is_some_and(|its| is_same(its, &path)) {
            return Ok(present);
        }
        return Err(refuse(format!(
            "another UCX is in this process already, {}: name that one, or unset the variable",
            shown(its.as_deref())
        )));
    }
    let folder = path.parent().unwrap_or(&path);
    // A link to the file may lie among links to its sisters, or alone.
    let given = std::path::absolute(file).unwrap_or_else(|_| path.clone());
    let folders = [path.parent(), given.parent()];
    let mut sisters = Vec::new();
    for name in SISTERS {
        let beside = folders.iter().flatten().map(|folder| folder.join(name)).find(|sister| sister.is_file());
        let Some(sister) = beside else {
            return Err(refuse(format!(
                "{name}, which it needs, is not beside it in {}: name the {FILE} of a whole UCX",
                folder.display()
            )));
        };
        if let Some(present) = present(name) {
            let its = path_of(&present);
            if its.as_deref().is_none_or(|its| !is_same(its, &sister)) {
                return Err(refuse(format!(
                    "{name} of another UCX is in this process already, {}: name the {FILE} beside that, or unset the variable",
                    shown(its.as_deref())
                )));
            }
        }
        sisters.push(sister);
    }
    // The reason why the first sister did not load alone.
    let mut alone = None;
    for sister in &sisters {
        // The first sister needs symbols of the second, which needs the first: the first call of each binds it. If the
        // first does not load alone, the second loads it, from a file that the check below verifies.
        let flags = if sister.ends_with(LAZY) { RTLD_LAZY } else { RTLD_NOW };
        match load(sister, flags) {
            // The rest of UCX loads once all of these are loaded, and none is unloaded.
            Ok(library) => forget(library),
            Err(said) if sister.ends_with(LAZY) => alone = Some(said),
            Err(said) => match alone.filter(|_| said.contains(LAZY)) {
                Some(alone) => return Err(refuse(not_alone(&alone, &sisters[0]))),
                None => return Err(not_loaded(said)),
            },
        }
    }
    let library = load(&path, RTLD_NOW).map_err(not_loaded)?;
    for (name, sister) in SISTERS.iter().zip(&sisters) {
        let its = present(name).as_ref().and_then(path_of);
        if its.as_deref().is_some_and(|its| !is_same(its, sister)) {
            if let Some(alone) = alone.filter(|_| *name == LAZY) {
                return Err(refuse(not_alone(&alone, &sisters[0])));
            }
            return Err(refuse(format!(
                "the dynamic linker takes {name} from {}: put {} first in LD_LIBRARY_PATH instead",
                shown(its.as_deref()),
                folder.display()
            )));
        }
    }
    Ok(library)
}

/// The reason why the dynamic linker takes the first sister from elsewhere, or finds none: the file `sister` did not
/// load alone, with the message `said`.
fn not_alone(said: &str, sister: &Path) -> String {
    let folder = sister.parent().unwrap_or(sister).display();
    let unbound = format!("{} does not load before {NEXT} ({said})", sister.display());
    if !said.contains("undefined symbol") {
        return format!("{unbound}: name the {FILE} of a whole UCX");
    }
    match env::var_os(BIND_NOW).is_some_and(|value| !value.is_empty()) {
        true => format!(
            "{unbound}, because {BIND_NOW} is set: unset it, or put {folder} first in LD_LIBRARY_PATH"
        ),
        false => format!("{unbound}: put {folder} first in LD_LIBRARY_PATH"),
    }
}

/// The error for a named file that is no usable UCX.
pub(crate) fn refused(file: &Path, error: &OpenError) -> OpenError {
    let why = match error {
        OpenError::Version { found } => {
            format!("it is UCX {found}, and farjump needs {}.{} or later of {}", API.0, API.1, API.0)
        }
        OpenError::Incomplete { found, said } => format!("the library of UCX {found} is incomplete ({said})"),
        OpenError::Missing { said } => format!("a library that it needs is missing ({said})"),
        OpenError::Foreign { said } => format!("it is not UCX ({said})"),
        OpenError::Named { why, .. } => return OpenError::Named { file: file.to_owned(), why: why.clone() },
    };
    let mend = format!("name the {FILE} of a UCX from {}.{} on, or unset the variable", API.0, API.1);
    OpenError::Named { file: file.to_owned(), why: format!("{why}: {mend}") }
}

/// Loads a library of UCX. `Err` has the dynamic linker's message.
fn load(path: &Path, flags: c_int) -> Result<File, String> {
    // SAFETY: loading runs UCX's initialisers, which are made to run when a program starts or loads it. The
    // caller (`Ucx::load`) restores the signal handlers that they replace.
    unsafe { File::open(Some(path), flags | RTLD_LOCAL) }.map_err(|error| said(&error))
}

/// The library of this name, if it is loaded in the process.
fn present(name: &str) -> Option<File> {
    let only_present: c_int = libc::RTLD_NOLOAD;
    // SAFETY: nothing is loaded, so nothing runs.
    unsafe { File::open(Some(name), RTLD_NOW | RTLD_LOCAL | only_present) }.ok()
}

/// Returns whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    of(one).is_some() && of(one) == of(other)
}

fn shown(path: Option<&Path>) -> String {
    path.map_or_else(|| "of an unknown file".to_owned(), |path| path.display().to_string())
}
