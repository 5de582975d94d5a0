//! The principals of calls that run later than their turn, the release that their replies wait for, and their ends.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use farjump::core::mailbox::region_len;
use farjump::{
    CallError, Error, Link, Pending, Principal, RefusalCause, Target, hold_reply, principal, principal_number,
};

use crate::forwarding::{Turned, address, member};
use crate::policy::price;
use crate::support::{PATIENCE, Place, library, meanwhile, outcome_of, poll_until, refused, while_polling};

/// The host's word of these tests.
#[derive(Clone, PartialEq, Eq, Debug)]
struct User(String);

thread_local! {
    /// The principals for which the exported function has run.
    static RAN_FOR: RefCell<Vec<Arc<Principal>>> = const { RefCell::new(Vec::new()) };
}

/// Records the principal of the running call. The sample imports this name; the function has to return a number.
extern "C" fn lend() -> u32 {
    let Some(principal) = principal() else { return 0 };
    assert_eq!(principal_number(), Some(principal.number()));
    RAN_FOR.with_borrow_mut(|ran| ran.push(principal));
    1
}

extern "C" fn hold() -> u32 {
    RAN_FOR.with_borrow_mut(|ran| ran.extend(principal()));
    u32::from(hold_reply())
}

fn ran() -> usize {
    RAN_FOR.with_borrow(Vec::len)
}

/// The host's words of the principals for which the function has run since the last look.
fn users() -> Vec<User> {
    let ran = RAN_FOR.take();
    ran.iter().map(|principal| principal.word::<User>().expect("it has a word").clone()).collect()
}

fn target<'a>(place: &Place) -> Target<'a> {
    let named = |principal: &Principal| {
        assert!(principal.peer().is_some() && principal.word::<User>().is_none());
        User(format!("link {}", principal.link().unwrap()))
    };
    place
        .target()
        .handshake_timeout(PATIENCE)
        .export("lend", lend as extern "C" fn() -> _)
        .host_word(named)
        .build()
        .unwrap()
}

/// A target whose function holds replies.
fn holding<'a>(place: &Place) -> Target<'a> {
    let target = place
        .target()
        .handshake_timeout(PATIENCE)
        .export("lend", hold as extern "C" fn() -> _)
        .expose_callers(true);
    target.build().unwrap()
}

/// Polls some times.
fn turn(target: &mut Target<'_>) {
    for _ in 0..200 {
        target.poll().unwrap();
    }
}

/// A link to `target`, made while it is polled.
fn link(place: &Place, target: &mut Target<'_>) -> Link {
    while_polling(target, || place.link().connect_timeout(PATIENCE).connect().unwrap())
}

/// Many steps that take one poll each.
fn steps(count: usize, last: &str) -> Vec<u8> {
    [&b"n".repeat(count)[..], last.as_bytes()].concat()
}

/// Makes the target run a call of the program's own.
fn call_for(target: &mut Target<'_>, principal: &Arc<Principal>, payload: &[u8]) {
    // SAFETY: the function takes any payload.
    unsafe { target.call_for(principal, &library("later"), payload) }.unwrap();
}

#[test]
fn a_repeated_call_keeps_its_principal_after_its_link_ends() {
    let place = Place::new();
    let mut target = target(&place);
    let [one, other] = [0, 1].map(|_| link(&place, &mut target));
    one.send(&library("later"), b"l").unwrap();
    other.send(&library("later"), b"l").unwrap();
    poll_until(&mut target, |_| ran() == 2);
    let first = RAN_FOR.take().swap_remove(0);
    one.send(&library("later"), &steps(20_000, "l")).unwrap();
    turn(&mut target);
    drop(one);
    poll_until(&mut target, |target| target.sources() == 1);
    assert_eq!(ran(), 0, "the link has ended before");
    // Another source calls meanwhile.
    let mut call = other.inject(&library("later"), b"nnl").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut call).unwrap(), *b"done");
    let second = RAN_FOR.take().swap_remove(0);
    poll_until(&mut target, |_| ran() == 1);
    let later = RAN_FOR.take().swap_remove(0);
    assert!(Arc::ptr_eq(&later, &first) && second.number() != first.number());
    assert_eq!(later.peer().unwrap().pid, std::process::id());
    assert_eq!(later.word(), Some(&User(format!("link {}", first.link().unwrap()))));
    assert!(target.last_call().is_none(), "it lists no code by its address");
}

#[test]
fn a_link_made_after_end_links_runs_for_a_new_principal() {
    let place = Place::new();
    let mut target = target(&place);
    let first = link(&place, &mut target);
    let mut call = first.inject(&library("later"), b"l").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut call).unwrap(), *b"done");
    let before = RAN_FOR.take().swap_remove(0);
    target.end_links("the host ends its links");
    let second = link(&place, &mut target);
    let mut call = second.inject(&library("later"), b"l").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut call).unwrap(), *b"done");
    let after = RAN_FOR.take().swap_remove(0);
    assert!(after.link().is_some() && after.number() != before.number());
}

