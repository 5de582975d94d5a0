//! A source that forks: its child uses none of its links, takes nothing from them, and makes links of its own.

use std::fs;
use std::process;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Error, Link, Mode, WaitError};

use crate::helper::this_test;
use crate::paths::{Path, on_every_path};
use crate::support::{PATIENCE, Place, in_child, library, sequence, words};

/// Checks whether a call failed because the link belongs to the process `parent`.
fn forked<T>(parent: u32) -> impl Fn(Result<T, Error>) -> bool {
    move |done| match done {
        Err(Error::Wait(WaitError::Forked { parent: named, .. })) => named == parent,
        Err(error) => {
            eprintln!("not Forked: {error}");
            false
        }
        Ok(_) => {
            eprintln!("not Forked: it succeeded");
            false
        }
    }
}

fn call(link: &Link, payload: &[u8]) -> Vec<u8> {
    link.inject(&library("echo"), payload).unwrap().wait(PATIENCE).unwrap().to_vec()
}

/// Returns whether each use of the link fails in this child. If there is a `number`, each use of that call has to
/// fail, too.
fn is_of_parent(link: &mut Link, number: Option<u32>, parent: u32) -> bool {
    let (echo, sequence) = (library("echo"), library("sequence"));
    let mut is_refused = true;
    if let Some(number) = number {
        is_refused = link.pending_from_raw(number).is_some_and(|call| forked(parent)(call.wait(PATIENCE)));
    }
    for len in [8, 64, 4000, 1 << 20] {
        is_refused &= forked(parent)(link.inject(&echo, &vec![1; len]).map(drop));
    }
    for mode in [Mode::Cached, Mode::Always] {
        is_refused &= forked(parent)(link.send_in(mode, &sequence, &words(&[0])));
    }
    is_refused
        && forked(parent)(link.flush(PATIENCE))
        && forked(parent)(link.progress())
        && forked(parent)(link.arm())
        && forked(parent)(link.reconnect())
}

/// A copy of the parent's link, which a child drops.
fn copy_of(link: &Link) -> Link {
    // SAFETY: the child ends without dropping the original.
    unsafe { ptr::read(link) }
}

/// Returns whether this child calls over a link of its own. UCX allows none.
fn has_own_link(path: &Path, place: &Place) -> bool {
    match path.link(place).connect() {
        Ok(link) => call(&link, b"child") == b"child",
        Err(error) => path.transport.starts_with("ucx") && error.to_string().contains("forked"),
    }
}

#[test]
fn a_forked_child_cannot_use_its_parents_link_and_makes_its_own() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let _target = path.target(&place);
        let link = path.link(&place).reply_mailbox_size(1 << 24).connect().unwrap();
        assert_eq!(call(&link, b"before"), b"before");
        let ran = sequence(&link);
        let parent = process::id();
        // Its outcome is the parent's.
        let pending = link.inject(&library("echo"), b"parent").unwrap().into_raw();
        in_child(|| {
            let mut link = copy_of(&link);
            is_of_parent(&mut link, Some(pending), parent) && {
                drop(link);
                has_own_link(path, &place)
            }
        });
        let reply = link.pending_from_raw(pending).unwrap().wait(PATIENCE).unwrap();
        assert_eq!(*reply, *b"parent", "{}: the child took a reply", path.name);
        assert_eq!(sequence(&link), ran, "{}: the child called", path.name);
        // A first call in a child that drops the link before any, and its exit handlers.
        in_child(|| {
            drop(copy_of(&link));
            true
        });
        assert_eq!(call(&link, b"after a drop"), b"after a drop");
        in_child(|| process::exit(0));
        for len in [8, 64, 4000, 1 << 20] {
            assert_eq!(call(&link, &vec![7; len]), vec![7; len], "{}", path.name);
        }
        link.flush(Duration::from_secs(60)).unwrap();
    });
}

#[test]
fn a_daemon_cannot_use_a_link_opened_before_and_makes_its_own() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let _target = path.target(&place);
        let done = place.path("done");
        // As daemon(3) does: the process that opened the link ends, and its child lives on in a session of its own.
        in_child(|| {
            let link = path.link(&place).connect().unwrap();
            let (opened, opener) = (call(&link, b"opened") == b"opened", process::id());
            // SAFETY: this process has one thread, and its child acts and ends.
            if unsafe { libc::fork() } == 0 {
                let mut copy = copy_of(&link);
                let answered = is_daemon(opener) && is_of_parent(&mut copy, None, opener);
                drop(copy);
                let answered = answered && has_own_link(path, &place);
                fs::write(place.path("written"), if answered { "yes" } else { "no" }).unwrap();
                fs::rename(place.path("written"), &done).unwrap();
                // SAFETY: the call ends this process, without the test program's exit handlers.
                unsafe { libc::_exit(0) };
            }
            opened
        });
        let deadline = Instant::now() + PATIENCE;
        while !done.exists() {
            assert!(Instant::now() < deadline, "{}: the daemon does not end", path.name);
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::read_to_string(&done).unwrap(), "yes", "{}", path.name);
        assert_eq!(call(&path.link(&place).connect().unwrap(), b"after"), b"after", "{}", path.name);
    });
}

/// Makes this process a leader of a session, and waits until its parent has ended. An alarm ends it if it hangs.
fn is_daemon(parent: u32) -> bool {
    // SAFETY: the calls change this process alone.
    unsafe {
        libc::alarm(60);
        let is_leader = libc::setsid() != -1;
        while libc::getppid() as u32 == parent {
            thread::yield_now();
        }
        is_leader
    }
}
