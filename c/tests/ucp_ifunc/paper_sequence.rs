//! The sequence of the later prototype's own test program, whose second function needs libraries that travel
//! with no image.

use std::fs;

use crate::fixture::{Fixture, Lane, Language, Variant, fixture};

/// The library that the function needs: FNV-1a.
const LIBRARY: &str = "#include <stddef.h>
    #include <stdint.h>
    uint64_t besides_digest(const void *bytes, size_t length)
    {
        const unsigned char *at = bytes;
        uint64_t hash = 0xcbf29ce484222325;
        while (length-- > 0)
            hash = (hash ^ *at++) * 0x100000001b3;
        return hash;
    }";

/// Runs the program with or without the function's library at the target, and checks the output of both processes.
fn course(fixture: &Fixture, variant: Variant, lane: Lane, rounds: &str, errand: &str) {
    let program = fixture.program("medley", variant, Language::C);
    let mut targets = fixture.libraries();
    if errand == "canceled" {
        // The target registers the functions that it sends back, so it needs their libraries.
        targets = fixture.no_libraries();
        for name in ["tally.so", "rally.so"] {
            fs::copy(fixture.libraries().join(name), targets.join(name)).unwrap();
        }
    }
    let rallies: u64 = rounds.parse().unwrap();
    let folders = [&*targets, &*fixture.libraries()];
    let [target, source] = fixture.run_pair(&program, lane, folders, &[rounds]);
    let both = |number| format!("ping-pong {rounds}\nrally {number}\n");
    let expected = format!("number 1000\nerrand {errand}\nring 256\n{}", both(rallies));
    assert_eq!([target, source], [expected, both(rallies - 1)], "{variant:?} {lane:?}");
}

#[test]
fn the_later_prototypes_program_completes_with_and_without_the_targets_libraries() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("tally", variant);
        fixture.ifunc("rally", variant);
        fixture.ifunc_with_library("errand", variant, LIBRARY);
        for (lane, rounds) in [(Lane::Posix, "500"), (Lane::Tcp, "20")] {
            course(&fixture, variant, lane, rounds, "equal");
        }
    }
    // Frames of both variants are the same: one will do here.
    course(&fixture, Variant::ThreeChains, Lane::Posix, "200", "canceled");
}
