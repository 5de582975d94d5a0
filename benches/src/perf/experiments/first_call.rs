//! The first call of unknown code: the functions, and the baseline, which loads the same code from a file.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

use crate::perf::report::statistics::{Round, median};
use crate::program::failure::Failure;

type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// Calls before those of a warm measurement that count.
const WARM_UP: usize = 4;
/// Calls of a warm measurement that count.
const COUNTED: usize = 8;

/// Returns the number of first calls in a measurement.
pub(in crate::perf) fn calls(warm: bool) -> usize {
    if warm { WARM_UP + COUNTED } else { 1 }
}

/// Returns the calls of a measurement that count, of the times of all in nanoseconds. Of a cold one that is its
/// only call; the first calls of a warm one bring code and tables into the caches.
pub(in crate::perf) fn round(mut times: Vec<u64>) -> Round {
    if times.len() > COUNTED {
        times.drain(..WARM_UP);
    }
    let values: Vec<_> = times.iter().map(|time| *time as f64 / 1e3).collect();
    Round::timed(median(&values).unwrap_or(f64::NAN), times)
}

/// Returns the number that this function adds to the count, different for each so that the code differs.
pub(in crate::perf) fn adds(number: usize) -> u64 {
    number as u64 + 2
}

/// Returns the name of the function with this number.
pub(in crate::perf) fn name(number: usize) -> String {
    format!("first{number}")
}

/// Returns the symbol of the function itself.
pub(in crate::perf) fn symbol(number: usize) -> String {
    format!("{}_main", name(number))
}

/// Returns its source: `counter`, except for the number it adds.
pub(in crate::perf) fn source(number: usize) -> String {
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

/// A library to load, the name of its function, and the number that this adds to its argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::perf) struct Loaded {
    pub(in crate::perf) library: PathBuf,
    pub(in crate::perf) symbol: String,
    pub(in crate::perf) adds: u64,
}

/// Times for each of `libraries`, one right after another, loading a copy unknown to the loader, finding its
/// function and calling it. In nanoseconds.
pub(in crate::perf) fn load_and_call(libraries: &[Loaded]) -> Result<Vec<u64>, Failure> {
    let copies: Vec<_> =
        libraries.iter().map(|loaded| fresh_copy(&loaded.library)).collect::<Result<_, _>>()?;
    let timed =
        libraries.iter().zip(&copies).map(|(Loaded { symbol, adds, .. }, copy)| match time(copy, symbol) {
            Ok((time, added)) if added == *adds => Ok(time.as_nanos() as u64),
            Ok((_, added)) => Err(Failure::new(format!("`{symbol}` added {added}, not {adds}"))),
            Err(error) => Err(Failure::new(format!("`{}` cannot be loaded: {error}", copy.display()))),
        });
    let timed = timed.collect();
    for copy in &copies {
        let _ = std::fs::remove_file(copy);
    }
    timed
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
