//! `perf`: its report on code that travels, by length, and on functions that do work.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::perf::{check_measured, json, measuring, measuring_ucx, perf, rows, without_ucx};
use crate::workbench::finish;

/// Returns the distinct values in a column of all rows, as JSON.
fn column(rows: &[Value], name: &str) -> BTreeSet<String> {
    rows.iter().map(|row| row[name].to_string()).collect()
}

fn texts<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(|text| format!("{text:?}")).into()
}

#[test]
fn images_are_as_long_as_asked_and_each_is_held_against_mode_cached() {
    let Some(bench) = measuring() else { return };
    let images = ["--image", "64,1000,4K", "--mode", "always,in-place"];
    let report = json(&mut perf(&bench, &[&["latency", "--sizes", "8,64"][..], &images].concat()));
    assert_eq!(rows(&report).len(), 2 * 3 * 2);
    for row in rows(&report) {
        check_measured(row);
        assert_eq!(row["reference"], "cached", "{row}");
    }
    assert_eq!(column(rows(&report), "image"), ["64", "1000", "4096"].map(String::from).into());
    assert_eq!(column(rows(&report), "mode"), texts(["always", "in-place"]));
    // Beside another baseline, mode cached has rows like every mode.
    let args = ["rate", "--image", "64", "--mode", "always", "--against", "raw,cached"];
    let report = json(&mut perf(&bench, &args));
    let found: Vec<_> = rows(&report).iter().map(|row| [&row["mode"], &row["reference"]]).collect();
    assert_eq!(found, [["always", "cached"], ["always", "raw"], ["cached", "raw"]]);
}

#[test]
fn where_the_curves_of_the_modes_cross_is_said_at_the_end() {
    let Some(bench) = measuring() else { return };
    let args = ["latency", "--image", "64,256K", "--mode", "always,in-place"];
    let done = finish(&mut perf(&bench, &args)).worked();
    let lines: Vec<_> = done.text().lines().collect();
    let [.., in_place, always] = &lines[..] else { panic!("{}", done.text()) };
    assert!(in_place.starts_with("shm, 8 B: mode in-place is quicker than always "), "{in_place}");
    assert!(always.starts_with("shm, 8 B: mode always is quicker than cached "), "{always}");
    assert!(lines[2].contains("image") && lines[3].contains(" 64 "), "{}", done.text());
}

#[test]
fn each_function_works_in_every_mode_and_by_memory_that_both_have() {
    let Some(bench) = measuring() else { return };
    let args =
        ["work", "--sizes", "8,64K", "--mode", "cached,always,local,in-place", "--against", "raw-fetch"];
    let report = json(&mut perf(&bench, &args));
    assert_eq!(rows(&report).len(), 2 * 4 * 4);
    for row in rows(&report) {
        check_measured(row);
        assert_eq!(
            [&row["metric"], &row["unit"], &row["image"]],
            [&"work".into(), &"us".into(), &Value::Null]
        );
        assert!(row["p99"].as_f64() > Some(0.0), "{row}");
    }
    let functions = texts(["sum", "indirect-put", "histogram", "codec"]);
    assert_eq!(column(rows(&report), "function"), functions);
    bench.is_clean();
}

#[test]
fn messages_and_fetching_do_the_same_work_over_every_transport() {
    let Some(bench) = measuring_ucx() else { return };
    // Sizes below and above the limit at which UCX fetches payloads.
    for (tls, devices, transports) in [("posix", "all", "shm,ucx-am"), ("tcp", "lo", "shm,tcp")] {
        let args = ["work", "--sizes", "64,128K", "--transports", transports, "--against", "ucx-am,fetch"];
        let mut command = perf(&bench, &args);
        let report = json(command.env("UCX_TLS", tls).env("UCX_NET_DEVICES", devices));
        assert_eq!(rows(&report).len(), 2 * 2 * 4 * 2);
        for row in rows(&report) {
            check_measured(row);
            assert_eq!(row["reference_lane"], tls, "{row}");
        }
        assert_eq!(column(rows(&report), "reference"), texts(["ucx-am", "fetch"]));
    }
}

#[test]
fn without_ucx_farjump_works_and_what_is_missing_is_said() {
    let Some(bench) = measuring() else { return };
    let (variable, folder) = without_ucx(&bench);
    let args = ["work", "--functions", "codec,sum", "--sizes", "64", "--against", "ucx-am,fetch,raw-fetch"];
    let report = json(perf(&bench, &args).env(variable, folder));
    assert_eq!(rows(&report).len(), 2 * 3);
    for row in rows(&report) {
        if row["reference"] == "raw-fetch" {
            check_measured(row);
        } else {
            assert!(row["missing"].as_str().is_some_and(|why| why.contains("UCX")), "{row}");
            assert!(row["median"].is_number() && row["ratio"].is_null(), "{row}");
        }
    }
    let functions: Vec<_> = rows(&report).iter().map(|row| row["function"].as_str()).collect();
    assert_eq!(functions, [[Some("codec"); 3], [Some("sum"); 3]].concat(), "in the order asked for");
}
