//! `perf`: its report on code that travels, by length, and on functions that do work.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::measuring::{check_measured, json, measuring, measuring_ucx, perf, refused, rows, without_ucx};
use crate::workbench::{Workbench, finish};

/// Returns the distinct values in a column of all rows, as JSON.
fn column(rows: &[Value], name: &str) -> BTreeSet<String> {
    rows.iter().map(|row| row[name].to_string()).collect()
}

fn texts<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(|text| format!("{text:?}")).into()
}

#[test]
fn images_of_each_requested_length_are_compared_with_mode_cached() {
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

/// The baselines of resident data, and the networks of each of them.
const RESIDENT: [(&str, &str); 10] = [
    ("ucx-am", "null"),
    ("fetch", "null"),
    ("fetch-am", "null"),
    ("raw-fetch", "null"),
    ("ucx-am", "0.0"),
    ("fetch", "0.0"),
    ("ucx-am", "1.0"),
    ("fetch", "1.0"),
    ("ucx-am", "5.0"),
    ("fetch", "5.0"),
];

#[test]
fn resident_work_is_measured_in_every_mode_and_modelled_network() {
    let Some(bench) = measuring_ucx() else { return };
    let report = json(&mut perf(&bench, &["work", "--resident", "--sizes", "64K,4K", "--transports", "shm"]));
    let rows = rows(&report);
    assert_eq!(rows.len(), 5 * 2 * 2 * RESIDENT.len());
    assert_eq!(column(rows, "function"), texts(["column", "filter", "nearest", "top-k", "list"]));
    assert_eq!(column(rows, "mode"), texts(["cached", "always"]));
    for some in rows.chunks(RESIDENT.len()) {
        let found: Vec<_> = some
            .iter()
            .map(|row| (row["reference"].as_str().expect("a name"), row["wire_us"].to_string()))
            .collect();
        let wanted: Vec<_> = RESIDENT.map(|(name, wire)| (name, wire.to_owned())).into();
        assert_eq!(found, wanted);
        let median = |row: &Value, name: &str| row[name].as_f64().expect("a number");
        for row in some {
            check_measured(row);
            assert_eq!((&row["metric"], &row["unit"]), (&"work".into(), &"us".into()));
            let Some(latency) = row["wire_us"].as_f64() else { continue };
            assert_eq!(row["wire_gb_s"], 12.5);
            // A call takes one round trip, and less than 4 KiB of frames and code.
            let added = median(row, "median") - median(&some[0], "median");
            assert!((2.0 * latency..2.0 * latency + 0.4).contains(&added), "{added} of {row}");
            if row["reference"] != "fetch" {
                continue;
            }
            let size = median(row, "size");
            let steps = row["reference_trips"] == 64;
            assert!(!steps || row["function"] == "list", "{row}");
            let trips = if steps { 64.0 } else { 1.0 };
            let bytes = if steps { 64.0 * 16.0 } else { size };
            let fetched = trips * 2.0 * latency + bytes / 12_500.0;
            let here = median(&some[3], "reference_median");
            assert!((median(row, "reference_median") - here - fetched).abs() < 1e-6, "{row}");
            // Steps that take less time than any call are ahead of it whatever the length.
            assert!(row["ahead_from"].is_u64() || row["function"] == "list", "{row}");
        }
    }
    bench.is_clean();
}

#[test]
fn resident_data_need_no_ucx_and_break_even_lengths_are_printed() {
    let Some(bench) = measuring() else { return };
    let (variable, folder) = without_ucx(&bench);
    let args = ["work", "--resident", "--functions", "list,top-k", "--sizes", "4K,1M", "--mode", "cached"];
    let report = json(perf(&bench, &args).env(variable, &folder));
    assert_eq!(rows(&report).len(), 2 * 2 * RESIDENT.len());
    for row in rows(&report) {
        // The model needs nothing of UCX.
        if row["reference"] == "raw-fetch" || (row["reference"] == "fetch" && row["wire_us"].is_number()) {
            check_measured(row);
        } else {
            assert!(row["missing"].as_str().is_some_and(|why| why.contains("UCX")), "{row}");
        }
    }
    let done = finish(perf(&bench, &args).env(variable, &folder)).worked();
    let said: Vec<_> =
        done.text().lines().filter(|line| line.contains("farjump is ahead of the fetch")).collect();
    let [first, .., last] = &said[..] else { panic!("{}", done.text()) };
    assert_eq!(said.len(), 2 * 3);
    assert!(first.starts_with("list, shm, cached, wire of 0 us: "), "{first}");
    assert!(
        last.starts_with("top-k, shm, cached, wire of 5 us: ") && last.contains("; by arithmetic from "),
        "{last}"
    );
    assert!(done.text().contains(" plain ") && done.text().contains(" 5 us "), "{}", done.text());
}

#[test]
fn perf_work_refuses_options_that_do_not_fit_resident_data() {
    let bench = Workbench::new();
    for (args, part) in [
        (&["latency", "--resident"][..], "--resident is for work"),
        (&["work", "--resident", "--sizes", "5000"], "powers of two from 4K to 256M"),
        (&["work", "--resident", "--sizes", "2K"], "powers of two from 4K to 256M"),
        (&["work", "--resident", "--functions", "sum"], "sum works on other data: leave --resident out"),
        (&["work", "--functions", "list"], "list works on other data: add --resident"),
        (
            &["work", "--sizes", "8", "--against", "fetch-am"],
            "fetch-am is a baseline for work with --resident",
        ),
        (&["work", "--resident", "--against", "cached"], "cached is a baseline for work without --resident"),
        (&["work", "--sizes", "128M"], "64M at most"),
    ] {
        refused(&bench, args, 2, part);
    }
}
