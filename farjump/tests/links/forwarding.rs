//! Functions that forward themselves to another target: which target replies, in which order, and the fate of
//! lost calls.

use std::cell::RefCell;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use farjump::core::mailbox::region_len;
use farjump::{
    Error, Link, LinkBuilder, Mode, Pending, RefusalCause, Target, TargetBuilder, TargetThread, WaitPolicy,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::helper::start_target;
use crate::policy::price;
use crate::support::{PATIENCE, Place, alongside, id_of, library, refused};

/// Counters of `onward`: its steps `+`, and whether its return values were right.
type Counts = [u64; 2];

pub(crate) fn address(place: &Place, number: usize) -> String {
    place.address_of(&format!("{number}.sock"))
}

/// A target of a ring of `count`: its destination `next` is the target after it. It soon sleeps.
pub(crate) fn member<'a>(place: &Place, number: usize, count: usize) -> TargetBuilder<'a> {
    Target::listen(&address(place, number))
        .wait_policy(WaitPolicy { spins: 10, pauses: 0, events: 0, yields: 0 })
        .destination("next", &address(place, (number + 1) % count))
}

/// A ring of targets, each on a thread of its own.
fn ring(place: &Place, count: usize) -> Vec<TargetThread> {
    let counts = || Box::leak(Box::new(Counts::default()));
    let target = |number| member(place, number, count).args(counts()).build().unwrap().spawn().unwrap();
    (0..count).map(target).collect()
}

/// Targets that poll only when the test polls them, and a link to the first.
pub(crate) struct Turned<'a> {
    pub(crate) targets: Vec<RefCell<Target<'a>>>,
    pub(crate) link: Link,
}

impl<'a> Turned<'a> {
    pub(crate) fn new(place: &Place, targets: impl IntoIterator<Item = TargetBuilder<'a>>) -> Turned<'a> {
        Turned::with_link(targets, short(place))
    }

    pub(crate) fn with_link(
        targets: impl IntoIterator<Item = TargetBuilder<'a>>,
        link: LinkBuilder,
    ) -> Turned<'a> {
        let targets: Vec<_> = targets.into_iter().map(|one| RefCell::new(one.build().unwrap())).collect();
        let link = connect_by(&targets[0], link);
        Turned { targets, link }
    }

    pub(crate) fn turn(&self) {
        for target in &self.targets {
            target.borrow_mut().poll().unwrap();
        }
    }

    /// Injects `onward`, and polls all targets until the outcome has come.
    fn call(&self, steps: &str) -> Result<String, Error> {
        self.reply_text(self.link.inject(&library("onward"), steps.as_bytes())?)
    }

    pub(crate) fn reply_text(&self, pending: Pending<'_>) -> Result<String, Error> {
        Ok(String::from_utf8(self.reply_bytes(pending)?).unwrap())
    }

    pub(crate) fn reply_bytes(&self, mut pending: Pending<'_>) -> Result<Vec<u8>, Error> {
        loop {
            self.turn();
            if let Some(reply) = pending.poll()? {
                return Ok(reply.into_vec());
            }
        }
    }

    pub(crate) fn target(&self, number: usize) -> std::cell::RefMut<'_, Target<'a>> {
        self.targets[number].borrow_mut()
    }
}

/// A link to the first target that has capacity for one reply of 3000 bytes.
fn short(place: &Place) -> LinkBuilder {
    Link::builder(&address(place, 0)).reply_mailbox_size(4096)
}

/// Makes such a link to the first target, which it polls meanwhile.
pub(crate) fn connect(target: &RefCell<Target<'_>>, place: &Place) -> Link {
    connect_by(target, short(place))
}

fn connect_by(target: &RefCell<Target<'_>>, link: LinkBuilder) -> Link {
    alongside(
        || link.connect().unwrap(),
        || {
            target.borrow_mut().wait(Duration::from_millis(1)).unwrap();
            target.borrow_mut().poll().unwrap();
        },
    )
}

/// The error of a call that was not forwarded, as its source receives it.
#[track_caller]
fn lost<T>(outcome: Result<T, Error>) -> String {
    refused(outcome, "onward", RefusalCause::ForwardFailed)
}

