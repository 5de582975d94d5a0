//! `perf`: it measures the requested cases and names them, reports missing baselines, and leaves nothing
//! behind. Speed is not checked.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use farjump_fixtures::terminal::Terminal;
use farjump_fixtures::workbench::is_usable;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::workbench::{
    Done, Process, Workbench, children_of, documented, finish, installed, keys, kill, perf_program, runs,
    wait_for,
};

/// Few calls: a quick measurement, not a good one.
const FEW: [&str; 6] = ["--rounds", "2", "--iterations", "70", "--warmup", "3"];

pub(crate) fn perf(bench: &Workbench, args: &[&str]) -> Command {
    begin(bench.perf(), args)
}

pub(crate) fn begin(mut command: Command, args: &[&str]) -> Command {
    command.args(args).args(FEW);
    command
}

pub(crate) fn json(command: &mut Command) -> Value {
    finish(command.arg("--json")).worked().json()
}

pub(crate) fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().expect("a list")
}

/// Checks that a row has both figures, and a ratio between the smallest and the largest.
#[track_caller]
pub(crate) fn check_measured(row: &Value) {
    for figure in ["median", "reference_median", "ratio", "ratio_min", "ratio_max"] {
        assert!(row[figure].as_f64().is_some_and(|number| number > 0.0), "{figure} of {row}");
    }
    assert!(row["ratio_min"].as_f64() <= row["ratio"].as_f64(), "{row}");
    assert!(row["ratio"].as_f64() <= row["ratio_max"].as_f64(), "{row}");
    assert_eq!(row["missing"], Value::Null);
}

/// Checks that `perf` refuses these arguments and prints nothing.
#[track_caller]
pub(crate) fn refused(bench: &Workbench, args: &[&str], code: i32, part: &str) {
    let done = finish(&mut perf(bench, args));
    done.fails(code, &[part]);
    assert!(done.out.is_empty(), "{args:?}");
}

/// Returns a folder for measuring, if there are two processors to measure with; otherwise prints the reason.
pub(crate) fn measuring() -> Option<Workbench> {
    has_processors().then(Workbench::new)
}

/// Returns such a folder if `ucx-am` can be used, too; otherwise prints the reason.
pub(crate) fn measuring_ucx() -> Option<Workbench> {
    if is_usable("ucx-am") { measuring() } else { None }
}

/// Makes a library that is not UCX the one that is found first with this variable.
pub(crate) fn without_ucx(bench: &Workbench) -> (&'static str, PathBuf) {
    let library = bench.plain_library("other", "int other;");
    fs::rename(library, bench.path("libucp.so.0")).expect("a file can be renamed");
    ("LD_LIBRARY_PATH", bench.path(""))
}

pub(crate) fn has_processors() -> bool {
    let enough = farjump_os::resources::processors() >= 2;
    if !enough {
        eprintln!("skipped: there is one processor only");
    }
    enough
}

#[test]
fn every_size_mode_and_reference_has_a_row_with_figures() {
    let Some(bench) = measuring() else { return };
    let modes = "cached,always,local,in-place";
    let args = ["latency", "--sizes", "0,8..16,4K", "--mode", modes, "--against", "raw,memcpy"];
    // Installed away from cargo's files, so that leftovers would be found.
    let report = json(&mut begin(bench.program(installed(&bench)), &args));
    let rows = rows(&report);
    let found: BTreeSet<_> = rows
        .iter()
        .map(|row| (row["size"].to_string(), row["mode"].to_string(), row["reference"].to_string()))
        .collect();
    assert_eq!((rows.len(), found.len()), (4 * 4 * 2, 4 * 4 * 2));
    for row in rows {
        check_measured(row);
        assert_eq!((&row["metric"], &row["unit"]), (&"latency".into(), &"us".into()));
        assert_eq!((&row["transport"], &row["arrival"]), (&"shm".into(), &"stores".into()));
        assert_eq!(row["iterations"], 70);
        let percentiles = ["p50", "p99", "p999", "max"].map(|name| row[name].as_f64().expect("a number"));
        assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{row}");
    }
    let rounds = report["rounds"].as_array().expect("a list");
    assert_eq!(rounds.len(), 4 * 2);
    for round in rounds {
        let line = round["line_ns"].as_f64().expect("a number");
        let state = match line {
            ..40.0 => "near",
            ..=150.0 => "middle",
            _ => "far",
        };
        assert_eq!(round["state"], state, "{round}");
    }
    let machine = &report["machine"];
    assert_ne!(machine["source_cpu"], machine["target_cpu"]);
    bench.is_clean();
}

