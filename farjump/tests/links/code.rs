//! Code: it travels once, is found again after a restart, keeps its statics, and links against the exports.

use std::sync::atomic::AtomicU64;

use farjump::{Error, Library, Link, RefusalCause, WaitError};

use crate::support::{
    PATIENCE, Pair, Place, Seen, id_of, library, meanwhile, outcome_of, refused, serve, to_words,
    while_polling, words,
};

extern "C" fn store_get(_store: *mut u64, key: u64) -> u64 {
    key * 10
}

static STORE_VERSION: AtomicU64 = AtomicU64::new(3);

type StoreGet = extern "C" fn(*mut u64, u64) -> u64;

fn len_of(library: &Library) -> u64 {
    library.images()[0].bytes().len() as u64
}

#[test]
fn code_travels_once_on_a_link_and_later_frames_carry_none() {
    let (place, mut pair) = Pair::start();
    let (echo, tally) = (library("echo"), library("tally"));
    for round in 0..50 {
        pair.call(&echo, b"x").unwrap();
        pair.call(&tally, b"").unwrap();
        pair.link.send(&tally, b"").unwrap();
        let stats = pair.link.stats();
        assert_eq!(stats.frames, 3 * (round + 1));
        assert_eq!(stats.frames_with_code, 2);
        assert_eq!(stats.code_bytes, len_of(&echo) + len_of(&tally));
    }
    assert_eq!(pair.target.stats().images_linked, 2);
    // Another link has to send it again, and the target recognizes it.
    let other = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    outcome_of(&mut pair.target, &mut other.inject(&echo, b"y").unwrap()).unwrap();
    assert_eq!(other.stats().code_bytes, len_of(&echo));
    assert_eq!(pair.target.stats().images_linked, 2);
}

#[test]
fn the_target_reports_link_time_only_for_code_it_linked() {
    let (_place, mut pair) = Pair::start();
    let (echo, tally) = (library("echo"), library("tally"));
    pair.call(&echo, b"").unwrap();
    let Pair { link, mut target } = pair;
    let reported = meanwhile(&mut target, move || {
        assert_eq!(link.link_time(&tally, PATIENCE).unwrap(), None, "it was never sent");
        link.link_time(&echo, PATIENCE).unwrap().unwrap()
    });
    assert_eq!(reported, target.images()[0].link_time);
}

#[test]
fn sources_share_one_copy_of_statics_until_the_target_forgets_the_code() {
    let place = Place::new();
    let (asked, note_asked) = Seen::new();
    let (reported, note_reported) = Seen::new();
    let mut pair = Pair::of(
        place.target().on_code_missing(move |_, id| note_asked(*id)),
        place.link().on_code_missing(move |name| note_reported(name.to_owned())),
    );
    let other = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    let tally = library("tally");
    for round in 0..10 {
        assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [2 * round + 1]);
        let mut call = other.inject(&tally, b"").unwrap();
        assert_eq!(to_words(&outcome_of(&mut pair.target, &mut call).unwrap()), [2 * round + 2]);
    }
    let id = id_of(&tally);
    assert_eq!(pair.target.images().iter().map(|held| held.id).collect::<Vec<_>>(), [id]);
    assert!(pair.target.drop_code(&id));
    assert!(!pair.target.drop_code(&id), "it is held no longer");
    assert_eq!(pair.target.images(), []);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1], "statics are as they were at first");
    assert_eq!((asked.all(), reported.all()), (vec![id], vec!["tally".to_owned()]));
    let mut call = other.inject(&tally, b"").unwrap();
    assert_eq!(to_words(&outcome_of(&mut pair.target, &mut call).unwrap()), [2]);
    assert_eq!(asked.all(), [id, id], "the other link is asked for itself");
    assert_eq!(pair.target.stats().images_linked, 2);
}

#[test]
fn code_of_one_name_from_two_sources_runs_each_its_own() {
    let (place, mut pair) = Pair::start();
    let other = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    let (one, two) = (library("twin_one"), library("twin_two"));
    assert_eq!((one.name(), two.name()), ("twin", "twin"));
    for _ in 0..10 {
        assert_eq!(*pair.call(&one, b"").unwrap(), *b"one");
        let mut call = other.inject(&two, b"").unwrap();
        assert_eq!(*outcome_of(&mut pair.target, &mut call).unwrap(), *b"the other");
    }
    // The same for two libraries of one source.
    assert_eq!(*pair.call(&two, b"").unwrap(), *b"the other");
    assert_eq!(*pair.call(&one, b"").unwrap(), *b"one");
    assert_eq!(pair.target.images().len(), 2);
}

