//! `perf --to`: measures a target that was started separately, distrusts its counters, and reports its end.

use std::process::Command;

use serde_json::Value;

use crate::measuring::{check_measured, json, measuring, measuring_ucx, perf, refused, rows};
use crate::workbench::{Process, Workbench, finish, has_farjump, runs, start_target, wait_for};

/// Checks that a row has farjump's figures and no others.
#[track_caller]
fn check_alone(row: &Value) {
    assert!(row["median"].as_f64().is_some_and(|number| number > 0.0), "{row}");
    for key in ["reference", "reference_median", "ratio", "state", "ring", "missing"] {
        assert!(row[key].is_null(), "{key} of {row}");
    }
}

/// Returns a folder in which `farjump` serves targets; `None`, with a message, if cargo did not build it too.
fn of_targets(measuring: fn() -> Option<Workbench>) -> Option<Workbench> {
    if has_farjump() { measuring() } else { None }
}

fn make_key(bench: &Workbench, name: &str) {
    bench.run(["key", name]).worked();
}

/// Returns a target on loopback with the key `k`, and its address.
fn serve_tcp(bench: &Workbench, more: &[&str]) -> (Process, String) {
    let serve = ["serve", "--listen", "tcp:127.0.0.1:0", "--transport", "tcp", "--key-file", "k"];
    start_target(bench.farjump().args(serve).args(more))
}

#[test]
fn every_metric_is_measured_to_a_target_that_runs_already_and_again() {
    let Some(bench) = of_targets(measuring) else { return };
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
    let Some(bench) = of_targets(measuring) else { return };
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
    let Some(bench) = of_targets(measuring_ucx) else { return };
    make_key(&bench, "k");
    make_key(&bench, "other");
    let over_tcp = |mut command: Command| {
        command.env("UCX_TLS", "posix,sysv,self");
        command
    };
    let mut serve = over_tcp(bench.farjump());
    serve.args(["serve", "--listen", "tcp:127.0.0.1:0", "--transport", "ucx-am", "--key-file", "k"]);
    let (_serving, address) = start_target(&mut serve);
    let address = address.strip_prefix("tcp:").expect("it is one of TCP");
    for transports in [&["--transports", "ucx-am"][..], &[]] {
        let args =
            [&["latency", "--sizes", "8,64K", "--to", address, "--key-file", "k"], transports].concat();
        let report = json(&mut over_tcp(perf(&bench, &args)));
        assert_eq!(rows(&report).len(), 2);
        for row in rows(&report) {
            check_alone(row);
            assert_eq!((&row["transport"], &row["arrival"]), (&"ucx-am".into(), &"delivered".into()));
        }
        assert_eq!(report["machine"]["peer"], format!("tcp:{address}"));
    }
    finish(&mut over_tcp(perf(&bench, &["latency", "--to", address, "--key-file", "other"])))
        .fails(3, &["key"]);
}

#[test]
fn of_all_transports_those_that_do_not_reach_the_target_say_why() {
    let Some(bench) = of_targets(measuring_ucx) else { return };
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
    let mut command = bench.perf();
    command.args(["latency", "--json", "--rounds", "10000", "--iterations", "70", "--warmup", "0"]);
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
    let Some(bench) = of_targets(measuring) else { return };
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
    let Some(bench) = of_targets(measuring) else { return };
    let _serving = bench.serve(&["--rights", "observe,call,inject,drop"]);
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

#[test]
fn perf_to_a_remote_target_marks_rows_sealed_or_clear() {
    let Some(bench) = of_targets(measuring) else { return };
    make_key(&bench, "k");
    let measure = |address: &str, more: &[&str]| {
        let mut command = perf(&bench, &["latency", "--to", address, "--key-file", "k"]);
        command.args(more);
        command
    };
    let sealing = |row: &Value| {
        let lane = row["lane"].as_str().and_then(|lane| lane.split_once(", ")).expect("the lane is named").1;
        (row["transport"].as_str().expect("a name").to_owned(), lane.split(' ').next().map(str::to_owned))
    };
    let named = |transport: &str, lane: &str| (transport.to_owned(), Some(lane.to_owned()));

    let (_willing, address) = serve_tcp(&bench, &["--clear"]);
    for (more, expected) in [
        (&[][..], named("tcp", "sealed")),
        (&["--clear"], named("tcp-clear", "clear")),
        (&["--transports", "tcp", "--clear"], named("tcp-clear", "clear")),
    ] {
        let report = json(&mut measure(&address, more));
        assert_eq!(rows(&report).iter().map(sealing).collect::<Vec<_>>(), [expected], "{more:?}");
    }
    // Both over one target, each against the other.
    let report = json(&mut measure(&address, &["--transports", "tcp,tcp-clear", "--against", "clear"]));
    assert_eq!(rows(&report).len(), 1);
    check_measured(&rows(&report)[0]);
    assert_eq!(sealing(&rows(&report)[0]), named("tcp", "sealed"));
    assert_eq!(rows(&report)[0]["reference"], "clear");

    let (_sealing, address) = serve_tcp(&bench, &[]);
    for more in [&["--clear"][..], &["--transports", "tcp-clear"]] {
        finish(&mut measure(&address, more)).fails(1, &[&address, "`farjump serve --clear`"]);
    }
    finish(&mut perf(&bench, &["latency", "--clear"])).fails(2, &["--transports tcp-clear"]);
    finish(&mut perf(&bench, &["latency", "--transports", "ucx-am", "--ucx-tcp"]))
        .fails(2, &["--against ucx-am-tcp"]);
    bench.is_clean();
}
