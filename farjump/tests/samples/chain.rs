//! `chain`, in C and in Rust, over rings of targets whose data is of known lengths.

use std::fs;

use farjump::{Data, Error, Link, Target, TargetThread, WaitPolicy};

use crate::support::{PATIENCE, Place, library, to_words};

const LANGUAGES: [&str; 2] = ["chain", "chain.rs"];

fn address(place: &Place, number: usize) -> String {
    place.address_of(&format!("{number}.sock"))
}

/// Number of bytes of data of the target with this number.
fn len(number: usize) -> u64 {
    (number * number * 1000 + 3) as u64
}

/// Targets whose destination `next` is the one after them; the last target of an open chain has none.
fn targets(place: &Place, count: usize, closed: bool) -> Vec<TargetThread> {
    let target = |number| {
        let file = place.path(&format!("{number}.data"));
        fs::write(&file, vec![b'x'; len(number) as usize]).unwrap();
        let data = Box::leak(Box::new(Data::open(&file).unwrap()));
        let mut target = Target::listen(&address(place, number)).args(data).wait_policy(WaitPolicy {
            spins: 10,
            pauses: 0,
            events: 0,
            yields: 0,
        });
        if closed || number + 1 < count {
            target = target.destination("next", &address(place, (number + 1) % count));
        }
        target.build().unwrap().spawn().unwrap()
    };
    (0..count).map(target).collect()
}

fn visit(link: &Link, language: &str, count: usize) -> Result<Vec<u64>, Error> {
    let reply = link.inject(&library(language), count.to_string().as_bytes())?.wait(PATIENCE)?;
    Ok(to_words(&reply))
}

#[test]
fn a_chain_visits_a_ring_of_any_size_in_order() {
    for ring in [1, 2, 3, 8] {
        let place = Place::new();
        let targets = targets(&place, ring, true);
        let link = Link::connect(&address(&place, 0)).unwrap();
        for language in LANGUAGES {
            for count in [1, 2, 3, 8, 9, 100] {
                let expected: Vec<_> = (0..count).map(|visit| len(visit % ring)).collect();
                assert_eq!(visit(&link, language, count).unwrap(), expected, "{language}, a ring of {ring}");
            }
        }
        drop(targets);
    }
}

#[test]
fn a_chain_that_ends_early_says_so_to_the_first_source() {
    let place = Place::new();
    let targets = targets(&place, 3, false);
    let link = Link::connect(&address(&place, 0)).unwrap();
    for language in LANGUAGES {
        assert_eq!(visit(&link, language, 3).unwrap(), [0, 1, 2].map(len));
        let error = visit(&link, language, 4).unwrap_err().to_string();
        let text =
            "panicked at the target: this target has no destination `next`, and there are more to visit";
        assert!(error.contains(text), "{error}");
    }
    drop(targets);
}

#[test]
fn arguments_that_are_no_number_of_targets_are_not_sent() {
    let place = Place::new();
    let targets = targets(&place, 1, true);
    let link = Link::connect(&address(&place, 0)).unwrap();
    for language in LANGUAGES {
        for args in ["", "0", "257", "99999999999999999999", "-1", "three", "3 "] {
            let error = link.inject(&library(language), args.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, "the payload routine of `chain` failed with 1: nothing was sent", "{args:?}");
        }
        assert_eq!(visit(&link, language, 256).unwrap(), [3; 256]);
    }
    drop(targets);
}