#[test]
fn a_repeated_call_keeps_the_hosts_word_of_its_caller() {
    let place = Place::new();
    let mut target = target(&place);
    let link = link(&place, &mut target);
    let [ann, bob] = ["ann", "bob"].map(|name| Principal::with_word(User(name.to_owned())));
    call_for(&mut target, &ann, b"lnl");
    call_for(&mut target, &bob, b"ll");
    let mut call = link.inject(&library("later"), b"ll").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut call).unwrap(), *b"done");
    turn(&mut target);
    let users = users();
    let of = |name: &str| users.iter().filter(|user| user.0.starts_with(name)).count();
    assert_eq!((of("ann"), of("bob"), of("link"), users.len()), (2, 2, 2, 6), "{users:?}");
    assert_eq!(users[..2], [User("ann".into()), User("bob".into())]);
    assert!(ann.link().is_none() && ann.word::<u64>().is_none());
    assert!(principal().is_none() && principal_number().is_none(), "no call runs here");
}

#[test]
fn only_own_calls_show_their_word_where_callers_are_hidden() {
    let place = Place::new();
    let mut target = place
        .target()
        .handshake_timeout(PATIENCE)
        .export("lend", hold as extern "C" fn() -> _)
        .build()
        .unwrap();
    let link = link(&place, &mut target);
    let ann = Principal::with_word(User("ann".to_owned()));
    call_for(&mut target, &ann, b"ll");
    let mut call = link.inject(&library("later"), b"ll").unwrap();
    turn(&mut target);
    target.release_replies();
    assert_eq!(*outcome_of(&mut target, &mut call).unwrap(), *b"done");
    assert_eq!(users(), [User("ann".into()), User("ann".into())], "and none of the link's");
}

/// Polls, and returns the reply if it has come.
fn turned(target: &mut Target<'_>, call: &mut Pending<'_>) -> Option<Vec<u8>> {
    turn(target);
    call.poll().unwrap().map(|reply| reply.into_vec())
}

#[test]
fn a_reply_waits_until_every_hold_of_its_calls_is_released() {
    let place = Place::new();
    let mut target = holding(&place);
    let link = link(&place, &mut target);
    for steps in ["ln", "nl", "nln", "ll", "l", "lnnnn"] {
        let mut call = link.inject(&library("later"), steps.as_bytes()).unwrap();
        assert_eq!(turned(&mut target, &mut call), None, "{steps}");
        assert!(target.holds_replies(), "{steps}");
        target.release_replies();
        // The reply leaves at once.
        assert_eq!(call.poll().unwrap().map(|reply| reply.into_vec()), Some(b"done".to_vec()), "{steps}");
        assert!(!target.holds_replies());
    }
    RAN_FOR.take();
    // A release between two holds ends the first one.
    let mut call = link.inject(&library("later"), &[b"l", &steps(500, "lnn")[..]].concat()).unwrap();
    poll_until(&mut target, |_| ran() == 1);
    target.release_replies();
    poll_until(&mut target, |_| ran() == 2);
    assert_eq!(turned(&mut target, &mut call), None);
    target.release_replies();
    assert_eq!(turned(&mut target, &mut call), Some(b"done".to_vec()));
    // The target sends other replies meanwhile.
    let mut held = link.inject(&library("later"), b"ln").unwrap();
    let mut other = link.inject(&library("later"), b"nn").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut other).unwrap(), *b"done");
    assert_eq!(turned(&mut target, &mut held), None);
    target.release_replies();
    assert_eq!(*outcome_of(&mut target, &mut held).unwrap(), *b"done");
}

#[test]
fn a_flush_waits_for_the_hold_of_a_repeated_call() {
    let place = Place::new();
    let mut target = holding(&place);
    let link = link(&place, &mut target);
    link.send(&library("later"), b"ln").unwrap();
    turn(&mut target);
    let (has_come_back, link) =
        meanwhile(&mut target, move || (link.flush(Duration::from_millis(200)).is_ok(), link));
    assert!(!has_come_back, "the flush has come back before a release");
    target.release_replies();
    meanwhile(&mut target, move || link.flush(PATIENCE)).unwrap();
}

#[test]
fn a_destinations_reply_waits_for_the_hold_at_the_forwarding_target() {
    let place = Place::new();
    let targets = [0, 1].map(|number| {
        let target = member(&place, number, 2).export("lend", hold as extern "C" fn() -> _);
        target.expose_callers(true)
    });
    let turned = Turned::new(&place, targets);
    let mut call = turned.link.inject(&library("later"), b"l>n").unwrap();
    let forwarded = |count: u64| turned.target(1).stats().calls == count;
    while !forwarded(1) {
        turned.turn();
    }
    (0..1000).for_each(|_| turned.turn());
    assert!(call.poll().unwrap().is_none());
    turned.target(0).release_replies();
    assert_eq!(turned.reply_bytes(call).unwrap(), b"done");
    // At the destination the call runs for the target that has forwarded it.
    RAN_FOR.take();
    let second = turned.link.inject(&library("later"), b"n>l").unwrap();
    while !forwarded(2) {
        turned.turn();
    }
    let there = RAN_FOR.take().swap_remove(0);
    assert!(there.link().is_some());
    turned.target(1).release_replies();
    assert_eq!(turned.reply_bytes(second).unwrap(), b"done");
    assert_eq!(turned.target(0).address(), address(&place, 0));
}

