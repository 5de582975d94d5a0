//! The papers' programs: throughput, ping-pong, functions that print, that send from inside, and that forward
//! themselves.

use crate::fixture::{Lane, Language, Variant, fixture};

#[test]
fn every_lap_of_slots_runs_code_that_the_target_lacks() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("tally", variant);
        for language in [Language::C, Language::Cxx] {
            let program = fixture.program("throughput", variant, language);
            for lane in Lane::BOTH {
                let folders = [&*fixture.no_libraries(), &*fixture.libraries()];
                let [target, _] = fixture.run_pair(&program, lane, folders, &["tally", "32"]);
                // 32 laps of 64 slots.
                let expected = "number 0\nnumber 1000\nnumber 2000\nran 2048, sum 2096128\n";
                assert_eq!(target, expected, "{variant:?} {language:?} {lane:?}");
            }
        }
    }
}

#[test]
fn a_plain_compiled_library_is_called_by_name_at_the_target() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.plain_ifunc("tally", variant);
        let program = fixture.program("throughput", variant, Language::C);
        for lane in Lane::BOTH {
            let folders = [&*fixture.libraries(), &*fixture.libraries()];
            let [target, _] = fixture.run_pair(&program, lane, folders, &["tally", "4"]);
            assert_eq!(target, "number 0\nran 256, sum 32640\n", "{variant:?} {lane:?}");
        }
    }
}

#[test]
fn names_that_the_prototypes_cut_are_whole() {
    let Some(fixture) = fixture() else { return };
    let program = fixture.program("throughput", Variant::TwoChains, Language::C);
    for name in ["t".to_owned(), "t".repeat(8), "t".repeat(63), "t".repeat(64), "t".repeat(250)] {
        fixture.ifunc_called(&name, "tally", Variant::TwoChains);
        let folders = [&*fixture.no_libraries(), &*fixture.libraries()];
        let [target, _] = fixture.run_pair(&program, Lane::Posix, folders, &[&name, "1"]);
        assert_eq!(target, "number 0\nran 64, sum 2016\n", "{name}");
    }
}

#[test]
fn functions_play_ping_pong_by_sending_from_inside() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("rally", variant);
        for language in [Language::C, Language::Cxx] {
            let program = fixture.program("pingpong", variant, language);
            for (lane, rounds) in [(Lane::Posix, "20000"), (Lane::Tcp, "200")] {
                let folders = [&*fixture.libraries(), &*fixture.libraries()];
                let out = fixture.run_pair(&program, lane, folders, &["rally", rounds]);
                assert_eq!(
                    out,
                    [format!("saw {rounds}\n"), format!("saw {rounds}\n")],
                    "{variant:?} {lane:?}"
                );
            }
        }
    }
}

#[test]
fn a_function_registers_itself_where_it_came_and_sends_itself_on() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("nomad", variant);
        let program = fixture.program("roaming", variant, Language::C);
        for lane in Lane::BOTH {
            let folders = [&*fixture.no_libraries(), &*fixture.libraries()];
            let out = fixture.run_pair(&program, lane, folders, &["nomad", "1000"]);
            assert_eq!(out, ["500 visits\n", "500 visits\n"], "{variant:?} {lane:?}");
        }
    }
}
