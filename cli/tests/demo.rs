//! `demo`: its output, its checks, and the absence of leftovers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::inject::crc32;
use crate::workbench::{
    Process, Workbench, children_of, documented, finish, keys, kill, process_fields, quoted, runs, wait_for,
};
use farjump_fixtures::terminal::Terminal;

fn demo_json(bench: &Workbench, args: &[&str]) -> Value {
    bench.json([&["demo", "--json"], args].concat())
}

#[test]
fn the_default_file_is_the_program_and_every_result_is_right() {
    let bench = Workbench::new();
    let report = demo_json(&bench, &[]);
    let program = env!("CARGO_BIN_EXE_farjump");
    assert_eq!(report["transport"], "shm");
    assert_eq!(report["file"], program);
    assert_eq!(report["file_bytes"], fs::metadata(program).expect("it is there").len());
    assert_eq!(keys(&report), documented("reference/json.md", "`farjump demo --json` prints"));
    let functions = report["functions"].as_array().expect("a list");
    let names: Vec<_> = functions.iter().map(|function| function["name"].as_str()).collect();
    assert_eq!(names, [Some("histogram"), Some("grep"), Some("crc32")]);
    for function in functions {
        assert_eq!(keys(function), documented("reference/json.md", "Each of `functions` has"));
        assert_eq!(function["answer"], function["expected"]);
        assert!(function["code_bytes"].as_u64() > Some(0), "{function}");
        for time in ["first_call_us", "link_us", "later_call_us", "fetch_instead_us", "compute_instead_us"] {
            assert!(function[time].as_f64() > Some(0.0), "{time} in {function}");
        }
        assert!(
            function["compute_instead_us"].as_f64() < function["fetch_instead_us"].as_f64(),
            "{function}"
        );
        assert!(function["link_us"].as_f64() < function["first_call_us"].as_f64(), "{function}");
    }
    assert_eq!(functions[1]["payload_bytes"], "panic".len());
    assert!(functions[1]["answer"]["occurrences"].as_u64() > Some(0));
}

#[test]
fn demo_results_for_a_given_file_equal_an_independent_computation() {
    let bench = Workbench::new();
    let contents = "the panicked pan panics; ".repeat(1000);
    bench.write("prose", &contents);
    let report = demo_json(&bench, &["prose"]);
    assert_eq!((&report["file"], &report["file_bytes"]), (&"prose".into(), &contents.len().into()));
    let reply = |index: usize| &report["functions"][index]["answer"];
    assert_eq!(reply(0)["bytes"], contents.len());
    let mut entropy = 0.0;
    for byte in 0..=255 {
        let share = contents.bytes().filter(|it| *it == byte).count() as f64 / contents.len() as f64;
        entropy -= if share > 0.0 { share * share.ln() / 2_f64.ln() } else { 0.0 };
    }
    assert!((reply(0)["bits_per_byte"].as_f64().expect("a number") - entropy).abs() < 1e-9, "{entropy}");
    assert_eq!((&reply(1)["literal"], &reply(1)["occurrences"]), (&"panic".into(), &2000.into()));
    assert_eq!(reply(2).as_str(), Some(&*format!("{:08x}", crc32(contents.as_bytes()))));
    let report = demo_json(&bench, &["prose", "--literal", "an", "--transport", "shm"]);
    assert_eq!(report["functions"][1]["answer"]["occurrences"], 3000);
}

#[test]
fn the_demo_uses_the_given_launcher_or_names_its_failure() {
    let bench = Workbench::new();
    bench.write("prose", "panic");
    assert_eq!(demo_json(&bench, &["prose", "--launch", "nice -n 1"])["file"], "prose");
    bench
        .run(["demo", "prose", "--launch", "no-such-launcher here"])
        .fails(1, &["by `no-such-launcher here`: No such file"]);
    // A launcher that runs without starting the target is reported too.
    bench.run(["demo", "prose", "--launch", "true"]).fails(1, &["ended before it was ready"]);
    bench.is_clean();
}

#[test]
fn demo_results_for_an_empty_file_are_zero() {
    let bench = Workbench::new();
    bench.write("empty", "");
    let report = demo_json(&bench, &["empty"]);
    let replies: Vec<_> = (0..3).map(|index| report["functions"][index]["answer"].to_string()).collect();
    assert!(replies[0].contains("\"bits_per_byte\":0.0"), "{replies:?}");
    assert!(replies[1].contains("\"occurrences\":0"), "{replies:?}");
    assert_eq!(replies[2], "\"00000000\"");
}

