//! Batches: small messages that share a frame.

use std::time::Duration;

use farjump::{Error, InjectError, Link, Mode, WaitError};

use crate::support::chronicle::Chronicle;
use crate::support::{Pair, Place, id_of, library, outcome_of, to_words, words};

/// Longest message that shares a frame in a mailbox.
const LONGEST: usize = 256;
/// Longest message that shares a frame over a transport that delivers frames.
const LONGEST_DELIVERED: usize = 4096;

/// A pair over this transport.
fn pair_over<'a>(place: &Place, transport: &str) -> Pair<'a> {
    Pair::of(place.target().mailbox_size(1 << 18).transport(transport), place.link().transport(transport))
}

fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 7 + at) as u8).collect()
}

/// Binds the code of `library` with one call.
fn warm(pair: &mut Pair<'_>, library: &farjump::Library) {
    pair.call(library, b"").unwrap();
}

/// Arguments for which `speech` panics with this message.
fn panicking(message: &str) -> Vec<u8> {
    [words(&[0, 0]), message.as_bytes().to_vec()].concat()
}

fn frames(link: &Link) -> u64 {
    link.stats().frames
}

#[test]
fn messages_of_any_length_run_once_each_in_sending_order() {
    run_in_order("shm", &[0, 1, 7, 8, 9, 32, 40, 41, 100, LONGEST - 1, LONGEST, LONGEST + 1, 3000], 300);
}

#[test]
fn delivered_messages_of_any_length_run_once_each_in_sending_order() {
    let longest = LONGEST_DELIVERED;
    run_in_order("tcp", &[0, 1, 8, 41, LONGEST, 511, 512, 1000, longest - 1, longest, longest + 1], 5000);
}

/// Sends runs of messages of these lengths, with others of up to `most` bytes in between.
fn run_in_order(transport: &str, lens: &[usize], most: usize) {
    let (place, library) = (Place::new(), library("chronicle"));
    let mut pair = pair_over(&place, transport);
    warm(&mut pair, &library);
    let mut sent = Chronicle::new();
    sent.add(b"");
    let mut random = fastrand::Rng::with_seed(5);
    for turn in 0..300 {
        let mut batch = pair.link.batch();
        // Runs of one length, as they share a frame, and now and then another.
        let len = lens[turn % lens.len()];
        for number in 0..random.usize(0..40) {
            let message = message(number, if random.u8(0..10) == 0 { random.usize(0..most) } else { len });
            batch.send(&library, &message).unwrap();
            sent.add(&message);
        }
        batch.finish().unwrap();
        pair.serve();
    }
    let found = pair.call(&library, b"last").unwrap();
    sent.add(b"last");
    assert_eq!(*found, *sent.reply());
}

/// Lengths of messages, and the number of them that share a frame of a kibibyte.
const IN_A_KIBIBYTE: [(usize, usize); 6] =
    [(0, 122), (8, 122), (32, 30), (100, 9), (LONGEST, 3), (LONGEST + 1, 1)];

#[test]
fn small_messages_of_one_length_share_frames_of_a_kibibyte() {
    let place = Place::new();
    share(pair_over(&place, "shm"), &IN_A_KIBIBYTE);
}

#[test]
fn delivered_messages_of_one_length_share_frames_of_eight_kibibytes() {
    let (place, longest) = (Place::new(), LONGEST_DELIVERED);
    let lens =
        [(0, 128), (8, 128), (9, 128), (100, 78), (256, 32), (1024, 8), (longest, 2), (longest + 1, 1)];
    share(pair_over(&place, "tcp"), &lens);
}

#[test]
fn a_target_with_short_frames_gets_delivered_messages_in_kibibyte_frames() {
    let place = Place::new();
    let target = place.target().transport("tcp").max_frame(4096);
    share(Pair::of(target, place.link().transport("tcp")), &IN_A_KIBIBYTE);
}

#[test]
fn a_frame_full_by_message_count_takes_no_shorter_message() {
    let (place, tally) = (Place::new(), library("tally"));
    let mut pair = pair_over(&place, "tcp");
    warm(&mut pair, &tally);
    let before = frames(&pair.link);
    let mut batch = pair.link.batch();
    (0..128).for_each(|_| batch.send(&tally, &[1; 8]).unwrap());
    batch.send(&tally, b"").unwrap();
    batch.finish().unwrap();
    assert_eq!(frames(&pair.link) - before, 2);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1 + 128 + 1 + 1]);
}