#[test]
fn processes_placed_on_one_processor_are_reported_as_sharing_it() {
    let bench = Workbench::new();
    let allowed = sched_getaffinity(None).expect("the system gives the affinity");
    let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("this runs on one");
    let on_one = |args: &[&str]| {
        let mut command = perf(&bench, args);
        let mut set = CpuSet::new();
        set.set(cpu);
        // SAFETY: `sched_setaffinity` is a system call, which a forked child may make.
        unsafe { command.pre_exec(move || Ok(sched_setaffinity(None, &set)?)) };
        command
    };
    // Without yields each call would take two slices of the scheduler, and none of them a yield.
    let report = json(&mut on_one(&["latency", "--cpus", "any"]));
    let [row] = &rows(&report)[..] else { panic!("{report:#}") };
    assert!(row["median"].as_f64().is_some_and(|median| median > 0.0), "{row}");
    assert_eq!((&row["reference"], &row["state"]), (&Value::Null, &Value::Null));
    assert_eq!(report["machine"]["source_cpu"], Value::Null);
    for round in report["rounds"].as_array().expect("a list") {
        let placement = &round["placement"];
        assert_eq!((&placement["source"], &placement["target"]), (&vec![cpu].into(), &vec![cpu].into()));
        let [yields, messages] = ["yields", "messages"].map(|key| placement[key].as_u64().expect("a number"));
        assert!(yields > messages / 2, "{round}");
    }
    let done = finish(&mut on_one(&["latency", "--cpus", "any"])).worked();
    let text = done.text();
    let shared = format!("source on processors {cpu}, target on {cpu}; they shared one in 2 of 2 rounds");
    assert!(text.contains(&shared), "{text}");
    assert_eq!(keys(&report["rounds"][0]["placement"]), documented("reference/perf.md", "`placement` has"));
    finish(&mut on_one(&["latency"])).fails(1, &["a processor each", "--cpus any"]);
    let against = ["latency", "--cpus", "any", "--against", "raw"];
    finish(&mut on_one(&against)).fails(2, &["raw would wait for a shared processor", "leave --against out"]);
    finish(&mut on_one(&["wake-up", "--cpus", "any"])).fails(2, &["name two processors for wake-up"]);
    bench.is_clean();
}

#[test]
fn each_metric_has_figures_in_its_unit_beside_its_usual_reference() {
    let Some(bench) = measuring() else { return };
    for (metric, unit, reference) in [
        ("latency", "us", "raw"),
        ("rate", "million/s", "raw"),
        ("bandwidth", "MB/s", "memcpy"),
        ("first-call", "us", "dlopen"),
    ] {
        let report = json(&mut perf(&bench, &[metric, "--sizes", "64"]));
        let [row] = &rows(&report)[..] else { panic!("{report:#}") };
        check_measured(row);
        assert_eq!([&row["metric"], &row["unit"], &row["reference"]], [metric, unit, reference]);
        // Only calls made one by one have percentiles.
        assert_eq!(row["p99"].is_number(), unit == "us", "{row}");
    }
}

#[test]
fn first_calls_are_measured_cold_and_warm() {
    let Some(bench) = measuring() else { return };
    for (args, warm, iterations) in [(&["first-call"][..], false, 1), (&["first-call", "--warm"], true, 12)] {
        let report = json(&mut perf(&bench, args));
        let [row] = &rows(&report)[..] else { panic!("{report:#}") };
        check_measured(row);
        assert_eq!((&row["warm"], &row["iterations"]), (&warm.into(), &iterations.into()));
    }
    refused(&bench, &["latency", "--warm"], 2, "--warm is for first-call");
}

#[test]
fn messages_that_are_given_together_are_counted_like_any_others() {
    let Some(bench) = measuring() else { return };
    // Neither 70 calls nor 3 fill whole batches of 16, and those of 300 bytes share no frame.
    let report = json(&mut perf(&bench, &["rate", "--sizes", "0,8,300", "--batch", "16"]));
    for row in rows(&report) {
        check_measured(row);
        assert_eq!(row["batch"], 16);
    }
    let alone = json(&mut perf(&bench, &["latency"]));
    assert!(rows(&alone).iter().all(|row| row["batch"].is_null()));
}

