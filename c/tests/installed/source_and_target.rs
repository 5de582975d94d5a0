//! Programs with a source and a target in them: detectable errors of C programs, and a target's choices.

use std::collections::BTreeMap;

use farjump::config::{
    ClientConfig, Config, Interfaces, LinkConfig, PublisherConfig, StoreConfig, SubscriberConfig,
    TargetConfig,
};
use tempfile::TempDir;

use crate::installation::ifuncs;
use crate::programs::{Linkage, compile, start};

/// Runs `tests/programs/NAME.c` through all its cases, and checks that it leaves nothing behind.
fn run_cases(name: &str, linkage: Linkage) {
    if !linkage.is_open() {
        return;
    }
    let (folder, empty) = (farjump_fixtures::folder(), TempDir::new().unwrap());
    let program = compile(name, linkage, folder.path());
    let done = start(&program, [ifuncs(), empty.path()], folder.path()).finish().worked();
    assert_eq!(done.text(), "all is as it should be\n");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "a socket was left behind");
}

#[test]
fn each_mistake_in_c_returns_a_status_and_a_message() {
    run_cases("bad_input", Linkage::Shared);
}

#[test]
fn misuse_from_c_neither_leaks_nor_touches_foreign_memory() {
    run_cases("bad_input", Linkage::Sanitized);
}

#[test]
fn a_targets_exports_policy_and_store_follow_the_choices_in_c() {
    run_cases("choices", Linkage::Static);
}

#[test]
fn choices_of_all_kinds_run_clean_under_sanitizers() {
    run_cases("choices", Linkage::Sanitized);
}

/// Returns the options of a configuration that C shows.
fn shown<C: Config>() -> impl Iterator<Item = &'static str> {
    let rows = C::rows().iter().filter(|row| row.info.shown.contains(Interfaces::C));
    rows.map(|row| row.info.name)
}

#[test]
fn the_program_of_choices_sets_each_option_that_c_shows() {
    let program = include_str!("../programs/choices.c");
    let all = shown::<TargetConfig>().chain(shown::<LinkConfig>()).chain(shown::<ClientConfig>());
    let all = all.chain(shown::<StoreConfig>()).chain(shown::<PublisherConfig>());
    let mut times = BTreeMap::new();
    for name in all.chain(shown::<SubscriberConfig>()) {
        *times.entry(name).or_insert(0) += 1;
    }
    let set = |name: &str| program.matches(&format!("{{\"{name}\", ")).count();
    times.retain(|name, times| set(name) != *times);
    assert!(times.is_empty(), "the program sets others, or less often: {times:?}");
}

#[test]
fn a_process_ends_at_once_and_leaves_no_socket() {
    if !Linkage::Shared.is_open() {
        return;
    }
    let folder = farjump_fixtures::folder();
    let program = compile("ending", Linkage::Shared, folder.path());
    let socket = folder.path().join("t.sock");
    let address = format!("unix:{}", socket.display());
    let done = start(&program, [address.as_ref(), ifuncs().as_os_str()], folder.path()).finish();
    assert_eq!((done.code, done.text(), &*done.err), (7, "", ""), "exit handlers print");
    assert!(!socket.exists());
}
