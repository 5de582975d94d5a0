//! The example under sanitizers: its programs, and the codec, which is not instrumented where it is injected.

use std::process::Command;

use super::database::are_kept;
use super::fixture::{Fixture, Transport, said};
use crate::common::package;
use crate::installation::prefix;
use crate::programs::{Linkage, SANITIZERS, WARNINGS, finish};

#[test]
fn the_programs_run_clean_under_sanitizers() {
    are_kept(Linkage::Sanitized, Transport::SHM);
    are_kept(Linkage::Sanitized, Transport::PUT);
    are_kept(Linkage::Sanitized, Transport::AM);
}

#[test]
fn no_payload_makes_the_codec_touch_foreign_memory() {
    let Some(fixture) = Fixture::new(Linkage::Sanitized) else { return };
    let program = fixture.path("damage");
    let mut cc = Command::new("cc");
    cc.args(WARNINGS).args(SANITIZERS).args(["-O1", "-g", "-I"]).arg(prefix().join("include"));
    cc.arg(package().join("tests/programs/damage.c")).arg("-o").arg(&program);
    finish(cc.arg("-lsqlite3")).worked();
    assert_eq!(said(&mut Command::new(program)).unwrap(), ["all is as it should be"]);
}
