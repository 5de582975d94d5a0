//! Exports added to a running target take precedence over all others for code that is linked later. They do not
//! change code that is linked already.

use std::path::PathBuf;
use std::process::Command;

use farjump::{Error, RefusalCause, ServeError};
use farjump_control::RejectCause;

use crate::support::{Pair, Place, id_of, library, refused, rejected, to_words, while_polling, words};

extern "C" fn store_get(_store: *mut u64, key: u64) -> u64 {
    100 + key
}
type StoreGet = extern "C" fn(*mut u64, u64) -> u64;

static STORE_VERSION: u64 = 3;

/// Builds an ordinary shared library of this source.
fn built(place: &Place, name: &str, source: &str) -> PathBuf {
    let (file, library) = (place.path(&format!("{name}.c")), place.path(&format!("{name}.so")));
    std::fs::write(&file, source).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &file]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

const SECOND: &str = "unsigned long store_get(void *s, unsigned long key) { return 200 + key; }";
const THIRD: &str = "unsigned long store_get(void *s, unsigned long key) { return 300 + key; }
                     unsigned long store_version = 40;
                     void farjump_reply(const void *bytes, unsigned long len) {}";

#[test]
fn a_library_brings_symbols_only_to_code_linked_after_it() {
    let place = Place::new();
    let (second, third) = (built(&place, "second", SECOND), built(&place, "third", THIRD));
    let target = place
        .target()
        .allow_export(true)
        .export("store_get", store_get as StoreGet)
        .export_data("store_version", &STORE_VERSION);
    let mut pair = Pair::of(target, place.link());
    let lookup = library("lookup");
    let found = |pair: &mut Pair<'_>| to_words(&pair.call(&lookup, &words(&[5])).unwrap())[0];
    let export = |pair: &mut Pair<'_>, path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        // The target has no file to load.
        std::fs::remove_file(path).unwrap();
        while_polling(&mut pair.target, || place.admin().export("libstore.so", &bytes)).unwrap()
    };
    let id = id_of(&lookup);
    assert_eq!(found(&mut pair), 108);
    assert_eq!(export(&mut pair, &second), ["store_get"]);
    assert_eq!(found(&mut pair), 108, "what is linked keeps what it had");
    assert!(pair.target.drop_code(&id));
    assert_eq!(found(&mut pair), 208);
    assert_eq!(export(&mut pair, &third), ["store_get", "store_version"], "not the service");
    assert_eq!(found(&mut pair), 208);
    assert!(pair.target.drop_code(&id));
    assert_eq!(found(&mut pair), 345, "the latest first; and the service answers still");
    pair.target.export("store_get", store_get as StoreGet).unwrap();
    assert!(pair.target.drop_code(&id));
    assert_eq!(found(&mut pair), 145, "the program itself can go before a library, too");
    assert_eq!(pair.target.stats().refusals(), 0);
}

#[test]
fn a_refused_function_runs_after_a_library_exports_its_missing_symbol() {
    let (place, mut pair) = Pair::start();
    let lookup = library("lookup");
    refused(pair.call(&lookup, &words(&[5])), "lookup", RefusalCause::UnresolvedImport);
    let path = built(&place, "third", THIRD);
    // SAFETY: it was built above, without constructors.
    let replaced = unsafe { pair.target.export_library(path) }.unwrap();
    assert!(replaced.iter().all(|name| name.starts_with("mem")));
    assert_eq!(to_words(&pair.call(&lookup, &words(&[5])).unwrap()), [345]);
}

#[test]
fn safe_code_cannot_export_reserved_names_and_targets_have_those_core_needs() {
    let (_place, mut pair) = Pair::start();
    // Injected code uses these names without declaring a type.
    for name in [
        "memcpy",
        "memmove",
        "memset",
        "memcmp",
        "bcmp",
        "strlen",
        "fmod",
        "fmodf",
        "rawmemchr",
        "wcslen",
        "__udivti3",
        "__stack_chk_fail",
        "_Unwind_Resume",
        "farjump_reply",
    ] {
        let elsewhere = Place::new();
        let reserved = |result: Result<(), Error>| match result {
            Err(error @ Error::Serve(ServeError::ReservedExport { .. })) => {
                let text = error.to_string();
                assert!(text.contains(&format!("`{name}` cannot be exported")), "{text}");
                assert_eq!(text.contains("export_raw"), name != "farjump_reply", "{text}");
            }
            other => panic!("{name}: {other:?}"),
        };
        reserved(elsewhere.target().export(name, store_get as StoreGet).build().map(drop));
        reserved(elsewhere.target().export_data(name, &STORE_VERSION).build().map(drop));
        reserved(pair.target.export(name, store_get as StoreGet));
        reserved(pair.target.exports([farjump::Export::new(name, store_get as StoreGet)]));
        reserved(pair.target.export_data(name, &STORE_VERSION));
        if name != "farjump_reply" {
            // SAFETY: no code comes that calls it.
            drop(unsafe { elsewhere.target().export_raw(name, store_get as *const _) }.build().unwrap());
        }
    }
    pair.target.exports([farjump::export!(store_get(_, _))]).unwrap();
    assert_eq!(to_words(&pair.call(&library("texts"), b"abcd\0abcd\0").unwrap()), [4, 0, 1]);
}

#[test]
fn a_target_that_allows_no_export_rejects_libraries_with_the_remedy() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().export("store_get", store_get as StoreGet), place.link());
    let admin = place.admin();
    // The target does not even read a long name.
    for len in [16, 1 << 20] {
        let exported = while_polling(&mut pair.target, || admin.export("x", &vec![0; len]));
        let text = rejected(exported, RejectCause::Rights);
        assert!(text.contains("the right `export`") && text.contains("add `+export`"), "{text}");
    }
}

#[test]
fn an_unloadable_library_is_refused_with_the_reason_and_changes_nothing() {
    let place = Place::new();
    let target = place.target().allow_export(true).export("store_get", store_get as StoreGet);
    let mut pair = Pair::of(target.export_data("store_version", &STORE_VERSION), place.link());
    let admin = place.admin();
    let lost = built(&place, "lost", "int nowhere(void); int store_get(void) { return nowhere(); }");
    for (bytes, said) in [
        (Vec::new(), "it is an empty file"),
        (vec![7; 200_000], "it is not an ELF file"),
        (std::fs::read(lost).unwrap(), "undefined symbol: nowhere"),
    ] {
        let error = while_polling(&mut pair.target, || admin.export("libodd.so\x1b", &bytes)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("cannot load `libodd.so?`") && text.contains(said), "{text}");
    }
    assert_eq!(to_words(&pair.call(&library("lookup"), &words(&[5])).unwrap()), [108]);
}
