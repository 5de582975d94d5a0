//! Sources that misuse requests for large mailboxes.

use std::time::{Duration, Instant};

use farjump::RefusalCause;
use farjump::core::mailbox::region_len;
use farjump::core::transport::OpenRequest;
use farjump_control::{EndpointInfo, Message, SecondEndpoint};
use farjump_fixtures::raw_source::{RawSource, call, large};
use farjump_transports::shm::Shm;

use super::Fixture;
use crate::support::{Pair, Place, library, meanwhile};

fn request_large(hostile: &mut RawSource, frame: u64, payload: u64) {
    hostile.say(&Message::LargeRequest { frame, payload });
}

/// Accepts the offer with an endpoint of its own, which `change` alters.
fn accept(hostile: &mut RawSource, change: impl FnOnce(&mut EndpointInfo)) -> SecondEndpoint {
    let request = OpenRequest::new(region_len(4096), 4096);
    let own = SecondEndpoint::open(&mut Shm::new(), &request).unwrap();
    own.with_info(|mut end, descriptors| {
        change(&mut end);
        hostile.control.send(&Message::LargeAccept { endpoint: end }, descriptors).unwrap();
    });
    own
}

#[test]
fn requests_for_impossible_frame_lengths_are_declined_and_the_link_continues() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let limit = 64_u64 << 20;
    let cases =
        [(u64::MAX, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (0, limit + 1), (1 << 31, limit), (1 << 30, 0)];
    for (frame, payload) in cases {
        request_large(&mut hostile, frame, payload);
        let (cause, text) = hostile.decline();
        let named = if payload > limit { payload } else { frame };
        assert!(cause == RefusalCause::TooLarge && text.contains(&named.to_string()), "{cause}: {text}");
    }
    // A frame of length 0 is as good as any other.
    request_large(&mut hostile, 0, 0);
    assert!(hostile.offer().max_frame > 0);
    hostile.say(&Message::LargeRelease);
    hostile.send_plan(&call(), b"no hard feelings");
    assert_eq!(hostile.reply(), b"no hard feelings");
    fixture.serves_on();
    assert_eq!(fixture.end().refused(RefusalCause::TooLarge), cases.len() as u64);
}

#[test]
fn repeated_requests_yield_at_most_one_large_mailbox_a_second() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let begun = Instant::now();
    let (mut offers, mut declined) = (0, 0);
    for _ in 0..200 {
        request_large(&mut hostile, 100_000, 90_000);
        match hostile.message() {
            Some(Message::LargeOffer { .. }) => {
                offers += 1;
                hostile.say(&Message::LargeRelease);
            }
            Some(Message::LargeDecline { cause: RefusalCause::OutOfMemory, text }) => {
                declined += 1;
                assert!(text.contains("less than 1s ago"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(offers <= 1 + begun.elapsed().as_secs(), "{offers} were offered");
    assert_eq!(offers + declined, 200);
    fixture.serves_on();
    assert_eq!(fixture.end().refused(RefusalCause::OutOfMemory), declined);
}

#[test]
fn a_large_mailbox_not_accepted_in_time_lapses_and_the_link_continues() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    request_large(&mut hostile, 100_000, 90_000);
    hostile.offer();
    while !fixture.refusals.all().iter().any(|text| text.contains("did not accept it in time")) {
        fixture.serves_on();
    }
    // Its link continues. The target withdraws a mailbox that it accepts too late, and takes a new request from it.
    hostile.send_plan(&call(), b"slow");
    assert_eq!(hostile.reply(), b"slow");
    accept(&mut hostile, |_| ());
    assert_eq!(hostile.decline().0, RefusalCause::Stalled);
    request_large(&mut hostile, 100_000, 90_000);
    hostile.offer();
    let _end = accept(&mut hostile, |_| ());
    assert!(matches!(hostile.message(), Some(Message::Go)));
    drop(hostile);
    assert_eq!(fixture.end().refused(RefusalCause::Stalled), 1);
}

#[test]
fn unexpected_or_invalid_large_mailbox_messages_cut_the_link() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    accept(&mut hostile, |_| ());
    fixture.cuts(hostile, "sent LargeAccept unasked", "an end for nothing");

    let mut hostile = fixture.hostile();
    hostile.say(&Message::LargeRelease);
    fixture.cuts(hostile, "that it does not have", "giving back nothing");

    let mut hostile = fixture.hostile();
    request_large(&mut hostile, 100_000, 90_000);
    request_large(&mut hostile, 200_000, 90_000);
    hostile.offer();
    fixture.cuts(hostile, "while it was offered another", "asking before it has answered");

    let mut hostile = fixture.hostile();
    request_large(&mut hostile, 100_000, 90_000);
    hostile.offer();
    accept(&mut hostile, |end| end.region_len = 1 << 40);
    fixture.cuts(hostile, "region", "an end that is not as long as it says");

    let mut hostile = fixture.hostile();
    request_large(&mut hostile, 100_000, 90_000);
    hostile.offer();
    accept(&mut hostile, |end| end.transport = "carrier-pigeon".into());
    fixture.cuts(hostile, "carrier-pigeon", "an end of another transport");
    assert_eq!(fixture.end().refused(RefusalCause::BadFrame), 5);
}

#[test]
fn a_switch_that_leads_nowhere_cuts_the_link() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    hostile.send_plan(&large(), b"");
    fixture.cuts(hostile, "large mailbox that the link does not have", "no mailbox");

    let mut hostile = fixture.hostile();
    request_large(&mut hostile, 100_000, 90_000);
    hostile.offer();
    let _end = accept(&mut hostile, |_| ());
    assert!(matches!(hostile.message(), Some(Message::Go)));
    hostile.send_plan(&large(), b"");
    fixture.cuts(hostile, "the rest of a frame did not follow", "a mailbox with nothing in it");
    let stats = fixture.end();
    assert_eq!((stats.refused(RefusalCause::BadFrame), stats.refused(RefusalCause::Stalled)), (1, 1));
}

#[test]
fn many_requests_are_declined_a_few_per_turn_and_all_eventually() {
    const REQUESTS: u64 = 200;
    let place = Place::new();
    let echo = library("echo");
    let mut pair = Pair::new(&place);
    let mut hostile = pair.hostile();
    for _ in 0..REQUESTS {
        // Longer than any frame can be.
        hostile.say(&Message::LargeRequest { frame: u64::MAX, payload: 1 });
    }
    assert!(!hostile.control.wants_write(), "not all were sent");
    let declined = |pair: &Pair<'_>| pair.target.stats().refused(RefusalCause::TooLarge);
    let mut turns = 0;
    while declined(&pair) < REQUESTS {
        let before = declined(&pair);
        pair.target.wait(Duration::from_millis(1)).unwrap();
        // 8 when the system reports it, and 8 when the target polls without a report.
        assert!(declined(&pair) - before <= 16, "{} in a turn", declined(&pair) - before);
        assert_eq!(*pair.call(&echo, b"honest").unwrap(), *b"honest");
        turns += 1;
        assert!(turns < 100_000, "{} of {REQUESTS} were answered", declined(&pair));
    }
    for _ in 0..REQUESTS {
        let (cause, _) = meanwhile(&mut pair.target, || hostile.decline());
        assert_eq!(cause, RefusalCause::TooLarge);
    }
}
