//! Frames that a program sends to its own worker.

use farjump_fixtures::process::finish;

use crate::fixture::{Lane, Language, Variant, fixture};

/// From 1.15 on, UCX returns a pointer to a process's own memory: private memory, where a peer's would be
/// shared.
#[test]
fn a_program_sends_to_itself_into_memory_of_any_kind() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("tally", variant);
        let program = fixture.program("own", variant, Language::C);
        for lane in [Lane::Own, Lane::Posix, Lane::Tcp] {
            let mut command = fixture.command(&program, lane, &fixture.libraries());
            let done = finish(command.arg("tally")).worked();
            assert!(done.text().ends_with("all of it came\n"), "{variant:?} {lane:?}");
        }
    }
}

#[test]
fn a_poll_leaves_the_programs_rounding_however_its_function_ends() {
    let Some(fixture) = fixture() else { return };
    // Frames of both variants are the same: one will do here.
    fixture.ifunc("tilt", Variant::TwoChains);
    let program = fixture.program("tilted", Variant::TwoChains, Language::C);
    let done = finish(fixture.command(&program, Lane::Own, &fixture.libraries()).arg("tilt")).worked();
    assert_eq!(done.text(), "it rounds as before\n");
}
