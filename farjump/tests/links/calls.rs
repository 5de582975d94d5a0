//! Calls and their outcomes: in any order, late, cancelled, too many, too long.

use std::time::Duration;

use farjump::{Awaited, Error, InjectError, RefusalCause, WaitError, WaitPolicy};

use crate::support::{
    FOREVER, PATIENCE, Pair, Place, Seen, library, meanwhile, outcome_of, panicked, poll_until, refused,
    serve, timed_out, to_words, while_polling, words,
};

#[test]
fn replies_of_any_length_are_taken_in_any_order() {
    let (_place, mut pair) = Pair::start();
    let echo = library("echo");
    let messages: Vec<Vec<u8>> = (0..200_usize).map(|n| vec![n as u8; n * n % 5000]).collect();
    let mut calls: Vec<_> =
        messages.iter().map(|message| Some(pair.link.inject(&echo, message).unwrap())).collect();
    serve(&mut pair.target);
    // 67 and 200 have no factor in common, so this visits each once, in an order of its own.
    for turn in 0..200 {
        let which = turn * 67 % 200;
        let reply = calls[which].take().unwrap().wait(PATIENCE).unwrap();
        assert_eq!(*reply, messages[which], "call {which}");
    }
}

#[test]
fn untaken_replies_use_more_than_half_the_reply_mailbox() {
    let place = Place::new();
    let mut pair = Pair::of(place.target(), place.link().reply_mailbox_size(64 << 10));
    let tally = library("tally");
    let calls: Vec<_> = (0..600).map(|_| pair.link.inject(&tally, b"").unwrap()).collect();
    assert_eq!(serve(&mut pair.target), 600, "each answer is a line of 64 bytes");
    for (call, number) in calls.into_iter().zip(1..) {
        assert_eq!(to_words(&call.wait(PATIENCE).unwrap()), [number]);
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_the_late_reply_is_discarded() {
    let place = Place::new();
    for policy in [WaitPolicy::sleep_only(), WaitPolicy::spin_only()] {
        let mut pair = Pair::of(place.target(), place.link().wait_policy(policy));
        let echo = library("echo");
        let late = pair.link.inject(&echo, b"late").unwrap();
        let error = timed_out(late.wait(Duration::from_millis(20)));
        assert!(error.contains(&place.address()), "{error}");
        let mut next = pair.link.inject(&echo, b"next").unwrap();
        assert_eq!(serve(&mut pair.target), 2, "a call whose wait ended runs all the same");
        assert_eq!(*outcome_of(&mut pair.target, &mut next).unwrap(), *b"next");
    }
}

#[test]
fn a_cancelled_or_dropped_call_runs_and_its_reply_is_discarded() {
    let (_place, mut pair) = Pair::start();
    let tally = library("tally");
    pair.link.inject(&tally, b"").unwrap().cancel();
    drop(pair.link.inject(&tally, b"").unwrap());
    assert_eq!(*pair.call(&tally, b"").unwrap(), 3_u64.to_ne_bytes());
}

#[test]
fn a_poll_never_waits_and_returns_a_calls_reply_once() {
    let (_place, mut pair) = Pair::start();
    let echo = library("echo");
    let mut call = pair.link.inject(&echo, b"!").unwrap();
    for _ in 0..3 {
        assert!(call.poll().unwrap().is_none());
    }
    serve(&mut pair.target);
    assert_eq!(*call.poll().unwrap().unwrap(), *b"!");
    for _ in 0..3 {
        assert!(call.poll().unwrap().is_none());
    }
}

#[test]
fn a_call_kept_as_a_number_is_recoverable_until_its_outcome() {
    let (_place, mut pair) = Pair::start();
    let echo = library("echo");
    let number = pair.link.inject(&echo, b"put down").unwrap().into_raw();
    let given_up = pair.link.inject(&echo, b"given up").unwrap().into_raw();
    // Taken by its number, and released unchanged.
    assert_eq!(pair.link.pending_from_raw(number).map(|call| call.into_raw()), Some(number));
    pair.link.pending_from_raw(given_up).unwrap().cancel();
    assert!(pair.link.pending_from_raw(given_up).is_none() && pair.link.pending_from_raw(0).is_none());
    assert_eq!(serve(&mut pair.target), 2);
    let mut reply = b"before: ".to_vec();
    pair.link.pending_from_raw(number).unwrap().wait_into(PATIENCE, &mut reply).unwrap();
    assert_eq!(reply, b"before: put down");
    assert!(pair.link.pending_from_raw(number).is_none(), "its answer was taken");
    assert!(!pair.link.is_busy());
}

#[test]
fn call_into_appends_replies_to_what_is_there() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let (echo, long) = (library("echo"), vec![7; 1000]);
    let collected = meanwhile(&mut target, move || {
        let mut into = b"so far ".to_vec();
        link.call_into(&echo, b"and on ", PATIENCE, &mut into).unwrap();
        link.call_into(&echo, &long, PATIENCE, &mut into).unwrap();
        into
    });
    assert_eq!(collected[..14], *b"so far and on ");
    assert_eq!(collected[14..], [7; 1000]);
}

#[test]
fn a_full_mailbox_fails_calls_at_once_or_by_timeout_without_loss() {
    let place = Place::new();
    let limit = Duration::from_millis(20);
    let mut pair = Pair::of(place.target().mailbox_size(4096), place.link().send_timeout(limit));
    let sequence = library("sequence");
    let mut sent = 0_u64;
    let mut calls = Vec::new();
    loop {
        match pair.link.try_inject(&sequence, &words(&[sent])) {
            Ok(call) => calls.push(call),
            Err(Error::Inject(InjectError::Full)) => break,
            Err(error) => panic!("{error}"),
        }
        sent += 1;
    }
    assert!(sent > 10, "only {sent} frames fit into 4096 bytes");
    assert!(matches!(pair.link.try_send(&sequence, &words(&[sent])), Err(Error::Inject(InjectError::Full))));
    let error = pair.link.inject(&sequence, &words(&[sent])).map(drop).unwrap_err();
    assert!(matches!(&error, Error::Wait(WaitError::TimedOut { awaited: Awaited::Credit, .. })), "{error}");
    assert_eq!(pair.link.stats().frames, sent, "what did not fit does not count");
    for mut call in calls {
        outcome_of(&mut pair.target, &mut call).unwrap();
    }
    assert_eq!(to_words(&pair.call(&sequence, b"").unwrap()), [sent, 0]);
}

#[test]
fn frames_of_all_lengths_run_once_in_order_over_many_mailbox_laps() {
    let place = Place::new();
    let builder = place.link().reply_mailbox_size(4096);
    let Pair { link, mut target } = Pair::of(place.target().mailbox_size(8192), builder);
    let sequence = library("sequence");
    const FRAMES: u64 = 20_000;
    let seen = meanwhile(&mut target, move || {
        for number in 0..FRAMES {
            let mut payload = words(&[number]);
            payload.resize(8 + (number * 7919 % 1500) as usize, 0xee);
            link.send(&sequence, &payload).unwrap();
        }
        link.flush(PATIENCE).unwrap();
        link.inject(&sequence, b"").unwrap().wait(PATIENCE).unwrap()
    });
    assert_eq!(to_words(&seen), [FRAMES, 0]);
}

#[test]
fn replies_without_credit_delay_only_their_own_source() {
    let place = Place::new();
    let mut pair = Pair::of(place.target(), place.link().reply_mailbox_size(4096));
    let other = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    let echo = library("echo");
    let message = [5; 1000];
    let calls: Vec<_> = (0..100).map(|_| pair.link.inject(&echo, &message).unwrap()).collect();
    // The source has not taken these replies, and the target serves the other source as before.
    for round in 0..300_u64 {
        let mut call = other.inject(&echo, &round.to_ne_bytes()).unwrap();
        assert_eq!(*outcome_of(&mut pair.target, &mut call).unwrap(), round.to_ne_bytes());
    }
    let ran = pair.target.stats().calls;
    assert!(ran < 400, "{ran} calls ran, though the replies of 100 have no space");
    for mut call in calls {
        assert_eq!(*outcome_of(&mut pair.target, &mut call).unwrap(), message);
    }
}

#[test]
fn the_largest_reply_arrives_and_one_byte_more_is_refused() {
    let place = Place::new();
    let mut pair = Pair::of(place.target(), place.link().reply_mailbox_size(4096));
    let speech = library("speech");
    let most = 4096 - 128;
    // The last byte is the return value of farjump_reply.
    let reply = pair.call(&speech, &words(&[most - 1, 100])).unwrap();
    assert_eq!((reply.len() as u64, reply.last()), (most, Some(&0)));
    let travelled = pair.link.stats().code_bytes;
    for len in [most, most + 1, 1 << 20] {
        let error = refused(pair.call(&speech, &words(&[len, 100])), "speech", RefusalCause::ReplyTooLarge);
        assert!(error.contains("larger reply mailbox"), "{error}");
    }
    assert_eq!(pair.target.stats().refused(RefusalCause::ReplyTooLarge), 3);
    assert_eq!(pair.call(&speech, &words(&[1, 1])).unwrap().len(), 2);
    assert_eq!(pair.link.stats().code_bytes, travelled, "code that ran does not travel again");
}

#[test]
fn code_that_panics_ends_its_call_with_the_message_and_nothing_else() {
    let (_place, mut pair) = Pair::start();
    let speech = library("speech");
    let panicking = |message: &[u8]| [&words(&[10, 10]), message].concat();
    let message = panicked(pair.call(&speech, &panicking("no such column: größe".as_bytes())), "speech");
    assert_eq!(message, "no such column: größe");
    let message = panicked(pair.call(&speech, &panicking(b"not \xff UTF-8")), "speech");
    assert!(message.contains("not \u{fffd} UTF-8"), "{message}");
    assert_eq!(*pair.call(&speech, &words(&[2, 1])).unwrap(), [0, 0, 0]);
}

#[test]
fn an_unawaited_panic_is_reported_to_handler_and_flush() {
    let place = Place::new();
    let (reported, note) = Seen::new();
    let mut pair = Pair::of(place.target(), place.link().on_refused(move |refusal| note(refusal.clone())));
    let speech = library("speech");
    pair.link.send(&speech, &[&words(&[0, 0]), &b"lost"[..]].concat()).unwrap();
    let error = refused(pair.flush(), "speech", RefusalCause::Panicked);
    assert!(error.contains("lost"), "{error}");
    assert_eq!(reported.all().len(), 1);
    pair.flush().unwrap();
}

#[test]
fn panicking_calls_sent_before_their_source_ends_run_once_each() {
    let place = Place::new();
    let speech = library("speech");
    let panicking = [&words(&[0, 0]), &b"nobody hears"[..]].concat();
    for together in [false, true] {
        let Pair { link, mut target } = Pair::new(&place);
        // Bound, so that messages share a frame.
        let mut call = link.inject(&speech, &words(&[1, 1])).unwrap();
        outcome_of(&mut target, &mut call).unwrap();
        drop(call);
        if together {
            let mut batch = link.batch();
            (0..5).for_each(|_| batch.send(&speech, &panicking).unwrap());
            batch.finish().unwrap();
        } else {
            (0..5).for_each(|_| link.send(&speech, &panicking).unwrap());
        }
        drop(link);
        poll_until(&mut target, |target| target.sources() == 0);
        assert_eq!(target.stats().refused(RefusalCause::Panicked), 5, "together: {together}");
    }
}

#[test]
fn a_link_has_at_most_32768_calls_until_an_outcome_is_taken() {
    let (_place, mut pair) = Pair::start();
    let tally = library("tally");
    let mut calls: Vec<_> = (0..32_768).map(|_| pair.link.inject(&tally, b"").unwrap()).collect();
    let too_many = |result: Result<_, Error>| match result {
        Err(error @ Error::Inject(InjectError::TooManyCalls { max: 32_768 })) => {
            assert!(error.to_string().contains("take some outcomes"))
        }
        other => panic!("{other:?}"),
    };
    too_many(pair.link.inject(&tally, b"").map(drop));
    too_many(pair.link.flush(PATIENCE));
    pair.link.send(&tally, b"").unwrap();
    let first = outcome_of(&mut pair.target, &mut calls[0]).unwrap();
    assert_eq!(to_words(&first), [1]);
    {
        let mut again = pair.link.inject(&tally, b"").unwrap();
        assert_eq!(to_words(&outcome_of(&mut pair.target, &mut again).unwrap()), [32_770]);
    }
    // Backwards, so that slots are freed in another order than they were taken.
    for (number, mut call) in calls.into_iter().enumerate().skip(1).rev() {
        assert_eq!(to_words(&outcome_of(&mut pair.target, &mut call).unwrap()), [number as u64 + 1]);
    }
    for number in 32_771..100_000 {
        assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [number], "slots are used again");
    }
}

