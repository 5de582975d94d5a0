//! A process that forks while it has a target and a link: polls and drops in its child affect the child alone.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farjump::{Error, ServeError};
use rustix::mm::{MapFlags, ProtFlags};

use crate::support::{Pair, Place, in_child, library, outcome_of, while_polling, words};

/// Checks whether a call failed because the target belongs to the process `parent`.
fn forked<T>(parent: u32) -> impl Fn(Result<T, Error>) -> bool {
    move |done| matches!(done, Err(Error::Serve(ServeError::Forked { parent: named })) if named == parent)
}

/// A counter that this process and its children share.
fn shared_counter() -> &'static AtomicU64 {
    // SAFETY: the mapping is a new one.
    let page = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap_anonymous(ptr::null_mut(), 4096, protection, MapFlags::SHARED).unwrap()
    };
    // SAFETY: the page is zeroed, and stays mapped until the process ends.
    unsafe { AtomicU64::from_ptr(page.cast()) }
}

/// Counts its calls, in all processes.
extern "C" fn store_get(calls: *mut &'static AtomicU64, key: u64) -> u64 {
    // SAFETY: the target's arguments are such a reference.
    unsafe { *calls }.fetch_add(1, Ordering::Relaxed);
    key
}

#[test]
fn a_forked_child_runs_no_frame_and_its_parent_runs_each_once() {
    const ARRIVED: u64 = 3;
    static VERSION: u64 = 0;
    let parent = std::process::id();
    for transport in ["shm", "tcp"] {
        let place = Place::new();
        let calls = shared_counter();
        let mut args = calls;
        let target = place
            .target()
            .transport(transport)
            .args(&mut args)
            .export("store_get", store_get as extern "C" fn(_, _) -> _)
            .export_data("store_version", &VERSION);
        let mut pair = Pair::of(target, place.link().transport(transport));
        let lookup = library("lookup");
        // The code is bound, and the source counts as busy.
        assert_eq!(*pair.call(&lookup, &words(&[9])).unwrap(), *words(&[9]));
        let mut pending: Vec<_> =
            (0..ARRIVED).map(|key| pair.link.inject(&lookup, &words(&[key])).unwrap()).collect();
        let target = &mut pair.target;
        in_child(|| {
            forked(parent)(target.poll())
                && forked(parent)(target.poll())
                && forked(parent)(target.run())
                && forked(parent)(target.wait(Duration::ZERO))
                && forked(parent)(target.arm())
                && target.stats().frames == 1
        });
        assert_eq!(calls.load(Ordering::Relaxed), 1, "{transport}: the child ran a frame");
        for (key, call) in pending.iter_mut().enumerate() {
            assert_eq!(*outcome_of(target, call).unwrap(), *words(&[key as u64]), "{transport}");
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1 + ARRIVED, "{transport}: each frame ran once");
    }
}

#[test]
fn a_forked_child_serves_by_its_own_target_but_no_inherited_one() {
    let place = Place::new();
    let mut pair = Pair::new(&place);
    let echo = library("echo");
    assert_eq!(*pair.call(&echo, b"before").unwrap(), *b"before");
    let first = std::process::id();
    in_child(|| {
        let child_place = Place::new();
        let mut own = Pair::new(&child_place);
        let served = own.call(&echo, b"child").is_ok_and(|reply| *reply == *b"child");
        let child = std::process::id();
        in_child(|| forked(child)(own.target.poll()) && forked(first)(pair.target.poll()));
        served && own.call(&echo, b"again").is_ok() && forked(first)(pair.target.poll())
    });
    assert_eq!(*pair.call(&echo, b"after").unwrap(), *b"after");
}

#[test]
fn dropping_a_target_and_link_in_a_forked_child_spares_its_parent() {
    let place = Place::new();
    let echo = library("echo");
    let mut pair = Pair::new(&place);
    assert_eq!(*pair.call(&echo, b"before").unwrap(), *b"before");
    // The parent's copy is another one: the child drops the copy that it reads here.
    in_child(|| {
        // SAFETY: the child ends without dropping the value again.
        drop(unsafe { ptr::read(&pair) });
        true
    });

    // The link continues, also where only its descriptors can wake the target. Other sources can connect to the
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
