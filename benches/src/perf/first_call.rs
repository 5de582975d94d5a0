//! The first call of code that was never seen: the functions, and the reference, which loads the same from a file.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::program::failure::Failure;

type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// How much the function with this number adds to the count: each another number, so that each is other code.
pub(super) fn adds(number: usize) -> u64 {
    number as u64 + 2
}

/// The name of the function with this number.
pub(super) fn name(number: usize) -> String {
    format!("first{number}")
}

/// The function itself, as the loader knows it.
pub(super) fn symbol(number: usize) -> String {
    format!("{}_main", name(number))
}

/// Its source: `counter`, but for what it adds.
pub(super) fn source(number: usize) -> String {
    let (name, adds) = (name(number), adds(number));
    format!(
        "#include <farjump_ifunc.h>\n\
         FARJUMP_COPY_ARGS({name})\n\
         FARJUMP_IFUNC void {name}_main(void *payload, size_t payload_size, void *target_args)\n\
         {{\n\
             (void)payload;\n\
             (void)payload_size;\n\
             *(uint64_t *)target_args += {adds};\n\
         }}\n"
    )
}

/// How long it takes to load a copy of a library that nobody has loaded, find its function `symbol`, which adds `adds` to what
/// it gets, and call it.
pub(super) fn load_and_call(library: &Path, symbol: &str, adds: u64) -> Result<Duration, Failure> {
    let copy = fresh_copy(library)?;
    let timed = time(&copy, symbol);
    let _ = std::fs::remove_file(&copy);
    match timed {
        Ok((time, added)) if added == adds => Ok(time),
        Ok((_, added)) => Err(Failure::new(format!("`{symbol}` added {added}, not {adds}"))),
        Err(error) => Err(Failure::new(format!("`{}` cannot be loaded: {error}", copy.display()))),
    }
}

fn time(path: &Path, symbol: &str) -> Result<(Duration, u64), libloading::Error> {
    let mut count = 0_u64;
    let mut payload = [7_u8; 8];
    let symbol = format!("{symbol}\0");
    let start = Instant::now();
    // SAFETY: the library is one that `perf` has built from `source`: it has no constructors, and the function takes these
    // arguments.
    unsafe {
        let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL)?;
        let main = library.get::<Main>(symbol.as_bytes())?;
        main(payload.as_mut_ptr().cast(), payload.len(), (&raw mut count).cast());
        let time = start.elapsed();
        drop(library);
        Ok((time, count))
    }
}

/// A copy under a name and inode that the loader has not seen.
fn fresh_copy(library: &Path) -> Result<PathBuf, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("cannot copy `{}`: {error}", library.display()));
    let folder = library.parent().unwrap_or(Path::new("."));
    let copy = tempfile::Builder::new().prefix("copy").suffix(".so").tempfile_in(folder).map_err(failed)?;
    let path = copy.into_temp_path().keep().map_err(|error| failed(error.error))?;
    std::fs::copy(library, &path).map_err(failed)?;
    Ok(path)
}