#[test]
fn json_and_csv_have_the_keys_that_are_documented() {
    let Some(bench) = measuring() else { return };
    let report = json(&mut perf(&bench, &["rate"]));
    assert_eq!(keys(&report), documented("reference/perf.md", "prints one object"));
    assert_eq!(keys(&report["machine"]), documented("reference/perf.md", "`machine` has"));
    assert_eq!(keys(&report["rounds"][0]), documented("reference/perf.md", "Each of `rounds` has"));
    // The keys that apply to this row alone are a part of the second list, in its order.
    let found = keys(&report["rows"][0]);
    let mut all = documented("reference/perf.md", "Each of `rows` has");
    let figures = all.split_off(3);
    all.extend(documented("reference/perf.md", "that apply to its metric"));
    all.extend(figures.iter().cloned());
    all.retain(|key| found.contains(key));
    assert_eq!(found, all);
    assert!(
        figures.iter().all(|key| found.contains(key)) && found.contains(&"batch".to_owned()),
        "{found:?}"
    );
    let done = finish(perf(&bench, &["rate", "--sizes", "8,16"]).arg("--csv")).worked();
    let lines: Vec<_> = done.text().lines().collect();
    assert_eq!(lines[0].split(',').collect::<Vec<_>>(), found);
    assert_eq!(lines.len(), 3);
    assert!(lines[1..].iter().all(|line| line.starts_with("rate,million/s,farjump,shm,cached,stores,")));
}

#[test]
fn perf_prints_a_table_and_no_progress_without_a_terminal() {
    let Some(bench) = measuring() else { return };
    let done = finish(&mut perf(&bench, &["latency", "--sizes", "8,1K"])).worked();
    let lines: Vec<_> = done.text().lines().collect();
    assert!(
        lines[0].contains("source on processor") && lines[1].contains("latency in us"),
        "{}",
        done.text()
    );
    assert!(lines[2].contains("transport") && lines[2].contains("ratio"), "{}", done.text());
    assert!(lines[3].contains("raw") && lines[4].contains(" 1K "), "{}", done.text());
    assert_eq!((lines.len(), &*done.err), (5, ""));
}

#[test]
fn every_reference_over_ucx_has_figures_and_names_its_lanes() {
    let Some(bench) = measuring_ucx() else { return };
    for metric in ["latency", "rate", "bandwidth"] {
        let against = "ucx-am,ucx-stores,ucx-put";
        let args = [metric, "--transports", "ucx-am,shm", "--sizes", "8,64K", "--against", against];
        let report = json(perf(&bench, &args).env("UCX_TLS", "posix"));
        assert_eq!(rows(&report).len(), 2 * 2 * 3);
        for row in rows(&report) {
            check_measured(row);
            assert_eq!(row["reference_lane"], "posix", "{row}");
        }
        assert_eq!(report["machine"]["ucx_tls"], "posix");
    }
    let args = ["rate", "--transports", "shm", "--against", "ucx-am,ucx-stores,ucx-put"];
    let report = json(perf(&bench, &args).env("UCX_TLS", "tcp"));
    let [messages, stores, puts] = &rows(&report)[..] else { panic!("{report:#}") };
    check_measured(messages);
    check_measured(puts);
    assert_eq!(messages["reference_lane"], "tcp");
    let why = stores["missing"].as_str().expect("nobody can store over TCP");
    assert!(why.contains("UCX") && stores["reference_median"].is_null(), "{why}");
}

#[test]
fn active_messages_are_compared_with_ucx_perftest_in_their_own_row() {
    let Some(bench) = measuring_ucx() else { return };
    let report = json(perf(&bench, &["latency", "--against", "perftest"]).env("UCX_TLS", "posix"));
    let [ours, row] = &rows(&report)[..] else { panic!("{report:#}") };
    assert_eq!((&ours["subject"], &ours["reference"]), (&"farjump".into(), &"ucx-am".into()));
    assert_eq!((&row["subject"], &row["reference"]), (&"ucx-am".into(), &"perftest".into()));
    if Command::new("ucx_perftest").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok() {
        check_measured(row);
        let within = row["ratio"].as_f64().is_some_and(|ratio| (0.85..=1.15).contains(&ratio));
        assert_eq!(row["agrees"], within);
    } else {
        assert!(row["missing"].as_str().is_some_and(|why| why.contains("ucx_perftest")), "{row}");
    }
}

