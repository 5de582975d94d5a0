//! Every byte of every frame, compared by the function at the moment it runs.

use crate::fixture::{Lane, Language, Variant, fixture};

#[test]
fn every_byte_has_arrived_when_a_function_runs_in_uncleared_slots() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("compare", variant);
        let program = fixture.program("compare", variant, Language::C);
        // Both variants send the same frames.
        let frames = if variant == Variant::TwoChains { "100000" } else { "5000" };
        for lane in Lane::BOTH {
            let folders = [&*fixture.no_libraries(), &*fixture.libraries()];
            let [target, _] = fixture.run_pair(&program, lane, folders, &["compare", frames]);
            assert!(
                target.starts_with(&format!("compared {frames} frames, ")),
                "{variant:?} {lane:?}: {target}"
            );
        }
    }
}
