//! `--clear`: the commands that have it, and their reports on whether frames of `tcp` are encrypted.

use serde_json::Value;

use crate::inject::ECHO;
use crate::perf::{check_measured, json, measuring, perf, rows};
use crate::tcp_key::make_key;
use crate::workbench::{Process, Workbench, finish, start_target};

const CLEAR: &str = "tcp, clear";
const SEALED: &str = "tcp, sealed by ";

/// Returns a target on loopback with the key `k`, and its address.
fn serve(bench: &Workbench, more: &[&str]) -> (Process, String) {
    let serve = ["serve", "--listen", "tcp:127.0.0.1:0", "--transport", "tcp", "--key", "k"];
    start_target(bench.farjump().args(serve).args(more))
}

#[test]
fn inject_shows_whether_frames_were_sealed_and_on_request_the_whole_path() {
    let bench = Workbench::new();
    make_key(&bench, "k");
    bench.library("echo", ECHO);
    for (theirs, own, expected) in [
        (&["--clear"][..], &["--clear"][..], CLEAR),
        (&["--clear"], &[], SEALED),
        (&[], &["--clear"], SEALED),
    ] {
        let (_serving, address) = serve(&bench, theirs);
        let inject = |more: &[&str]| {
            let inject = ["inject", "libecho.so", "--to", &address, "--key", "k", "--args", "hello"];
            bench.run([&inject[..], own, more].concat())
        };
        let done = inject(&[]).worked();
        assert!(done.err.contains(&format!("by {expected}")), "{}", done.err);
        assert!(!done.err.contains("arrives by"), "{}", done.err);
        let figures: Value = serde_json::from_str(&inject(&["--json"]).worked().err).expect("it is JSON");
        assert!(figures["path"].as_str().is_some_and(|path| path.starts_with(expected)), "{figures}");
        for verbose in ["-v", "--verbose"] {
            let done = inject(&[verbose]).worked();
            assert_eq!(done.text(), "hello");
            // The rows of `farjump transports --to`, then the figures.
            let why = expected.strip_prefix("tcp, ").expect("it begins so");
            for part in
                ["target  ", "transport   tcp\n", "over        tcp 127.0.0.1:", why, "not by", "by tcp, "]
            {
                assert!(done.err.contains(part), "{part}: {}", done.err);
            }
        }
    }
}

#[test]
fn a_demo_over_tcp_is_sealed_unless_it_is_to_be_clear() {
    let bench = Workbench::new();
    make_key(&bench, "k");
    bench.write("prose", "don't panic");
    let demo = |more: &[&str]| {
        let demo = ["demo", "prose", "--listen", "tcp:127.0.0.1:0", "--transport", "tcp", "--key", "k"];
        bench.run([&demo[..], more].concat()).worked()
    };
    for (more, expected) in [(&[][..], SEALED), (&["--clear"], CLEAR)] {
        assert!(demo(more).text().contains(&format!(" by {expected}")));
        let report = demo(&[more, &["--json"]].concat()).json();
        assert_eq!(report["transport"], "tcp");
        assert!(report["path"].as_str().is_some_and(|path| path.starts_with(expected)), "{report}");
    }
}

#[test]
fn perf_to_a_remote_target_marks_rows_sealed_or_clear() {
    let Some(bench) = measuring() else { return };
    make_key(&bench, "k");
    let measure = |address: &str, more: &[&str]| {
        let mut command = perf(&bench, &["latency", "--to", address, "--key", "k"]);
        command.args(more);
        command
    };
    let sealing = |row: &Value| {
        let lane = row["lane"].as_str().and_then(|lane| lane.split_once(", ")).expect("the lane is named").1;
        (row["transport"].as_str().expect("a name").to_owned(), lane.split(' ').next().map(str::to_owned))
    };
    let named = |transport: &str, lane: &str| (transport.to_owned(), Some(lane.to_owned()));

    let (_willing, address) = serve(&bench, &["--clear"]);
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

    let (_sealing, address) = serve(&bench, &[]);
    for more in [&["--clear"][..], &["--transports", "tcp-clear"]] {
        finish(&mut measure(&address, more)).fails(1, &[&address, "`farjump serve --clear`"]);
    }
    finish(&mut perf(&bench, &["latency", "--clear"])).fails(2, &["--transports tcp-clear"]);
    finish(&mut perf(&bench, &["latency", "--transports", "ucx-am", "--ucx-tcp"]))
        .fails(2, &["--against ucx-am-tcp"]);
    bench.is_clean();
}