#[test]
fn without_ucx_its_references_say_why_and_all_else_is_measured() {
    let Some(bench) = measuring() else { return };
    let (variable, folder) = without_ucx(&bench);
    let args = ["latency", "--against", "ucx-am,ucx-put,raw"];
    let report = json(perf(&bench, &args).env(variable, &folder));
    let [messages, puts, raw] = &rows(&report)[..] else { panic!("{report:#}") };
    for row in [messages, puts] {
        assert!(row["missing"].as_str().is_some_and(|why| why.contains("UCX")), "{row}");
        assert!(
            row["median"].is_number() && row["reference_median"].is_null() && row["ratio"].is_null(),
            "{row}"
        );
    }
    check_measured(raw);
    assert_eq!(report["machine"]["ucx"], Value::Null);
    let done = finish(perf(&bench, &args).env(variable, &folder)).worked();
    assert!(done.text().lines().any(|line| line.starts_with("ucx-am: ")), "{}", done.text());
}

#[test]
fn perf_refuses_impossible_measurements_with_the_reason() {
    let bench = Workbench::new();
    let refused = |args: &[&str], code: i32, part: &str| refused(&bench, args, code, part);
    refused(&["latency", "--sizes", "8..1"], 2, "a range goes from 1 or more upwards");
    refused(&["latency", "--sizes", "65M"], 2, "64M at most");
    refused(&["latency", "--sizes", "few"], 2, "no number of bytes");
    refused(&["latency", "--mode", "never"], 2, "no mode");
    refused(&["speed"], 2, "invalid value");
    refused(&["latency", "--against", "pigeon"], 2, "invalid value");
    refused(&["latency", "--cpus", "0,0"], 2, "need a processor each");
    refused(&["latency", "--ring", "16"], 2, "a ring has 4K to 1G");
    refused(&["latency", "--against", "dlopen"], 2, "the baseline for first-call");
    refused(&["first-call", "--against", "raw"], 2, "no baseline but dlopen");
    refused(&["scaling", "--against", "raw"], 2, "no baseline but alone");
    refused(&["idle", "--against", "raw"], 2, "no baseline but futex and ucx-wait");
    refused(&["latency", "--against", "ucx-wait"], 2, "the baseline for wake-up and idle");
    refused(&["wake-up", "--mode", "always"], 2, "leave --mode out");
    refused(&["scaling", "--sources", "0..4"], 2, "from 1 to 4096");
    refused(&["scaling", "--sources", "4..1"], 2, "for example 1..256");
    refused(&["scaling", "--active", "0"], 2, "from 1 to 4096");
    refused(&["scaling", "--transports", "pigeon"], 2, "no transport `pigeon`");
    refused(&["idle", "--seconds", "0"], 2, "1..=600");
    refused(&["first-call", "--mode", "local"], 2, "no code comes");
    refused(&["latency", "--image", "63"], 2, "images have from 64 bytes to 1M");
    refused(&["latency", "--image", "64", "--mode", "cached,local"], 2, "in mode local no code travels");
    refused(&["bandwidth", "--image", "64"], 2, "--image is for latency and rate");
    refused(&["latency", "--functions", "sum"], 2, "--functions is for work");
    refused(&["rate", "--against", "fetch"], 2, "the baseline for work");
    refused(
        &["work", "--functions", "sum,pigeon"],
        2,
        "sum, indirect-put, histogram, codec, column, filter, nearest, top-k, list, and all",
    );
    refused(&["work", "--sizes", "12"], 2, "multiples of 8");
    refused(&["work", "--sizes", "8,0"], 2, "multiples of 8");
    refused(&["work", "--sizes", "64", "--against", "raw"], 2, "raw does no work");
    refused(&["latency", "--transports", "pigeon"], 2, "no transport `pigeon`");
    refused(&["latency", "--transports", "verbs-send"], 1, "verbs-send");
    if has_processors() {
        refused(&["latency", "--cpus", "0,1023"], 1, "processor 1023");
        let mut command = begin(bench.program(installed(&bench)), &["latency"]);
        finish(command.env("FARJUMP_CC", "no-such-cc")).fails(1, &["Install a C compiler"]);
    }
    bench.is_clean();
}

#[test]
fn one_processor_is_not_enough() {
    let bench = Workbench::new();
    let mut taskset = bench.program("taskset");
    taskset.args(["-c", "0", &perf_program(), "latency"]);
    if Command::new("taskset").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: taskset is not installed");
        return;
    }
    finish(&mut taskset).fails(1, &["there is only 0"]);
}

