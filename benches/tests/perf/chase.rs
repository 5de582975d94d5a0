//! `perf chase`: every contestant does the same chases by exactly the messages that the table says. Times are not
//! checked.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::measuring::{
    begin, check_measured, has_processors, json, measuring, measuring_ucx, perf, refused, rows, without_ucx,
};
use crate::workbench::{Process, Workbench, children_of, finish, installed, kill, runs, wait_for};

/// A small run.
const SMALL: [&str; 9] = ["chase", "--shards", "3", "--depth", "1,4", "--wire", "0,1us", "--table", "4K"];

#[test]
fn every_contestant_chases_with_the_number_of_messages_its_depth_allows() {
    let Some(bench) = measuring_ucx() else { return };
    let report = json(&mut begin(bench.program(installed(&bench)), &SMALL));
    let (mut found, mut in_processes) = (BTreeSet::new(), 0);
    for row in rows(&report) {
        let (depth, wire) = (row["depth"].as_u64().expect("a number"), row["wire_us"].as_f64());
        let case = ["depth", "wire_us", "outstanding", "subject", "mode", "shards_in", "reference"]
            .map(|key| row[key].to_string());
        assert!(found.insert(case), "twice: {row}");
        match row["shards_in"].as_str() {
            Some("processes") => {
                assert_eq!((&row["subject"], &row["mode"]), (&"farjump".into(), &"cached".into()), "{row}");
                in_processes += 1;
            }
            place => assert_eq!(place, Some("thread"), "{row}"),
        }
        assert_eq!((&row["metric"], &row["unit"]), (&"chase".into(), &"us".into()));
        assert_eq!((&row["shards"], &row["table"], &row["size"]), (&3.into(), &4096.into(), &24.into()));
        if row["mode"] == "bitcode" && row["missing"].is_string() {
            println!("skipped: {}", row["missing"]);
            continue;
        }
        check_measured(row);
        let figure = |key: &str| row[key].as_f64().expect("a number");
        let (hops, gets) = (2.0..=depth as f64 + 1.0, 2.0 * depth as f64);
        assert!(hops.contains(&figure("messages")), "{row}");
        match row["reference"].as_str() {
            Some("ucx-am") => assert_eq!(row["messages"], row["reference_messages"]),
            _ => assert_eq!(figure("reference_messages"), gets),
        }
        if depth == 1 {
            assert_eq!(figure("messages"), 2.0, "there and back");
        }
        match (row["outstanding"].as_u64(), wire) {
            (Some(1), Some(0.0)) => assert_eq!(row["model_us"], row["median"]),
            (Some(1), _) => {
                assert!(figure("reference_model_us") > figure("reference_messages"), "{row}");
                // A chase cannot end before its messages are over the wire.
                assert!(row["median"].as_f64() >= Some(2.0), "{row}");
            }
            _ => assert_eq!(row["model_us"], Value::Null),
        }
    }
    // Two depths, two wires, one and 64 at a time. Four ways of farjump's beside three baselines, one of them with its
    // shards in processes, and the active message beside the gets.
    assert_eq!((found.len(), in_processes), (2 * 2 * 2 * (4 * 3 + 2), 2 * 2 * 2 * 3));
    bench.is_clean();
}

/// UCX connects in its own calls, at both ends.
#[test]
fn functions_chase_over_ucx_too() {
    let Some(bench) = measuring_ucx() else { return };
    let quick = ["--depth", "1,16", "--wire", "0", "--against", "load", "--mode", "cached", "--table", "4K"];
    let report = json(&mut perf(
        &bench,
        &[&["chase", "--transports", "ucx-am,ucx-put", "--shards", "3"], &quick[..]].concat(),
    ));
    let measured =
        rows(&report).iter().filter(|row| row["mode"] == "cached").inspect(|row| check_measured(row));
    // Two depths, one and 64 at a time, two transports, and the first of them in processes too.
    assert_eq!(measured.count(), 2 * 2 * 3, "{report:#}");
}

