//! `perf --to`: measures a target that was started separately, distrusts its counters, and reports its end.

use std::process::Command;

use serde_json::Value;

use crate::perf::{check_measured, json, measuring, measuring_ucx, perf, refused, rows};
use crate::tcp_key::make_key;
use crate::workbench::{Process, Workbench, finish, runs, start_target, wait_for};

/// Checks that a row has farjump's figures and no others.
#[track_caller]
pub(crate) fn check_alone(row: &Value) {
    assert!(row["median"].as_f64().is_some_and(|number| number > 0.0), "{row}");
    for key in ["reference", "reference_median", "ratio", "state", "ring", "missing"] {
        assert!(row[key].is_null(), "{key} of {row}");
    }
}

#[test]
fn every_metric_is_measured_to_a_target_that_runs_already_and_again() {
    let Some(bench) = measuring() else { return };
    let (_serving, address) = (bench.serve(&[]), bench.address());
    for (metric, modes) in [
        ("latency", "cached,always"),
        ("rate", "cached,always"),
        ("bandwidth", "cached"),
        ("first-call", "cached,always,in-place"),
        // The target has code and a counter of an earlier run.
        ("rate", "cached"),
    ] {
        // 24 bytes are as long as the request for the counter.
        let args = [metric, "--sizes", "8,24,4K", "--mode", modes, "--to", &address];
        let report = json(&mut perf(&bench, &args));
        assert_eq!(rows(&report).len(), 3 * modes.split(',').count());
        for row in rows(&report) {
            let in_place = row["mode"] == "in-place";
            assert_eq!(row["missing"].is_string(), in_place, "{row}");
            if !in_place {
                check_alone(row);
            }
            assert_eq!(row["transport"], "shm");
        }
        let machine = &report["machine"];
        assert_eq!((&machine["peer"], &machine["target_cpu"]), (&(*address).into(), &Value::Null));
        let rounds = report["rounds"].as_array().expect("a list");
        assert_eq!(rounds.len(), 3 * 2);
        assert!(rounds.iter().all(|round| round["line_ns"].is_null() && round["state"].is_null()));
    }
    let shown = finish(&mut perf(&bench, &["latency", "--to", &address, "--cpus", "0"])).worked();
    assert!(shown.text().contains(&format!("target at {address}")), "{}", shown.text());
    bench.is_clean();
}

#[test]
fn code_of_several_lengths_and_messages_given_together_are_counted_elsewhere_too() {
    let Some(bench) = measuring() else { return };
    let (_serving, address) = (bench.serve(&[]), bench.address());
    let args = ["rate", "--sizes", "8,24", "--batch", "7", "--image", "64,4K", "--mode", "always"];
    let report = json(&mut perf(&bench, &[&args[..], &["--to", &address]].concat()));
    assert_eq!(rows(&report).len(), 2 * 2);
    for (row, longer) in rows(&report).iter().zip([false, true].into_iter().cycle()) {
        check_measured(row);
        assert_eq!((&row["mode"], &row["reference"]), (&"always".into(), &"cached".into()));
        assert_eq!((&row["batch"], &row["ring"]), (&7.into(), &Value::Null));
        assert_eq!(row["image"].as_u64().expect("its length") >= 4096, longer, "{row}");
    }
}

#[test]
fn a_tcp_target_is_measured_with_its_key_and_rejects_another() {
    let Some(bench) = measuring_ucx() else { return };
    make_key(&bench, "k");
    make_key(&bench, "other");
    let over_tcp = |mut command: Command| {
        command.env("UCX_TLS", "posix,sysv,self");
        command
    };
    let mut serve = over_tcp(bench.farjump());
    serve.args(["serve", "--listen", "tcp:127.0.0.1:0", "--transport", "ucx-am", "--key", "k"]);
    let (_serving, address) = start_target(&mut serve);
    let address = address.strip_prefix("tcp:").expect("it is one of TCP");
    for transports in [&["--transports", "ucx-am"][..], &[]] {
        let args = [&["latency", "--sizes", "8,64K", "--to", address, "--key", "k"], transports].concat();
        let report = json(&mut over_tcp(perf(&bench, &args)));
        assert_eq!(rows(&report).len(), 2);
        for row in rows(&report) {
            check_alone(row);
            assert_eq!((&row["transport"], &row["arrival"]), (&"ucx-am".into(), &"delivered".into()));
        }
        assert_eq!(report["machine"]["peer"], format!("tcp:{address}"));
    }
    finish(&mut over_tcp(perf(&bench, &["latency", "--to", address, "--key", "other"]))).fails(3, &["key"]);
}