#[test]
fn a_frame_of_mailbox_length_runs_and_a_longer_one_is_refused() {
    let place = Place::new();
    let Pair { link, mut target } =
        Pair::of(place.target().mailbox_size(1 << 16).max_frame(1 << 16), place.link());
    let sequence = library("sequence");
    meanwhile(&mut target, move || {
        let call = |payload: &[u8]| link.inject(&sequence, payload)?.wait(PATIENCE);
        call(b"").unwrap();
        assert_eq!(link.max_frame(), 1 << 16);
        // A header's line, and 8 bytes behind the payload, which prove that its routine kept its limit.
        let most = (1 << 16) - 64 - 8;
        for round in 0..5_u64 {
            let mut payload = words(&[round]);
            payload.resize(most, 1);
            assert_eq!(to_words(&call(&payload).unwrap()), [round + 1, 0]);
        }
        let error = refused(call(&vec![0; most + 1]), "sequence", RefusalCause::TooLarge);
        assert!(error.contains("over the 65536 that this target takes"), "{error}");
    });
}

#[test]
fn a_reply_sent_just_before_the_target_ends_is_not_lost() {
    let echo = library("echo");
    let place = Place::new();
    for round in 0..200_u64 {
        let policy = if round % 2 == 0 { WaitPolicy::sleep_only() } else { WaitPolicy::spin_only() };
        let builder = place.target().mailbox_size(4096).arena_size(1 << 16);
        let Pair { link, mut target } =
            Pair::of(builder, place.link().reply_mailbox_size(4096).wait_policy(policy));
        let first = link.inject(&echo, b"first").unwrap();
        serve(&mut target);
        let second = link.inject(&echo, b"never runs").unwrap();
        drop(target);
        assert_eq!(*first.wait(FOREVER).unwrap(), *b"first", "round {round}");
        let error = second.wait(FOREVER).unwrap_err();
        assert!(
            matches!(&error, Error::Wait(WaitError::PeerGone { cause, .. }) if cause.to_string().contains("ended")),
            "{error}"
        );
    }
}