#[test]
fn only_a_mode_that_the_transport_lacks_is_missing() {
    let Some(bench) = measuring_ucx() else { return };
    let args = ["latency", "--transports", "all", "--mode", "in-place,cached"];
    let report = json(perf(&bench, &args).env("UCX_TLS", "posix"));
    for row in rows(&report) {
        let delivers = row["transport"] == "ucx-am" || row["transport"] == "tcp";
        let missing = delivers && row["mode"] == "in-place";
        assert_eq!(row["missing"].is_string(), missing, "{row}");
        assert_eq!(row["median"].is_null(), missing, "{row}");
    }
    let transports: BTreeSet<_> = rows(&report).iter().filter_map(|row| row["transport"].as_str()).collect();
    assert!(["shm", "ucx-am", "tcp"].iter().all(|name| transports.contains(name)), "{transports:?}");
}

/// Returns a run without an end that has some rounds behind it, and its other process.
pub(crate) fn start_run(bench: &Workbench, more: &[&str]) -> (Process, u32) {
    let mut command = bench.program(installed(bench));
    command.args(["latency", "--json", "--rounds", "10000", "--iterations", "500"]).args(more);
    let run = Process::start(&mut command);
    let pid = run.pid();
    let other = wait_for("the rounds", || {
        assert!(runs(pid), "it has ended");
        let other = *children_of(pid).first()?;
        let status = fs::read_to_string(format!("/proc/{other}/status")).ok()?;
        // It waits for commands, of which a round has some.
        let waited = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let is_other = fs::read_to_string(format!("/proc/{other}/cmdline")).ok()?.contains("perf-other");
        (is_other && waited.trim().parse::<u32>().ok()? > 100).then_some(other)
    });
    (run, other)
}

/// Interrupts a run with a terminal for its progress, when the terminal shows these words. Returns the run's end, and
/// all that the terminal showed.
pub(crate) fn interrupted_at(mut run: Command, words: &str) -> (Done, String) {
    let terminal = Terminal::new();
    run.arg("--json").env("TERM", "xterm").stdout(Stdio::piped()).stderr(terminal.end());
    let process = Process::spawn(&mut run);
    wait_for(words, || {
        assert!(runs(process.pid()), "it has ended: {}", terminal.so_far());
        terminal.has(words).then_some(())
    });
    process.signal(Signal::TERM);
    let (done, shown) = (process.finish(), terminal.shown(run));
    assert_eq!(done.code, 143, "{shown}");
    (done, shown)
}

#[test]
fn a_terminal_is_shown_the_remaining_time_once_it_is_known() {
    let Some(bench) = measuring() else { return };
    let mut run = bench.perf();
    run.args(["latency", "--rounds", "10000", "--iterations", "500"]);
    let (done, shown) = interrupted_at(run, " left  8 B, round 2");
    assert!(shown.contains(", about ") && !shown.contains("0s left"), "{shown}");
    assert!(shown.contains(" of 20000 measurements were made, "), "{shown}");
    let report = done.json();
    let [row] = &rows(&report)[..] else { panic!("{report:#}") };
    check_measured(row);
}

#[test]
fn killing_a_process_ends_the_run_with_rows_so_far() {
    let Some(bench) = measuring() else { return };
    let (run, other) = start_run(&bench, &[]);
    kill(other, Signal::KILL);
    let done: Done = run.finish();
    done.error(done.code);
    let report = done.json();
    let [row] = &rows(&report)[..] else { panic!("{report:#}") };
    check_measured(row);
    bench.is_clean();
}

#[test]
fn an_interrupted_run_reports_rows_and_even_a_killed_one_leaves_nothing() {
    if !has_processors() {
        return;
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::KILL, 137)] {
        let bench = Workbench::new();
        let (run, other) = start_run(&bench, &[]);
        run.signal(signal);
        let done = run.finish();
        assert_eq!(done.code, code);
        if signal != Signal::KILL {
            assert!(
                done.err.contains("measurements were made, ") && done.err.contains(" are left out"),
                "{}",
                done.err
            );
            let report = done.json();
            let [row] = &rows(&report)[..] else { panic!("{report:#}") };
            check_measured(row);
        }
        wait_for("the other process to end", || (!runs(other)).then_some(()));
        // If the run was killed, the other process removes the folder.
        wait_for("the folder to go", || bench.leftovers().is_empty().then_some(()));
    }
}
