//! Crash reports in a program that has handlers of its own.

use std::os::unix::process::ExitStatusExt;

use farjump_fixtures::helper_process::is_alone;

use crate::helper::{role, test_in_role, this_test};
use crate::support::{Pair, Place, library};

/// The program's own handler.
extern "C" fn own(_: libc::c_int) {
    let text = b"the program's own handler\n";
    // SAFETY: both calls are allowed in handlers; the text has the given length.
    unsafe {
        libc::write(2, text.as_ptr().cast(), text.len());
        libc::_exit(7);
    }
}

/// The signal of the compiler's trap, which is an instruction that does not exist, or a breakpoint.
const TRAP: (libc::c_int, &str) =
    if cfg!(target_arch = "aarch64") { (libc::SIGTRAP, "SIGTRAP") } else { (libc::SIGILL, "SIGILL") };
/// The bytes in front of it: riscv64 stores a frame record first.
const TRAP_OFFSET: usize = if cfg!(target_arch = "riscv64") { 8 } else { 0 };

/// A handler that ends the process as Rust's does when a stack has overflowed.
extern "C" fn aborts(_: libc::c_int) {
    std::process::abort();
}

/// Runs in the process that is to crash.
fn crash(how: &str) {
    let handler = if how.contains("abort") { aborts } else { own };
    if how.contains("own") || how.contains("abort") {
        // SAFETY: `own` and `aborts` are handlers.
        let before = unsafe { libc::signal(TRAP.0, handler as *const () as libc::sighandler_t) };
        assert_ne!(before, libc::SIG_ERR);
    }
    let place = Place::new();
    let mut pair = Pair::of(place.target().crash_report(how.contains("report")), place.link());
    let _ = pair.call(&library("crash"), b"");
    unreachable!("it crashed");
}

#[test]
fn an_enabled_crash_report_comes_before_the_programs_own_handler() {
    // The role is the kind of crash.
    if let [how] = &*role() {
        return crash(how);
    }
    // The crashed processes leave their files in here.
    let place = Place::new();
    let (signal, name) = TRAP;
    for how in ["report", "own", "report and own", "report and abort", "nothing"] {
        let output = test_in_role(this_test!(), &[how]).env("TMPDIR", place.path("")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let ours =
            text.find(&format!("farjump: {name} in ifunc `crash`, at offset {TRAP_OFFSET:#x} of its image"));
        assert!(text.matches("farjump: ").count() <= 1, "what a handler does is no news: {text}");
        let own = text.find("the program's own handler");
        assert_eq!(
            (ours.is_some(), own.is_some()),
            (how.contains("report"), how.contains("own")),
            "{how}: {text}"
        );
        assert!(own.is_none() || ours < own, "{text}");
        let ended = (output.status.code(), output.status.signal());
        let expected = match how {
            "own" | "report and own" => (Some(7), None),
            "report and abort" => (None, Some(libc::SIGABRT)),
            _ => (None, Some(signal)),
        };
        assert_eq!(ended, expected, "{how}: {text}");
    }
}

/// A handler that continues, and changes `errno`.
extern "C" fn careless(_: libc::c_int) {
    // SAFETY: the call is allowed in handlers, and there is no such descriptor.
    unsafe { libc::close(-1) };
}

#[test]
fn a_handler_that_returns_leaves_errno_as_it_was() {
    if !is_alone(this_test!()) {
        return;
    }
    // SAFETY: `careless` is a handler.
    let before = unsafe { libc::signal(libc::SIGTRAP, careless as *const () as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
    let place = Place::new();
    let _pair = Pair::of(place.target().crash_report(true), place.link());
    // SAFETY: it is the thread's own; the signal has the handler above, behind that of the report.
    let errno = unsafe {
        let errno = libc::__errno_location();
        errno.write(libc::EDOM);
        libc::raise(libc::SIGTRAP);
        errno.read()
    };
    assert_eq!(errno, libc::EDOM);
}
