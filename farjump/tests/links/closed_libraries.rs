//! Libraries that are closed or rebuilt while a link remembers their code.

use farjump::{Library, Mode, RefusalCause};

use crate::support::distinct::Distinct;
use crate::support::{Pair, Place, Seen, id_of, library, outcome_of, serve};

/// More functions than a link uses indexes for when their libraries are closed.
const MANY: u64 = 1000;

#[test]
fn calls_that_wait_for_code_of_closed_libraries_get_it() {
    let place = Place::new();
    let mut distinct = Distinct::new(&place);
    let mut pair = Pair::new(&place);
    for round in 0..3 {
        let numbers: Vec<_> = (round * 100..round * 100 + 100).collect();
        let mut calls = Vec::new();
        for &number in &numbers {
            let library = distinct.open(number);
            pair.call(&library, b"").unwrap();
        }
        for held in pair.target.images() {
            pair.target.drop_code(&held.id);
        }
        let libraries: Vec<_> = numbers.iter().map(|&number| distinct.open(number)).collect();
        for library in libraries {
            calls.push(pair.link.inject(&library, b"").unwrap());
            pair.link.send(&library, b"").unwrap();
        }
        for (number, mut call) in numbers.into_iter().zip(calls) {
            assert_eq!(*outcome_of(&mut pair.target, &mut call).unwrap(), *Distinct::mark(number));
        }
    }
    pair.flush().unwrap();
    assert_eq!(pair.target.stats().refusals(), 0);
}

#[test]
fn a_refusal_names_its_function_whatever_was_closed_meanwhile() {
    let place = Place::new();
    let (reported, note_reported) = Seen::new();
    let mut distinct = Distinct::new(&place);
    let link = place.link().on_refused(move |refusal| note_reported(refusal.clone()));
    let mut pair = Pair::of(place.target(), link);
    let mut wrong = 0;
    for number in 0..MANY {
        if number % 10 == 0 {
            // The test closes its library before it reads the refusal, and its index becomes another function's.
            let lookup = Library::open(library("lookup").path()).unwrap();
            pair.link.send(&lookup, &[0; 8]).unwrap();
            wrong += 1;
        }
        let library = distinct.open(number);
        assert_eq!(*pair.call(&library, b"").unwrap(), *Distinct::mark(number));
        if number % 100 == 99 {
            let error = pair.flush().unwrap_err();
            assert!(error.to_string().contains("refused `lookup`"), "{error}");
        }
    }
    let reported = reported.all();
    assert_eq!(reported.len(), wrong);
    assert!(reported.iter().all(|refusal| refusal.cause == RefusalCause::UnresolvedImport));
}

#[test]
fn code_of_open_libraries_travels_once_while_others_are_closed() {
    let place = Place::new();
    let mut distinct = Distinct::new(&place);
    let mut pair = Pair::new(&place);
    let open: Vec<_> = (0..300).map(|number| distinct.open(number)).collect();
    for number in 300..300 + MANY {
        let library = distinct.open(number);
        assert_eq!(*pair.call(&library, b"").unwrap(), *Distinct::mark(number));
        let number = number % 300;
        assert_eq!(*pair.call(&open[number as usize], b"").unwrap(), *Distinct::mark(number));
    }
    // Each travelled once.
    assert_eq!(pair.link.stats().frames_with_code, 300 + MANY);
    // A function whose library was closed long ago travels again; one whose library was closed just now does not.
    pair.call(&distinct.open(300), b"").unwrap();
    pair.call(&distinct.open(300), b"").unwrap();
    assert_eq!(pair.link.stats().frames_with_code, 301 + MANY);
}

#[test]
fn unawaited_calls_outlive_their_libraries_and_calls_run_after_a_reconnect() {
    let place = Place::new();
    let mut distinct = Distinct::new(&place);
    let mut pair = Pair::new(&place);
    for number in 0..MANY {
        drop(pair.link.inject(&distinct.open(number), b"").unwrap());
        serve(&mut pair.target);
        if number % 7 == 0 {
            pair.link.progress().unwrap();
        }
    }
    assert_eq!((pair.target.stats().calls, pair.target.stats().refusals()), (MANY, 0));
    let Pair { mut link, mut target } = pair;
    crate::support::while_polling(&mut target, || link.reconnect()).unwrap();
    let mut pair = Pair { link, target };
    for number in 0..MANY {
        let library = distinct.open(number);
        assert_eq!(*pair.call(&library, b"").unwrap(), *Distinct::mark(number));
    }
}

/// Opens the library at a path.
type Open = fn(&mut Distinct, u64) -> Library;

#[test]
fn a_rebuilt_library_runs_its_new_code_beside_the_old_one() {
    let place = Place::new();
    let mut distinct = Distinct::new(&place);
    let mut pair = Pair::of(place.target().modes(Mode::ALL), place.link());
    let ways: [Open; 2] = [Distinct::open, Distinct::load];
    let mut number = 0;
    for mode in [Mode::Cached, Mode::Always, Mode::InPlace] {
        for before in ways {
            for after in ways {
                pair.link.set_mode(mode);
                number += 2;
                let old = before(&mut distinct, number);
                assert_eq!(*pair.call(&old, b"").unwrap(), *Distinct::mark(number), "{mode}");
                let new = after(&mut distinct, number + 1);
                assert_ne!(id_of(&old), id_of(&new));
                for _ in 0..3 {
                    assert_eq!(*pair.call(&new, b"").unwrap(), *Distinct::mark(number + 1), "{mode}");
                    assert_eq!(*pair.call(&old, b"").unwrap(), *Distinct::mark(number), "{mode}");
                }
                drop(old);
                assert_eq!(*pair.call(&new, b"").unwrap(), *Distinct::mark(number + 1), "{mode}");
            }
        }
    }
}

#[test]
fn a_target_runs_the_new_code_of_its_own_rebuilt_library() {
    let place = Place::new();
    let mut distinct = Distinct::new(&place);
    let first = distinct.open(1);
    let target = place.target().modes(Mode::ALL).local(&first);
    let mut pair = Pair::of(target, place.link().mode(Mode::Local));
    assert_eq!(*pair.call(&first, b"").unwrap(), *Distinct::mark(1));
    for number in 2..50 {
        pair.target.set_local(&distinct.open(number)).unwrap();
        assert_eq!(*pair.call(&first, b"").unwrap(), *Distinct::mark(number));
    }
}
