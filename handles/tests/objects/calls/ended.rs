//! A resolver, and owners that end: in a process of its own, whose descriptors and mappings are those of the test alone.

use std::fs;
use std::time::{Duration, Instant};

use farjump::{Key, Target, TargetThread};
use farjump_fixtures::forked::in_child;
use farjump_fixtures::helper_process::is_alone;
use farjump_fixtures::this_test;
use farjump_handles::{Error, GoneWhy, Handle, Resolver, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{library, number};

const CAPACITY: u64 = 64 << 20;
const OWNERS: usize = 100;
/// Descriptors that may be open for a moment longer. Without the looks for ended owners there are 6 for each of them.
const SOME: usize = 40;
/// Most descriptors on which a client sleeps: it opens them when a reply first takes long.
const SLEEP: usize = 5;

/// An owner at an address, with an object.
fn owner(address: &str) -> (TargetThread, Handle) {
    let store = Store::options().capacity(CAPACITY).build().unwrap();
    let target = Target::listen(address).objects(store.service()).build().unwrap().spawn().unwrap();
    let handle = store.put(&[1; 10]).unwrap();
    (target, handle)
}

/// Descriptors of this process, and bytes of owners' memory that it has mapped.
fn kept() -> (usize, u64) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("memfd:farjump-objects")).map(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap()
    });
    (fs::read_dir("/proc/self/fd").unwrap().count(), mapped.sum())
}

fn alone(test: &str, part: impl FnOnce()) {
    if !is_alone(test) {
        return;
    }
    let limit = Rlimit { current: Some(256), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    part();
}

#[test]
fn a_resolver_keeps_neither_descriptors_nor_memory_of_owners_that_ended() {
    alone(this_test!(), || {
        let (resolver, sum) = (Resolver::new(), library("sum_at"));
        let folder = farjump_fixtures::folder();
        let mut found = Vec::new();
        for index in 0..OWNERS {
            let address = format!("unix:{}/{index}", folder.path().display());
            let (target, handle) = owner(&address);
            assert_eq!(*resolver.get(&handle).unwrap(), [1; 10]);
            assert_eq!(number(&resolver.call(&sum, &handle, b"").unwrap()), 10);
            drop(target);
            found.push(kept());
        }
        // The next use closes everything that the last owner left. A thread of farjump's closes the descriptors of
        // ended links.
        let (descriptors, mapped) = found[1];
        assert!(found.iter().all(|one| one.0 <= descriptors + SOME && one.1 <= mapped), "{found:?}");
    });
}

#[test]
fn an_ended_owner_is_noticed_at_the_next_use_of_any_other() {
    alone(this_test!(), || {
        let resolver = Resolver::new();
        let folder = farjump_fixtures::folder();
        let (_living, handle) = owner(&format!("unix:{}/living", folder.path().display()));
        resolver.get(&handle).unwrap();
        let before = kept();
        for index in 0..3 {
            let (target, other) = owner(&format!("unix:{}/{index}", folder.path().display()));
            resolver.get(&other).unwrap();
            drop(target);
        }
        let end = Instant::now() + Duration::from_secs(60);
        while kept().0 > before.0 + SLEEP || kept().1 > before.1 {
            assert!(Instant::now() < end, "{:?} and before {before:?}", kept());
            resolver.get(&handle).unwrap();
        }
    });
}

#[test]
fn handles_of_a_restarted_owner_resolve_and_earlier_handles_are_gone() {
    let resolver = Resolver::new();
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}/owner", folder.path().display());
    let mut last: Option<Handle> = None;
    for _ in 0..4 {
        let (target, handle) = owner(&address);
        if let Some(last) = &last {
            let gone = resolver.get(last).unwrap_err();
            assert!(matches!(gone, Error::Gone { why: GoneWhy::Restarted { .. }, .. }), "{gone}");
        }
        assert_eq!(*resolver.get(&handle).unwrap(), [1; 10]);
        assert_eq!(*resolver.get(&handle).unwrap(), [1; 10]);
        drop(target);
        let unreachable = resolver.get(&handle).unwrap_err();
        assert!(matches!(unreachable, Error::Link(_) | Error::Unreachable(_)), "{unreachable}");
        last = Some(handle);
    }
}

#[test]
fn a_forked_child_resolves_handles_with_its_parents_keys() {
    alone(this_test!(), || {
        let folder = farjump_fixtures::folder();
        let key = Key::draw().unwrap();
        let store = Store::options().capacity(CAPACITY).build().unwrap();
        let target = Target::listen("tcp:127.0.0.1:0").objects(store.service()).key(key.clone());
        let target = target.build().unwrap();
        let address = target.address();
        let _target = target.spawn().unwrap();
        let sealed = store.put(&[1; 10]).unwrap();
        let (_other, plain) = owner(&format!("unix:{}/owner", folder.path().display()));
        let (resolver, sum) = (Resolver::of_process(), library("sum_at"));
        resolver.set_key(&address, key);
        let sums = || [&sealed, &plain].map(|handle| number(&handle.call(&sum, b"").unwrap()));
        assert_eq!(sums(), [10, 10]);
        in_child(|| sums() == [10, 10] && sums() == [10, 10]);
        assert_eq!(sums(), [10, 10]);
    });
}