#[test]
fn people_get_a_table() {
    let bench = Workbench::new();
    bench.write("prose", "don't panic");
    let done = bench.run(["demo", "prose"]).worked();
    assert_eq!(done.err, "");
    let lines: Vec<_> = done.text().lines().collect();
    assert!(
        lines[0].starts_with("target   pid ") && lines[0].contains("mapped prose (11 B)"),
        "{}",
        lines[0]
    );
    assert!(lines[1].trim_start().starts_with("answer"), "{}", lines[1]);
    assert!(lines[3].starts_with("grep") && lines[3].contains("1 x \"panic\""), "{}", lines[3]);
    assert!(lines[4].starts_with("crc32") && lines[4].contains(&format!("{:08x}", crc32(b"don't panic"))));
    assert_eq!(lines[5], "all results equal those of the same code on the moved file.");
}

#[test]
fn the_demo_counts_an_occurrence_across_parts_once() {
    let bench = Workbench::new();
    // Parts have 1 MiB: the literal of five bytes lies across each of their borders once.
    let contents = "abcde".repeat(600_000);
    bench.write("long", &contents);
    let report = demo_json(&bench, &["long", "--literal", "abcde"]);
    for function in report["functions"].as_array().expect("a list") {
        assert_eq!(function["answer"], function["expected"]);
    }
    assert_eq!(report["functions"][1]["expected"]["occurrences"], 600_000);
    assert_eq!(report["functions"][2]["expected"], format!("{:08x}", crc32(contents.as_bytes())));
}

#[test]
fn the_demo_handles_a_file_larger_than_each_process_memory_limit() {
    let bench = Workbench::new();
    fs::File::create(bench.path("large")).and_then(|file| file.set_len(2 << 30)).expect("a sparse file");
    let mut command = bench.program("sh");
    // The limit is in KiB, and counts all memory of a process that is its own and writable.
    let limited = "ulimit -d 262144 && exec \"$0\" demo large --literal nothing --json --transport shm";
    let report = finish(command.args(["-c", limited, env!("CARGO_BIN_EXE_farjump")])).worked().json();
    assert_eq!(report["file_bytes"], 2_u64 << 30);
    for function in report["functions"].as_array().expect("a list") {
        assert_eq!(function["answer"], function["expected"]);
    }
    assert_eq!(report["functions"][0]["answer"]["bytes"], 2_u64 << 30);
    bench.is_clean();
}

#[test]
fn a_terminal_is_shown_the_progress_and_a_file_is_not() {
    let bench = Workbench::new();
    bench.write("prose", "don't panic".repeat(1 << 20));
    let terminal = Terminal::new();
    let mut command = bench.farjump();
    command.args(["demo", "prose"]).env("TERM", "xterm").stdout(Stdio::piped()).stderr(terminal.end());
    let done = Process::spawn(&mut command).finish().worked();
    assert!(done.text().contains("all results equal"), "{}", done.text());
    let shown = terminal.shown(command);
    for step in ["building the functions", "crc32 runs in the target", "moving the file instead, for crc32"] {
        assert!(shown.contains(step), "{step:?} is not in {shown:?}");
    }
    assert_eq!(bench.run(["demo", "prose"]).worked().err, "");
}

#[test]
fn rows_come_one_by_one() {
    let bench = Workbench::new();
    let program = installed(&bench);
    fs::File::create(bench.path("large")).and_then(|file| file.set_len(256 << 20)).expect("a sparse file");
    let demo = Process::start(bench.program(program).args(["demo", "large"]));
    demo.line();
    demo.line();
    assert!(demo.line().starts_with("histogram"));
    // It is at the next function, and would print two more lines.
    demo.signal(Signal::INT);
    let done = demo.finish();
    assert_eq!((done.code, &*done.err), (130, ""));
    assert!(!done.text().contains("all results"), "{}", done.text());
    bench.is_clean();
}

#[test]
fn functions_that_were_built_elsewhere_need_no_compiler() {
    let bench = Workbench::new();
    bench.write("prose", "don't panic");
    for name in ["histogram", "grep", "crc32"] {
        bench.sample(name);
    }
    let mut command = bench.farjump();
    command.args(["demo", "prose", "--libraries", "."]).env("FARJUMP_CC", "no-such-cc");
    let done = finish(&mut command).worked();
    assert!(done.text().contains("all results equal"), "{}", done.text());
    fs::remove_file(bench.path("libgrep.so")).expect("it was built");
    bench.run(["demo", "prose", "--libraries", "."]).fails(1, &["libgrep.so"]);
}

#[test]
fn a_demo_that_cannot_run_fails_with_the_reason() {
    let bench = Workbench::new();
    for (args, code, part) in [
        (&["demo", "missing"][..], 1, "cannot read `missing`"),
        (&["demo", "."], 1, "no regular file"),
        (&["demo", "--transport", "pigeon"], 2, "no transport `pigeon`"),
    ] {
        bench.run(args).fails(code, &[part]);
    }
    // The reason that keeps the target from getting ready is printed once.
    bench.write("prose", "panic");
    let done = bench.run(["demo", "prose", "--listen", "unix:no/such/folder/s"]);
    done.fails(1, &["no/such/folder"]);
    assert_eq!(done.err.matches("error").count(), 1, "{}", done.err);
    finish(bench.farjump().arg("demo").env("FARJUMP_CC", "no-such-cc"))
        .fails(1, &["cannot run `no-such-cc`", "Install a C compiler"]);
}

