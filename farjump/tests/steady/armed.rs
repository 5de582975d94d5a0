//! System calls of a target that sleeps in an event loop of its own, and the frames that wake it.

use std::thread;

use farjump::{Link, Target};
use farjump_fixtures::helper_process::role;
use farjump_fixtures::this_test;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::{PATIENCE, Place, library, while_polling};
use crate::traced::{self, mark};

/// Idle links of the two runs.
const IDLE: [usize; 2] = [8, 80];
/// Turns that are counted in each phase.
const TURNS: usize = 10;
/// Phases of each kind. Only the one with the fewest system calls counts: once a second the target checks all links.
const PHASES: usize = 5;

/// A turn of an event loop that does not sleep.
fn turn(target: &mut Target<'_>) {
    while target.poll().unwrap() != 0 {}
    target.arm().unwrap();
    target.disarm();
}

/// Turns until the target knows its links to be idle.
fn settle(target: &mut Target<'_>) {
    (0..20).for_each(|_| turn(target));
}

fn play() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let connect = || place.link().reply_mailbox_size(4096).connect().unwrap();
    let echo = library("echo");
    let mut links: Vec<Link> = Vec::new();
    traced::wait_for_tracer();
    for count in IDLE {
        while links.len() < count {
            links.push(while_polling(&mut target, connect));
        }
        for link in &links {
            let mut call = link.inject(&echo, b"once").unwrap();
            while call.poll().unwrap().is_none() {
                target.poll().unwrap();
            }
        }
        settle(&mut target);
        for _ in 0..PHASES {
            mark();
            (0..TURNS).for_each(|_| turn(&mut target));
        }
        for _ in 0..PHASES {
            mark();
            // A call on another link wakes the target in each turn.
            for round in 0..TURNS {
                target.arm().unwrap().expect("it is idle");
                let mut call = links[round * count / TURNS].inject(&echo, b"wakes").unwrap();
                target.disarm();
                while target.poll().unwrap() == 0 {}
                assert_eq!(*call.poll().unwrap().unwrap(), *b"wakes");
            }
        }
        mark();
    }
}

#[test]
fn idle_links_add_no_system_call_to_an_event_loop_turn() {
    if !role().is_empty() {
        return play();
    }
    let phases = traced::run(this_test!()).phases;
    let all: Vec<u64> = phases.iter().map(|phase| phase.all()).collect();
    println!("{all:?} system calls in {TURNS} turns, each idle and woken, with {IDLE:?} links");
    // The last phase of each run makes further links, or nothing.
    let runs: Vec<_> = all.chunks(2 * PHASES + 1).collect();
    let [few, many] = runs[..] else { panic!("{} phases", all.len()) };
    let least = |phases: &[u64]| *phases.iter().min().unwrap();
    let counted = |run: &[u64]| (least(&run[..PHASES]), least(&run[PHASES..2 * PHASES]));
    let ((few, few_woken), (many, many_woken)) = (counted(few), counted(many));
    assert!(few > 0 && many <= few, "{all:?}");
    assert!(few_woken > few && many_woken <= few_woken + 2 * TURNS as u64, "{all:?}");
}

#[test]
fn armed_links_wake_a_busy_target_and_lose_no_call() {
    const LINKS: u64 = 12;
    const ROUNDS: u64 = 200;
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let links: Vec<Link> =
        (0..LINKS).map(|_| while_polling(&mut target, || place.link().connect()).unwrap()).collect();
    settle(&mut target);
    let mut sleeps = 0_u64;
    let sources: Vec<_> = links
        .into_iter()
        .enumerate()
        .map(|(number, link)| {
            thread::spawn(move || {
                let echo = library("echo");
                for round in 0..ROUNDS {
                    let payload = round.to_le_bytes();
                    assert_eq!(*link.inject(&echo, &payload).unwrap().wait(PATIENCE).unwrap(), payload);
                    if (round + number as u64).is_multiple_of(16) {
                        // Others call meanwhile, and this link becomes an idle one.
                        thread::sleep(std::time::Duration::from_millis(1));
                    }
                }
            })
        })
        .collect();
    while sources.iter().any(|source| !source.is_finished()) || target.sources() > 0 {
        while target.poll().unwrap() != 0 {}
        if let Some(longest) = target.arm().unwrap() {
            let mut watched = [PollFd::from_borrowed_fd(target.as_fd(), PollFlags::IN)];
            poll(&mut watched, Some(&Timespec::try_from(longest).unwrap())).unwrap();
            sleeps += 1;
        }
        target.disarm();
    }
    sources.into_iter().for_each(|source| source.join().unwrap());
    assert_eq!(target.stats().calls, LINKS * ROUNDS);
    assert!(sleeps > 0);
}
