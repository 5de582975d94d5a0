//! Injected code that ends its target on purpose, and the sentence that names it.

use std::path::PathBuf;

use crate::workbench::{Done, Workbench};

/// An ifunc `leave` whose body is `body`.
fn leave(bench: &Workbench, body: &str) -> PathBuf {
    bench.library(
        "leave",
        &format!(
            "#define _GNU_SOURCE
            #include <signal.h>\n#include <stdlib.h>\n#include <sys/syscall.h>\n#include <unistd.h>
            FARJUMP_COPY_ARGS(leave)
            FARJUMP_IFUNC void leave_main(void *payload, size_t size, void *args)
            {{
                (void)payload, (void)size, (void)args;
                {body}
            }}"
        ),
    )
}

/// Injects it into a target with libc to link against, and returns the target's output.
fn ended(bench: &Workbench, body: &str) -> Done {
    let library = leave(bench, body);
    let serving = bench.serve(&["--process-symbols"]);
    let injected = bench.inject(&library, &["--args", "x"]);
    assert_ne!(injected.code, 0, "{body}: it ended");
    serving.finish()
}

/// Returns farjump's lines in a target's output.
fn farjump_lines(done: &Done) -> Vec<&str> {
    done.err.lines().filter_map(|line| line.strip_prefix("farjump: ")).collect()
}

#[test]
fn code_that_exits_is_named_with_the_function_that_it_called() {
    let bench = Workbench::new();
    for (body, code, name) in [
        ("exit(3);", 3, "exit"),
        ("quick_exit(4);", 4, "quick_exit"),
        ("_exit(5);", 5, "_exit"),
        ("_Exit(6);", 6, "_exit"),
    ] {
        let done = ended(&bench, body);
        assert_eq!(done.code, code, "{body}: {}", done.err);
        let farjump_lines = farjump_lines(&done);
        let start = format!("the process ends by {name}(), called in ifunc `leave` (code id ");
        assert!(farjump_lines.len() == 1 && farjump_lines[0].starts_with(&start), "{body}: {}", done.err);
        assert!(
            farjump_lines[0].contains(", placed at 0x") && farjump_lines[0].ends_with(')'),
            "{}",
            done.err
        );
    }
}

#[test]
fn a_signal_that_code_sends_to_its_process_names_the_ifunc() {
    let bench = Workbench::new();
    for (body, signal, name) in [
        ("raise(SIGQUIT);", libc::SIGQUIT, "SIGQUIT"),
        ("kill(getpid(), SIGUSR1);", libc::SIGUSR1, "SIGUSR1"),
        ("raise(SIGALRM);", libc::SIGALRM, "SIGALRM"),
    ] {
        let done = ended(&bench, body);
        assert_eq!(done.code, 128 + signal, "{body}: {}", done.err);
        let farjump_lines = farjump_lines(&done);
        assert!(
            farjump_lines.len() == 1 && farjump_lines[0].starts_with(&format!("{name} at 0x")),
            "{body}: {}",
            done.err
        );
        assert!(
            farjump_lines[0].contains(", in a function called by ifunc `leave` (code id "),
            "{}",
            done.err
        );
    }
    // `serve` ends its links for these.
    for body in ["raise(SIGTERM);", "kill(getpid(), SIGINT);", "raise(SIGHUP);"] {
        let library = leave(&bench, body);
        let serving = bench.serve(&["--process-symbols"]);
        let _ = bench.inject(&library, &["--args", "x"]);
        let done = serving.finish().worked();
        let farjump_lines = farjump_lines(&done);
        assert!(
            farjump_lines.len() == 1 && farjump_lines[0].contains("in a function called by ifunc `leave`"),
            "{}",
            done.err
        );
    }
}

#[test]
fn sigkill_and_a_raw_exit_end_the_target_unreported() {
    let bench = Workbench::new();
    for (body, code) in [("raise(SIGKILL);", 128 + libc::SIGKILL), ("syscall(SYS_exit_group, 9);", 9)] {
        let done = ended(&bench, body);
        assert_eq!((done.code, farjump_lines(&done)), (code, vec![]), "{body}: {}", done.err);
    }
}

#[test]
fn a_signal_from_elsewhere_is_no_codes() {
    let bench = Workbench::new();
    let serving = bench.serve(&["--process-symbols"]);
    bench.inject(&leave(&bench, "farjump_reply(\"x\", 1);"), &["--args", "x"]).worked();
    serving.signal(rustix::process::Signal::USR1);
    let done = serving.finish();
    assert_eq!((done.code, farjump_lines(&done)), (128 + libc::SIGUSR1, vec![]), "{}", done.err);
}
