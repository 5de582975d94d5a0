//! `perf`: the program `farjump-perf` takes the place of this one.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::workbench::{Process, Workbench, finish};

/// Prints its process id and its arguments, and ends with 42, or stays.
const STANDS_FOR_IT: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    printf("%d\n", (int)getpid());
    for (int i = 1; i < argc; i++)
        printf("%s\n", argv[i]);
    fflush(stdout);
    while (argc > 1 && strcmp(argv[1], "stay") == 0)
        pause();
    return 42;
}
"#;

/// Returns the program in a folder of its own.
fn alone(bench: &Workbench) -> PathBuf {
    bench.executable("farjump", Path::new(env!("CARGO_BIN_EXE_farjump")))
}

/// Returns the program in a folder with one that stands for `farjump-perf`.
fn beside_another(bench: &Workbench) -> PathBuf {
    let source = bench.write("perf.c", STANDS_FOR_IT);
    finish(Command::new("cc").arg("-o").arg(bench.path("farjump-perf")).arg(source)).worked();
    finish(Command::new("chmod").arg("700").arg(bench.path("farjump-perf"))).worked();
    alone(bench)
}

#[test]
fn the_program_beside_it_gets_all_arguments_and_gives_its_exit_code() {
    let bench = Workbench::new();
    let farjump = beside_another(&bench);
    for (given, gotten) in [
        (&["perf"][..], &[][..]),
        (
            &["perf", "latency", "--sizes", "8", "-x", "--", "--json"],
            &["latency", "--sizes", "8", "-x", "--", "--json"],
        ),
        (&["perf", "--help"], &["--help"]),
        (&["help", "perf"], &["--help"]),
        (&["perf", "-h"], &["-h"]),
        (&["perf", "--json"], &["--json"]),
    ] {
        // A misspelt variable gets its warning there.
        let done = finish(bench.program(&farjump).args(given).env("FARJUMP_LOGS", "debug"));
        let lines: Vec<_> = done.text().lines().skip(1).collect();
        assert_eq!((done.code, &lines[..], &*done.err), (42, gotten, ""), "{given:?}");
    }
}

#[test]
fn the_program_beside_it_has_its_process_and_signals() {
    let bench = Workbench::new();
    let run = Process::start(bench.program(beside_another(&bench)).args(["perf", "stay"]));
    assert_eq!(run.line(), run.pid().to_string());
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code, 128 + 15);
}

#[test]
fn without_the_program_beside_it_the_command_that_makes_it_is_named() {
    let bench = Workbench::new();
    let run =
        |farjump: &Path, more: &[&str]| finish(bench.program(farjump).args(["perf", "latency"]).args(more));
    let farjump = alone(&bench);
    run(&farjump, &[])
        .fails(1, &["farjump-perf", "`cargo install --path benches --bin farjump-perf` in a clone"]);
    let error = run(&farjump, &["--json"]).json_error();
    assert_eq!(error["exit"], 1, "{error}");
    // As in cargo's folder for a profile.
    bench.write("CACHEDIR.TAG", "");
    for (folder, advised) in [
        ("debug", "`cargo build -p farjump-benches --bin farjump-perf`"),
        ("release", "`cargo build --profile release -p farjump-benches --bin farjump-perf`"),
    ] {
        std::fs::create_dir(bench.path(folder)).expect("a folder can be made");
        run(&bench.executable(&format!("{folder}/farjump"), &farjump), &[]).fails(1, &[advised]);
    }
}
