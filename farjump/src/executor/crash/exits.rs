//! Injected code that ends the process by `exit` and the like.

use std::ffi::{c_int, c_void};
use std::io;

use super::report;

unsafe extern "C" {
    /// Registers a function for `quick_exit` (C11).
    fn at_quick_exit(function: extern "C" fn()) -> c_int;
}

/// Makes `exit` and `quick_exit` report the code that called them. They run functions that the process registers;
/// `_exit` does not, see [`substitutes`].
pub(super) fn install() -> io::Result<()> {
    extern "C" fn exits() {
        report::ends("exit");
    }
    extern "C" fn quick_exits() {
        report::ends("quick_exit");
    }
    // SAFETY: the functions may run at any time until the process ends or this library is unloaded, which
    // takes them off.
    if unsafe { libc::atexit(exits) != 0 || at_quick_exit(quick_exits) != 0 } {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(())
}

/// The functions of libc that are replaced where injected code imports them, with their replacements.
pub(crate) fn substitutes() -> [(*const c_void, *const c_void); 2] {
    unsafe extern "C" {
        /// The same as `_exit` (C99); an address of its own in some C libraries.
        fn _Exit(status: c_int) -> !;
    }
    [
        (libc::_exit as *const c_void, exit_at_once as *const c_void),
        (_Exit as *const c_void, exit_at_once as *const c_void),
    ]
}

/// `_exit`, as injected code calls it.
extern "C" fn exit_at_once(status: c_int) -> ! {
    report::ends("_exit");
    // SAFETY: it has no conditions.
    unsafe { libc::_exit(status) }
}