#[test]
fn without_ucx_its_contestants_are_missing_and_all_else_chases() {
    let Some(bench) = measuring() else { return };
    let (variable, folder) = without_ucx(&bench);
    let args =
        [&SMALL[..], &["--outstanding", "2", "--mode", "cached", "--against", "load,ucx-get"]].concat();
    let report = json(perf(&bench, &args).env(variable, folder));
    for row in rows(&report).iter().filter(|row| row["mode"] == "cached") {
        match row["reference"].as_str() {
            Some("load") => check_measured(row),
            _ => {
                assert!(row["missing"].as_str().is_some_and(|why| why.contains("UCX")), "{row}");
                assert!(row["median"].is_number() && row["reference_median"].is_null(), "{row}");
            }
        }
    }
}

#[test]
fn shards_are_in_processes_for_the_cached_function_alone() {
    let Some(bench) = measuring() else { return };
    let quick = ["chase", "--depth", "1", "--wire", "0", "--outstanding", "1", "--against", "load"];
    for (mode, expected) in [("always", false), ("cached", true)] {
        let args = [&quick[..], &["--shards", "2", "--table", "4K", "--mode", mode]].concat();
        let report = json(&mut perf(&bench, &args));
        let found = rows(&report).iter().any(|row| row["shards_in"] == "processes");
        assert_eq!(found, expected, "{report:#}");
    }
    // Each row of the table says where the shards are.
    let done = finish(&mut perf(&bench, &[&quick[..], &["--shards", "2", "--mode", "cached"]].concat()));
    let out = String::from_utf8_lossy(&done.worked().out).into_owned();
    assert!(["thread", "processes"].iter().all(|place| out.contains(place)), "{out}");
}

/// Returns a run without an end, and its processes that are shards.
fn start_run(bench: &Workbench) -> (Process, Vec<u32>) {
    let mut command = bench.program(installed(bench));
    command.args(["chase", "--json", "--rounds", "10000", "--iterations", "100"]);
    command.args(["--shards", "3", "--depth", "4", "--wire", "0", "--table", "4K", "--outstanding", "1"]);
    command.args(["--mode", "cached", "--against", "load"]);
    let run = Process::start(&mut command);
    let pid = run.pid();
    let shards = wait_for("the rounds", || {
        assert!(runs(pid), "it has ended");
        let is_shard = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("perf-other")
        };
        let shards: Vec<_> = children_of(pid).into_iter().filter(is_shard).collect();
        // Each sleeps once a round, between measurements.
        let has_slept = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sleeps.and_then(|sleeps| sleeps.trim().parse::<u32>().ok()).is_some_and(|sleeps| sleeps > 100)
        };
        (shards.len() == 3 && shards.iter().all(has_slept)).then_some(shards)
    });
    (run, shards)
}

#[test]
fn an_interrupted_or_killed_run_leaves_no_shard_or_folder() {
    if !has_processors() {
        return;
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::KILL, 137)] {
        let bench = Workbench::new();
        let (run, shards) = start_run(&bench);
        run.signal(signal);
        assert_eq!(run.finish().code, code);
        wait_for("the shards to end", || (!shards.iter().any(|shard| runs(*shard))).then_some(()));
        wait_for("the folder to go", || bench.leftovers().is_empty().then_some(()));
    }
}

#[test]
fn a_shard_that_dies_ends_the_run_which_names_it() {
    let Some(bench) = measuring() else { return };
    let (run, shards) = start_run(&bench);
    kill(shards[1], Signal::KILL);
    let done = run.finish();
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("the process of shard"), "{}", done.err);
    assert!(!shards.iter().any(|shard| runs(*shard)), "a shard has outlived the run");
    bench.is_clean();
}

#[test]
fn options_of_chases_are_refused_elsewhere_and_modes_without_hops_here() {
    let Some(bench) = measuring() else { return };
    for option in
        [["--shards", "4"], ["--depth", "4"], ["--wire", "1us"], ["--outstanding", "1"], ["--table", "4K"]]
    {
        let part = format!("{} is for chase: leave it out for latency", option[0]);
        refused(&bench, &[&["latency"][..], &option].concat(), 2, &part);
    }
    refused(&bench, &["chase", "--mode", "local"], 2, "modes cached and always alone");
    refused(&bench, &["chase", "--transports", "tcp"], 2, "leave tcp out");
    refused(&bench, &["chase", "--plot", "chase.svg"], 2, "leave --plot out");
    refused(&bench, &["chase", "--to", "there", "--key-file", "key"], 2, "chase");
    refused(&bench, &["chase", "--against", "raw"], 2, "raw");
    refused(&bench, &["chase", "--shards", "1"], 2, "from 2 to 64");
}
