//! `perf chase`: every contestant does the same chases by exactly the messages that the table says. Times are not
//! checked.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::demo::installed;
use crate::perf::{begin, check_measured, json, measuring, measuring_ucx, perf, refused, rows, without_ucx};

/// A small run.
const SMALL: [&str; 9] = ["chase", "--shards", "3", "--depth", "1,4", "--wire", "0,1us", "--table", "4K"];

#[test]
fn every_contestant_chases_by_exactly_as_many_messages_as_there_are_steps_between_shards() {
    let Some(bench) = measuring_ucx() else { return };
    let report = json(&mut begin(bench.program(installed(&bench)), &SMALL));
    let mut found = BTreeSet::new();
    for row in rows(&report) {
        let (depth, wire) = (row["depth"].as_u64().expect("a number"), row["wire_us"].as_f64());
        let case = ["depth", "wire_us", "outstanding", "subject", "mode", "reference"]
            .map(|key| row[key].to_string());
        assert!(found.insert(case), "twice: {row}");
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
    // Two depths, two wires, one and 64 at a time; three ways of farjump's beside three baselines, and the active
    // message beside the gets.
    assert_eq!(found.len(), 2 * 2 * 2 * (3 * 3 + 2));
    bench.is_clean();
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
fn options_of_chases_are_refused_elsewhere_and_modes_without_hops_here() {
    let Some(bench) = measuring() else { return };
    for option in
        [["--shards", "4"], ["--depth", "4"], ["--wire", "1us"], ["--outstanding", "1"], ["--table", "4K"]]
    {
        let part = format!("{} is for chase: leave it out for latency", option[0]);
        refused(&bench, &[&["latency"][..], &option].concat(), 1, &part);
    }
    refused(&bench, &["chase", "--mode", "local"], 1, "modes cached and always alone");
    refused(&bench, &["chase", "--transports", "tcp"], 1, "leave tcp out");
    refused(&bench, &["chase", "--plot", "chase.svg"], 1, "leave --plot out");
    refused(&bench, &["chase", "--to", "there", "--key", "key"], 1, "chase");
    refused(&bench, &["chase", "--against", "raw"], 1, "raw");
    refused(&bench, &["chase", "--shards", "1"], 2, "from 2 to 64");
}
