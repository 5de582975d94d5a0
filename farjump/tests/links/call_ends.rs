//! A program's work at the end of calls.

use std::cell::Cell;

use farjump::at_call_end;

use crate::support::{Pair, Place, library, panicked};

thread_local! {
    /// Numbers of things that the target's function has lent, and that were given back.
    static LENT: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

fn give_back() {
    LENT.set((0, LENT.get().0 + LENT.get().1));
}

extern "C" fn lend() -> u32 {
    let (lent, back) = LENT.get();
    LENT.set((lent + 1, back));
    u32::from(at_call_end(give_back))
}

#[test]
fn end_of_call_work_runs_once_on_return_and_on_panic() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().export("lend", lend as extern "C" fn() -> _), place.link());
    let lending = library("lending");
    assert_eq!(*pair.call(&lending, b"r").unwrap(), *b"lent");
    assert_eq!(LENT.get(), (0, 2), "the function lends twice");
    assert_eq!(panicked(pair.call(&lending, b"p"), "lending"), "lent");
    assert_eq!(LENT.get(), (0, 4));
    // A call that lends nothing ends without it.
    assert_eq!(*pair.call(&lending, b"n").unwrap(), *b"lent");
    assert_eq!(LENT.get(), (0, 4));
    assert_eq!(lend(), 0, "no call runs here");
    give_back();
}
