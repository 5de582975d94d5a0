//! Modes: how code travels and runs, as its source chooses and its target allows.

use farjump::{Library, Mode, RefusalCause};

use crate::support::{Pair, Place, library, refused, to_words};

fn code_len(library: &Library) -> u64 {
    library.images()[0].bytes().len() as u64
}

#[test]
fn mode_always_sends_code_in_each_frame_and_runs_one_copy() {
    let place = Place::new();
    let mut pair = Pair::of(place.target(), place.link().mode(Mode::Always));
    let (tally, echo) = (library("tally"), library("echo"));
    for round in 1..=40 {
        assert_eq!(
            to_words(&pair.call(&tally, b"").unwrap()),
            [2 * round - 1],
            "statics are those of one copy"
        );
        pair.link.send(&tally, b"").unwrap();
        // Payloads in a line, behind it, and in frames that wrap around the mailbox.
        for len in [0, 8, 40, 41, 5_000, 200_000] {
            let bytes = vec![round as u8; len];
            assert_eq!(*pair.call(&echo, &bytes).unwrap(), *bytes);
        }
        let stats = pair.link.stats();
        assert_eq!((stats.frames, stats.frames_with_code), (8 * round, 8 * round));
        assert_eq!(stats.code_bytes, round * (2 * code_len(&tally) + 6 * code_len(&echo)));
    }
    assert_eq!(pair.target.stats().images_linked, 2);
}

#[test]
fn mode_local_sends_only_names_and_runs_the_targets_own_functions() {
    let place = Place::new();
    let (tally, echo) = (library("tally"), library("echo"));
    let mut pair = Pair::of(place.target().local(&tally).local(&echo), place.link().mode(Mode::Local));
    for round in 1..=40 {
        assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [2 * round - 1]);
        pair.link.send(&tally, b"").unwrap();
        for len in [0, 8, 40, 41, 5_000, 200_000] {
            let bytes = vec![round as u8; len];
            assert_eq!(*pair.call(&echo, &bytes).unwrap(), *bytes);
        }
    }
    let stats = pair.link.stats();
    assert_eq!((stats.frames, stats.frames_with_code, stats.code_bytes), (8 * 40, 0, 0));
    assert_eq!(pair.target.stats().images_linked, 2, "when the target was built");
    // The same code, sent by a source, runs the same copy.
    pair.link.set_mode(Mode::Cached);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [81]);
}

#[test]
fn a_local_function_is_refused_by_name_while_the_target_lacks_it() {
    let place = Place::new();
    let mut pair = Pair::of(place.target(), place.link().mode(Mode::Local));
    let (tally, echo) = (library("tally"), library("echo"));
    let text = refused(pair.call(&tally, b""), "tally", RefusalCause::CodeMissing);
    assert!(text.contains("`tally`") && text.contains("TargetBuilder::local"), "{text}");
    pair.target.set_local(&tally).unwrap();
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
    refused(pair.call(&echo, b""), "echo", RefusalCause::CodeMissing);
    assert!(pair.target.remove_local("tally") && !pair.target.remove_local("tally"));
    refused(pair.call(&tally, b""), "tally", RefusalCause::CodeMissing);
    // This one is one-way.
    pair.link.send(&tally, b"").unwrap();
    refused(pair.flush(), "tally", RefusalCause::CodeMissing);
}

#[test]
fn a_forbidden_mode_is_refused_and_allowed_modes_continue() {
    let echo = library("echo");
    for forbidden in Mode::ALL {
        let allowed: Vec<_> = Mode::ALL.into_iter().filter(|mode| *mode != forbidden).collect();
        let place = Place::new();
        let mut pair = Pair::of(place.target().local(&echo).modes(&*allowed), place.link());
        for round in 0..3 {
            for mode in &allowed {
                pair.link.set_mode(*mode);
                assert_eq!(
                    *pair.call(&echo, b"yes").unwrap(),
                    *b"yes",
                    "{mode} without {forbidden}, {round}"
                );
            }
            pair.link.set_mode(forbidden);
            // The first frame with code looks the same in two modes; the second does not.
            let mut second = || pair.call(&echo, b"no").and_then(|_| pair.call(&echo, b"no"));
            let text = refused(second(), "echo", RefusalCause::Policy);
            assert!(
                text.contains(&format!("mode {forbidden}")) && text.contains("TargetBuilder::modes"),
                "{text}"
            );
            for mode in &allowed {
                assert!(text.contains(mode.name()), "{text}");
            }
        }
        assert_eq!(pair.target.stats().refused(RefusalCause::Policy), 3);
    }
}

#[test]
fn a_target_that_allows_nothing_refuses_everything_and_serves_on() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().modes([]), place.link());
    for mode in Mode::ALL {
        pair.link.set_mode(mode);
        refused(pair.call(&library("echo"), b""), "echo", RefusalCause::Policy);
    }
}

#[test]
fn every_mode_runs_code_changed_under_its_name_at_once() {
    let (one, two) = (library("twin_one"), library("twin_two"));
    for mode in Mode::ALL {
        let place = Place::new();
        let mut pair = Pair::of(place.target().modes(Mode::ALL), place.link().mode(mode));
        for _ in 0..3 {
            let replies = [&one, &two].map(|library| {
                if mode == Mode::Local {
                    pair.target.set_local(library).unwrap();
                }
                pair.call(library, b"").unwrap().into_vec()
            });
            assert_ne!(replies[0], replies[1], "{mode}");
        }
    }
}

#[test]
fn a_local_function_with_unresolved_imports_fails_the_targets_build() {
    let place = Place::new();
    let built = place.target().local(&library("lookup")).build();
    let text = refused(built, "lookup", RefusalCause::UnresolvedImport);
    assert!(text.contains("`store_"), "{text}");
}
