//! Sources that fork: their children have no part in their links.

use std::process;
use std::ptr;

use farjump::{Error, WaitError};
use farjump_fixtures::forked::in_child;

use crate::Done;
use crate::helper::library;
use crate::source::{FOREVER, LENGTHS, check_replies, link};
use crate::target::Played;

pub(crate) fn forked(backend: &str) -> Done {
    let mut target = Played::start(backend);
    let counter = library("counter");
    let own = link(backend, &target.address).connect().unwrap();
    check_replies(&own, &counter, 8);
    let before = target.count().0;
    let parent = process::id();
    let is_forked = |error: &Error| match error {
        Error::Wait(WaitError::Forked { parent: named, .. }) => *named == parent,
        other => {
            eprintln!("{other}");
            false
        }
    };
    // The parent takes its outcome.
    let pending = own.inject(&counter, &[1; 10]).unwrap().into_raw();
    in_child(|| {
        // SAFETY: the child ends without dropping the original.
        let copy = unsafe { ptr::read(&own) };
        let waited = copy.pending_from_raw(pending).map(|call| call.wait(FOREVER));
        let mut is_refused = waited.is_some_and(|done| done.is_err_and(|error| is_forked(&error)));
        for len in LENGTHS {
            is_refused &= copy.inject(&counter, &vec![1; len]).is_err_and(|error| is_forked(&error));
        }
        drop(copy);
        let childs = link(backend, &target.address).connect().unwrap();
        check_replies(&childs, &counter, 8);
        is_refused
    });
    own.pending_from_raw(pending).unwrap().wait(FOREVER).unwrap();
    check_replies(&own, &counter, 8);
    assert_eq!(target.count().0, before + 1 + 8 + 8);
    Ok(())
}
