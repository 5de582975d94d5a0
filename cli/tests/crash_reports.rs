//! Injected code that crashes its target, and the target's report before it ends.

use std::path::{Path, PathBuf};

use farjump::Library;
use farjump::core::image::ImageView;
use rustix::process::Signal;

use crate::workbench::{Done, Process, Workbench, kill};

/// An ifunc `fall` whose body is `body`.
fn fall(bench: &Workbench, body: &str) -> PathBuf {
    bench.library(
        "fall",
        &format!(
            "#include <stdlib.h>\n#include <string.h>\nFARJUMP_COPY_ARGS(fall)
            static volatile unsigned long zero;
            __attribute__((noinline)) static int deeper(volatile char *above)
            {{
                volatile char here[256];
                here[0] = above[0];
                return deeper(here) + here[0];
            }}
            FARJUMP_IFUNC void fall_main(void *payload, size_t size, void *args)
            {{
                (void)payload, (void)size, (void)args, (void)deeper;
                {body}
            }}"
        ),
    )
}

/// Injects it into a target with libc to link against, and returns the target's output.
fn ended(bench: &Workbench, library: &Path) -> Done {
    let serving = bench.serve(&["--process-symbols"]);
    let injected = bench.inject(library, &["--args", "x"]);
    assert_ne!(injected.code, 0, "it crashed");
    serving.finish()
}

/// Returns the one report in a target's output, without the parentheses after it, and the code id from there.
#[track_caller]
fn report(done: &Done) -> (&str, &str) {
    let mut lines = done.err.lines().filter_map(|line| line.strip_prefix("farjump: "));
    let line = lines.next().unwrap_or_else(|| panic!("no report in {:?}", done.err));
    assert_eq!(lines.next(), None, "{}", done.err);
    let (what, rest) = line.split_once(" (code id ").expect("a report has a code id");
    let (id, place) = rest.split_once(", placed at 0x").expect("a report has a place");
    assert!(place.strip_suffix(')').is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok()), "{line}");
    (what, id)
}

/// Returns the id of a library's code, and the offset of these bytes in it.
#[track_caller]
fn code(library: &Path, bytes: &[u8]) -> (String, usize) {
    let opened = Library::open(library).expect("it was built");
    let image = &opened.images()[0];
    let view = ImageView::new_checked(image.bytes()).expect("an image");
    let offset = view.span1().windows(bytes.len()).position(|window| window == bytes);
    (image.id().to_string(), offset.expect("it is there"))
}

#[test]
fn a_crash_report_names_signal_ifunc_offset_and_code_id() {
    let bench = Workbench::new();
    for (body, bytes, signal, name) in [
        (
            "__asm__ volatile(\"movb $0x7b, 0x1234\");",
            &[0xc6, 0x04, 0x25][..],
            libc::SIGSEGV,
            "SIGSEGV (address 0x1234)",
        ),
        (
            "__asm__ volatile(\"xor %%ecx, %%ecx; mov $1, %%eax; cltd; idiv %%ecx\" ::: \"rax\", \"rcx\", \"rdx\");",
            &[0xf7, 0xf9],
            libc::SIGFPE,
            "SIGFPE",
        ),
        ("__asm__ volatile(\"int3; nop; nop; nop\");", &[0xcc, 0x90, 0x90, 0x90], libc::SIGTRAP, "SIGTRAP"),
    ] {
        let library = fall(&bench, body);
        let done = ended(&bench, &library);
        assert_eq!(done.code, 128 + signal, "{}", done.err);
        let (id, offset) = code(&library, bytes);
        let expected = format!("{name} in ifunc `fall`, at offset {offset:#x} of its image");
        assert_eq!(report(&done), (&*expected, &*id));
    }
}

