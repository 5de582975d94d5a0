//! The libraries that a program registers by their names, in one directory.

use std::ffi::OsString;
use std::path::PathBuf;

use farjump_core::frame::MAX_NAME;
use farjump_loader::Library;
use farjump_loader::library::bundle;
use farjump_ucx_sys::{UCS_ERR_CANCELED, UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_INVALID_PARAM};

use super::{Refused, WHERE};

/// Directory of libraries, unless `UCX_IFUNC_LIB_DIR` names another.
const DIRECTORY: &str = "/usr/lib";

/// Checks that an ifunc can have this name.
///
/// # Errors
/// [`UCS_ERR_INVALID_PARAM`] and [`UCS_ERR_EXCEEDS_LIMIT`].
pub(super) fn check_name(name: &str) -> Result<(), Refused> {
    if name.len() > MAX_NAME {
        let text = format!("an ifunc's name of {} bytes: it has at most {MAX_NAME}", name.len());
        return Err(Refused::new(UCS_ERR_EXCEEDS_LIMIT, text));
    }
    if !bundle::is_name(name) {
        let text = format!(
            "`{name}` is no ifunc's name: it has letters, digits and `_`, and does not begin with a digit"
        );
        return Err(Refused::new(UCS_ERR_INVALID_PARAM, text));
    }
    Ok(())
}

/// Returns the library of this name in the directory: `NAME.so` there.
///
/// # Errors
/// [`UCS_ERR_CANCELED`], where it does not exist, or is no ifunc library.
pub(super) fn from_directory(name: &str) -> Result<Library, Refused> {
    check_name(name).map_err(|refused| Refused { status: UCS_ERR_CANCELED, ..refused })?;
    let path = path(name);
    // SAFETY: registering loads, as the papers' interface says; the program names the directory and the
    // library in it.
    unsafe { Library::load_named(&path, name) }
        .map_err(|error| Refused::new(UCS_ERR_CANCELED, format!("{error} ({WHERE})")))
}

/// Returns the path of the library of this name, whether it exists or not.
pub(super) fn path(name: &str) -> PathBuf {
    directory().join(format!("{name}.so"))
}

/// Returns the directory of libraries.
pub(super) fn directory() -> PathBuf {
    let directory = std::env::var_os("UCX_IFUNC_LIB_DIR").filter(|directory| !directory.is_empty());
    PathBuf::from(directory.unwrap_or_else(|| OsString::from(DIRECTORY)))
}
