//! Memory of links over `shm`: their mailboxes take memory as they are used.

use std::fs::read_to_string;

use farjump::{Library, Link};
use farjump_fixtures::helper_process::{HelperProcess, role};
use farjump_fixtures::this_test;

use crate::reporting::{serve, taken};
use crate::support::{PATIENCE, Place, Watchdog, library};

const LINKS: i64 = 4;
/// Bytes that a link may take in the target's process after some calls.
const MOST: i64 = 2 << 20;
/// The mailboxes of a link by default, in bytes: that of the target, and that for replies.
const MAILBOXES: i64 = (4 << 20) + (1 << 20);

/// Memory of this process in bytes: pages of mailboxes, also if other processes map them; and its share of all its
/// pages.
fn taken_here() -> [i64; 2] {
    let (mut mailboxes, mut whole, mut is_mailbox) = (0, 0, false);
    for line in read_to_string("/proc/self/smaps").unwrap().lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Rss:"), Some(kib)) if is_mailbox => mailboxes += kib.parse::<i64>().unwrap() << 10,
            (Some("Pss:"), Some(kib)) => whole += kib.parse::<i64>().unwrap() << 10,
            // The first line of a mapping begins with its addresses.
            (Some(first), _) if first.contains('-') => is_mailbox = line.contains("/memfd:farjump"),
            _ => {}
        }
    }
    [mailboxes, whole]
}

/// Plays a target in a process of its own.
fn play_target(prefault: bool) -> ! {
    let place = Place::new();
    let mut count = 0_u64;
    let target = place.target().args(&mut count).arena_size(1 << 20).prefault(prefault);
    serve(target.build().unwrap(), taken_here)
}

fn call(link: &Link, counter: &Library, args: &[u8]) {
    link.inject(counter, args).unwrap().wait(PATIENCE).unwrap();
}

/// Returns whether the system promises only memory that it has: then a mailbox has all of its memory from the start.
fn is_strict() -> bool {
    read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|policy| policy.starts_with('2'))
}

#[test]
fn a_link_takes_under_2_mib_until_a_stream_uses_its_mailbox() {
    if let [role] = &*role() {
        play_target(role == "whole");
    }
    if is_strict() {
        return println!("skipped: vm.overcommit_memory is 2 here");
    }
    let _watchdog = Watchdog::new();
    let counter = library("counter");
    let mut target = HelperProcess::of_test(this_test!(), &["growing"]);
    let address = target.hear();
    let [none, whole_before] = taken(&mut target);
    assert_eq!(none, 0);
    let links: Vec<_> = (0..LINKS).map(|_| Link::connect(&address).unwrap()).collect();
    for link in &links {
        for round in 0..100_u64 {
            call(link, &counter, &round.to_le_bytes());
        }
    }
    let [after, whole_after] = taken(&mut target);
    println!("{whole_before}, with {LINKS} links {whole_after}, of which {after} in mailboxes");
    assert!(after > 0, "mailboxes are not found by their name");
    assert!(after <= LINKS * MOST, "{after}");
    assert!(whole_after - whole_before <= LINKS * MOST, "{whole_before}, then {whole_after}");

    // A stream longer than a mailbox uses all of it, and no memory of another link's.
    for round in 0..2000 {
        links[0].send(&counter, &[round as u8; 4000]).unwrap();
    }
    links[0].flush(PATIENCE).unwrap();
    call(&links[0], &counter, b"");
    let [used, _] = taken(&mut target);
    println!("after a stream {used}");
    assert!(used >= after + (3 << 20), "{after}, then {used}");
    assert!(used <= MAILBOXES + (LINKS - 1) * MOST, "{used}");
}

#[test]
fn prefaulted_mailboxes_have_all_their_memory_once_the_link_is_made() {
    if let [role] = &*role() {
        play_target(role == "whole");
    }
    let _watchdog = Watchdog::new();
    let mut target = HelperProcess::of_test(this_test!(), &["whole"]);
    let address = target.hear();
    let link = Link::builder(&address).prefault(true).connect().unwrap();
    // The target has finished its part of the handshake when it has run a call.
    call(&link, &library("counter"), b"");
    // Both mailboxes are mapped there.
    let [mailboxes, _] = taken(&mut target);
    assert!(mailboxes >= MAILBOXES, "{mailboxes}");
}