#[test]
fn of_all_transports_those_that_do_not_reach_the_target_say_why() {
    let Some(bench) = measuring_ucx() else { return };
    let (_serving, address) = (bench.serve(&[]), bench.address());
    let report = json(&mut perf(&bench, &["latency", "--transports", "all", "--to", &address]));
    let (reached, missing): (Vec<_>, Vec<_>) =
        rows(&report).iter().partition(|row| row["transport"] == "shm");
    assert_eq!(reached.len(), 1);
    check_alone(reached[0]);
    assert!(missing.iter().any(|row| row["transport"] == "ucx-am"));
    for row in missing {
        assert!(row["missing"].as_str().is_some_and(|why| why.contains("the target has shm")), "{row}");
    }
    finish(&mut perf(&bench, &["latency", "--transports", "ucx-am", "--to", &address]))
        .fails(3, &["the target has shm"]);
}

#[test]
fn perf_refuses_impossible_measurements_of_a_running_target_with_the_reason() {
    let bench = Workbench::new();
    let refused = |args: &[&str], code: i32, part: &str| refused(&bench, args, code, part);
    refused(&["latency", "--to", "unix:s", "--against", "raw"], 2, "raw needs a process of perf's own");
    refused(&["latency", "--to", "unix:s", "--against", "ucx-am"], 2, "ucx-am needs a process");
    refused(&["bandwidth", "--to", "unix:s", "--against", "memcpy"], 2, "within this machine");
    for metric in ["work", "scaling", "wake-up", "idle"] {
        refused(&[metric, "--to", "unix:s"], 2, &format!("{metric} needs processes of perf's own"));
    }
    refused(&["latency", "--to", "unix:s", "--cpus", "0,1"], 2, "name one, the source's");
    refused(&["latency", "--to", "unix:s", "--cpus", "1023"], 1, "processor 1023");
    refused(&["latency", "--to", "fe80::1"], 2, "HOST:PORT");
    refused(&["latency", "--to", "unix:s", "--slot", "1K"], 2, "--to");
    refused(&["latency", "--to", "unix:none"], 5, "farjump serve");
    bench.is_clean();
}

/// Returns a run against the target that has no end, and some rounds behind it.
fn start_run(bench: &Workbench) -> Process {
    let address = bench.address();
    let mut command = bench.farjump();
    command.args(["perf", "latency", "--json", "--rounds", "10000", "--iterations", "70", "--warmup", "0"]);
    command.args(["--to", &address]);
    let run = Process::start(&mut command);
    wait_for("some rounds", || {
        let stats = bench.json(["stats", "--json", "--to", &address]);
        (stats["calls"].as_u64()? > 1000).then_some(())
    });
    run
}

#[test]
fn killing_the_target_ends_the_run_with_rows_so_far() {
    let Some(bench) = measuring() else { return };
    let serving = bench.serve(&[]);
    let run = start_run(&bench);
    serving.kill();
    let done = run.finish();
    done.fails(5, &["gone"]);
    let report = done.json();
    let [row] = &rows(&report)[..] else { panic!("{report:#}") };
    check_alone(row);
    bench.is_clean();
}

#[test]
fn calls_that_the_target_does_not_count_end_the_run() {
    let Some(bench) = measuring() else { return };
    let _serving = bench.serve(&["--allow", "observe,call,inject,drop"]);
    let run = start_run(&bench);
    // The counter goes with the code, which returns and starts at 0.
    wait_for("the run to notice", || {
        bench.run(["store", "--drop-all", "--to", &bench.address()]).worked();
        (!runs(run.pid())).then_some(())
    });
    let done = run.finish();
    done.fails(1, &["count"]);
    let report = done.json();
    check_alone(&rows(&report)[0]);
}
