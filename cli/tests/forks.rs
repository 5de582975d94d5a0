//! Injected code that forks, as stores do to save.

use std::fs;
use std::path::PathBuf;

use crate::workbench::{Done, Process, Workbench, wait_for};

/// Returns an ifunc `save` whose child runs `body`, and which replies the child's process id.
fn save(bench: &Workbench, body: &str) -> PathBuf {
    bench.library(
        "save",
        &format!(
            "#define _GNU_SOURCE
            #include <signal.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>
            FARJUMP_COPY_ARGS(save)
            static volatile unsigned long zero;
            FARJUMP_IFUNC void save_main(void *payload, size_t size, void *args)
            {{
                (void)payload, (void)size, (void)args, (void)zero;
                int child = fork();
                if (child == 0) {{
                    {body}
                }}
                farjump_reply(&child, sizeof child);
            }}"
        ),
    )
}

/// Serves, and makes the target fork. Returns the process id of the child too.
fn forked(bench: &Workbench, body: &str) -> (Process, u32) {
    let library = save(bench, body);
    let serving = bench.serve(&["--process-symbols"]);
    let done = bench.inject(&library, &["--args", "x"]).worked();
    let child = u32::from_ne_bytes(done.out.try_into().expect("one reply, of the target"));
    assert_ne!(child, 0, "the reply is the target's");
    (serving, child)
}

/// Returns farjump's lines in a target's output.
fn farjump_lines(done: &Done) -> Vec<&str> {
    done.err.lines().filter_map(|line| line.strip_prefix("farjump: ")).collect()
}

/// Waits until the child has ended, for whose end its parent does not wait.
fn wait_for_end(child: u32) {
    wait_for("the child ends", || {
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let rest = state.rsplit(')').next().unwrap_or_default().trim_start();
        (rest.is_empty() || rest.starts_with('Z')).then_some(())
    });
}

#[test]
fn a_forked_child_that_exits_is_no_end_of_the_target() {
    let bench = Workbench::new();
    let (serving, child) = forked(&bench, "exit(0);");
    wait_for_end(child);
    bench.inject(&bench.sample("crc32"), &["--args", "x"]).worked();
    let done = serving.stop().worked();
    assert_eq!(farjump_lines(&done), [""; 0], "{}", done.err);
}

#[test]
fn a_forked_childs_crash_report_names_the_target_which_serves_on() {
    let bench = Workbench::new();
    for (body, what) in [
        ("*(volatile char *)(zero + 0x1234) = 1;", "SIGSEGV (address 0x1234) in ifunc `save`, at offset 0x"),
        ("raise(SIGUSR1);", "SIGUSR1 at 0x"),
    ] {
        let (serving, child) = forked(&bench, body);
        wait_for_end(child);
        bench.inject(&bench.sample("crc32"), &["--args", "x"]).worked();
        let target = serving.pid();
        serving.signal(rustix::process::Signal::INT);
        let done = serving.finish().worked();
        let farjump_lines = farjump_lines(&done);
        let whose = format!("), in process {child}, a forked child of the target with pid {target}");
        assert!(
            farjump_lines.len() == 1
                && farjump_lines[0].starts_with(what)
                && farjump_lines[0].ends_with(&whose),
            "{}",
            done.err
        );
    }
}

#[test]
fn a_forked_child_ends_without_replying_on_return_or_panic() {
    let bench = Workbench::new();
    for (body, how) in [("return;", "returned"), ("farjump_panic(\"no disk\", 7);", "panicked (no disk)")] {
        let (serving, child) = forked(&bench, body);
        wait_for_end(child);
        bench.inject(&bench.sample("crc32"), &["--args", "x"]).worked();
        let target = serving.pid();
        let done = serving.stop().worked();
        let expected = format!(
            "ifunc `save` {how} in process {child}, a forked child of the target with pid {target}: the child ends, because \
             only the target replies; end a forked child by _exit()"
        );
        assert_eq!(farjump_lines(&done), [&*expected], "{}", done.err);
    }
}
