//! A link and its target keep nothing of libraries that are closed.

use std::fs::{read_dir, read_to_string};

use farjump::{Library, Mode};
use farjump_fixtures::allocation::live;

use crate::support::distinct::Distinct;
use crate::support::{Pair, Place, serve};

/// Different functions called in each way. The first half makes the tables as long as they get.
const FUNCTIONS: u64 = 2000;
/// Capacity of the target's store in images.
const STORED: usize = 32;
/// Limit of the bytes held after the second half beyond those after the first: an eighth of its images. A link keeps
/// some images, and their number varies.
const SLACK: i64 = 1 << 20;

/// Memory mappings and descriptors of this process, and bytes that this thread holds.
fn taken() -> (usize, usize, i64) {
    let mappings = read_to_string("/proc/self/maps").unwrap().lines().count();
    (mappings, read_dir("/proc/self/fd").unwrap().count(), live())
}

/// Calls functions with other numbers in each half. Closes the library of each right after its call, and compares the
/// memory, mappings and descriptors held.
fn run(mode: Mode, open: fn(&mut Distinct, u64) -> Library, call: fn(&mut Pair<'_>, &Library, u64)) {
    let place = Place::new();
    let mut distinct = Distinct::new(&place);
    let target = place.target().modes(Mode::ALL).store_bytes(usize::MAX).store_images(STORED);
    let mut pair = Pair::of(target, place.link().mode(mode));
    let mut half = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let library = open(&mut distinct, number);
            call(&mut pair, &library, number);
        }
        taken()
    };
    let (mappings, descriptors, bytes) = half(0..FUNCTIONS / 2);
    let after = half(FUNCTIONS / 2..FUNCTIONS);
    let grown = after.2 - bytes;
    assert!(grown < SLACK, "{grown} bytes more are held after {} functions more", FUNCTIONS / 2);
    // Other tests of this binary may run in this process, and the allocator maps and unmaps.
    for (before, after) in [(mappings, after.0), (descriptors, after.1)] {
        assert!(after < before + 100, "{before} mappings or descriptors have become {after}");
    }
    assert_eq!(pair.target.stats().refusals(), 0);
    assert_eq!(pair.target.images().len(), STORED);
}

fn call_and_wait(pair: &mut Pair<'_>, library: &Library, number: u64) {
    assert_eq!(*pair.call(library, b"").unwrap(), *Distinct::mark(number));
}

#[test]
fn functions_that_are_called_once_leave_nothing() {
    run(Mode::Cached, Distinct::open, call_and_wait);
}

#[test]
fn functions_of_loaded_libraries_that_are_called_once_leave_nothing() {
    run(Mode::Cached, Distinct::load, call_and_wait);
}

#[test]
fn functions_that_travel_with_each_call_leave_nothing() {
    run(Mode::Always, Distinct::open, call_and_wait);
}

#[test]
fn functions_that_are_called_one_way_leave_nothing() {
    run(Mode::Cached, Distinct::open, |pair, library, number| {
        pair.link.send(library, b"").unwrap();
        serve(&mut pair.target);
        if number % 64 == 0 {
            pair.link.progress().unwrap();
        }
    });
}

#[test]
fn functions_of_cancelled_calls_leave_nothing() {
    run(Mode::Cached, Distinct::open, |pair, library, _| {
        drop(pair.link.inject(library, b"").unwrap());
        serve(&mut pair.target);
        pair.link.progress().unwrap();
    });
}
