//! The choice of linker by FARJUMP_LD. The test is alone in its program, because it changes the environment.

#![cfg(feature = "build")]

mod fixture;

use farjump_loader::builder::build;
use fixture::{Fixture, sample};

#[test]
fn the_linker_in_the_environment_is_the_one_that_is_run() {
    let fixture = Fixture::new();
    let options = fixture.options("counter", &[sample("c/counter.c")]);
    // SAFETY: this is the only test of this program, and nothing else in it runs while the environment
    // changes.
    unsafe { std::env::set_var("FARJUMP_LD", "no-such-linker") };
    let text = fixture.refusal(build(&options));
    assert!(text.contains("cannot run `no-such-linker`") && text.contains("FARJUMP_LD"), "{text}");
    // SAFETY: this is the only test of this program, and nothing else in it runs while the environment
    // changes.
    unsafe { std::env::set_var("FARJUMP_LD", "") };
    build(&options).unwrap_or_else(|error| panic!("{error}"));
}
