//! The conformance suite over everything that farjump has: a test for each subject, named after it.
//! `cargo run -p farjump-integration-tests --bin conformance` prints the whole as a matrix.

use std::ffi::OsString;
use std::process::Command;

use farjump_integration_tests::conformance::{Candidate, candidates, run};

/// Arguments with which this test program runs one test.
fn only(test: &str) -> Vec<OsString> {
    [test, "--exact", "--nocapture"].map(OsString::from).into()
}

/// The name of the test of a subject.
fn test_of(subject: &str) -> String {
    subject.replace(", ", "_").replace([' ', '-'], "_")
}

fn conforms(test: &str) {
    let candidate = candidates(|subject| only(&test_of(subject)))
        .into_iter()
        .find(|candidate| test_of(candidate.name()) == test)
        .unwrap_or_else(|| panic!("no subject belongs to the test {test}"));
    match candidate {
        Candidate::Here(subject) => {
            let outcome = run(&subject);
            println!("{outcome}");
            outcome.assert_conforms();
        }
        Candidate::Missing { name, why } => println!("skipped: {name}: {why}"),
    }
}

/// Runs the test of `ucx-am` in a process of its own, where UCX has these transports alone: it reads its settings once.
fn conforms_over(transports: &str) {
    let program = std::env::current_exe().expect("a test has a program");
    let mut child = Command::new(program);
    child.args(only("ucx_am")).env("UCX_TLS", transports);
    let output = child.output().expect("the program starts once more");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "UCX_TLS={transports}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("skipped: ") || text.contains("volume"), "nothing ran with UCX_TLS={transports}");
}

#[test]
fn ucx_am_over_tcp_alone() {
    conforms_over("tcp,self");
}

#[test]
fn ucx_am_over_posix_shared_memory_alone() {
    conforms_over("posix,self");
}

macro_rules! subjects {
    ($($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                conforms(stringify!($test));
            }
        )*

        #[test]
        fn every_subject_has_a_test() {
            let tests = [$(stringify!($test)),*];
            let subjects: Vec<_> =
                candidates(|_| Vec::new()).iter().map(|candidate| test_of(candidate.name())).collect();
            assert_eq!(subjects, tests);
        }
    };
}

subjects! {
    shm
    ucx_put
    ucx_am
    verbs_write
    verbs_send
    ucx_put_fenced
    ucx_put_checked
    shm_traced
    shm_delayed
    fake_one_sided_stores
    fake_one_sided_in_order
    fake_one_sided_fenced
    fake_one_sided_write_imm
    fake_one_sided_checked
    fake_two_sided
}
