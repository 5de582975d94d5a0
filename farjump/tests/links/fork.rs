//! A process that forks while it has a target and a link: drops in its child affect the child alone.

use crate::support::{Pair, Place, library, while_polling};

#[test]
fn a_forked_child_that_drops_a_target_and_a_link_takes_nothing_from_its_parent() {
    let place = Place::new();
    let echo = library("echo");
    let mut pair = Pair::new(&place);
    assert_eq!(*pair.call(&echo, b"before").unwrap(), *b"before");
    // SAFETY: the child drops and ends. The locks that it takes are the allocator's, which survives a fork,
    // and its own.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it only ends the child if it hangs.
        unsafe { libc::alarm(60) };
        drop(pair);
        // SAFETY: it ends the child without the test program's exit code.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid to be written.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");

    // The link continues, also where only its descriptors can wake the target; and other sources find the
    // target.
    for _ in 0..3 {
        assert_eq!(*pair.call(&echo, b"after").unwrap(), *b"after");
        assert_eq!(pair.target.sources(), 1);
    }
    let other = while_polling(&mut pair.target, || place.link().connect().unwrap());
    let replied = {
        let mut pending = other.inject(&echo, b"new").unwrap();
        crate::support::outcome_of(&mut pair.target, &mut pending).unwrap()
    };
    assert_eq!(*replied, *b"new");
    assert_eq!(pair.target.sources(), 2);
}
