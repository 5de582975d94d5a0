//! Crash reports: when injected code ends the process, standard error names the code.
//!
//! [`install`] puts a handler before those that the process has, for faults and for signals by which code may end its
//! own process ([`SIGNALS`]); [`exits`] covers `exit`. The handler prints one line, and passes the signal on to the
//! earlier handler or to the default action. So the process ends as it would have ended, core dump included. A handler
//! cannot rely on the state of the process, so it takes no lock and allocates nothing. It reads the addresses of images
//! from [`farjump_loader::address_map`], and the running code from the thread's own call.

mod exits;
mod report;
mod stack;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

pub(crate) use exits::substitutes;

use crate::{Error, SystemError, SystemOperation};

/// Prepares this thread to report. It allocates a stack for the handler, and touches the handler's
/// thread-local variables: in a program that has loaded this as a library, a thread gets these from the
/// allocator at first use.
pub(crate) fn prepare_thread() {
    REPORTED.get();
    crate::executor::running();
    stack::prepare_thread();
}

/// A reported signal.
struct Signal {
    number: c_int,
    name: &'static str,
    kind: Kind,
}

/// The occasions of a report, while injected code runs on the thread that gets the signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A fault, a trap that fills space without code, or `abort`: always.
    Fault,
    /// A request to end: if this process sent it to itself.
    Request,
    /// As a request, but only if the program has no handler for it: then it ends the process.
    Fatal,
    /// The system's reaction to an action of the thread, fatal without a handler.
    Reaction,
}

/// Reported signals. Those of [`Kind::Request`] and [`Kind::Fatal`] are reported only if the process sent them itself,
/// which the description of the signal says. Another process may send them at any moment, and then the handler touches
/// no thread-local variable.
const SIGNALS: [Signal; 18] = [
    Signal { number: libc::SIGSEGV, name: "SIGSEGV", kind: Kind::Fault },
    Signal { number: libc::SIGBUS, name: "SIGBUS", kind: Kind::Fault },
    Signal { number: libc::SIGILL, name: "SIGILL", kind: Kind::Fault },
    Signal { number: libc::SIGFPE, name: "SIGFPE", kind: Kind::Fault },
    Signal { number: libc::SIGTRAP, name: "SIGTRAP", kind: Kind::Fault },
    Signal { number: libc::SIGABRT, name: "SIGABRT", kind: Kind::Fault },
    Signal { number: libc::SIGTERM, name: "SIGTERM", kind: Kind::Request },
    Signal { number: libc::SIGINT, name: "SIGINT", kind: Kind::Request },
    Signal { number: libc::SIGHUP, name: "SIGHUP", kind: Kind::Request },
    Signal { number: libc::SIGQUIT, name: "SIGQUIT", kind: Kind::Request },
    Signal { number: libc::SIGUSR1, name: "SIGUSR1", kind: Kind::Fatal },
    Signal { number: libc::SIGUSR2, name: "SIGUSR2", kind: Kind::Fatal },
    Signal { number: libc::SIGALRM, name: "SIGALRM", kind: Kind::Fatal },
    Signal { number: libc::SIGVTALRM, name: "SIGVTALRM", kind: Kind::Fatal },
    Signal { number: libc::SIGPROF, name: "SIGPROF", kind: Kind::Fatal },
    Signal { number: libc::SIGPIPE, name: "SIGPIPE", kind: Kind::Reaction },
    Signal { number: libc::SIGSYS, name: "SIGSYS", kind: Kind::Reaction },
    Signal { number: libc::SIGXFSZ, name: "SIGXFSZ", kind: Kind::Reaction },
];

/// The process that installed the handlers; in a forked child the number of its parent's.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Returns the process that installed the handlers, if this is a forked child of it.
fn parent() -> Option<u32> {
    let owner = OWNER.load(Ordering::Relaxed);
    (owner != std::process::id()).then_some(owner)
}

/// The earlier actions, in the order of [`SIGNALS`]. Set before our handler can run, never changed.
static PREVIOUS: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