#[test]
fn an_unresolved_import_refuses_every_call_with_a_suggested_symbol() {
    let place = Place::new();
    let (reported, note_reported) = Seen::new();
    let mut pair = Pair::of(
        place
            .target()
            .export("stroe_get", store_get as StoreGet)
            .export_data("store_version", &STORE_VERSION)
            .on_refused(move |_, refusal| note_reported(refusal.clone())),
        place.link(),
    );
    let (lookup, echo) = (library("lookup"), library("echo"));
    // The first carries the code. The source sends the calls behind it before it knows of the refusal, and they name
    // the code by its index.
    let calls: Vec<_> = (0..5).map(|key| pair.link.inject(&lookup, &words(&[key])).unwrap()).collect();
    assert_eq!(pair.link.stats().frames_with_code, 1);
    let mut texts = Vec::new();
    for mut call in calls {
        let outcome = outcome_of(&mut pair.target, &mut call);
        texts.push(refused(outcome, "lookup", RefusalCause::UnresolvedImport));
    }
    let expected = "the target refused `lookup`: it exports no `store_get` (it offers store_version, stroe_get, bcmp, farjump_again, farjump_forward, farjump_inject, farjump_make, farjump_new_object, farjump_object, farjump_panic, \
                    farjump_private_copy, farjump_reply, 5 more; \
                    did you mean stroe_get?). Have the target export it (Target::export, TargetBuilder::export_library).";
    assert_eq!(texts, [expected; 5]);
    assert_eq!(reported.all().iter().map(ToString::to_string).collect::<Vec<_>>(), [expected; 5]);
    assert_eq!(pair.target.stats().refused(RefusalCause::UnresolvedImport), 5);
    assert_eq!(pair.target.stats().calls, 0);
    let error = pair.call(&lookup, &words(&[1])).unwrap_err();
    assert_eq!(error.to_string(), expected, "and so is one sent after that");
    assert_eq!(*pair.call(&echo, b"served on").unwrap(), *b"served on");
}

#[test]
fn exported_functions_and_data_are_found_with_the_arguments_of_the_target() {
    let place = Place::new();
    let mut store = 5_u64;
    let mut pair = Pair::of(
        place
            .target()
            .args(&mut store)
            .export("store_get", store_get as StoreGet)
            .export_data("store_version", &STORE_VERSION),
        place.link(),
    );
    let lookup = library("lookup");
    assert_eq!(to_words(&pair.call(&lookup, &words(&[7])).unwrap()), [73]);
}

#[test]
fn exports_win_over_libraries_and_process_symbols_resolve_only_if_allowed() {
    extern "C" fn odd_root(x: f64) -> f64 {
        x + 0.5
    }
    let place = Place::new();
    let (root, identity) = (library("root"), library("identity"));
    let refused = |pair: &mut Pair<'_>, library: &Library, symbol: &str| {
        let error = pair.call(library, &27_f64.to_ne_bytes()).unwrap_err();
        assert!(error.to_string().contains(&format!("exports no `{symbol}`")), "{error}");
    };
    let root_of_27 = |pair: &mut Pair<'_>| {
        let reply = pair.call(&root, &27_f64.to_ne_bytes()).unwrap();
        f64::from_ne_bytes(reply[..].try_into().unwrap())
    };

    let mut pair = Pair::new(&place);
    refused(&mut pair, &root, "cbrt");
    refused(&mut pair, &identity, "getpid");
    drop(pair);
    // SAFETY: it is the system's library.
    let with_libm = || unsafe { place.target().export_library("libm.so.6") };
    let mut pair = Pair::of(with_libm(), place.link());
    assert!((root_of_27(&mut pair) - 3.0).abs() < 1e-9);
    refused(&mut pair, &identity, "getpid");
    drop(pair);
    let exported = with_libm().export("cbrt", odd_root as extern "C" fn(_) -> _);
    let mut pair = Pair::of(exported, place.link());
    assert_eq!(root_of_27(&mut pair), 27.5, "exports win");
    drop(pair);
    let mut pair = Pair::of(place.target().process_symbols(true), place.link());
    let pid = pair.call(&identity, b"").unwrap();
    assert_eq!(*pid, std::process::id().to_ne_bytes());
}

/// Restarts the target of `pair` at its address, and reconnects.
fn restart<'a>(pair: Pair<'a>, place: &Place, target: farjump::TargetBuilder<'a>) -> Pair<'a> {
    let Pair { mut link, target: old } = pair;
    let epoch = link.epoch();
    drop(old);
    assert!(
        matches!(link.progress(), Err(Error::Wait(WaitError::PeerGone { .. }))),
        "{} has ended",
        place.address()
    );
    let mut target = target.build().unwrap();
    while_polling(&mut target, || link.reconnect()).unwrap();
    assert_ne!(link.epoch(), epoch);
    Pair { link, target }
}

