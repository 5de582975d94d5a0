//! Frames that a program sends to its own worker.

use crate::fixture::{Lane, Language, Variant, run_alone, workshop};

/// From 1.15 on, UCX returns a pointer to a process's own memory: private memory, where a peer's would be
/// shared.
#[test]
fn a_program_sends_to_itself_into_memory_of_any_kind() {
    let Some(workshop) = workshop() else { return };
    for variant in Variant::BOTH {
        workshop.ifunc("tally", variant);
        let program = workshop.program("own", variant, Language::C);
        for lane in [Lane::Own, Lane::Posix, Lane::Tcp] {
            let mut command = workshop.command(&program, lane, &workshop.libraries());
            assert!(
                run_alone(&mut command, &["tally"]).ends_with("all of it came\n"),
                "{variant:?} {lane:?}"
            );
        }
    }
}
