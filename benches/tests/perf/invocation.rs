//! The command line of `farjump-perf`, its environment and its help.

use farjump_fixtures::workbench::check_help_fits;

use crate::workbench::{Workbench, finish};

#[test]
fn a_command_line_that_makes_no_sense_ends_with_2() {
    let bench = Workbench::new();
    let wrong: [&[&str]; 10] = [
        &[],
        &["latency", "--transports", "pigeon"],
        &["latency", "--to", "unix:"],
        &["latency", "--resident"],
        &["latency", "--against", "dlopen"],
        &["scaling", "--mode", "always"],
        &["latency", "--cpus", "0"],
        &["latency", "--to", "unix:s", "--cpus", "0,1"],
        &["work", "--counter", "libx.so"],
        &["first-call", "--counter", "libx.so"],
    ];
    for args in wrong {
        let done = finish(bench.perf().args(args));
        assert_eq!(done.code, 2, "{args:?}: {}", done.err);
        assert!(!done.err.is_empty() && done.out.is_empty(), "{args:?}");
    }
}

#[test]
fn a_failed_run_with_json_ends_standard_error_in_json() {
    let bench = Workbench::new();
    let done = finish(bench.perf().args(["latency", "--resident", "--json"]));
    assert_eq!((done.code, done.text()), (2, ""), "{}", done.err);
    let error = done.json_error();
    assert_eq!(error["exit"], 2, "{error}");
    let text = error["error"].as_str().expect("a text");
    assert!(text.contains("--resident") && !text.starts_with("error") && !text.contains('\n'), "{text}");
}

#[test]
fn an_error_about_the_value_of_a_variable_names_the_variable() {
    let bench = Workbench::new();
    let run = || {
        let mut run = bench.perf();
        run.arg("latency").env("FARJUMP_TRANSPORT", "shm,pigeon");
        run
    };
    finish(&mut run()).fails(2, &["FARJUMP_TRANSPORT"]);
    let error = finish(run().arg("--json")).json_error();
    assert!(error["error"].as_str().is_some_and(|text| text.contains("FARJUMP_TRANSPORT")), "{error}");
}

#[test]
fn help_has_the_users_command_and_fits_the_terminal() {
    let bench = Workbench::new();
    check_help_fits(|| bench.perf());
    let help = finish(bench.perf().arg("--help")).worked();
    for part in ["Usage: farjump perf [OPTIONS] <METRIC>", "--json", "--device <NAME[:PORT]>"] {
        assert!(help.text().contains(part), "{part}: {}", help.text());
    }
    assert!(!help.text().contains("perf-other"));
    let version = finish(bench.perf().arg("--version")).worked();
    assert_eq!(version.text(), concat!("farjump-perf ", env!("CARGO_PKG_VERSION"), "\n"));
}
