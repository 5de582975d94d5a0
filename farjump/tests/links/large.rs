//! Payloads too large for the mailbox: they arrive whole and in order, as if the mailbox were large enough.

use std::thread;
use std::time::Duration;

use farjump::{
    CallError, Error, InjectError, Link, Mode, Part, RefusalCause, TargetThread, WaitError, WaitPolicy,
};
use rustix::process::Signal;

use crate::helper::start_target;
use crate::support::chronicle::{Chronicle, pattern};
use crate::support::{
    FOREVER, PATIENCE, Pair, Place, Seen, id_of, library, meanwhile, outcome_of, ran, timed_out, to_words,
    words,
};

/// Default limit of payloads at a target, in bytes.
const LIMIT: usize = 64 << 20;

fn spawn(place: &Place, mailbox: usize) -> TargetThread {
    place.target().mailbox_size(mailbox).build().unwrap().spawn().unwrap()
}

/// Every power of two up to the limit, and its neighbours.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=26).map(|log2| 1_usize << log2).flat_map(|len| [len - 1, len, len + 1])
}

#[test]
fn payloads_of_every_power_of_two_and_its_neighbours_arrive_whole() {
    for (mailbox, longest) in [(4096, 1 << 24), (4 << 20, LIMIT)] {
        let place = Place::new();
        let target = spawn(&place, mailbox);
        let link = place.link().connect().unwrap();
        Chronicle::new().arrives(&link, lengths().filter(|len| *len <= longest));
        target.stop().unwrap();
    }
}

#[test]
fn every_length_around_the_mailboxs_limit_arrives_whole() {
    let place = Place::new();
    let target = spawn(&place, 1 << 16);
    let link = place.link().connect().unwrap();
    let mut chronicle = Chronicle::new();
    for around in [1 << 16, 1 << 17] {
        chronicle.arrives(&link, around - 200..around + 80);
    }
    target.stop().unwrap();
}

/// Checks that calls run in order whose payloads have lengths from `lengths`, with a mailbox of `mailbox` bytes.
fn run_in_order(mailbox: usize, calls: u64, lengths: fn(&mut fastrand::Rng) -> usize) {
    for policy in [WaitPolicy::spin_only(), WaitPolicy::sleep_only()] {
        let place = Place::new();
        let target =
            place.target().mailbox_size(mailbox).arena_size(4096).max_payload(100_000).wait_policy(policy);
        let target = target.build().unwrap().spawn().unwrap();
        let link = place.link().wait_policy(policy).connect().unwrap();
        let sequence = library("sequence");
        link.inject(&sequence, b"").unwrap().wait(PATIENCE).unwrap();
        let mut random = fastrand::Rng::with_seed(9);
        for number in 0..calls {
            let mut payload = words(&[number]);
            payload.resize(lengths(&mut random), 1);
            link.send(&sequence, &payload).unwrap();
            if random.u8(..) == 0 {
                link.flush(PATIENCE).unwrap();
            }
        }
        assert_eq!(ran(&link), calls);
        target.stop().unwrap();
    }
}

#[test]
fn frames_over_half_the_large_mailbox_run_in_order_wherever_they_start() {
    // The ring has 128 KiB: after most of these payloads, the next needs the whole of it.
    run_in_order(4096, 300, |random| random.usize(4096..=100_000));
}

#[test]
fn long_frames_and_short_ones_run_in_the_order_of_their_calls() {
    run_in_order(1 << 14, 2000, |random| match random.u8(..8) {
        0..3 => random.usize(8..=40),
        3..6 => random.usize(8..16_000),
        _ => random.usize(17_000..=100_000),
    });
}

#[test]
fn an_overlong_payload_is_refused_with_or_without_a_large_mailbox() {
    let place = Place::new();
    let (refusals, note_refusals) = Seen::new();
    let target = place
        .target()
        .mailbox_size(1 << 16)
        .max_payload(1 << 20)
        .on_refused(move |_, refusal| note_refusals(refusal.cause))
        .build()
        .unwrap()
        .spawn()
        .unwrap();
    let link = place.link().connect().unwrap();
    let mut chronicle = Chronicle::new();
    for round in 1..=3 {
        chronicle.arrives(&link, if round == 1 { 0..0 } else { (1 << 20) - 1..1 + (1 << 20) });
        // Before there is a large mailbox the target refuses to make one for this payload. Afterwards the source
        // finds that the payload is too long.
        let long = vec![0; (1 << 20) + 1];
        let error =
            link.inject(&library("chronicle"), &long).and_then(|call| call.wait(PATIENCE)).unwrap_err();
        assert!(
            match &error {
                Error::Call(CallError::Refused { ifunc, cause: RefusalCause::TooLarge, .. }) =>
                    round == 1 && ifunc == "chronicle",
                Error::Inject(InjectError::OverLimit { ifunc, part: Part::Payload, .. }) =>
                    round > 1 && ifunc == "chronicle",
                _ => false,
            },
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("1048577")
                && text.contains("1048576")
                && text.contains("TargetBuilder::max_payload"),
            "{text}"
        );
        assert_eq!(refusals.all().len(), 1);
    }
    chronicle.arrives(&link, [10, 1 << 20]);
    assert_eq!(target.stop().unwrap().stats().refused(RefusalCause::TooLarge), 1);
}

