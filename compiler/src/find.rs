//! Where the program is.

use std::env;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Name of the program's file.
const NAME: &str = "farjump_compiler";
/// The environment variable that names the program.
const VARIABLE: &str = "FARJUMP_COMPILER";

/// There is no such program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "there is no program {NAME} {}: install it beside the program or the library that the target lives in, or name it in \
     {VARIABLE}",
    .named.as_ref().map_or_else(|| "beside this one or in PATH".to_owned(), |path| format!("at `{}`", path.display()))
)]
pub struct NotFound {
    /// The path that was named, if one was.
    named: Option<PathBuf>,
}

/// The program: the named one, that in `FARJUMP_COMPILER`, or the first one beside the library or program that this code
/// is in, beside the running program, and in `PATH`.
///
/// # Errors
/// [`NotFound`].
pub(crate) fn program(named: Option<&Path>) -> Result<PathBuf, NotFound> {
    let variable = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = named.map(Path::to_path_buf).or(variable) {
        return if is_program(&named) { Ok(named) } else { Err(NotFound { named: Some(named) }) };
    }
    let files = [own_file(), env::current_exe().ok()].into_iter().flatten();
    // Cargo puts programs of tests and examples into a folder below that of the others; libraries lie in `lib`, or in a
    // folder there, beside `bin`.
    let folders = files.flat_map(|file| {
        let above = file.ancestors().skip(1).take(3);
        above.flat_map(|folder| [folder.to_path_buf(), folder.join("bin")]).collect::<Vec<_>>()
    });
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).filter(|folder| folder.is_absolute());
    let found = folders.chain(in_path).map(|folder| folder.join(NAME)).find(|path| is_program(path));
    found.ok_or(NotFound { named: None })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here: fn() -> Option<PathBuf> = own_file;
    // SAFETY: any address may be asked for, and `found` is written.
    let is_known = unsafe { libc::dladdr(here as *const libc::c_void, &raw mut found) } != 0;
    if !is_known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: it is a string of the dynamic linker's, which stays as long as the object that this code is in.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()))).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_program_that_is_none_is_named_in_the_error() {
        let error = program(Some(Path::new("/nowhere/compiler"))).unwrap_err().to_string();
        assert!(error.contains("at `/nowhere/compiler`") && error.contains(VARIABLE), "{error}");
        assert!(program(Some(Path::new("/proc/self/maps"))).is_err(), "it is no program");
    }
}