#[test]
fn a_restarted_target_requests_missing_code_and_runs_all_frames_in_order() {
    let place = Place::new();
    let (asked, note_asked) = Seen::new();
    let (reported, note_reported) = Seen::new();
    let note_reported = move |name: &str| note_reported(name.to_owned());
    let mut pair = Pair::of(place.target(), place.link().on_code_missing(note_reported));
    let (sequence, echo) = (library("sequence"), library("echo"));
    pair.call(&sequence, &words(&[0])).unwrap();
    pair.call(&echo, b"before").unwrap();
    let before = pair.link.stats();

    let target = place.target().on_code_missing(move |_, id| note_asked(*id));
    let mut pair = restart(pair, &place, target);
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let call = pair.link.inject(&sequence, &words(&[number])).unwrap();
            (number, call, pair.link.inject(&echo, &words(&[number])).unwrap())
        })
        .collect();
    let sent = pair.link.stats();
    assert_eq!(sent.frames_with_code, before.frames_with_code, "after a reconnect ids travel, not code");
    assert_eq!(serve(&mut pair.target), 1, "the first frame waits for its code, and the others behind it");
    assert_eq!(pair.target.stats().calls, 0);
    for (number, mut counted, mut echoed) in calls {
        assert_eq!(to_words(&outcome_of(&mut pair.target, &mut counted).unwrap()), [number + 1, 0]);
        assert_eq!(*outcome_of(&mut pair.target, &mut echoed).unwrap(), *words(&[number]));
    }
    let ids = [&sequence, &echo].map(id_of);
    assert_eq!(asked.all(), ids, "each is asked for once");
    assert_eq!(reported.all(), ["sequence", "echo"]);
    assert_eq!(pair.link.stats().code_bytes, 2 * (len_of(&sequence) + len_of(&echo)));
}

#[test]
fn a_restarted_target_without_the_export_refuses_each_call_after_one_request() {
    let place = Place::new();
    let offering = |target: farjump::TargetBuilder<'static>| {
        target.export("store_get", store_get as StoreGet).export_data("store_version", &STORE_VERSION)
    };
    let mut pair = Pair::of(offering(place.target()), place.link());
    let lookup = library("lookup");
    assert_eq!(to_words(&pair.call(&lookup, &words(&[1])).unwrap()), [13]);
    let (asked, note_asked) = Seen::new();
    let mut pair = restart(pair, &place, place.target().on_code_missing(move |_, _| note_asked(())));
    let calls: Vec<_> = (0..3).map(|key| pair.link.inject(&lookup, &words(&[key])).unwrap()).collect();
    for mut call in calls {
        refused(outcome_of(&mut pair.target, &mut call), "lookup", RefusalCause::UnresolvedImport);
    }
    assert_eq!(asked.all().len(), 1);
    // A target with the export runs it.
    let mut pair = restart(pair, &place, offering(place.target()));
    assert_eq!(to_words(&pair.call(&lookup, &words(&[2])).unwrap()), [23]);
}

#[test]
fn a_target_that_keeps_the_code_requests_none_after_a_reconnect() {
    for transport in ["shm", "tcp"] {
        let place = Place::new();
        let (asked, note_asked) = Seen::new();
        let target = place.target().transport(transport).on_code_missing(move |_, _| note_asked(()));
        let mut pair = Pair::of(target, place.link().transport(transport));
        let tally = library("tally");
        pair.call(&tally, b"").unwrap();
        for made in 2..5 {
            let Pair { link, target } = &mut pair;
            while_polling(target, || link.reconnect()).unwrap();
            assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [made]);
        }
        let sent = pair.link.stats();
        assert_eq!((asked.all().len(), sent.frames_with_code, sent.code_bytes), (0, 1, len_of(&tally)));
        assert_eq!(pair.target.stats().images_linked, 1);
    }
}

#[test]
fn a_failed_reconnect_leaves_the_link_usable_and_a_later_one_succeeds() {
    let (place, mut pair) = Pair::start();
    let echo = library("echo");
    pair.call(&echo, b"").unwrap();
    let Pair { mut link, target } = pair;
    let address = place.address();
    let moved = place.path("moved.sock");
    std::fs::rename(place.path("t.sock"), &moved).unwrap();
    let error = link.reconnect().unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
    let mut pair = Pair { link, target };
    assert_eq!(*pair.call(&echo, b"still here").unwrap(), *b"still here");
    std::fs::rename(&moved, place.path("t.sock")).unwrap();
    let Pair { link, target } = &mut pair;
    while_polling(target, || link.reconnect()).unwrap();
    assert_eq!(*pair.call(&echo, b"and here").unwrap(), *b"and here");
    while pair.target.stats().links_ended == 0 {
        pair.serve();
    }
    assert_eq!((pair.target.stats().links, pair.target.sources()), (2, 1));
}

#[test]
fn many_sources_share_a_target_at_once() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let (echo, tally) = (library("echo"), library("tally"));
    let addresses: Vec<String> = (0..8).map(|_| place.address()).collect();
    meanwhile(&mut target, || {
        std::thread::scope(|scope| {
            for (source, address) in addresses.iter().enumerate() {
                let (echo, tally) = (&echo, &tally);
                scope.spawn(move || {
                    let link = Link::connect(address).unwrap();
                    for round in 0..200_u64 {
                        let message = words(&[source as u64, round]);
                        assert_eq!(*link.inject(echo, &message).unwrap().wait(PATIENCE).unwrap(), *message);
                        link.send(tally, b"").unwrap();
                    }
                    link.flush(PATIENCE).unwrap();
                });
            }
        });
    });
    assert_eq!(target.stats().calls, 8 * 400);
    assert_eq!(target.stats().images_linked, 2);
    let link = while_polling(&mut target, || place.link().connect()).unwrap();
    let mut call = link.inject(&tally, b"").unwrap();
    assert_eq!(to_words(&outcome_of(&mut target, &mut call).unwrap()), [8 * 200 + 1]);
}
