//! `--clear`: the commands that have it, and their reports on whether frames of `tcp` are encrypted.

use serde_json::Value;

use crate::inject::ECHO;
use crate::tcp_key::make_key;
use crate::workbench::{Process, Workbench, start_target};

const CLEAR: &str = "tcp, clear";
const SEALED: &str = "tcp, sealed by ";

/// Returns a target on loopback with the key `k`, and its address.
fn serve(bench: &Workbench, more: &[&str]) -> (Process, String) {
    let serve = ["serve", "--listen", "tcp:127.0.0.1:0", "--transport", "tcp", "--key-file", "k"];
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
            let inject = ["inject", "libecho.so", "--to", &address, "--key-file", "k", "--args", "hello"];
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
        let demo = ["demo", "prose", "--listen", "tcp:127.0.0.1:0", "--transport", "tcp", "--key-file", "k"];
        bench.run([&demo[..], more].concat()).worked()
    };
    for (more, expected) in [(&[][..], SEALED), (&["--clear"], CLEAR)] {
        assert!(demo(more).text().contains(&format!(" by {expected}")));
        let report = demo(&[more, &["--json"]].concat()).json();
        assert_eq!(report["transport"], "tcp");
        assert!(report["path"].as_str().is_some_and(|path| path.starts_with(expected)), "{report}");
    }
}