/// Returns the program in a folder of its own, as if installed there, so that traces of other runs are not found.
pub(crate) fn installed(bench: &Workbench) -> PathBuf {
    let folder = bench.path("installed");
    fs::create_dir(&folder).expect("a folder can be made");
    bench.executable("installed/farjump", Path::new(env!("CARGO_BIN_EXE_farjump")))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    entries.map(|entry| entry.expect("it can be read").path()).collect()
}

#[test]
fn nothing_is_left_behind_and_in_cargos_folder_nothing_is_written_elsewhere() {
    let bench = Workbench::new();
    bench.write("prose", "don't panic");
    let program = installed(&bench);
    finish(bench.program(&program).args(["demo", "prose"])).worked();
    assert!(finish(bench.program(&program).args(["demo", "missing"])).code == 1);
    assert!(finish(bench.program(&program).arg("demo").env("FARJUMP_CC", "no-such-cc")).code == 1);
    bench.is_clean();
    // A folder marked as cargo marks its own, and no other place to write to.
    let folder = program.parent().expect("it has a folder");
    let tag = folder.join("CACHEDIR.TAG");
    fs::write(&tag, "").expect("a file can be written");
    fs::remove_dir(bench.path("tmp")).expect("it is empty");
    finish(bench.program(&program).args(["demo", "prose"]).env("TMPDIR", "/nonexistent")).worked();
    let mut left = entries(folder);
    left.sort();
    assert_eq!(left, [tag, program]);
}

/// Returns a demo that has begun and takes long, and its target's process id.
fn begun(bench: &Workbench) -> (Process, u32) {
    let program = installed(bench);
    // The computations on this take seconds; noticing that it has begun takes milliseconds.
    fs::File::create(bench.path("large")).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let mut command = bench.program(program);
    command.args(["demo", "large"]);
    let demo = Process::start(&mut command);
    let pid = demo.pid();
    let target = wait_for("the target", || {
        assert!(runs(pid), "the demo has ended");
        let listens = bench.leftovers().first().is_some_and(|folder| folder.join("target.sock").exists());
        listens.then(|| children_of(pid).first().copied()).flatten()
    });
    (demo, target)
}

/// Returns the same demo, blocked because the target is stopped.
fn held_up(bench: &Workbench) -> (Process, u32) {
    let (demo, target) = begun(bench);
    kill(target, Signal::STOP);
    wait_for("the target to stop", || {
        let fields = process_fields(target)?;
        (fields[0] == "T").then_some(())
    });
    (demo, target)
}

#[test]
fn an_interrupted_demo_ends_its_target_and_removes_its_folder() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let bench = Workbench::new();
        let (demo, target) = held_up(&bench);
        demo.signal(signal);
        let done = demo.finish();
        assert_eq!((done.code, &*done.err), (code, ""));
        assert!(!runs(target));
        bench.is_clean();
    }
}

#[test]
fn a_demo_that_is_interrupted_while_it_compiles_ends_its_compilers() {
    let bench = Workbench::new();
    let program = installed(&bench);
    let started = bench.path("started");
    let script = format!("#!/bin/sh\necho $$ >> {}\nexec sleep 1000\n", quoted(&started));
    let compiler = bench.executable("cc", &bench.write("script", script));
    let mut command = bench.program(program);
    command.arg("demo").env("FARJUMP_CC", compiler);
    let demo = Process::start(&mut command);
    let compilers: Vec<u32> = wait_for("three compilers", || {
        let pids: Vec<u32> =
            fs::read_to_string(&started).ok()?.lines().map_while(|pid| pid.parse().ok()).collect();
        (pids.len() == 3).then_some(pids)
    });
    demo.signal(Signal::TERM);
    assert_eq!(demo.finish().code, 143);
    for pid in compilers {
        wait_for("a compiler to end", || (!runs(pid)).then_some(()));
    }
    bench.is_clean();
}

#[test]
fn the_target_of_a_killed_demo_ends_and_removes_the_folder() {
    let bench = Workbench::new();
    let (demo, target) = begun(&bench);
    demo.signal(Signal::KILL);
    assert_eq!(demo.finish().code, 128 + 9);
    wait_for("the target to end", || (!runs(target)).then_some(()));
    bench.is_clean();
}

#[test]
fn killing_its_target_fails_the_demo_and_leaves_nothing() {
    let bench = Workbench::new();
    let (demo, target) = held_up(&bench);
    kill(target, Signal::KILL);
    let done = demo.finish();
    assert!(done.code == 1 || done.code == 5, "{}", done.err);
    done.error(done.code);
    bench.is_clean();
}
