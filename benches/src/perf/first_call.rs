//! The first call of unknown code: the functions, and the baseline, which loads the same code from a file.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::program::failure::Failure;

type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// Returns the number that this function adds to the count, different for each so that the code differs.
pub(super) fn adds(number: usize) -> u64 {
    number as u64 + 2
}

/// Returns the name of the function with this number.
pub(super) fn name(number: usize) -> String {
    format!("first{number}")
}

/// Returns the symbol of the function itself.
pub(super) fn symbol(number: usize) -> String {
    format!("{}_main", name(number))
}

/// Returns its source: `counter`, except for the number it adds.
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

/// Times loading a copy of a library unknown to the loader, finding its function `symbol`, and calling it.
/// The function adds `adds` to its argument.
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
    // SAFETY: `perf` built the library from `source`: no constructors, and a function with these arguments.
    unsafe {
        let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL)?;
        let main = library.get::<Main>(symbol.as_bytes())?;
        main(payload.as_mut_ptr().cast(), payload.len(), (&raw mut count).cast());
        let time = start.elapsed();
        drop(library);
        Ok((time, count))
    }
}

/// Copies the library to a name and inode unknown to the loader.
fn fresh_copy(library: &Path) -> Result<PathBuf, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("cannot copy `{}`: {error}", library.display()));
    let folder = library.parent().unwrap_or(Path::new("."));
    let copy = tempfile::Builder::new().prefix("copy").suffix(".so").tempfile_in(folder).map_err(failed)?;
    let path = copy.into_temp_path().keep().map_err(|error| failed(error.error))?;
    std::fs::copy(library, &path).map_err(failed)?;
    Ok(path)
}
