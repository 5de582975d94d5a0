//! Sources that misuse requests for large mailboxes.

use std::time::{Duration, Instant};

use farjump::RefusalCause;
use farjump::core::frame::{Kind, Plan};
use farjump::core::mailbox::region_len;
use farjump::core::transport::OpenRequest;
use farjump_control::{EndpointInfo, Message, SecondEndpoint};
use farjump_transports::shm::Shm;

use super::Scene;
use crate::hostile_sources::raw::{RawSource, Told, call};
use crate::support::{Pair, Place, library, meanwhile, meet};

fn ask(liar: &mut RawSource, frame: u64, payload: u64) {
    liar.control.send(&Message::LargeRequest { frame, payload }, &[]).unwrap();
}

fn offer(liar: &mut RawSource) -> EndpointInfo {
    match liar.told() {
        Told::Message(Message::LargeOffer { end }) => end,
        other => panic!("{other:?}"),
    }
}

/// Accepts the offer with an endpoint of its own, which `change` alters.
fn accept(liar: &mut RawSource, change: impl FnOnce(&mut EndpointInfo)) -> SecondEndpoint {
    let request = OpenRequest::new(region_len(4096), 4096);
    let own = SecondEndpoint::open(&mut Shm::new(), &request).unwrap();
    own.tell(|mut end, descriptors| {
        change(&mut end);
        liar.control.send(&Message::LargeAccept { end }, descriptors).unwrap();
    });
    own
}

fn switch() -> Plan<'static> {
    Plan { kind: Kind::Large, wants_reply: false, ..call() }
}

#[test]
fn lengths_that_no_frame_has_are_declined_with_the_limit_and_the_link_goes_on() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let limit = 64_u64 << 20;
    let cases =
        [(u64::MAX, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (0, limit + 1), (1 << 31, limit), (1 << 30, 0)];
    for (frame, payload) in cases {
        ask(&mut liar, frame, payload);
        match liar.told() {
            Told::Message(Message::LargeDecline { cause: RefusalCause::TooLarge, text }) => {
                let named = if payload > limit { payload } else { frame };
                assert!(text.contains(&named.to_string()), "{text}");
            }
            other => panic!("{frame}, {payload}: {other:?}"),
        }
    }
    // A frame of length 0 is as good as any other.
    ask(&mut liar, 0, 0);
    assert!(offer(&mut liar).max_frame > 0);
    liar.control.send(&Message::LargeRelease, &[]).unwrap();
    liar.send_plan(&call(), b"no hard feelings");
    assert_eq!(liar.reply(), b"no hard feelings");
    scene.serves_on();
    assert_eq!(scene.end().refused(RefusalCause::TooLarge), cases.len() as u64);
}

