//! Bitcode in the directory of libraries, as the later prototype has it: `NAME.TRIPLE.bc`, and `NAME.deps` with the name of a
//! library in each line.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use farjump_loader::Exports;
use farjump_os::open_without_waiting;
use farjump_ucx_sys::{UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_IO_ERROR};

use super::{Given, Libraries, libraries, machine_of};
use crate::ucp_ifunc::{Refused, WHERE};

/// Longest file that is read, in bytes: as long as bitcode that the compile process takes.
pub(super) const MOST: u64 = 64 << 20;

/// Makes libraries of the ifunc `name` from the files in `directory`, as [`libraries`] does; `None` if it has no
/// bitcode there. Does not read the dependencies of a `pure` function.
///
/// # Errors
/// [`UCS_ERR_IO_ERROR`] for files that cannot be read, [`UCS_ERR_EXCEEDS_LIMIT`] for long ones; those of [`libraries`].
pub(in crate::ucp_ifunc) fn read(
    directory: &Path,
    name: &str,
    pure: bool,
    exports: Exports,
) -> Result<Option<Libraries>, Refused> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| {
            Refused::new(UCS_ERR_IO_ERROR, format!("cannot read `{path}`: {error} ({WHERE})"))
        }
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(directory)(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed(directory))?.path();
        let file = path.file_name().and_then(|file| file.to_str());
        let triple = file.and_then(|file| file.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".bc"));
        // Bitcode for machines that farjump does not know is never sent.
        if let Some(triple) = triple.filter(|triple| machine_of(triple).is_some()).map(str::to_owned) {
            let bytes = contents(&path)?.map_err(failed(&path))?;
            files.push((triple, bytes));
        }
    }
    if files.is_empty() {
        return Ok(None);
    }
    files.sort();
    let deps = directory.join(format!("{name}.deps"));
    let deps = match if pure { Ok(Vec::new()) } else { contents(&deps)? } {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed(&deps)(error)),
    };
    let deps = String::from_utf8_lossy(&deps);
    let deps: Vec<&str> = deps.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let given: Vec<_> = files.iter().map(|(triple, bytes)| Given { triple, bytes }).collect();
    libraries(name, &given, &deps, exports).map(Some)
}

/// Reads a file, and never waits for the writer of a pipe.
fn contents(path: &Path) -> Result<io::Result<Vec<u8>>, Refused> {
    let read = || {
        let file = open_without_waiting(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        file.take(MOST + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    match read() {
        Ok(bytes) if bytes.len() as u64 > MOST => {
            let text = format!("`{}` is longer than {MOST} bytes", path.display());
            Err(Refused::new(UCS_ERR_EXCEEDS_LIMIT, text))
        }
        read => Ok(read),
    }
}