#[test]
fn the_last_target_replies_to_the_first_source_and_code_travels_once() {
    let place = Place::new();
    let targets = ring(&place, 3);
    let link = Link::connect(&address(&place, 0)).unwrap();
    for round in 0..200 {
        let steps = format!("{}answer {round}", ">next;".repeat(round % 10));
        let reply = link.inject(&library("onward"), steps.as_bytes()).unwrap().wait(PATIENCE).unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), format!("answer {round}"));
    }
    let (mut calls, mut forwarded) = (0, 0);
    for target in targets {
        let stats = target.stop().unwrap().stats().clone();
        assert_eq!((stats.images_linked, stats.refusals()), (1, 0));
        calls += stats.calls;
        forwarded += stats.forwarded;
    }
    let hops: u64 = (0..200).map(|round| round % 10).sum();
    assert_eq!((calls, forwarded), (200 + hops, hops));
}

#[test]
fn targets_that_forward_to_each_other_or_themselves_do_not_deadlock() {
    for count in [1, 2] {
        let place = Place::new();
        let targets = ring(&place, count);
        let link = Link::connect(&address(&place, 0)).unwrap();
        let steps = format!("{}home", ">next;".repeat(25));
        let calls: Vec<_> =
            (0..10).map(|_| link.inject(&library("onward"), steps.as_bytes()).unwrap()).collect();
        for call in calls {
            assert_eq!(&*call.wait(PATIENCE).unwrap(), b"home");
        }
        drop(targets);
    }
}

#[test]
fn every_mode_goes_on_as_cached() {
    let place = Place::new();
    let onward = library("onward");
    let turned = Turned::new(&place, [member(&place, 0, 2).local(&onward), member(&place, 1, 2)]);
    for mode in [Mode::Local, Mode::Always, Mode::Cached, Mode::Local] {
        turned.link.set_mode(mode);
        for _ in 0..2 {
            assert_eq!(turned.call(">next;there").unwrap(), "there", "{mode}");
        }
    }
    assert_eq!(turned.target(1).stats().images_linked, 1);
}

#[test]
fn forwarding_brings_code_each_time_in_mode_always_and_once_in_cached() {
    let image =
        library("onward").images().iter().map(|image| image.bytes().len()).min().expect("it has an image");
    for mode in [Mode::Cached, Mode::Always] {
        let place = Place::new();
        let turned = Turned::new(&place, [member(&place, 0, 2).forward_mode(mode), member(&place, 1, 2)]);
        assert_eq!(turned.call(">next;met").unwrap(), "met");
        let before = turned.target(1).stats().bytes;
        for _ in 0..3 {
            assert_eq!(turned.call(">next;there").unwrap(), "there");
            let (here, there) = (turned.target(0).stats().clone(), turned.target(1).stats().clone());
            assert_eq!((here.refusals(), there.refusals(), there.images_linked), (0, 0, 1), "{mode}");
        }
        let each = (turned.target(1).stats().bytes - before) / 3;
        assert_eq!(
            each as usize >= image,
            mode == Mode::Always,
            "{mode}: {each} bytes a call, and {image} of code"
        );
    }
    for mode in [Mode::Local, Mode::InPlace] {
        let place = Place::new();
        let error = member(&place, 0, 2).forward_mode(mode).build().unwrap_err().to_string();
        assert!(error.contains(&format!("not sent on in mode {mode}")), "{error}");
    }
}

#[test]
fn code_that_peer_or_target_forgot_comes_again() {
    let place = Place::new();
    let turned = Turned::new(&place, [member(&place, 0, 2), member(&place, 1, 2)]);
    let id = id_of(&library("onward"));
    for forgetful in [&[][..], &[1], &[0, 1], &[0], &[1]] {
        for number in forgetful {
            assert!(turned.target(*number).drop_code(&id));
        }
        assert_eq!(turned.call(">next;there").unwrap(), "there", "{forgetful:?}");
    }
    assert_eq!([0, 1].map(|number| turned.target(number).stats().images_linked), [3, 4]);
}

#[test]
fn a_function_gets_forward_errors_and_its_own_reply_comes_first() {
    let place = Place::new();
    let (mut here, mut there) = (Counts::default(), Counts::default());
    let second = member(&place, 1, 2).args(&mut there).mailbox_size(1 << 16);
    let turned = Turned::new(&place, [member(&place, 0, 2).args(&mut here), second]);
    assert_eq!(turned.call("!;there").unwrap(), "own, therethere");
    assert_eq!(turned.target(0).args_mut::<Counts>().unwrap()[1], 1, "the codes are not those of the header");
    assert_eq!(turned.call(">nobody;x").unwrap(), "1");
    assert_eq!(turned.call(">;x").unwrap(), "1");
    // Too long for any frame to that destination: it takes less than this target does.
    assert_eq!(turned.call(&format!(">next;{}", "x".repeat(70_000))).unwrap(), "2");
    turned.target(0).set_destination("other", &address(&place, 1)).unwrap();
    assert_eq!(turned.call(">other;there").unwrap(), "there");
}

