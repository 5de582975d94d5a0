//! Memory of an idle link over `tcp`, control connection included: on the heap, and in all mappings.

use std::fs::read_to_string;

use farjump::{Key, Link, Target};
use farjump_fixtures::allocation::live;
use farjump_fixtures::helper_process::{HelperProcess, in_roles};
use farjump_fixtures::this_test;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::reporting::{serve, taken};
use crate::support::{PATIENCE, library};

const TRANSPORT: &str = "tcp";
/// Links before and between the two measurements.
const BEFORE: usize = 20;
const LINKS: usize = 1000;
/// Most bytes that each may take in a process.
const MOST: i64 = 16 << 10;

/// Memory of a process in bytes: on the heap, by this thread; in anonymous memory, including the heap's pages and
/// stacks; mapped, in memory or not.
type Taken = [i64; 3];

fn taken_here() -> Taken {
    let number = |file: &str, name: &str| {
        let text = read_to_string(file).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name).to_owned();
        line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number") * 1024
    };
    let anonymous = number("/proc/self/smaps_rollup", "Anonymous:");
    [live(), anonymous, number("/proc/self/status", "VmData:")]
}

/// Checks that no link between two measurements took more than its limit.
fn assert_little(before: Taken, after: Taken, side: &str) {
    let [heap, anonymous, mapped] = std::array::from_fn(|at| (after[at] - before[at]) / LINKS as i64);
    println!("{side}, for each of {LINKS} links: heap {heap}, anonymous {anonymous}, mapped {mapped} bytes");
    assert!(heap > 100, "{side}: {heap} bytes on the heap for each link: not counted");
    assert!(heap <= MOST && anonymous <= MOST, "{side}: heap {heap}, anonymous {anonymous} for each link");
    assert!(mapped <= 2 * MOST, "{side}: {mapped} bytes mapped for each link");
}

fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn key() -> Key {
    Key::from_bytes([7; Key::LEN])
}

fn play_target() {
    raise_file_limit();
    let mut count = 0_u64;
    let target = Target::listen("tcp:127.0.0.1:0").transport(TRANSPORT).key(key());
    serve(target.args(&mut count).max_sources(BEFORE + LINKS).build().unwrap(), taken_here)
}

#[test]
fn an_idle_link_takes_at_most_16_kib_in_each_process() {
    // In processes of their own, apart from the memory of other tests.
    match in_roles(this_test!(), &["source"], |_, _| ()).as_deref() {
        None => {}
        Some("source") => play_source(this_test!()),
        Some(_) => play_target(),
    }
}

fn play_source(test: &str) {
    raise_file_limit();
    if getrlimit(Resource::Nofile).current.is_some_and(|most| most < 3 * (BEFORE + LINKS) as u64) {
        return println!("skipped: a process may not have descriptors for {LINKS} links here");
    }
    let mut target = HelperProcess::of_test(test, &["target"]);
    let (address, counter) = (target.hear(), library("counter"));
    let mut links = Vec::with_capacity(BEFORE + LINKS);
    let mut grow = |count: usize| {
        for _ in 0..count {
            let link = Link::builder(&address).transport(TRANSPORT).key(key()).connect().unwrap();
            // The link has been in use: memory kept by use would show.
            link.inject(&counter, &[1; 8]).unwrap().wait(PATIENCE).unwrap();
            link.inject(&counter, &[1; 5000]).unwrap().wait(PATIENCE).unwrap();
            links.push(link);
        }
    };
    grow(BEFORE);
    let (before, theirs_before) = (taken_here(), taken(&mut target));
    grow(LINKS);
    assert_little(before, taken_here(), "source");
    assert_little(theirs_before, taken(&mut target), "target");
}
