//! Sources and targets in C, and one of them in Rust.

use std::path::PathBuf;

use farjump::{Library, Link, Rights, Target};
use tempfile::TempDir;

use crate::installation::ifuncs;
use crate::programs::{Linkage, PATIENCE, Process, compile, start};

/// Output of a successful source in C.
const ALL_WELL: &str = "all is as it should be\n";

/// A folder, and the address in it.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Fixture {
        Fixture(farjump_fixtures::folder())
    }

    fn address(&self) -> String {
        format!("unix:{}", self.0.path().join("t.sock").display())
    }

    fn program(&self, name: &str, linkage: Linkage) -> PathBuf {
        compile(name, linkage, self.0.path())
    }

    /// Returns a target in C that is ready, and serves in this way.
    fn target(&self, linkage: Linkage, serving: &str) -> Process {
        let program = self.program("target", linkage);
        let target = start(&program, [self.address().as_str(), serving], self.0.path());
        assert_eq!(target.line(), "ready");
        target
    }

    fn source(&self, linkage: Linkage) -> Process {
        let program = self.program("source", linkage);
        start(&program, [self.address().into(), ifuncs().as_os_str().to_owned()], self.0.path())
    }
}

/// Runs a source in C through all its cases with a target in C.
fn c_with_c(linkage: Linkage, serving: &str) {
    if !linkage.is_open() {
        return;
    }
    let fixture = Fixture::new();
    let target = fixture.target(linkage, serving);
    assert_eq!(fixture.source(linkage).finish().worked().text(), ALL_WELL);
    let done = target.finish().worked();
    let said = done.text();
    // A refusal of each call that was refused, and no others: 5 is an unresolved import, 10 a missing
    // function.
    assert!(said.contains("joined 4, refused 3 for 0x420"), "{said}");
}

#[test]
fn a_source_in_c_passes_all_cases_with_a_polled_c_target() {
    c_with_c(Linkage::Shared, "poll");
}

#[test]
fn a_target_in_c_runs_until_it_is_stopped() {
    c_with_c(Linkage::Shared, "run");
}

#[test]
fn a_target_in_c_is_handed_to_a_thread_and_comes_back() {
    c_with_c(Linkage::Static, "thread");
}

#[test]
fn a_target_in_c_serves_in_the_programs_own_event_loop() {
    c_with_c(Linkage::Static, "epoll");
}

#[test]
fn source_and_target_in_c_run_clean_under_sanitizers() {
    c_with_c(Linkage::Sanitized, "poll");
    c_with_c(Linkage::Sanitized, "thread");
}

extern "C" fn store_get(rows: *const Vec<u64>, key: u64) -> u64 {
    // SAFETY: injected code passes its target_args on, which is the vector that the target borrows.
    let rows = unsafe { &*rows };
    rows.get(key as usize).copied().unwrap_or(0)
}

static STORE_LIMIT: u64 = 1000;

#[test]
fn a_source_in_c_passes_all_cases_with_a_rust_target() {
    if !Linkage::Shared.is_open() {
        return;
    }
    let fixture = Fixture::new();
    let rows: &'static mut Vec<u64> = Box::leak(Box::new((0..1000).map(|key| key * key).collect()));
    let target = Target::listen(&fixture.address())
        // The source drops code, too.
        .rights(Rights::default() | Rights::DROP)
        .args(rows)
        .export("store_get", store_get as extern "C" fn(_, _) -> _)
        .export_data("store_limit", &STORE_LIMIT)
        .build()
        .unwrap();
    let thread = target.spawn().unwrap();
    assert_eq!(fixture.source(Linkage::Shared).finish().worked().text(), ALL_WELL);
    assert!(thread.stop().unwrap().stats().calls > 2000);
}

#[test]
fn a_target_in_c_replies_to_a_source_in_rust() {
    if !Linkage::Shared.is_open() {
        return;
    }
    let fixture = Fixture::new();
    let target = fixture.target(Linkage::Shared, "run");
    let sum = Library::open(ifuncs().join("libsum.so")).unwrap();
    let link = Link::connect(&fixture.address()).unwrap();
    let keys: Vec<u8> = [3_u64, 4, 5].into_iter().flat_map(u64::to_ne_bytes).collect();
    let reply = link.inject(&sum, &keys).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(reply.into_vec(), 50_u64.to_ne_bytes());
    drop(link);
    let done = target.finish().worked();
    let said = done.text();
    assert!(said.contains("calls 1, joined 1, refused 0"), "{said}");
}
