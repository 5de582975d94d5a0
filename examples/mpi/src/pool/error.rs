//! Errors of windows, and the check that this program is made of parts of one MPI.

use std::ffi::{CStr, c_char, c_int};

use mpi::Threading;
use mpi::ffi;

unsafe extern "C" {
    /// Start of the version text of the MPI whose headers `constants.c` was compiled with.
    static farjump_headers_of: *const c_char;
}

/// The reason why there is no pool, or an operation on one failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// MPI was started for fewer threads.
    #[error(
        "MPI was initialised for {0:?} and not for MPI_THREAD_MULTIPLE: call mpi::initialize_with_threading"
    )]
    Threads(Threading),
    /// Loads do not see bytes that are written into a window.
    #[error("the windows of this MPI are not of the unified memory model, so nothing can be polled in them")]
    Separate,
    /// Constants of one MPI and the library of another one.
    #[error(
        "this program has constants of {headers} and runs with {library}: build it with MPICC set to the compiler of one MPI, \
         and in a target directory for that MPI alone"
    )]
    Mixed {
        /// The MPI whose headers the constants are from.
        headers: String,
        /// The version of the library.
        library: String,
    },
    /// The window needs a worker, and there is none.
    #[error(
        "this MPI writes into a rank's window only while that rank calls MPI: start a Worker before the first target or link, and \
         drop it after the last"
    )]
    NoWorker,
    /// A window of useless length, or too large for MPI to count its bytes.
    #[error(
        "a window of {0} bytes a rank: it takes at least one, and less than 2 GiB; give links smaller mailboxes \
         (TargetBuilder::mailbox_size, LinkBuilder::reply_mailbox_size)"
    )]
    Size(usize),
    /// An error of MPI's.
    #[error("{call}: {said}")]
    Mpi {
        /// The function.
        call: &'static str,
        /// Its error, as text.
        said: String,
    },
    /// So many bytes in a row are not free.
    #[error(
        "no {0} bytes in a row are free in this rank's part of the window: make it larger (Pool::allocate, Pool::bytes_for)"
    )]
    Exhausted(usize),
    /// An address that is not that of a region.
    #[error("{0}")]
    Address(&'static str),
    /// Links, targets or transports still exist.
    #[error("the window is still in use: drop links, targets and transports first")]
    InUse,
}

/// Checks that the constants and the library are of one MPI. A build directory in which the MPI was changed
/// may have both.
pub(super) fn one_mpi() -> Result<(), PoolError> {
    // SAFETY: it is a string of `constants.c`, which ends and stays.
    let headers = unsafe { CStr::from_ptr(farjump_headers_of) }.to_string_lossy();
    let library = mpi::environment::library_version().unwrap_or_default();
    match library.starts_with(&*headers) {
        true => Ok(()),
        false => Err(PoolError::Mixed {
            headers: headers.into_owned(),
            library: library.lines().next().unwrap_or_default().to_owned(),
        }),
    }
}

/// Checks the return value of a function of MPI.
pub(super) fn check(call: &'static str, code: c_int) -> Result<(), PoolError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: the buffer has space for the longest text.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &raw mut len) };
    let said = text.get(..len as usize).unwrap_or_default();
    Err(PoolError::Mpi { call, said: String::from_utf8_lossy(said).into_owned() })
}
