//! What a program gets wrong, and the status that it gets.

use crate::workshop::{Lane, Language, Variant, run_alone, workshop};

#[test]
fn every_mistake_is_told_by_a_status_and_nothing_aborts() {
    let Some(workshop) = workshop() else { return };
    for variant in Variant::BOTH {
        workshop.ifunc("tally", variant);
        workshop.ifunc("bulky", variant);
        let program = workshop.program("bad", variant, Language::C);
        for (lane, kind) in [(Lane::Posix, "mapped"), (Lane::Tcp, "put")] {
            let mut command = workshop.command(&program, lane, &workshop.libraries());
            let out = run_alone(&mut command, &["tally", "bulky", kind]);
            assert_eq!(out, "all of it was told\n", "{variant:?} {lane:?}");
        }
    }
}

#[test]
fn under_address_sanitizer_no_mistake_touches_memory_that_is_not_the_programs() {
    let Some(workshop) = workshop() else { return };
    for variant in Variant::BOTH {
        workshop.ifunc("tally", variant);
        workshop.ifunc("bulky", variant);
        let Some(program) = workshop.sanitized_program("bad", variant) else { return };
        let mut command = workshop.command(&program, Lane::Posix, &workshop.libraries());
        // Handles stay for ever, so that their use after that is seen.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        assert_eq!(
            run_alone(&mut command, &["tally", "bulky", "mapped"]),
            "all of it was told\n",
            "{variant:?}"
        );
    }
}