thread_local! {
    /// True while a report of this thread is passed on. Initialized by a constant and never destroyed:
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
    // A forked child with a target of its own reports as itself.
    OWNER.store(std::process::id(), Ordering::Relaxed);
    if *installed {
        return Ok(());
    }
    let failed = || {
        Error::System(SystemError {
            operation: SystemOperation::CrashReport,
            source: std::io::Error::last_os_error(),
        })
    };
    exits::install()
        .map_err(|source| Error::System(SystemError { operation: SystemOperation::CrashReport, source }))?;
    for (&Signal { number: signal, kind, .. }, previous) in SIGNALS.iter().zip(&PREVIOUS) {
        let before = action(signal).ok_or_else(failed)?;
        // A program that this one executes inherits an ignored signal, but no handler.
        if kind != Kind::Fault && before.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        let before = previous.get_or_init(|| before);
        let mut ours = *before;
        ours.sa_sigaction = handle as *const () as libc::sighandler_t;
        // The earlier handler's other flags are kept, because it will run inside ours.
        ours.sa_flags =
            libc::SA_SIGINFO | libc::SA_ONSTACK | before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        // SAFETY: `handle` has the signature that SA_SIGINFO requires, and does only what a handler may.
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
    let Some(index) = SIGNALS.iter().position(|other| other.number == signal) else { return };
    let Some(previous) = PREVIOUS[index].get() else { return };
    // SAFETY: the system gives a handler a valid description of the signal.
    let sender = Sender::of(unsafe { &*info });
    // The interrupted code may be about to read `errno`, and the earlier handler may change it. SAFETY: `errno` is this
    // thread's own, valid as long as the thread is, and nothing else uses it now.
    let before = unsafe { errno.read() };
    let told = match SIGNALS[index].kind {
        Kind::Fault => sender != Sender::Other,
        Kind::Request => sender == Sender::This,
        Kind::Fatal => sender == Sender::This && previous.sa_sigaction == libc::SIG_DFL,
        Kind::Reaction => sender != Sender::Other && previous.sa_sigaction == libc::SIG_DFL,
    };
    // A fault happens again when the handler returns; any other signal has been delivered and does not come again.
    let again = sender == Sender::System && SIGNALS[index].kind == Kind::Fault && signal != libc::SIGTRAP;
    let answer = sender == Sender::System;
    // An earlier handler may end by `abort`, or fault: that is no new crash.
    let first = told && !REPORTED.replace(true);
    if first {
        // SAFETY: the system gives a handler valid descriptions of the signal and of the interrupted code.
        unsafe { report::report(&SIGNALS[index], &*info, &*context.cast()) };
    }
    // SAFETY: `info` and `context` are the arguments that the system gave.
    unsafe { pass_on(previous, signal, answer.then_some(again), info, context) };
    if first {
        REPORTED.set(false);
    }
    // SAFETY: `errno` is this thread's own, valid as long as the thread is.
    unsafe { errno.write(before) };
}

/// The origin of a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// This process, by `raise`, `kill` or `abort`.
    This,
    /// Another process, or a timer.
    Other,
    /// The system, because of an action of the thread.
    System,
}

impl Sender {
    fn of(info: &libc::siginfo_t) -> Sender {
        match info.si_code {
            libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE => {
                // SAFETY: signals that a process sends have the number of the process in their description.
                let sender = unsafe { info.si_pid() };
                if sender.cast_unsigned() == std::process::id() { Sender::This } else { Sender::Other }
            }
            code if code <= 0 => Sender::Other,
            _ => Sender::System,
        }
    }
}

/// Does the work of the earlier action. For signals of the system, `again` is true if the signal comes again when the
/// handler returns, because it is a fault.
///
/// # Safety
/// The last two arguments must be those of the handler that this is called from.
unsafe fn pass_on(
    previous: &libc::sigaction,
    signal: c_int,
    again: Option<bool>,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    match previous.sa_sigaction {
        libc::SIG_IGN if again.is_none() => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            reset(signal);
            // A fault happens again when we return, and then ends the process. Another signal is sent again,
            // and delivered when we return.
            if again != Some(true) {
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
