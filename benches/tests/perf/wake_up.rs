//! `perf wake-up` and `perf idle`: wake sleepers and leave idle processes alone. Times are not checked.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::measuring::{
    begin, check_measured, interrupted_at, json, measuring, measuring_ucx, perf, rows, without_ucx,
};
use crate::workbench::{Process, children_of, finish, installed, kill, runs, wait_for};

#[test]
fn targets_of_each_size_are_woken_beside_a_futex() {
    let Some(bench) = measuring() else { return };
    let report = json(&mut begin(
        bench.program(installed(&bench)),
        &["wake-up", "--sizes", "8,4K", "--sources", "1,2"],
    ));
    let [one, two, large, large_of_two] = &rows(&report)[..] else { panic!("{report:#}") };
    for (row, size, sources) in [(one, 8, 1), (two, 8, 2), (large, 4096, 1), (large_of_two, 4096, 2)] {
        check_measured(row);
        assert_eq!((&row["metric"], &row["unit"]), (&"wake-up".into(), &"us".into()));
        assert_eq!((&row["transport"], &row["reference"]), (&"shm".into(), &"futex".into()));
        assert_eq!((&row["size"], &row["iterations"]), (&size.into(), &70.into()));
        let percentiles = ["p50", "p99", "p999", "max"].map(|name| row[name].as_f64().expect("a number"));
        assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{row}");
        assert_eq!(row["sources"], sources);
    }
    bench.is_clean();
}

#[test]
fn perf_wake_up_compares_each_transport_with_ucx_wait_and_futex() {
    let Some(bench) = measuring_ucx() else { return };
    // Each call waits until all of them sleep.
    let mut command = bench.perf();
    command.args(["wake-up", "--transports", "shm,ucx-am", "--sizes", "8,16K"]);
    command.args(["--against", "ucx-wait,futex"]);
    command.args(["--rounds", "2", "--iterations", "10", "--warmup", "1"]);
    let report = json(command.env("UCX_TLS", "posix"));
    assert_eq!(rows(&report).len(), 2 * 2 * 2);
    for row in rows(&report) {
        check_measured(row);
        let lane = if row["reference"] == "ucx-wait" { "posix".into() } else { Value::Null };
        assert_eq!(row["reference_lane"], lane, "{row}");
    }
}

#[test]
fn a_round_of_idle_targets_that_is_interrupted_does_not_count() {
    let Some(bench) = measuring() else { return };
    let mut run = bench.perf();
    run.args(["idle", "--sources", "1", "--seconds", "600"]);
    let (done, shown) = interrupted_at(run, "round 1");
    assert!(shown.contains("0 of 18 measurements were made, 18 are left out"), "{shown}");
    let report = done.json();
    assert!(rows(&report).iter().all(|row| row["median"].is_null()), "{report:#}");
}

#[test]
fn idle_targets_report_processor_time_and_sleeps_per_number_of_sources() {
    let Some(bench) = measuring() else { return };
    // A sleeper wakes about once a second by itself.
    let args = ["idle", "--sources", "1,3", "--seconds", "2"];
    let report = json(&mut begin(bench.program(installed(&bench)), &args));
    let [one, three] = &rows(&report)[..] else { panic!("{report:#}") };
    for (row, sources) in [(one, 1), (three, 3)] {
        assert_eq!((&row["metric"], &row["unit"]), (&"idle".into(), &"ms/s".into()));
        assert_eq!((&row["sources"], &row["reference"]), (&sources.into(), &"futex".into()));
        assert!(row["median"].as_f64().is_some_and(|taken| taken > 0.0), "{row}");
        assert!(row["reference_median"].is_number(), "{row}");
        assert!(row["sleeps"].as_f64().is_some_and(|sleeps| sleeps > 0.0), "{row}");
        assert_eq!(row["missing"], Value::Null);
    }
    bench.is_clean();
}

#[test]
fn without_ucx_what_it_wakes_is_missing_and_all_else_is_measured() {
    let Some(bench) = measuring() else { return };
    let (variable, folder) = without_ucx(&bench);
    let args = ["wake-up", "--against", "ucx-wait,futex"];
    let report = json(perf(&bench, &args).env(variable, folder));
    let [waits, futex] = &rows(&report)[..] else { panic!("{report:#}") };
    assert!(waits["missing"].as_str().is_some_and(|why| why.contains("UCX")), "{waits}");
    assert!(waits["median"].is_number() && waits["reference_median"].is_null(), "{waits}");
    check_measured(futex);
}

#[test]
fn killing_a_process_ends_the_idle_run_without_leftovers() {
    let Some(bench) = measuring() else { return };
    let mut command = bench.program(installed(&bench));
    command.args(["idle", "--sources", "1", "--rounds", "10000", "--seconds", "1"]);
    let run = Process::start(&mut command);
    let pid = run.pid();
    // The run needs each: the reporter of the machine's state, the target, and the sleeper on the futex.
    let other = wait_for("the processes", || {
        assert!(runs(pid), "it has ended");
        let children = children_of(pid);
        let begun = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            status.contains("perf-other")
        };
        (children.len() == 3 && children.iter().all(begun)).then(|| children.into_iter().max())?
    });
    kill(other, Signal::KILL);
    let done = run.finish();
    assert_eq!(done.code, 1, "{}", done.err);
    bench.is_clean();
}

#[test]
fn only_latency_rate_and_bandwidth_take_the_target_sleeps_option() {
    let Some(bench) = measuring() else { return };
    for metric in ["latency", "rate", "bandwidth"] {
        for (sleeps, flags) in [(true, &["--target-sleeps"][..]), (false, &[])] {
            let report = json(&mut perf(&bench, &[&[metric, "--sizes", "64"], flags].concat()));
            let [row] = &rows(&report)[..] else { panic!("{report:#}") };
            check_measured(row);
            assert_eq!(row["target_sleeps"], sleeps, "{row}");
        }
    }
    for metric in ["first-call", "work", "scaling", "wake-up", "idle"] {
        finish(&mut perf(&bench, &[metric, "--target-sleeps"]))
            .fails(2, &[&format!("leave it out for {metric}")]);
    }
}
