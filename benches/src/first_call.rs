//! The first call of code that was never seen, against loading the same library from a file.
//!
//! Both are timed inside the target: from the frame being there to its function having returned and the answer being sent,
//! against `dlopen`, `dlsym` and one call.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farjump::{Machine, Target};

use crate::Failure;
use crate::floor::{Command, Floor};
use crate::report::Series;
use crate::shm::{HELLO, Libraries, PATIENCE, SERVICES, connect};

type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// The target's side of one first call, and of the reference: both times are told through the floor, in nanoseconds. This
/// process's standard output goes nowhere: the sample prints.
pub(crate) fn serve(floor: &Floor, target: &mut Target<'_>, folder: &Path) -> Result<(), Failure> {
    // SAFETY: the library has one function and no constructors. It stays open: `hello` finds it in the global scope.
    let services = unsafe {
        libloading::os::unix::Library::open(
            Some(folder.join(SERVICES)),
            libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_GLOBAL,
        )?
    };
    let reference = load_and_call(&fresh_copy(folder)?);
    drop(services);
    let reference = reference?;
    let deadline = Instant::now() + PATIENCE;
    // From here on a frame that comes is timed.
    floor.done();
    loop {
        let start = Instant::now();
        let ran = target.poll()?;
        let time = start.elapsed();
        if ran != 0 {
            floor.set_values(time.as_nanos() as u64, reference.as_nanos() as u64);
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("no first call came".into());
        }
    }
}

/// A copy of the library under a name and inode that the loader has not seen.
fn fresh_copy(folder: &Path) -> Result<PathBuf, Failure> {
    let copy = tempfile::Builder::new()
        .prefix("hello")
        .suffix(".so")
        .tempfile_in(folder)?
        .into_temp_path()
        .keep()?;
    std::fs::copy(folder.join(HELLO), &copy)?;
    Ok(copy)
}

/// Runs the source's side and prints the row.
pub(crate) fn run(floor: &Floor, address: &str, libraries: &Libraries) -> Result<(), Failure> {
    let mut series = Series::default();
    let link = connect(address)?;
    for hello in &libraries.hellos {
        floor.command(Command::ServeFirst, 0);
        floor.wait_done();
        floor.expect_done();
        link.inject(hello, b"first")?.wait(PATIENCE)?;
        floor.wait_done();
        let (farjump, reference) = floor.values();
        series.add(farjump as f64 / 1000.0, reference as f64 / 1000.0);
    }
    let len = libraries.hellos[0].image_for(Machine::X86_64)?.bytes().len();
    let what = format!("first call, hello ({len} B), arrival to return");
    series.print(&what, "us", "<= 0.1 x dlopen + dlsym + call");
    Ok(())
}

fn load_and_call(path: &Path) -> Result<Duration, Failure> {
    let mut count = 0_u64;
    let mut payload = *b"first";
    let start = Instant::now();
    // SAFETY: the library is the sample, which has no constructors, and `hello_main` takes these arguments.
    let time = unsafe {
        let library = libloading::os::unix::Library::open(
            Some(path),
            libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL,
        )?;
        let main = library.get::<Main>(b"hello_main\0")?;
        main(payload.as_mut_ptr().cast(), payload.len(), (&raw mut count).cast());
        let time = start.elapsed();
        drop(library);
        time
    };
    std::fs::remove_file(path)?;
    Ok(time)
}
