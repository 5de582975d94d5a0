//! Dropping a link or a target releases all of its resources.

use std::fs::read_to_string;

use farjump::Library;
use farjump_fixtures::allocation::live;

use crate::support::{PATIENCE, Place, library_path, words};

#[test]
fn a_link_and_a_library_that_are_gone_hold_nothing() {
    let place = Place::new();
    let target = place.target().build().unwrap().spawn().unwrap();
    let path = library_path("shrinking");
    let copy = format!("/memfd:{} ", path.file_name().unwrap().to_str().unwrap());
    let mapped = || read_to_string("/proc/self/maps").unwrap().contains(&copy);
    let wish = words(&[8, 8, 8, 0]);
    let turn = || {
        let echo = Library::open(library_path("echo")).unwrap();
        // SAFETY: it is built from a source of these tests.
        let shrinking = unsafe { Library::load(&path) }.unwrap();
        let link = place.link().connect().unwrap();
        for _ in 0..3 {
            assert_eq!(*link.inject(&echo, b"bytes").unwrap().wait(PATIENCE).unwrap(), *b"bytes");
            assert_eq!(*link.inject(&shrinking, &wish).unwrap().wait(PATIENCE).unwrap(), words(&[8])[..]);
        }
        assert!(mapped());
    };
    // Allocations that the process makes once: files of the tests, tables of the dynamic linker.
    (0..3).for_each(|_| turn());
    // The count varies: now and then a thread that closes descriptors frees its own allocation of this thread's, and
    // names of closed libraries are dropped a few at a time. A leak raises even the lowest count of several rounds.
    const WINDOW: usize = 8;
    let mut after = Vec::new();
    let steady = (0..60).any(|round| {
        turn();
        assert!(!mapped(), "the library is loaded after round {round}");
        after.push(live());
        let lowest = |rounds: &[i64]| rounds.iter().copied().min();
        let (earlier, later) = after.split_at(after.len().saturating_sub(WINDOW));
        earlier.len() >= WINDOW && lowest(later) <= lowest(&earlier[earlier.len() - WINDOW..])
    });
    assert!(steady, "bytes are held after each round: {after:?}");
    drop(target.stop().unwrap());
}
