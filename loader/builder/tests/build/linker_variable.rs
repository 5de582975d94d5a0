//! The choice of linker by FARJUMP_LD.

use farjump_builder::build;
use farjump_fixtures::helper_process::{role, test_in_role};
use farjump_fixtures::this_test;

use crate::fixture::{Fixture, sample};

#[test]
fn the_linker_in_the_environment_is_the_one_that_is_run() {
    // A process of its own, which has another environment.
    if !role().is_empty() {
        let fixture = Fixture::new();
        let options = fixture.options("counter", &[sample("c/counter.c")]);
        build(&options).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let this = this_test!();
    let build_by =
        |linker| test_in_role(this, &["build"]).env("FARJUMP_LD", linker).output().expect("it starts");
    let refused = build_by("no-such-linker");
    let text =
        [refused.stdout, refused.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(!refused.status.success(), "{text}");
    assert!(text.contains("cannot run `no-such-linker`") && text.contains("FARJUMP_LD"), "{text}");
    assert!(build_by("").status.success());
}
