//! A target whose store is full: the most recently used code stays, and no call is lost.

use farjump::{Library, RefusalCause, TargetBuilder};

use crate::support::{
    Pair, Place, Seen, library, outcome_of, poll_until, refused, to_words, while_polling, words,
};

fn bytes_of(library: &Library) -> usize {
    library.images()[0].bytes().len()
}

fn names(pair: &Pair<'_>) -> Vec<String> {
    let mut names: Vec<_> = pair.target.images().into_iter().map(|held| held.name).collect();
    names.sort();
    names
}

/// A target whose store has capacity for one image.
fn one_image<'a>(place: &Place) -> TargetBuilder<'a> {
    place.target().store_bytes(usize::MAX).store_images(1)
}

#[test]
fn functions_that_evict_each_other_restart_with_every_call() {
    let place = Place::new();
    let (asked, note_asked) = Seen::new();
    let mut pair = Pair::of(one_image(&place).on_code_missing(move |_, _| note_asked(())), place.link());
    let (tally, echo) = (library("tally"), library("echo"));
    for round in 0..20_u64 {
        assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
        assert_eq!(*pair.call(&echo, &words(&[round])).unwrap(), *words(&[round]));
    }
    let stats = pair.target.stats();
    assert_eq!((stats.calls, stats.images_linked, stats.store.evictions, stats.refusals()), (40, 40, 39, 0));
    assert_eq!((stats.frames, stats.store.images, stats.store.bytes), (40, 1, bytes_of(&echo)));
    assert_eq!(asked.all().len(), 38, "the first call of each brought its code");
}

#[test]
fn two_links_over_a_one_image_store_run_calls_in_order() {
    const ROUNDS: u64 = 40;
    /// The numbers that came, by their link.
    type Log = [Vec<u64>; 2];
    extern "C" fn store_get(log: *mut Log, key: u64) -> u64 {
        // SAFETY: the target's arguments are such a log, and one thread runs its calls.
        unsafe { (&mut *log)[(key >> 32) as usize].push(key & 0xffff_ffff) };
        key
    }
    static VERSION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let place = Place::new();
    let mut log = Log::default();
    let target = one_image(&place)
        .args(&mut log)
        .export("store_get", store_get as extern "C" fn(_, _) -> _)
        .export_data("store_version", &VERSION);
    let mut pair = Pair::of(target, place.link());
    let other = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    let (lookup, tally) = (library("lookup"), library("tally"));
    let mut calls = Vec::new();
    for round in 0..ROUNDS {
        for (number, link) in [(0_u64, &pair.link), (1, &other)] {
            calls.push(link.inject(&lookup, &words(&[number << 32 | round])).unwrap());
            calls.push(link.inject(&tally, b"").unwrap());
        }
    }
    for mut call in calls {
        outcome_of(&mut pair.target, &mut call).unwrap();
    }
    let stats = pair.target.stats();
    assert_eq!((stats.calls, stats.refusals(), stats.store.images), (4 * ROUNDS, 0, 1));
    assert!(stats.store.evictions >= 2 * ROUNDS, "{} were dropped", stats.store.evictions);
    drop(pair);
    assert_eq!(log, [(0..ROUNDS).collect::<Vec<_>>(), (0..ROUNDS).collect()]);
}

#[test]
fn code_that_waiting_frames_name_can_be_evicted_and_is_requested_again() {
    let place = Place::new();
    let mut pair = Pair::of(one_image(&place), place.link());
    let other = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    let (tally, echo) = (library("tally"), library("echo"));
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
    // More calls than a link runs in one turn wait when the code of the other link's calls replaces theirs.
    let waiting: Vec<_> = (0..200).map(|_| pair.link.inject(&tally, b"").unwrap()).collect();
    let mut one = other.inject(&echo, b"between").unwrap();
    let mut counts = Vec::new();
    assert_eq!(*outcome_of(&mut pair.target, &mut one).unwrap(), *b"between");
    for mut call in waiting {
        counts.extend(to_words(&outcome_of(&mut pair.target, &mut call).unwrap()));
    }
    let anew = counts.iter().position(|count| *count == 1).expect("the code was dropped between two calls");
    assert!(anew > 0, "some ran before");
    assert_eq!(counts[..anew], (2..2 + anew as u64).collect::<Vec<_>>());
    assert_eq!(counts[anew..], (1..=(200 - anew) as u64).collect::<Vec<_>>());
    assert_eq!(pair.target.stats().calls, 202);
}

