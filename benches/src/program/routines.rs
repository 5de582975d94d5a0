//! Ifunc libraries that this program injects from.

use std::path::Path;

use farjump::Library;

use crate::program::failure::Failure;

/// Opens the library at `path`. One whose payloads are made by routines of its author's is loaded into this process, which runs its
/// constructors and, with each call, those routines: whoever names it to this program asks for that.
///
/// # Errors
/// It is not there, cannot be loaded, or is no such library.
///
/// # Safety
/// The library's constructors and payload routines may run in this process: the user named the library, or this program
/// built it.
pub unsafe fn open(path: impl AsRef<Path>) -> Result<Library, Failure> {
    let library = Library::open(&path)?;
    if library.check_payload().is_ok() {
        return Ok(library);
    }
    // SAFETY: the caller lets the constructors and the payload routines run.
    Ok(unsafe { Library::load(&path) }?)
}