#[test]
fn a_panic_stops_forwarding_and_reaches_the_source_from_any_target() {
    let place = Place::new();
    let (mut here, mut there) = (Counts::default(), Counts::default());
    let turned =
        Turned::new(&place, [member(&place, 0, 2).args(&mut here), member(&place, 1, 2).args(&mut there)]);
    for steps in ["?;+;", ">next;?;+;"] {
        let error = turned.call(steps).unwrap_err();
        let text = "`onward` panicked at the target: on its way, it fell";
        assert_eq!(error.to_string(), text, "{steps}");
    }
    assert_eq!(turned.call(">next;>next;home").unwrap(), "home");
    assert_eq!([0, 1].map(|number| turned.target(number).args_mut::<Counts>().unwrap()[0]), [0, 0]);
}

#[test]
fn a_reply_of_a_mebibyte_comes_back_through_every_target() {
    let place = Place::new();
    let targets = ring(&place, 3);
    let link = Link::builder(&address(&place, 0)).reply_mailbox_size(4 << 20).connect().unwrap();
    let expected: Vec<u8> = (b'a'..=b'p').flat_map(|letter| vec![letter; 64 << 10]).collect();
    for hops in [0, 1, 2, 7] {
        let steps = format!("{}#;", ">next;".repeat(hops));
        let reply = link.inject(&library("onward"), steps.as_bytes()).unwrap().wait(PATIENCE).unwrap();
        assert!(*reply == expected[..], "{hops} hops: {} bytes of another kind", reply.len());
    }
    // A source with a smaller reply ring gets an error.
    let small = Link::builder(&address(&place, 0)).reply_mailbox_size(4096).connect().unwrap();
    let outcome = small.inject(&library("onward"), b">next;#;").unwrap().wait(PATIENCE);
    let text = refused(outcome, "onward", RefusalCause::ReplyTooLarge);
    assert!(text.contains("larger reply mailbox"), "{text}");
    drop(targets);
}

#[test]
fn one_way_calls_are_forwarded_and_run_once_each() {
    let place = Place::new();
    let targets = ring(&place, 2);
    let link = Link::connect(&address(&place, 0)).unwrap();
    let onward = library("onward");
    let call = |steps: &[u8]| link.inject(&onward, steps).unwrap().wait(PATIENCE).unwrap();
    // Calls that come during the handshake wait, up to a limit.
    assert_eq!(&*call(b">next;met"), b"met");
    for _ in 0..10_000 {
        link.send(&onward, b">next;+;").unwrap();
    }
    // These calls come behind them on the same path.
    assert_eq!(&*call(b">next;after them"), b"after them");
    link.flush(PATIENCE).unwrap();
    let counts = targets.into_iter().map(|target| {
        let mut target = target.stop().unwrap();
        (target.args_mut::<Counts>().unwrap()[0], target.stats().forwarded)
    });
    assert_eq!(counts.collect::<Vec<_>>(), [(0, 10_002), (10_000, 0)]);
}

#[test]
fn a_forwarded_calls_pending_reply_delays_no_other_call() {
    let place = Place::new();
    let turned = Turned::new(&place, [member(&place, 0, 2), member(&place, 1, 2)]);
    assert_eq!(turned.call(">next;there").unwrap(), "there");
    let mut far = turned.link.inject(&library("onward"), b">next;far").unwrap();
    let mut near = turned.link.inject(&library("onward"), b"near").unwrap();
    // The destination does not poll.
    loop {
        turned.target(0).poll().unwrap();
        if let Some(reply) = near.poll().unwrap() {
            assert_eq!(&*reply, b"near");
            break;
        }
    }
    assert!(far.poll().unwrap().is_none());
    assert_eq!(turned.reply_text(far).unwrap(), "far");
}

