//! `inject --compile-for-peer`: the image for the target's CPU comes while calls run, and no file of it is left.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::workbench::{Process, Workbench, finish, quoted, runs, wait_for};

const COUNT: &str = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(count)\n\
    FARJUMP_IFUNC void count_main(void *p, size_t n, void *a) { (void)a; uint64_t sum = 0;\n\
    for (size_t i = 0; i < n; i++) sum += ((unsigned char *)p)[i]; farjump_reply(&sum, sizeof sum); }\n";

/// Returns a library that carries its source.
fn carrying(bench: &Workbench) -> PathBuf {
    bench.write("count.c", COUNT);
    bench.run(["build", "count.c", "-o", "libcount.so", "--cflag", "-O2", "--carry-source"]).worked();
    bench.path("libcount.so")
}

/// Returns a compiler that runs this first.
fn compiler(bench: &Workbench, first: &str) -> String {
    let script = bench.write("script", format!("#!/bin/sh\n{first}\nexec cc \"$@\"\n"));
    bench.executable("compiler", &script).display().to_string()
}

/// Returns the report of `inject` on the image, after so many calls.
#[track_caller]
fn compiled(bench: &Workbench, calls: u32, more: &[&str]) -> Value {
    let calls = calls.to_string();
    let base = ["--compile-for-peer", "--args", "aaaa", "--format", "u64", "--json", "--repeat", &calls];
    let done = bench.inject(&bench.path("libcount.so"), &[&base[..], more].concat()).worked();
    assert_eq!(done.text().trim(), "388");
    let figures: Value = serde_json::from_str(&done.err).expect("statistics");
    figures["compiled"].clone()
}

#[test]
fn inject_reports_the_image_that_it_compiled_and_leaves_no_file() {
    let bench = Workbench::new();
    carrying(&bench);
    let _serving = bench.serve(&[]);
    // Machines differ in how much faster calls are than compilers.
    let counts = [1, 8, 64].into_iter().map(|times| times * 150_000);
    let done =
        counts.map(|calls| compiled(&bench, calls, &[])).find(|compiled| compiled["state"] == "in use");
    let done = done.expect("the compiler is faster than ten million calls");
    assert!(done["id"].is_string(), "{done}");
    bench.is_clean();
    // Without the option, nothing is compiled, and nothing is reported.
    let plain = bench.inject(&bench.path("libcount.so"), &["--args", "a", "--json"]).worked();
    assert!(!plain.err.contains("compiled"), "{}", plain.err);
}

#[test]
fn the_reason_is_said_where_the_image_is_not_used() {
    let bench = Workbench::new();
    let library = carrying(&bench);
    let serving = bench.serve(&[]);
    let enough = |more: &[&str]| {
        let mut calls = 1000;
        loop {
            let compiled = compiled(&bench, calls, more);
            if compiled["state"] != "compiling" {
                assert_eq!(compiled["state"], "kept", "{compiled}");
                return compiled["reason"].as_str().expect("a reason").to_owned();
            }
            calls *= 10;
        }
    };
    let missing = enough(&["--cc", "/nowhere/cc"]);
    assert!(missing.contains("/nowhere/cc"), "{missing}");
    assert!(enough(&["--mode", "always"]).contains("mode always"));
    // A program without a compiler in its PATH. The first statistics are for people.
    let mut command = bench.injecting(&library, &bench.address(), &["--compile-for-peer", "--args", "aaaa"]);
    let said = finish(command.args(["--repeat", "10000"]).env("PATH", "/nowhere")).worked().err;
    assert!(said.contains("image for the target's CPU: not used, "), "{said}");
    serving.stop().worked();
    bench.is_clean();
}

#[test]
fn no_end_of_the_source_leaves_a_compiler_or_a_file() {
    let bench = Workbench::new();
    let library = carrying(&bench);
    let _serving = bench.serve(&[]);
    let pids = bench.path("pids");
    let hangs = format!("sleep 100000 & echo $! >> {0}; echo $$ >> {0}; wait", quoted(&pids));
    let cc = compiler(&bench, &hangs);
    for signal in [Some(Signal::KILL), Some(Signal::INT), None] {
        let calls = if signal.is_some() { "10000000" } else { "400000" };
        let arguments = ["--args", "aaaa", "--compile-for-peer", "--cc", &cc, "--repeat", calls];
        let mut source = Process::spawn(&mut bench.injecting(&library, &bench.address(), &arguments));
        let compiling = wait_for("a compiler", || {
            let text = fs::read_to_string(&pids).ok()?;
            let found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            (found.len() == 2).then_some(found)
        });
        assert!(!bench.leftovers().is_empty());
        signal.iter().for_each(|signal| source.signal(*signal));
        source.wait();
        wait_for("the end of the compiler", || compiling.iter().all(|pid| !runs(*pid)).then_some(()));
        wait_for("the end of its files", || bench.leftovers().is_empty().then_some(()));
        fs::remove_file(&pids).expect("it was written");
    }
}