#[test]
fn a_reply_sent_before_the_target_ends_is_found_by_polling() {
    let place = Place::new();
    let echo = library("echo");
    let Pair { link, mut target } = Pair::new(&place);
    let mut first = link.inject(&echo, b"first").unwrap();
    serve(&mut target);
    drop(target);
    assert_eq!(*first.poll().unwrap().unwrap(), *b"first");
}

#[test]
fn a_flush_reports_any_number_of_earlier_refusals_in_one_error() {
    let place = Place::new();
    let (reported, note) = Seen::new();
    let mut pair = Pair::of(place.target(), place.link().on_refused(move |_| note(())));
    let (lookup, echo) = (library("lookup"), library("echo"));
    // Far more than fit in a socket: the target keeps the rest until the source reads these.
    const REFUSED: usize = 20_000;
    for _ in 0..REFUSED {
        pair.link.send(&lookup, &words(&[0])).unwrap();
    }
    let error = pair.flush().unwrap_err();
    assert!(
        error.to_string().contains("store_get") || error.to_string().contains("store_version"),
        "{error}"
    );
    assert_eq!(reported.all().len(), REFUSED);
    assert_eq!(pair.target.stats().refused(RefusalCause::UnresolvedImport), REFUSED as u64);
    pair.flush().unwrap();
    assert_eq!(*pair.call(&echo, b"on we go").unwrap(), *b"on we go");
}
