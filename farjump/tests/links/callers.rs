//! Callers of exported functions, a target's last call, limits of polls, and replies to groups.

use std::cell::Cell;

use farjump::{Link, OwnCode, Target, caller, caller_number};

use crate::support::{Place, library};

thread_local! {
    /// The caller as the exported function saw it: its number and its process.
    static SEEN_CALLER: Cell<Option<(Option<u64>, Option<u32>)>> = const { Cell::new(None) };
}

/// The function that the sample imports by this name. It has to return a number.
extern "C" fn lend() -> u32 {
    SEEN_CALLER.set(Some((caller_number(), caller().map(|peer| peer.pid))));
    1
}

fn target<'a>(place: &Place, tells: bool) -> Target<'a> {
    let target = place.target().export("lend", lend as extern "C" fn() -> _);
    target.crash_report(true).expose_callers(tells).build().unwrap()
}

/// Polls more often than any pending work needs.
fn turn(target: &mut Target<'_>) {
    for _ in 0..200 {
        target.poll().unwrap();
    }
}

/// A link to `target`, made while it is polled.
fn link(place: &Place, target: &mut Target<'_>) -> Link {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| place.link().connect().unwrap());
        while !made.is_finished() {
            target.poll().unwrap();
        }
        made.join().unwrap()
    })
}

/// Calls the function, and returns the caller as it saw it.
fn seen_caller(target: &mut Target<'_>, link: &Link) -> (Option<u64>, Option<u32>) {
    let mut call = link.inject(&library("lending"), b"r").unwrap();
    let reply = loop {
        target.poll().unwrap();
        if let Some(reply) = call.poll().unwrap() {
            break reply;
        }
    };
    assert_eq!(&*reply, b"lent");
    SEEN_CALLER.take().expect("the function was called")
}

#[test]
fn a_function_learns_the_link_and_process_of_its_caller() {
    let place = Place::new();
    let mut target = target(&place, true);
    let links = [link(&place, &mut target), link(&place, &mut target)];
    let own = Some(std::process::id());
    let (first, process) = seen_caller(&mut target, &links[0]);
    let (second, _) = seen_caller(&mut target, &links[1]);
    assert!(first.is_some() && second.is_some() && first != second, "{first:?} {second:?}");
    assert_eq!(process, own);
    assert_eq!(seen_caller(&mut target, &links[0]).0, first);
    let last = target.last_call().expect("a call has run");
    assert_eq!((&*last.function, last.caller.map(|peer| peer.pid)), ("lending", own));
    // A link that ends in the poll that runs its call is still the caller.
    let [one, other] = links;
    one.send(&library("lending"), b"r").unwrap();
    drop(one);
    turn(&mut target);
    assert_eq!(SEEN_CALLER.take(), Some((first, own)));
    assert_eq!(target.last_call().unwrap().caller.map(|peer| peer.pid), own);
    // A call of the program's own has no caller.
    // SAFETY: the function calls the export above.
    unsafe { target.call(OwnCode::Library(&library("lending")), b"r") }.unwrap();
    assert_eq!(SEEN_CALLER.take(), Some((None, None)));
    assert!(target.last_call().unwrap().caller.is_none());
    assert_eq!((caller_number(), caller()), (None, None), "no call runs here");
    drop(other);
}

#[test]
fn a_target_that_does_not_report_callers_reports_none() {
    let place = Place::new();
    let mut target = target(&place, false);
    let link = link(&place, &mut target);
    assert_eq!(seen_caller(&mut target, &link), (None, None));
    assert_eq!(target.last_call().unwrap().function, "lending");
    // With another batch size polls take another path.
    target.set_batch(1);
    assert_eq!(seen_caller(&mut target, &link), (None, None));
    assert!(target.last_call().unwrap().caller.is_none());
}

#[test]
fn a_poll_runs_at_most_the_set_number_of_a_links_calls() {
    let place = Place::new();
    let mut target = target(&place, false);
    let link = link(&place, &mut target);
    seen_caller(&mut target, &link);
    turn(&mut target);
    assert!(!target.may_have_frames());
    for most in [1, 3, 64] {
        target.set_batch(most);
        (0..12).for_each(|_| link.send(&library("lending"), b"r").unwrap());
        let (mut left, mut polls) = (12, 0);
        while left > 0 {
            assert!(target.may_have_frames(), "{left} of 12 have not run");
            let ran = target.poll().unwrap();
            assert!(ran <= most, "{ran} of at most {most}");
            left -= ran;
            polls += 1;
            assert!(polls < 1000);
        }
        assert_eq!(polls, 12_usize.div_ceil(most));
        assert!(!target.may_have_frames());
    }
}

/// Replies to a group fit beside each other, also when the source takes them only after all have come, as it does on
/// the target's processor. With single calls the target begins its replies at the start of the mailbox now and then.
#[test]
fn replies_to_a_group_wait_for_no_credit() {
    let place = Place::new();
    let mut target = target(&place, false);
    let link = link(&place, &mut target);
    seen_caller(&mut target, &link);
    let lending = library("lending");
    for round in 0..100 {
        let mut group = link.group();
        let mut calls: Vec<_> = (0..64).map(|_| group.inject(&lending, b"n").unwrap()).collect();
        group.finish().unwrap();
        let ran: usize = (0..20).map(|_| target.poll().unwrap()).sum();
        assert_eq!(ran, 64, "round {round}");
        for call in &mut calls {
            assert_eq!(&*call.poll().unwrap().expect("all replies have come"), b"lent", "round {round}");
        }
    }
}
