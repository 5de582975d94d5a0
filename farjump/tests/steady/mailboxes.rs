//! Memory of links over `shm`: their mailboxes take memory as they are used.

use std::fs::read_to_string;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farjump::{Library, Link, Target};
use farjump_fixtures::helper_process::{HelperProcess, commands, role, say};
use farjump_fixtures::this_test;

use crate::support::{PATIENCE, Place, Watchdog, library};

const LINKS: u64 = 4;
/// Bytes that a link may take in the target's process after some calls.
const MOST: u64 = 2 << 20;
/// The mailboxes of a link by default, in bytes: that of the target, and that for replies.
const MAILBOXES: u64 = (4 << 20) + (1 << 20);

/// Memory of this process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Pages of mailboxes, also if other processes map them.
    mailboxes: u64,
    /// This process's share of all its pages.
    whole: u64,
}

impl Taken {
    fn now() -> Taken {
        let mut taken = Taken { mailboxes: 0, whole: 0 };
        let mut is_mailbox = false;
        for line in read_to_string("/proc/self/smaps").unwrap().lines() {
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next()) {
                (Some("Rss:"), Some(kib)) if is_mailbox => {
                    taken.mailboxes += kib.parse::<u64>().unwrap() << 10
                }
                (Some("Pss:"), Some(kib)) => taken.whole += kib.parse::<u64>().unwrap() << 10,
                // The first line of a mapping begins with its addresses.
                (Some(first), _) if first.contains('-') => is_mailbox = line.contains("/memfd:farjump"),
                _ => {}
            }
        }
        taken
    }

    fn parse(text: &str) -> Taken {
        let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        let [mailboxes, whole] = numbers[..] else { panic!("{text}") };
        Taken { mailboxes, whole }
    }
}

/// Plays a target in a process of its own, which reports its memory on command.
fn play_target(prefault: bool) {
    let asked: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    std::thread::spawn(|| commands().for_each(|_| asked.store(true, Ordering::Relaxed)));
    let place = Place::new();
    let mut count = 0_u64;
    let target = place.target().args(&mut count).arena_size(1 << 20).prefault(prefault);
    let mut target: Target<'_> = target.build().unwrap();
    say(&target.address());
    loop {
        while target.poll().unwrap() != 0 {}
        target.wait(Duration::from_millis(1)).unwrap();
        if asked.swap(false, Ordering::Relaxed) {
            let Taken { mailboxes, whole } = Taken::now();
            say(&format!("{mailboxes} {whole}"));
        }
    }
}

fn taken(target: &mut HelperProcess) -> Taken {
    target.order("look");
    Taken::parse(&target.hear())
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
        return play_target(role == "whole");
    }
    if is_strict() {
        return println!("skipped: vm.overcommit_memory is 2 here");
    }
    let _watchdog = Watchdog::new();
    let counter = library("counter");
    let mut target = HelperProcess::of_test(this_test!(), &["growing"]);
    let address = target.hear();
    let before = taken(&mut target);
    assert_eq!(before.mailboxes, 0);
    let links: Vec<_> = (0..LINKS).map(|_| Link::connect(&address).unwrap()).collect();
    for link in &links {
        for round in 0..100_u64 {
            call(link, &counter, &round.to_le_bytes());
        }
    }
    let after = taken(&mut target);
    println!("{before:?}, with {LINKS} links {after:?}");
    assert!(after.mailboxes > 0, "mailboxes are not found by their name");
    assert!(after.mailboxes <= LINKS * MOST, "{after:?}");
    assert!(after.whole - before.whole <= LINKS * MOST, "{before:?}, then {after:?}");

    // A stream longer than a mailbox uses all of it, and no memory of another link's.
    for round in 0..2000 {
        links[0].send(&counter, &[round as u8; 4000]).unwrap();
    }
    links[0].flush(PATIENCE).unwrap();
    call(&links[0], &counter, b"");
    let used = taken(&mut target);
    println!("after a stream {used:?}");
    assert!(used.mailboxes >= after.mailboxes + (3 << 20), "{after:?}, then {used:?}");
    assert!(used.mailboxes <= MAILBOXES + (LINKS - 1) * MOST, "{used:?}");
}

#[test]
fn prefaulted_mailboxes_have_all_their_memory_once_the_link_is_made() {
    if let [role] = &*role() {
        return play_target(role == "whole");
    }
    let _watchdog = Watchdog::new();
    let mut target = HelperProcess::of_test(this_test!(), &["whole"]);
    let address = target.hear();
    let link = Link::builder(&address).prefault(true).connect().unwrap();
    // The target has finished its part of the handshake when it has run a call.
    call(&link, &library("counter"), b"");
    // Both mailboxes are mapped there.
    let taken = taken(&mut target);
    assert!(taken.mailboxes >= MAILBOXES, "{taken:?}");
}