#[test]
fn code_travels_beside_a_large_payload_and_may_be_large_itself() {
    let place = Place::new();
    let target = spawn(&place, 4096);
    let link = place.link().connect().unwrap();
    let mut chronicle = Chronicle::new();
    // The first call brings the code, and so does each call of mode always.
    chronicle.arrives(&link, [5 << 20, 10]);
    link.set_mode(Mode::Always);
    chronicle.arrives(&link, [1 << 20, 100, 70_000]);
    assert_eq!(link.stats().frames_with_code, 4);
    link.set_mode(Mode::Cached);
    chronicle.arrives(&link, [1 << 20]);
    // An image that exceeds the mailbox.
    let heavy = library("heavy");
    assert!(heavy.images()[0].bytes().len() > 900 << 10);
    for payload in [&b"light"[..], &pattern(100_000, 2), b"light again"] {
        assert_eq!(*link.inject(&heavy, payload).unwrap().wait(PATIENCE).unwrap(), *payload);
    }
    target.stop().unwrap();
}

#[test]
fn frames_behind_a_large_frame_wait_while_its_code_is_missing() {
    let place = Place::new();
    let Pair { mut link, mut target } = Pair::of(place.target().mailbox_size(4096), place.link());
    let (sequence, id) = (library("sequence"), id_of(&library("sequence")));
    let called = sequence.clone();
    let call = &move |link: &Link, number: u64, len: usize| {
        let mut payload = words(&[number]);
        payload.resize(len, 1);
        link.send(&called, &payload).unwrap();
    };
    let own = &mut link;
    meanwhile(&mut target, move || {
        call(own, 0, 20_000);
        own.flush(PATIENCE).unwrap();
        own.reconnect().unwrap();
    });
    assert!(target.drop_code(&id));
    let own = &mut link;
    let asking = sequence.clone();
    let seen = meanwhile(&mut target, move || {
        for (number, len) in [(0, 20_000), (1, 8), (2, 30_000)] {
            call(own, number, len);
        }
        own.inject(&asking, b"").unwrap().wait(PATIENCE).unwrap()
    });
    assert_eq!(to_words(&seen), [3, 0]);
    assert_eq!(link.stats().frames_with_code, 1, "the code was asked for");
}

#[test]
fn trying_to_send_a_large_frame_never_waits() {
    let place = Place::new();
    // Only this thread polls: any wait here would hang.
    let Pair { link, mut target } =
        Pair::of(place.target().mailbox_size(4096), place.link().send_timeout(FOREVER));
    let echo = library("echo");
    let payload = pattern(100_000, 1);
    let mut tries = 0;
    let mut pending = loop {
        match link.try_inject(&echo, &payload) {
            Ok(pending) => break pending,
            Err(Error::Inject(InjectError::Full)) => tries += 1,
            Err(error) => panic!("{error}"),
        }
        target.poll().unwrap();
        link.progress().unwrap();
    };
    assert!(tries > 0, "a mailbox of 4 KiB holds 100,000 bytes");
    assert_eq!(*outcome_of(&mut target, &mut pending).unwrap(), *payload);
    // From here on the large mailbox exists. It has space for two frames and not for more.
    let full =
        (0..10).find(|_| matches!(link.try_send(&echo, &payload), Err(Error::Inject(InjectError::Full))));
    assert_eq!(full, Some(2));
}

#[test]
fn a_link_made_anew_gets_a_mailbox_anew() {
    let place = Place::new();
    let target = spawn(&place, 4096);
    let mut link = place.link().connect().unwrap();
    let mut chronicle = Chronicle::new();
    for _ in 0..3 {
        chronicle.arrives(&link, [100_000, 10]);
        link.reconnect().unwrap();
    }
    target.stop().unwrap();
}

#[test]
fn a_target_unmaps_a_large_mailbox_that_is_no_longer_used() {
    let place = Place::new();
    let target = start_target(&place.address());
    let link = place.link().connect().unwrap();
    let regions = target.regions();
    for _ in 0..2 {
        Chronicle::of(&link).arrives(&link, [8 << 20]);
        assert!(target.regions().len() > regions.len());
        while target.regions() != regions {
            link.progress().unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_target_killed_during_a_large_mailbox_request_fails_the_call() {
    let place = Place::new();
    let mut target = start_target(&place.address());
    let link = place.link().send_timeout(FOREVER).connect().unwrap();
    let echo = library("echo");
    link.inject(&echo, b"there").unwrap().wait(PATIENCE).unwrap();
    target.signal(Signal::STOP);
    assert!(matches!(link.try_inject(&echo, &vec![0; 8 << 20]), Err(Error::Inject(InjectError::Full))));
    let error = thread::scope(|scope| {
        let call = scope.spawn(|| {
            let link = link;
            link.inject(&echo, &vec![0; 8 << 20]).map(drop).unwrap_err()
        });
        target.kill();
        call.join().unwrap()
    });
    assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
}

#[test]
fn a_large_call_to_a_stopped_target_fails_by_timeout() {
    let place = Place::new();
    let target = start_target(&place.address());
    let link = place.link().send_timeout(Duration::from_millis(20)).connect().unwrap();
    let echo = library("echo");
    link.inject(&echo, b"there").unwrap().wait(PATIENCE).unwrap();
    target.signal(Signal::STOP);
    timed_out(link.inject(&echo, &vec![0; 8 << 20]));
    target.signal(Signal::CONT);
    let link = Link::builder(&place.address()).connect().unwrap();
    assert_eq!(link.inject(&echo, b"still").unwrap().wait(PATIENCE).unwrap().len(), 5);
}