#[test]
fn a_target_sleeps_during_a_forwarded_call_and_the_reply_wakes_it() {
    let place = Place::new();
    let turned = Turned::new(&place, [member(&place, 0, 2), member(&place, 1, 2)]);
    assert_eq!(turned.call(">next;there").unwrap(), "there");
    let readable = |target: &Target<'_>, timeout| {
        let timeout = Timespec::try_from(timeout).unwrap();
        poll(&mut [PollFd::from_borrowed_fd(target.as_fd(), PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    for _ in 0..20 {
        let mut call = turned.link.inject(&library("onward"), b">next;far").unwrap();
        // Polls until there is no more work: the destination has the call.
        let longest = loop {
            turned.target(0).poll().unwrap();
            let armed = turned.target(0).arm().unwrap();
            if let Some(longest) = armed
                && turned.target(0).stats().forwarded == turned.target(1).stats().calls + 1
                && !readable(&turned.target(0), Duration::ZERO)
            {
                break longest;
            }
            turned.target(0).disarm();
        };
        assert!(longest >= Duration::from_millis(500), "it only naps, for {longest:?}");
        while turned.target(1).poll().unwrap() == 0 {}
        assert!(readable(&turned.target(0), PATIENCE), "the answer did not wake it");
        turned.target(0).disarm();
        turned.target(0).poll().unwrap();
        assert_eq!(call.poll().unwrap().as_deref(), Some(&b"far"[..]));
    }
}

#[test]
fn an_absent_peer_fails_only_its_calls_and_may_start_later() {
    let place = Place::new();
    let target = member(&place, 0, 2).build().unwrap().spawn().unwrap();
    let link = Link::connect(&address(&place, 0)).unwrap();
    let call = |steps: &[u8]| link.inject(&library("onward"), steps).unwrap().wait(PATIENCE);
    let text = lost(call(b">next;x"));
    let start = "the target refused a call: it could not forward it to its destination `next`: ";
    assert!(text.starts_with(start) && text.contains("1.sock"), "{text}");
    assert_eq!(&*call(b"here").unwrap(), b"here");
    // A one-way call: the refusal comes with the next flush.
    link.send(&library("onward"), b">next;x").unwrap();
    assert_eq!(&*call(b"here").unwrap(), b"here");
    assert!(lost(call(b">next;x")).starts_with(start));
    assert!(lost(link.flush(PATIENCE)).starts_with(start));

    let peer = member(&place, 1, 2).build().unwrap().spawn().unwrap();
    assert_eq!(&*call(b">next;there").unwrap(), b"there");
    drop(peer);
    let target = target.stop().unwrap();
    assert_eq!(target.stats().refused(RefusalCause::ForwardFailed), 3);
}

#[test]
fn a_mute_destination_fails_its_call_and_delays_no_other() {
    let place = Place::new();
    let _mute = UnixListener::bind(place.path("1.sock")).unwrap();
    let target = member(&place, 0, 2).handshake_timeout(Duration::from_secs(1)).build().unwrap();
    let target = target.spawn().unwrap();
    let link = Link::connect(&address(&place, 0)).unwrap();
    let onward = library("onward");
    let mut far = link.inject(&onward, b">next;x").unwrap();
    assert_eq!(&*link.inject(&onward, b"here").unwrap().wait(PATIENCE).unwrap(), b"here");
    assert!(matches!(far.poll(), Ok(None)), "what was forwarded is still under way");
    let text = lost(far.wait(PATIENCE));
    assert!(text.contains("destination `next`"), "{text}");
    drop(target);
}

#[test]
fn a_destinations_refusal_reaches_the_source_in_its_own_words() {
    let place = Place::new();
    let turned = Turned::new(&place, [member(&place, 0, 2), member(&place, 1, 2).modes([Mode::Local])]);
    let text = lost(turned.call(">next;x"));
    assert!(text.contains("destination `next`: ") && text.contains("it does not allow mode"), "{text}");
    assert_eq!(turned.call("here").unwrap(), "here");
    // The code index is still bound: the first target did not refuse the call.
    assert_eq!(turned.link.stats().frames_with_code, 1);
}

#[test]
fn a_killed_peer_fails_pending_calls_and_its_successor_takes_new_ones() {
    let place = Place::new();
    let target = member(&place, 0, 2).build().unwrap().spawn().unwrap();
    let link = Link::connect(&address(&place, 0)).unwrap();
    let onward = library("onward");
    for round in 0..3 {
        let mut peer = start_target(&address(&place, 1));
        assert_eq!(&*link.inject(&onward, b">next;met").unwrap().wait(PATIENCE).unwrap(), b"met");
        peer.signal(Signal::STOP);
        let calls: Vec<_> = (0..20).map(|_| link.inject(&onward, b">next;x").unwrap()).collect();
        // This call is behind all of them, so the destination has them.
        assert_eq!(&*link.inject(&onward, b"here").unwrap().wait(PATIENCE).unwrap(), b"here");
        peer.kill();
        for call in calls {
            let text = lost(call.wait(PATIENCE));
            assert!(
                text.contains("destination `next`: ") && text.contains("is gone"),
                "round {round}: {text}"
            );
        }
    }
    assert_eq!(target.stop().unwrap().stats().refused(RefusalCause::ForwardFailed), 60);
}

#[test]
fn excess_forwarded_calls_are_refused_and_unread_replies_delay_no_other() {
    let place = Place::new();
    let turned = Turned::new(&place, [member(&place, 0, 2), member(&place, 1, 2)]);
    assert_eq!(turned.call(">next;met").unwrap(), "met");
    let other = connect(&turned.targets[0], &place);
    // Capacity of four kibibytes for a hundred replies. The source takes none of them.
    let steps = format!(">next;{}", "x".repeat(400));
    let calls: Vec<_> =
        (0..300).map(|_| turned.link.inject(&library("onward"), steps.as_bytes()).unwrap()).collect();
    // The destination does not poll until the target has refused the excess.
    while turned.target(0).stats().refusals() < 44 {
        turned.target(0).poll().unwrap();
    }
    let mut pending = other.inject(&library("onward"), b">next;there").unwrap();
    loop {
        turned.turn();
        if let Some(reply) = pending.poll().unwrap() {
            assert_eq!(&*reply, b"there");
            break;
        }
    }
    for (number, call) in calls.into_iter().enumerate() {
        let result = turned.reply_text(call);
        if number < 256 {
            assert_eq!(result.unwrap(), "x".repeat(400), "{number}");
        } else {
            assert!(lost(result).contains("256 forwarded calls of this source are pending"), "{number}");
        }
    }
    assert_eq!(turned.call(">next;there").unwrap(), "there");
}

#[test]
fn calls_forwarded_for_an_ended_source_run_and_disturb_no_other() {
    let place = Place::new();
    let turned = Turned::new(&place, [member(&place, 0, 2), member(&place, 1, 2)]);
    assert_eq!(turned.call(">next;met").unwrap(), "met");
    let other = connect(&turned.targets[0], &place);
    for _ in 0..100 {
        std::mem::forget(other.inject(&library("onward"), b">next;x").unwrap());
    }
    drop(other);
    while turned.target(0).sources() > 1 {
        turned.target(0).wait(Duration::from_millis(1)).unwrap();
        turned.target(0).poll().unwrap();
    }
    assert_eq!(turned.call(">next;there").unwrap(), "there");
    assert_eq!((turned.target(1).stats().calls, turned.target(0).stats().refusals()), (102, 0));
}

#[test]
fn an_unusable_destination_address_fails_the_build_and_is_named() {
    let place = Place::new();
    let error = place.target().destination("next", "nowhere").build().unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
}

#[test]
fn outcomes_that_wait_for_credit_count_in_the_memory_of_their_source() {
    const CALLS: u64 = 6;
    let (place, onward) = (Place::new(), library("onward"));
    let (mailbox, text) = (1 << 16, "a".repeat(3000));
    let memory = region_len(mailbox) + price(&onward) + 2 * text.len();
    let targets =
        [member(&place, 0, 2).mailbox_size(mailbox).max_source_memory(memory), member(&place, 1, 2)];
    // The source has capacity for one such reply.
    let turned = Turned::new(&place, targets);
    for round in 1..=2 {
        let steps = format!(">next;{text}");
        let pending: Vec<_> =
            (0..CALLS).map(|_| turned.link.inject(&onward, steps.as_bytes()).unwrap()).collect();
        while turned.target(1).stats().calls < round * CALLS {
            turned.turn();
        }
        // All of them have reached the first target, and the source has taken none.
        (0..100).for_each(|_| turned.turn());
        let outcomes: Vec<_> = pending.into_iter().map(|pending| turned.reply_text(pending)).collect();
        let lost = outcomes.into_iter().filter_map(|outcome| match outcome {
            Ok(reply) => {
                assert_eq!(reply, text);
                None
            }
            refused_it => Some(refused(refused_it, "onward", RefusalCause::ReplyTooLarge)),
        });
        let lost: Vec<_> = lost.collect();
        // One is in the mailbox, and two wait.
        assert_eq!(lost.len() as u64, CALLS - 3, "{lost:?}");
        assert!(lost.iter().all(|text| text.contains("its reply of 3000 bytes is lost")), "{lost:?}");
    }
}