/// Sends messages of each length, of which the given number shares a frame.
fn share(mut pair: Pair<'_>, lens: &[(usize, usize)]) {
    let counter = library("tally");
    warm(&mut pair, &counter);
    for &(len, each) in lens {
        let before = frames(&pair.link);
        let mut batch = pair.link.batch();
        for _ in 0..each * 4 {
            batch.send(&counter, &vec![1; len]).unwrap();
        }
        batch.finish().unwrap();
        let count = frames(&pair.link) - before;
        assert!((4..=5).contains(&count), "{} messages of {len} bytes took {count} frames", each * 4);
        let mut ran = 0;
        while ran < each * 4 {
            ran += pair.serve();
        }
        assert_eq!(ran, each * 4);
    }
}

#[test]
fn a_frame_of_messages_runs_whole_and_only_after_it_is_sent() {
    let (place, tally) = (Place::new(), library("tally"));
    let mut pair = Pair::new(&place);
    warm(&mut pair, &tally);
    let mut batch = pair.link.batch();
    for _ in 0..5 {
        batch.send(&tally, b"").unwrap();
    }
    assert_eq!(pair.target.poll().unwrap(), 0);
    drop(batch);
    assert_eq!(pair.target.poll().unwrap(), 5);
    // A flush also sends waiting calls: it covers everything sent before.
    let mut batch = pair.link.batch();
    batch.send(&tally, b"").unwrap();
    std::mem::forget(batch);
    pair.flush().unwrap();
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [8]);
}

#[test]
fn batched_messages_and_other_calls_on_a_link_run_in_sending_order() {
    let (place, sequence, other) = (Place::new(), library("sequence"), library("echo"));
    let mut pair = Pair::of(place.target().modes(Mode::ALL).mailbox_size(1 << 16), place.link());
    warm(&mut pair, &sequence);
    warm(&mut pair, &other);
    let mut next = 0;
    let mut number = || {
        next += 1;
        words(&[next - 1])
    };
    let long = |number: Vec<u8>| [number, vec![0; 5000]].concat();
    let mut batch = pair.link.batch();
    batch.send(&sequence, &number()).unwrap();
    batch.send(&sequence, &number()).unwrap();
    // The same function outside the batch, and with a payload that shares no frame.
    pair.link.send(&sequence, &number()).unwrap();
    batch.send(&sequence, &number()).unwrap();
    batch.send(&sequence, &long(number())).unwrap();
    batch.send(&sequence, &number()).unwrap();
    // Another function, in both ways.
    batch.send(&other, b"x").unwrap();
    let reply = pair.link.inject(&other, b"y").unwrap();
    batch.send(&sequence, &number()).unwrap();
    // Other modes.
    pair.link.set_mode(Mode::Always);
    batch.send(&sequence, &number()).unwrap();
    batch.send(&sequence, &number()).unwrap();
    pair.link.set_mode(Mode::Cached);
    batch.send(&sequence, &number()).unwrap();
    batch.finish().unwrap();
    let mut reply = reply;
    assert_eq!(*outcome_of(&mut pair.target, &mut reply).unwrap(), *b"y");
    drop(reply);
    pair.serve();
    assert_eq!(to_words(&pair.call(&sequence, b"").unwrap()), [10, 0]);
}

#[test]
fn a_panic_ends_only_its_own_message_of_a_frame() {
    let (place, speech, tally) = (Place::new(), library("speech"), library("tally"));
    let mut pair = Pair::new(&place);
    warm(&mut pair, &tally);
    assert!(pair.call(&speech, &panicking("first")).is_err());
    let mut batch = pair.link.batch();
    for number in 0..20 {
        batch.send(&speech, &panicking(&format!("no {number:02}"))).unwrap();
    }
    batch.send(&tally, b"").unwrap();
    batch.finish().unwrap();
    let error = pair.flush().unwrap_err();
    assert!(error.to_string().contains("no 00"), "{error}");
    assert_eq!(pair.target.stats().refusals(), 20);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [3]);
}

#[test]
fn a_frame_stopped_by_unread_refusals_runs_on_when_they_are_read() {
    let (place, speech, tally) = (Place::new(), library("speech"), library("tally"));
    let mut pair = Pair::of(place.target().mailbox_size(1 << 16), place.link());
    warm(&mut pair, &tally);
    assert!(pair.call(&speech, &panicking("first")).is_err());
    let before = pair.target.stats().calls;
    let long = panicking(&"x".repeat(200));
    let mut sent = 0;
    // Until the control connection for refusals is full, which is usually in the middle of a frame.
    while pair.target.stats().calls - before == sent {
        let mut batch = pair.link.batch();
        for _ in 0..4 {
            batch.send(&speech, &long).unwrap();
        }
        batch.finish().unwrap();
        sent += 4;
        assert!(sent < 100_000, "the connection is never full");
        pair.serve();
    }
    assert!(pair.target.stats().calls - before < sent);
    assert!(pair.flush().is_err());
    assert_eq!(pair.target.stats().calls - before, sent);
    assert_eq!(pair.target.stats().refusals(), sent);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [2]);
}