#[test]
fn outcomes_that_wait_for_a_release_count_against_their_sources_budget() {
    const CALLS: usize = 6;
    let (place, later) = (Place::new(), library("later"));
    let (mailbox, text) = (1 << 16, "a".repeat(3000));
    let memory = region_len(mailbox) + price(&later) + 2 * text.len();
    let target = place.target().handshake_timeout(PATIENCE).mailbox_size(mailbox).max_source_memory(memory);
    let mut target = target.export("lend", hold as extern "C" fn() -> _).build().unwrap();
    let link = link(&place, &mut target);
    for _ in 0..2 {
        // Each call holds its reply, and runs again for it.
        let steps = format!("l={text}");
        let mut calls: Vec<_> = (0..CALLS).map(|_| link.inject(&later, steps.as_bytes()).unwrap()).collect();
        turn(&mut target);
        assert!(calls.iter_mut().all(|call| call.poll().unwrap().is_none()));
        target.release_replies();
        let outcomes = calls.iter_mut().map(|call| outcome_of(&mut target, call));
        let lost = outcomes.filter_map(|outcome| match outcome {
            Ok(reply) => {
                assert_eq!(*reply, *text.as_bytes());
                None
            }
            refused_it => Some(refused(refused_it, "later", RefusalCause::ReplyTooLarge)),
        });
        let lost: Vec<_> = lost.collect();
        assert_eq!(lost.len(), CALLS - 2, "{lost:?}");
        assert!(lost.iter().all(|text| text.contains("its reply of 3000 bytes is lost")), "{lost:?}");
    }
}

#[test]
fn withdraw_drops_a_principals_waiting_calls_with_its_reason() {
    let place = Place::new();
    let mut target = target(&place);
    let [one, other] = [0, 1].map(|_| link(&place, &mut target));
    let mut tell = |link: &Link| {
        link.send(&library("later"), b"l").unwrap();
        poll_until(&mut target, |_| ran() == 1);
        RAN_FOR.take().swap_remove(0).number()
    };
    let (first, second) = (tell(&one), tell(&other));
    let mut gone = [&b"."[..], b"."].map(|steps| one.inject(&library("later"), steps).unwrap());
    let mut tree = one.inject(&library("later"), b"*").unwrap();
    let mut stays = other.inject(&library("later"), b".").unwrap();
    turn(&mut target);
    let of = |number: u64, why: &'static str| {
        move |principal: &Principal| (principal.number() == number).then(|| why.to_owned())
    };
    assert_eq!(target.withdraw(of(0, "nobody")), 0);
    let dropped = target.withdraw(of(first, "the user `one` was deleted"));
    assert!(dropped > 3, "{dropped}");
    assert_eq!(target.stats().refused(RefusalCause::Rights), dropped as u64);
    for call in &mut gone {
        let text = refused(outcome_of(&mut target, call), "later", RefusalCause::Rights);
        assert_eq!(text, "the user `one` was deleted");
    }
    let Err(Error::Call(CallError::Incomplete(inner))) = outcome_of(&mut target, &mut tree) else {
        panic!("nothing was lost")
    };
    assert_eq!((inner.lost, &*inner.text), (dropped as u64 - 2, "the user `one` was deleted"));
    let calls = target.stats().calls;
    turn(&mut target);
    assert_eq!(target.stats().calls - calls, 200, "one call of the other goes on");
    assert!(stays.poll().unwrap().is_none());
    assert_eq!(target.withdraw(of(second, "and `other`")), 1);
    refused(outcome_of(&mut target, &mut stays), "later", RefusalCause::Rights);
    let calls = target.stats().calls;
    turn(&mut target);
    assert_eq!(target.stats().calls, calls);
    // The links continue.
    let mut call = one.inject(&library("later"), b"nn").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut call).unwrap(), *b"done");
}

#[test]
fn calls_that_wait_for_a_destination_are_dropped_too() {
    let place = Place::new();
    let target =
        member(&place, 0, 2).export("lend", lend as extern "C" fn() -> _).host_word(|_| User(String::new()));
    // The destination has a socket, and takes part in no handshake.
    let _silent = std::os::unix::net::UnixListener::bind(place.path("1.sock")).unwrap();
    let turned = Turned::new(&place, [target]);
    let call = turned.link.inject(&library("later"), b"n>n").unwrap();
    turned.link.send(&library("later"), b"n>n").unwrap();
    while turned.target(0).stats().forwarded != 2 {
        turned.turn();
    }
    let dropped = turned.target(0).withdraw(|principal| principal.link().map(|_| "away with it".to_owned()));
    assert_eq!(dropped, 2);
    let text = refused(turned.reply_bytes(call), "later", RefusalCause::Rights);
    assert_eq!(text, "away with it");
}