#[test]
fn a_source_that_asks_over_and_over_gets_one_and_then_none_for_a_while() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let begun = Instant::now();
    let (mut offers, mut declined) = (0, 0);
    for _ in 0..200 {
        ask(&mut liar, 100_000, 90_000);
        match liar.told() {
            Told::Message(Message::LargeOffer { .. }) => {
                offers += 1;
                liar.control.send(&Message::LargeRelease, &[]).unwrap();
            }
            Told::Message(Message::LargeDecline { cause: RefusalCause::OutOfMemory, text }) => {
                declined += 1;
                assert!(text.contains("less than 1s ago"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(offers <= 1 + begun.elapsed().as_secs(), "{offers} were offered");
    assert_eq!(offers + declined, 200);
    scene.serves_on();
    assert_eq!(scene.end().refused(RefusalCause::OutOfMemory), declined);
}

#[test]
fn a_source_that_does_not_take_what_it_asked_for_in_time_loses_it_and_keeps_its_link() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    ask(&mut liar, 100_000, 90_000);
    offer(&mut liar);
    while !scene.refusals.all().iter().any(|text| text.contains("did not accept it in time")) {
        scene.serves_on();
    }
    // Its link continues. A mailbox that it accepts too late is withdrawn, and it may make a new request.
    liar.send_plan(&call(), b"slow");
    assert_eq!(liar.reply(), b"slow");
    accept(&mut liar, |_| ());
    assert!(matches!(liar.told(), Told::Message(Message::LargeDecline { cause: RefusalCause::Stalled, .. })));
    ask(&mut liar, 100_000, 90_000);
    offer(&mut liar);
    let _end = accept(&mut liar, |_| ());
    assert!(matches!(liar.told(), Told::Message(Message::Go)));
    drop(liar);
    assert_eq!(scene.end().refused(RefusalCause::Stalled), 1);
}

#[test]
fn answers_to_what_was_not_asked_cut_the_link() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    accept(&mut liar, |_| ());
    scene.cuts(liar, "sent LargeAccept unasked", "an end for nothing");

    let mut liar = scene.liar();
    liar.control.send(&Message::LargeRelease, &[]).unwrap();
    scene.cuts(liar, "that it does not have", "giving back nothing");

    let mut liar = scene.liar();
    ask(&mut liar, 100_000, 90_000);
    ask(&mut liar, 200_000, 90_000);
    offer(&mut liar);
    scene.cuts(liar, "while it was offered another", "asking before it has answered");

    let mut liar = scene.liar();
    ask(&mut liar, 100_000, 90_000);
    offer(&mut liar);
    accept(&mut liar, |end| end.region_len = 1 << 40);
    scene.cuts(liar, "region", "an end that is not as long as it says");

    let mut liar = scene.liar();
    ask(&mut liar, 100_000, 90_000);
    offer(&mut liar);
    accept(&mut liar, |end| end.transport = "carrier-pigeon".into());
    scene.cuts(liar, "carrier-pigeon", "an end of another transport");
    assert_eq!(scene.end().refused(RefusalCause::BadFrame), 5);
}

#[test]
fn a_switch_that_leads_nowhere_cuts_the_link() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    liar.send_plan(&switch(), b"");
    scene.cuts(liar, "large mailbox that the link does not have", "no mailbox");

    let mut liar = scene.liar();
    ask(&mut liar, 100_000, 90_000);
    offer(&mut liar);
    let _end = accept(&mut liar, |_| ());
    assert!(matches!(liar.told(), Told::Message(Message::Go)));
    liar.send_plan(&switch(), b"");
    scene.cuts(liar, "the rest of a frame did not follow", "a mailbox with nothing in it");
    let stats = scene.end();
    assert_eq!((stats.refused(RefusalCause::BadFrame), stats.refused(RefusalCause::Stalled)), (1, 1));
}

#[test]
fn of_requests_without_end_few_are_answered_in_a_turn_and_each_is_in_the_end() {
    const REQUESTS: u64 = 200;
    let place = Place::new();
    let echo = library("echo");
    let mut pair = Pair::new(&place);
    let mut liar = meet(&mut pair.target, || RawSource::connect(&place.address()));
    for _ in 0..REQUESTS {
        // Longer than any frame can be.
        liar.control.send(&Message::LargeRequest { frame: u64::MAX, payload: 1 }, &[]).unwrap();
    }
    assert!(!liar.control.wants_write(), "not all were sent");
    let declined = |pair: &Pair<'_>| pair.target.stats().refused(RefusalCause::TooLarge);
    let mut turns = 0;
    while declined(&pair) < REQUESTS {
        let before = declined(&pair);
        pair.target.wait(Duration::from_millis(1)).unwrap();
        // 8 when the system reports it, and 8 when the target polls by itself.
        assert!(declined(&pair) - before <= 16, "{} in a turn", declined(&pair) - before);
        assert_eq!(*pair.call(&echo, b"honest").unwrap(), *b"honest");
        turns += 1;
        assert!(turns < 100_000, "{} of {REQUESTS} were answered", declined(&pair));
    }
    for _ in 0..REQUESTS {
        let told = meanwhile(&mut pair.target, || liar.told());
        assert!(
            matches!(told, Told::Message(Message::LargeDecline { cause: RefusalCause::TooLarge, .. })),
            "{told:?}"
        );
    }
}