#[test]
fn the_function_called_last_stays() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().store_bytes(usize::MAX).store_images(2), place.link());
    let (tally, echo, twin) = (library("tally"), library("echo"), library("twin_one"));
    pair.call(&tally, b"").unwrap();
    pair.call(&echo, b"").unwrap();
    pair.call(&tally, b"").unwrap();
    pair.call(&twin, b"").unwrap();
    assert_eq!(names(&pair), ["tally", "twin"]);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [3], "its statics are there");
}

#[test]
fn a_full_arena_evicts_oldest_code_until_the_new_code_fits() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().arena_size(1 << 20), place.link());
    let (one, two, echo) = (library("bulky_one"), library("bulky_two"), library("echo"));
    pair.call(&one, b"").unwrap();
    pair.call(&echo, b"").unwrap();
    pair.call(&two, b"").unwrap();
    assert_eq!((names(&pair), pair.target.stats().store.evictions), (vec!["bulky".into(), "echo".into()], 1));
    pair.call(&one, b"").unwrap();
    assert_eq!(pair.target.stats().store.evictions, 3, "the oldest is not long enough");
}

#[test]
fn an_image_larger_than_the_store_is_refused_and_evicts_nothing() {
    let place = Place::new();
    let (tally, echo) = (library("tally"), library("echo"));
    let capacity = bytes_of(&echo);
    let mut pair = Pair::of(place.target().store_bytes(capacity).store_images(10), place.link());
    assert_eq!(*pair.call(&echo, b"here").unwrap(), *b"here");
    let text = refused(pair.call(&tally, b""), "tally", RefusalCause::OutOfMemory);
    let (needed, capacity) = (format!("{} bytes", bytes_of(&tally)), format!("{capacity} bytes"));
    assert!(
        text.contains(&needed) && text.contains(&capacity) && text.contains("TargetBuilder::store_bytes"),
        "{text}"
    );
    assert_eq!(*pair.call(&echo, b"still here").unwrap(), *b"still here");
    assert_eq!((pair.target.stats().store.evictions, pair.target.stats().images_linked), (0, 1));
}

#[test]
fn functions_of_the_target_itself_are_never_dropped() {
    let place = Place::new();
    let (tally, echo) = (library("tally"), library("echo"));
    let mut pair = Pair::of(one_image(&place).local(&tally), place.link());
    let error = refused(pair.call(&echo, b""), "echo", RefusalCause::OutOfMemory);
    assert!(error.contains("its store is full, with 1 image of"), "{error}");
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
    // After this the code is not the target's own function, and can be dropped like any other.
    assert!(pair.target.remove_local("tally"));
    let echo_again = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    assert_eq!(*outcome_of(&mut pair.target, &mut echo_again.inject(&echo, b"in").unwrap()).unwrap(), *b"in");
    // A function that is added while the target runs replaces the code that came.
    pair.target.set_local(&tally).unwrap();
    assert_eq!(names(&pair), ["tally"]);
}

#[test]
fn a_call_of_an_ended_source_runs_and_evicts_other_code() {
    let place = Place::new();
    let mut pair = Pair::of(one_image(&place), place.link());
    let other = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    let (tally, echo) = (library("tally"), library("echo"));
    pair.call(&tally, b"").unwrap();
    other.send(&echo, b"last words").unwrap();
    drop(other);
    poll_until(&mut pair.target, |target| target.stats().links_ended > 0);
    assert_eq!((pair.target.stats().calls, pair.target.stats().store.evictions), (2, 1));
    assert_eq!((names(&pair), pair.target.stats().frames), (vec!["echo".into()], 2));
}

#[test]
fn stored_code_shows_its_calls_time_last_use_and_source() {
    let place = Place::new();
    let mut pair = Pair::of(place.target(), place.link());
    let tally = library("tally");
    for _ in 0..1000 {
        pair.call(&tally, b"").unwrap();
    }
    let held = pair.target.images().remove(0);
    assert_eq!((held.calls, held.bytes), (1000, bytes_of(&tally)));
    assert!(!held.time.is_zero());
    assert!(held.source.ends_with(&format!("(pid {})", std::process::id())), "{}", held.source);
    // Time passes, and no call is made.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let later = pair.target.images().remove(0);
    assert!(later.last_use >= std::time::Duration::from_millis(20), "{:?}", later.last_use);
    assert_eq!((later.calls, later.time), (1000, held.time));
}
