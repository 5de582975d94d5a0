//! Ifunc libraries that this program injects from.

use std::path::Path;

use farjump::Library;

use crate::program::failure::Failure;

/// Opens the library at `path`. A library with payload routines of its own is loaded into this process: this runs its
/// constructors and, with each call, those routines. A user who names a library requests that.
///
/// # Errors
/// The library is missing, cannot be loaded, or is malformed.
///
/// # Safety
/// The library's constructors and payload routines may run in this process: the user named the library, or
/// this program built it.
pub unsafe fn open(path: impl AsRef<Path>) -> Result<Library, Failure> {
    let library = Library::open(&path)?;
    if library.check_payload().is_ok() {
        return Ok(library);
    }
    // SAFETY: the caller allows the constructors and the payload routines to run.
    Ok(unsafe { Library::load(&path) }?)
}
