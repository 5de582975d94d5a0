//! `perf tsi`: native code and bitcode in both modes, and the parts of a first call. Speed is not checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use farjump_fixtures::workbench::built_beside;

use crate::measuring::{check_measured, interrupted_at, json, measuring_ucx, perf, refused, rows};
use crate::workbench::perf_program;

/// Returns the program that compiles bitcode; `None`, with a message, without it or clang, which makes bitcode.
fn compiler() -> Option<PathBuf> {
    built_beside(&perf_program(), "farjump_compiler").filter(|_| farjump_tools::all_work(&["clang"]))
}

#[test]
fn tsi_measures_both_forms_in_both_modes_and_by_part() {
    let Some(bench) = measuring_ucx() else { return };
    // zig would do, too.
    let Some(compiler) = compiler() else { return };
    let report = json(perf(&bench, &["tsi", "--transports", "shm"]).env("FARJUMP_COMPILER", &compiler));
    let (calls, parts): (Vec<_>, Vec<_>) = rows(&report).iter().partition(|row| row["frame_bytes"].is_u64());
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut frames = BTreeMap::new();
    for row in calls {
        check_measured(row);
        assert_eq!((text(row, "transport"), text(row, "reference")), ("shm".into(), "ucx-am".into()));
        let way = (text(row, "metric"), text(row, "form"), text(row, "mode"));
        assert!(frames.insert(way, row["frame_bytes"].as_u64()).is_none(), "{row}");
    }
    assert_eq!(frames.len(), 2 * 2 * 2);
    for ((metric, form, mode), bytes) in frames {
        let least = match (&*form, &*mode) {
            (_, "cached") => 64..65,
            ("native", _) => 128..512,
            _ => 2048..16_384,
        };
        assert!(least.contains(&bytes.expect("a number")), "{metric} {form} {mode}: {bytes:?}");
    }
    let found: Vec<_> = parts
        .iter()
        .map(|row| {
            assert!(row["median"].as_f64() >= Some(0.0) && row["missing"].is_null(), "{row}");
            (text(row, "metric"), text(row, "form"), text(row, "mode"))
        })
        .collect();
    let both = ["first", "place", "arrival", "run"];
    let of_bitcode = ["fork", "parse", "compile", "link", "optimise"];
    let expected = both
        .map(|part| (part, "native", "new"))
        .into_iter()
        .chain(both.map(|part| (part, "bitcode", "new")))
        .chain(of_bitcode.map(|part| (part, "bitcode", "new")))
        .chain([("compile", "bitcode", "kept")]);
    let expected: Vec<_> = expected
        .map(|(part, form, mode)| (format!("tsi-{part}"), form.to_owned(), mode.to_owned()))
        .collect();
    assert_eq!(found, expected);
    refused(&bench, &["tsi", "--mode", "always"], 2, "leave --mode out");
    bench.is_clean();
}

#[test]
fn an_interruption_of_either_part_leaves_the_rows_measured_so_far() {
    let Some(bench) = measuring_ucx() else { return };
    let Some(compiler) = compiler() else { return };
    // From the second round on, or any whose number begins so, each figure has its reference. In the second part no other
    // process runs whose end could end it.
    for (rounds, words) in [("10000", ", round 2"), ("40", "building the functions of first calls")] {
        let mut run = bench.perf();
        run.args(["tsi", "--transports", "shm", "--rounds", rounds, "--iterations", "70", "--warmup", "3"]);
        run.env("FARJUMP_COMPILER", &compiler);
        let (done, shown) = interrupted_at(run, words);
        assert!(shown.contains(" measurements were made, "), "{shown}");
        let report = done.json();
        assert_eq!(rows(&report).len(), 2 * 2 * 2, "{report:#}");
        rows(&report).iter().for_each(check_measured);
    }
    bench.is_clean();
}
