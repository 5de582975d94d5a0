//! A process that forks while it has a target and a link: drops in its child affect the child alone.

use farjump::Error;

use crate::support::{Pair, Place, library, while_polling};

#[test]
fn a_forked_child_is_refused_its_parents_target_and_the_parent_goes_on() {
    let place = Place::new();
    let echo = library("echo");
    let mut pair = Pair::new(&place);
    assert_eq!(*pair.call(&echo, b"before").unwrap(), *b"before");
    let parent = std::process::id();
    // SAFETY: the child calls the target and ends. The locks that it takes are the allocator's, which survives a
    // fork, and its own.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it only ends the child if it hangs.
        unsafe { libc::alarm(60) };
        let expected = format!("the process with pid {parent}, which forked this one");
        let refused =
            |done: Result<(), Error>| done.is_err_and(|error| error.to_string().contains(&expected));
        let target = &mut pair.target;
        let polled = (0..300).map(|_| target.poll().map(drop)).any(refused);
        let all = polled && refused(target.run()) && refused(target.arm().map(drop));
        // SAFETY: it ends the child without the test program's exit code.
        unsafe { libc::_exit(i32::from(!all)) };
    }
    for _ in 0..3 {
        assert_eq!(*pair.call(&echo, b"after").unwrap(), *b"after");
    }
    let mut status = 0;
    // SAFETY: `status` is valid to be written.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child could use the target");
}

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
