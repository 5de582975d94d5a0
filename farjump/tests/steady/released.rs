//! A dropped link or target releases everything that it held.

use std::fs::read_to_string;

use farjump::Library;

use crate::counting::held;
use crate::support::{PATIENCE, Place, library_path, words};

#[test]
fn a_link_and_a_library_that_are_gone_hold_nothing() {
    let place = Place::new();
    let target = place.target().build().unwrap().spawn().unwrap();
    let path = library_path("shrinking");
    let mapped = || read_to_string("/proc/self/maps").unwrap().contains(path.to_str().unwrap());
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
    // A thread that is started to close descriptors itself frees its allocation of this thread, which happens
    // once in a while. A leak shows in each turn.
    let (mut before, mut steady) = (held(), 0);
    for round in 0..60 {
        turn();
        assert!(!mapped(), "the library is loaded after round {round}");
        steady = if held() == before { steady + 1 } else { 0 };
        before = held();
        if steady == 5 {
            break;
        }
    }
    assert_eq!(steady, 5, "bytes are held after each round");
    drop(target.stop().unwrap());
}
