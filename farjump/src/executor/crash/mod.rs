//! Crash reports: when injected code ends the process by a fault, standard error names the code.
//!
//! [`install`] puts a handler before those that the process has. It prints one line, and passes the signal
//! on: to the earlier handler, or to the default action, so that the process ends as it would have ended,
//! core dump included. A handler cannot rely on the state of the process, so it takes no lock and allocates
//! nothing: it reads the addresses of images from [`farjump_loader::address_map`], and the running code from
//! the thread's own call.

mod report;
mod stack;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{Error, SystemError, SystemOperation};

/// Prepares this thread to report. It allocates a stack for the handler, and touches the handler's
/// thread-local variables: in a program that has loaded this as a library, a thread gets these from the
/// allocator at first use.
pub(crate) fn prepare_thread() {
    REPORTED.get();
    crate::executor::running();
    stack::prepare_thread();
}

/// Reported signals: faults, the traps that fill space without code, and `abort`.
const SIGNALS: [(c_int, &str); 6] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
];

/// The earlier actions, in the order of [`SIGNALS`]. Set before our handler can run, never changed.
static PREVIOUS: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

thread_local! {
    /// Whether a report of this thread is being passed on. Initialized by a constant and never destroyed:
    /// using it runs no code.
    static REPORTED: Cell<bool> = const { Cell::new(false) };
}

/// Makes this process report crashes of listed code. Once for each process: a handler that is installed later
/// replaces ours and may pass on to us.
///
/// # Errors
/// When the system does not take the handler.
pub(crate) fn install() -> Result<(), Error> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    let failed = || {
        Error::System(SystemError {
            operation: SystemOperation::CrashReport,
            source: std::io::Error::last_os_error(),
        })
    };
    for ((signal, _), previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        let before = action(signal).ok_or_else(failed)?;
        let before = previous.get_or_init(|| before);
        let mut ours = *before;
        ours.sa_sigaction = handle as *const () as libc::sighandler_t;
        // The earlier handler's other flags are kept, because it will run inside ours.
        ours.sa_flags =
            libc::SA_SIGINFO | libc::SA_ONSTACK | before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        // SAFETY: `handle` has the signature that SA_SIGINFO asks for, and does only what a handler may.
        if unsafe { libc::sigaction(signal, &raw const ours, ptr::null_mut()) } != 0 {
            return Err(failed());
        }
    }
    *installed = true;
    Ok(())
}

/// The present action for a signal.
fn action(signal: c_int) -> Option<libc::sigaction> {
    let mut found = MaybeUninit::uninit();
    // SAFETY: without a new action the call only writes the present one, which is all of it when it returns
    // 0.
    unsafe { (libc::sigaction(signal, ptr::null(), found.as_mut_ptr()) == 0).then(|| found.assume_init()) }
}

/// The handler.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the C library has one for each thread, valid as long as the thread is.
    let errno = unsafe { libc::__errno_location() };
    // The interrupted code may be about to read it, and the earlier handler may change it. SAFETY: `errno` is
    // this thread's own, valid as long as the thread is, and nothing else uses it now.
    let before = unsafe { errno.read() };
    // An earlier handler may end by `abort`, or fault: that is no new crash.
    let first = !REPORTED.replace(true);
    // SAFETY: the system gives a handler valid descriptions of the signal and of the interrupted code.
    let sent = unsafe {
        if first {
            report::report(signal, &*info, &*context.cast());
        }
        (*info).si_code <= 0
    };
    // SAFETY: `info` and `context` are the arguments that the system gave.
    unsafe { pass_on(signal, sent, info, context) };
    REPORTED.set(!first);
    // SAFETY: `errno` is this thread's own, valid as long as the thread is.
    unsafe { errno.write(before) };
}

/// Does the work of the earlier action. `sent`: by a process, as `abort` does, and not by a fault.
///
/// # Safety
/// The last two arguments must be those of the handler that this is called from.
unsafe fn pass_on(signal: c_int, sent: bool, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = SIGNALS.iter().position(|(number, _)| *number == signal);
    let Some(previous) = index.and_then(|index| PREVIOUS[index].get()) else { return };
    match previous.sa_sigaction {
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            reset(signal);
            // A fault happens again when we return, and then ends the process. A sent signal is sent again,
            // and delivered when we return.
            if sent || signal == libc::SIGTRAP {
                // SAFETY: it may be called in handlers, and has no other conditions.
                unsafe { libc::raise(signal) };
            }
        }
        handler => {
            if previous.sa_flags & libc::SA_RESETHAND != 0 {
                reset(signal);
            }
            // SAFETY: the process installed it for this signal, with or without SA_SIGINFO as the flags say.
            // It gets the arguments that the system gave us.
            unsafe {
                if previous.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }
}

/// Makes the signal end the process.
fn reset(signal: c_int) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