#[test]
fn a_crash_of_code_that_runs_in_the_mailbox_names_it_too() {
    let bench = Workbench::new();
    let library = bench.library(
        "slip",
        "FARJUMP_COPY_ARGS(slip)
        FARJUMP_IFUNC void slip_main(void *payload, size_t size, void *args)
        {
            (void)args;
            if (size == 1)
                __asm__ volatile(\"movb $0x7b, 0x1234\");
            farjump_reply(payload, size);
        }",
    );
    let serving = bench.serve(&["--modes", "in-place", "--mailbox-size", "128K"]);
    bench.inject(&library, &["--mode", "in-place", "--args", "all is well", "--repeat", "3000"]).worked();
    assert_ne!(bench.inject(&library, &["--mode", "in-place", "--args", "x"]).code, 0, "it crashed");
    let done = serving.finish();
    assert_eq!(done.code, 128 + libc::SIGSEGV, "{}", done.err);
    let (id, offset) = code(&library, &[0xc6, 0x04, 0x25]);
    let expected = format!("SIGSEGV (address 0x1234) in ifunc `slip`, at offset {offset:#x} of its image");
    assert_eq!(report(&done), (&*expected, &*id));
}

/// Loading UCX removes the handler of SIGILL, unless it is restored.
#[test]
fn a_crash_of_code_over_ucx_is_reported_by_farjump_alone() {
    let bench = Workbench::new();
    let shown = bench.run(["transports"]).worked();
    let am = shown.text().lines().find(|line| line.starts_with("ucx-am")).expect("it is listed");
    if !am.contains("delivered") {
        println!("skipped: {am}");
        return;
    }
    let library = fall(&bench, "__builtin_trap();");
    let serving = bench.serve(&["--transport", "ucx-am"]);
    bench.inject(&library, &["--args", "x", "--transport", "ucx-am"]).fails(5, &["is gone"]);
    let done = serving.finish();
    assert_eq!(done.code, 128 + libc::SIGILL, "{}", done.err);
    let (what, id) = report(&done);
    assert!(what.starts_with("SIGILL in ifunc `fall`"), "{what}");
    assert_eq!(id, Library::open(&library).expect("it was built").images()[0].id().to_string());
    assert!(!done.err.contains("backtrace"), "{}", done.err);
}

#[test]
fn a_crash_in_a_function_that_the_code_called_names_the_caller() {
    let bench = Workbench::new();
    for (body, signal, name) in [
        (
            "void *(*volatile copy)(void *, const void *, size_t) = memcpy; copy((char *)zero + 0x1234, payload, zero + 1);",
            libc::SIGSEGV,
            "SIGSEGV (address 0x1234) at 0x",
        ),
        ("abort();", libc::SIGABRT, "SIGABRT at 0x"),
        ("farjump_reply((char *)zero + 0x4321, 1);", libc::SIGSEGV, "SIGSEGV (address 0x4321) at 0x"),
        ("((void (*)(void))zero)();", libc::SIGSEGV, "SIGSEGV (address 0x0) at 0x0,"),
    ] {
        let library = fall(&bench, body);
        let done = ended(&bench, &library);
        assert_eq!(done.code, 128 + signal, "{}", done.err);
        let (what, id) = report(&done);
        assert!(what.starts_with(name), "{what}");
        assert!(what.ends_with(", in a function called by ifunc `fall`"), "{what}");
        assert_eq!(id, Library::open(&library).expect("it was built").images()[0].id().to_string());
    }
}

#[test]
fn code_that_uses_its_stack_up_is_reported() {
    let bench = Workbench::new();
    let library = fall(&bench, "char top[1] = {0}; int sum = deeper(top); farjump_reply(&sum, sizeof sum);");
    let done = ended(&bench, &library);
    // Rust's handler, installed earlier, reports and aborts.
    assert!([libc::SIGSEGV, libc::SIGABRT].map(|signal| 128 + signal).contains(&done.code), "{}", done.err);
    let (what, _) = report(&done);
    assert!(
        what.starts_with("SIGSEGV (address 0x") && what.contains("in ifunc `fall`, at offset 0x"),
        "{what}"
    );
}

#[test]
fn signals_that_are_not_the_codes_fault_are_not_blamed_on_it() {
    let bench = Workbench::new();
    let library = fall(
        &bench,
        "extern int puts(const char *); puts(\"in\"); while (!zero); farjump_reply(payload, 1);",
    );
    // Not SIGSEGV and SIGBUS: Rust's own handler, installed earlier, ignores one that was sent.
    for signal in [Signal::ABORT, Signal::FPE] {
        // First without a running call, then with one: the signal comes from elsewhere.
        let idle = bench.serve(&[]);
        idle.signal(signal);
        let done = idle.finish();
        assert_eq!(done.code, 128 + signal.as_raw(), "{}", done.err);
        assert!(!done.err.contains("ifunc"), "{}", done.err);

        let serving = bench.serve(&["--process-symbols"]);
        let more = ["--args", "x", "--timeout", "50s"];
        let injecting = Process::start(&mut bench.injecting(&library, &bench.address(), &more));
        assert_eq!(serving.line(), "in");
        kill(serving.pid(), signal);
        assert_eq!(injecting.finish().code, 5);
        let done = serving.finish();
        assert_eq!(done.code, 128 + signal.as_raw(), "{}", done.err);
        assert!(!done.err.contains("ifunc"), "{}", done.err);
    }
}
