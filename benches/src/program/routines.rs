//! Ifunc libraries that this program injects from.

use std::path::Path;

use farjump::Library;

use crate::failure::Failure;

/// Opens the library at `path`. One whose payloads are made by routines of its author's is loaded into this process, which runs its
/// constructors and, with each call, those routines: whoever names it to this program asks for that.
///
/// # Errors
/// It is not there, cannot be loaded, or is no such library.
pub(crate) fn open(path: impl AsRef<Path>) -> Result<Library, Failure> {
    let library = Library::open(&path)?;
    if library.check_payload().is_ok() {
        return Ok(library);
    }
    // SAFETY: the user names the library whose function is to be injected, and trusts its author with what that takes here; or this
    // program has built it.
    Ok(unsafe { Library::load(&path) }?)
}
