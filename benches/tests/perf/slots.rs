//! `perf` with rings of slots: the paper's ring, beside one that fits the cache.

use std::process::Command;

use serde_json::Value;

use crate::measuring::{begin, check_measured, has_processors, json, measuring_ucx, perf, refused, rows};
use crate::workbench::{Workbench, finish, perf_program};

#[test]
fn each_ring_of_slots_is_measured_against_active_messages() {
    let Some(bench) = measuring_ucx() else { return };
    for metric in ["rate", "latency"] {
        let args =
            [metric, "--sizes", "1,1016", "--ring", "8K", "--slot", "1K", "--against", "raw,ucx-put,ucx-am"];
        let report = json(perf(&bench, &args).env("UCX_TLS", "posix"));
        let found: Vec<_> = rows(&report)
            .iter()
            .map(|row| {
                check_measured(row);
                assert_eq!(row["ring"], 8192, "{row}");
                [&row["subject"], &row["reference"]].map(|name| name.as_str().expect("a name")).join(" ")
            })
            .collect();
        let each = ["farjump raw", "farjump ucx-put", "farjump ucx-am", "raw ucx-am", "ucx-put ucx-am"];
        assert_eq!(found, [each, each].concat());
        for row in rows(&report) {
            let has_slots =
                [&row["subject"], &row["reference"]].iter().any(|name| *name == "raw" || *name == "ucx-put");
            assert_eq!(row["slot"], if has_slots { 1024.into() } else { Value::Null }, "{row}");
        }
    }
}

#[test]
fn one_byte_is_measured_as_any_other_size_is() {
    if !has_processors() {
        return;
    }
    for metric in [&["latency"][..], &["scaling", "--sources", "1"]] {
        let report = json(&mut perf(&Workbench::new(), &[metric, &["--sizes", "1"]].concat()));
        check_measured(&rows(&report)[0]);
    }
}

#[test]
fn slots_that_make_no_sense_are_refused_with_what_to_change() {
    let bench = Workbench::new();
    let refused = |args: &[&str], code: i32, part: &str| refused(&bench, args, code, part);
    refused(&["rate", "--slot", "100"], 2, "whole lines");
    refused(&["rate", "--slot", "1K", "--against", "memcpy"], 2, "ucx-put");
    for metric in ["first-call", "work", "scaling", "wake-up", "idle"] {
        refused(&[metric, "--slot", "1K"], 2, &format!("leave it out for {metric}"));
    }
    if has_processors() {
        refused(&["rate", "--slot", "64", "--sizes", "8,57"], 1, "a payload of 57 B and its signal");
        refused(&["rate", "--slot", "1M", "--ring", "1M"], 1, "cannot hold two slots");
    }
}

#[test]
fn a_ring_that_ucx_cannot_allocate_is_missing_with_the_reason() {
    let Some(bench) = measuring_ucx() else { return };
    let mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm";
    let may = finish(Command::new("unshare").args(["--mount", "sh", "-c", mount]));
    if may.code != 0 {
        println!("skipped: no small /dev/shm can be had: {}", may.err.trim_end());
        return;
    }
    let mut command = bench.program("unshare");
    let script = format!("{mount} && exec \"$@\"");
    command.args(["--mount", "sh", "-c", &script, "sh", &perf_program()]);
    let args = ["rate", "--ring", "128M", "--slot", "1K", "--against", "ucx-put,ucx-stores,raw"];
    let report = json(begin(command, &args).env("UCX_TLS", "posix"));
    let [puts, stores, raw] = &rows(&report)[..] else { panic!("{report:#}") };
    for row in [puts, stores] {
        let why = row["missing"].as_str().expect("there is no memory");
        assert!(why.contains("cannot allocate a ring of 1342") && why.contains("--ring"), "{why}");
    }
    check_measured(raw);
}