#[test]
fn messages_around_a_failing_payload_routine_share_one_frame() {
    let (place, demanding) = (Place::new(), library("demanding"));
    let mut pair = Pair::new(&place);
    // As in `wish.h`: maximum, bytes written, bytes used, return value.
    let honest = words(&[32, 32, 32, 0]);
    pair.call(&demanding, &honest).unwrap();
    let (before, ran) = (pair.link.stats(), pair.target.stats().calls);
    let mut batch = pair.link.batch();
    batch.send(&demanding, &honest).unwrap();
    let failing = words(&[32, 32, 32, -7_i64 as u64]);
    assert!(matches!(batch.send(&demanding, &failing), Err(Error::Library(_))));
    let far = words(&[32, 40, 32, 0]);
    assert!(matches!(batch.send(&demanding, &far), Err(Error::Inject(InjectError::PayloadOverrun { .. }))));
    batch.send(&demanding, &honest).unwrap();
    batch.finish().unwrap();
    assert_eq!(pair.link.stats().frames - before.frames, 1);
    assert_eq!(pair.link.stats().payload_bytes - before.payload_bytes, 64);
    assert_eq!(pair.serve(), 2);
    assert_eq!(pair.target.stats().calls - ran, 2);
}

#[test]
fn a_payload_that_turns_out_shorter_is_sent_at_its_own_length() {
    let (place, shrinking) = (Place::new(), library("shrinking"));
    let mut pair = Pair::new(&place);
    let wish = |used: u64| words(&[200, used, used, 0]);
    pair.call(&shrinking, &wish(8)).unwrap();
    let before = pair.link.stats();
    let mut batch = pair.link.batch();
    for used in [8, 8, 8, 100, 100, 3, 8, 0, 200, 200] {
        batch.send(&shrinking, &wish(used)).unwrap();
    }
    batch.finish().unwrap();
    // 8, 8, 8 | 100, 100 | 3 | 8 | 0 | 200, 200
    assert_eq!(pair.link.stats().frames - before.frames, 6);
    assert_eq!(pair.link.stats().payload_bytes - before.payload_bytes, 24 + 200 + 3 + 8 + 400);
    assert_eq!(pair.serve(), 10);
}

#[test]
fn code_dropped_while_messages_wait_is_requested_and_no_message_is_lost() {
    let (place, sequence) = (Place::new(), library("sequence"));
    let mut pair = Pair::new(&place);
    warm(&mut pair, &sequence);
    let mut batch = pair.link.batch();
    for number in 0..10_u64 {
        batch.send(&sequence, &words(&[number])).unwrap();
    }
    assert!(pair.target.drop_code(&id_of(&sequence)));
    batch.finish().unwrap();
    pair.flush().unwrap();
    // The function's statics were lost: it has seen only later calls.
    assert_eq!(to_words(&pair.call(&sequence, b"").unwrap()), [10, 0]);
}

#[test]
fn functions_that_want_more_alignment_than_messages_have_go_by_themselves() {
    let (place, aligned) = (Place::new(), library("aligned"));
    let mut pair = Pair::of(place.target().mailbox_size(1 << 16), place.link());
    warm(&mut pair, &aligned);
    let before = frames(&pair.link);
    let mut batch = pair.link.batch();
    (0..5).for_each(|_| batch.send(&aligned, b"12345678").unwrap());
    batch.finish().unwrap();
    assert_eq!((frames(&pair.link) - before, pair.serve()), (5, 5));
}

#[test]
fn waiting_messages_survive_a_send_timeout_for_lack_of_credit() {
    let (place, tally) = (Place::new(), library("tally"));
    let link = place.link().send_timeout(Duration::from_millis(20));
    let mut pair = Pair::of(place.target().mailbox_size(8192), link);
    warm(&mut pair, &tally);
    let mut sent = 0_u64;
    let mut batch = pair.link.batch();
    // The target does not poll until there is no credit.
    let error = loop {
        match batch.send(&tally, b"12345678") {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 100_000);
    };
    assert!(matches!(error, Error::Wait(WaitError::TimedOut { .. })), "{error}");
    drop(batch);
    pair.serve();
    pair.flush().unwrap();
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [sent + 2]);
}

#[test]
fn a_batch_to_a_gone_target_fails_with_peer_gone() {
    let (place, tally) = (Place::new(), library("tally"));
    let mut pair = Pair::of(place.target(), place.link().control_interval(Duration::ZERO));
    warm(&mut pair, &tally);
    let Pair { link, target } = pair;
    drop(target);
    let mut batch = link.batch();
    let mut sent = 0;
    let error = loop {
        match batch.send(&tally, b"12345678") {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10_000_000, "nobody notices");
    };
    assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
}
