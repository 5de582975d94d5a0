//! Errors of programs, and their status codes.

use farjump_fixtures::process::finish;

use crate::fixture::{Lane, Language, Variant, fixture};

#[test]
fn every_mistake_returns_a_status_and_nothing_aborts() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("tally", variant);
        fixture.ifunc("bulky", variant);
        let program = fixture.program("bad", variant, Language::C);
        for (lane, kind) in [(Lane::Posix, "mapped"), (Lane::Tcp, "put")] {
            let mut command = fixture.command(&program, lane, &fixture.libraries());
            let done = finish(command.args(["tally", "bulky", kind])).worked();
            assert_eq!(done.text(), "all of it was reported\n", "{variant:?} {lane:?}");
        }
    }
}

#[test]
fn under_address_sanitizer_no_mistake_touches_memory_that_is_not_the_programs() {
    let Some(fixture) = fixture() else { return };
    for variant in Variant::BOTH {
        fixture.ifunc("tally", variant);
        fixture.ifunc("bulky", variant);
        let Some(program) = fixture.sanitized_program("bad", variant) else { return };
        let mut command = fixture.command(&program, Lane::Posix, &fixture.libraries());
        // Handles are never freed, so that their later use is detected.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        let done = finish(command.args(["tally", "bulky", "mapped"])).worked();
        assert_eq!(done.text(), "all of it was reported\n", "{variant:?}");
    }
}

#[test]
fn uses_of_the_later_prototype_fail_to_build_without_its_macro() {
    let Some(fixture) = fixture() else { return };
    let uses = [
        "void *payload; return ucp_ifunc_msg_get_payload_ptr(message, &payload, 0);",
        "ucp_ifunc_reg_param_t p = {0}; ucp_ifunc_h h; return ucp_register_ifunc_im(0, p, 0, 0, 0, 0, &h);",
    ];
    for call in uses {
        let text = format!(
            "static int uses(ucp_ifunc_msg_t *message) {{ {call} }}
             size_t late_payload_bound(void *args, size_t size) {{ return size; }}
             int late_payload_init(void *args, size_t size, void *payload, size_t *payload_size) {{ return 0; }}
             void late_main(void *payload, size_t size, void *args)
             {{ *(int *)args = uses((ucp_ifunc_msg_t *)payload); }}"
        );
        for language in [Language::C, Language::Cxx] {
            let built = |variant| fixture.ifunc_of(&text, "late", language, variant);
            built(Variant::ThreeChains).unwrap();
            let error = built(Variant::TwoChains).unwrap_err().to_string();
            assert!(error.contains("-DIFUNC_API_THREE_CHAINS"), "{call} {language:?}: {error}");
        }
    }
}
