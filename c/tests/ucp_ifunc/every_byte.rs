//! Every byte of every frame, compared by the function at the moment it runs.

use crate::fixture::{Lane, Language, Variant, workshop};

#[test]
fn every_byte_is_there_when_the_function_runs_in_slots_that_nobody_clears() {
    let Some(workshop) = workshop() else { return };
    for variant in Variant::BOTH {
        workshop.ifunc("compare", variant);
        let program = workshop.program("compare", variant, Language::C);
        // Both variants send the same frames.
        let frames = if variant == Variant::TwoChains { "100000" } else { "5000" };
        for lane in Lane::BOTH {
            let folders = [&*workshop.no_libraries(), &*workshop.libraries()];
            let [target, _] = workshop.run_pair(&program, lane, folders, &["compare", frames]);
            assert!(
                target.starts_with(&format!("compared {frames} frames, ")),
                "{variant:?} {lane:?}: {target}"
            );
        }
    }
}
