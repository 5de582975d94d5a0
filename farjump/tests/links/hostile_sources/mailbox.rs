//! Hostile writes to a mailbox: earlier laps, credit lines, skips, and frames that never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farjump::core::frame::LINE;
use farjump::core::transport::ArrivalRules;
use farjump::{Link, RefusalCause};
use farjump_fixtures::altered::Altered;
use farjump_fixtures::raw_source::{RawSource, call};
use farjump_transports::shm::Shm;

use super::{FLAGS, Fixture, with};
use crate::support::{PATIENCE, Place, Seen, library, words};

#[test]
fn frames_of_an_earlier_lap_and_frames_inside_payloads_never_run() {
    let mut fixture = Fixture::new();
    let mut hostile = RawSource::connect(&fixture.place.address());
    let tally = library("tally");
    let image = tally.images()[0].bytes();
    hostile.call_new("tally", image, b"");
    let ring = hostile.ring() as u64;
    let mut calls = 1_u64;
    for lap in 0..4_u64 {
        while (hostile.position % ring) as usize + 8 * LINE <= hostile.ring() {
            // The payload consists of whole frames. Some have the signals that were right at these very positions a
            // lap ago. The others have those that are right where the frames behind this one will start.
            let here = hostile.position;
            let mut payload = Vec::new();
            for line in 1..4_u64 {
                let mut ghost = hostile.frame(&call(), b"ghost");
                let position = if line % 2 == 0 {
                    here + line * 64 + 256
                } else {
                    (here + line * 64).wrapping_sub(ring)
                };
                ghost[..8].copy_from_slice(&hostile.key.header(position).to_le_bytes());
                payload.extend(ghost);
            }
            hostile.send_plan(&call(), &payload);
            calls += 1;
            assert_eq!(hostile.reply(), calls.to_ne_bytes(), "lap {lap}");
        }
        // At the next position lies a frame of the lap before.
        fixture.serves_on();
        let skip = hostile.skip();
        hostile.send(&skip);
        let at = hostile.position - ring;
        hostile.signal(0, hostile.key.header(at));
        fixture.serves_on();
        hostile.send_plan(&call(), b"");
        calls += 1;
        assert_eq!(hostile.reply(), calls.to_ne_bytes());
    }
    assert!(calls > 500, "{calls} calls");
    let stats = fixture.end();
    assert_eq!(stats.refusals(), 0);
}

#[test]
fn a_return_line_that_lies_changes_nothing_but_its_own_replies() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let lies = [u64::MAX, 1 << 63, 1, 63, u64::MAX - 64, 0, 1 << 20];
    for round in 0..2000_u64 {
        let lie = lies[round as usize % lies.len()];
        hostile.write_credit_line(lie, lie.rotate_left(round as u32) ^ round);
        if round % 100 == 0 {
            fixture.serves_on();
        }
    }
    // More replies than its ring of 4 KiB has space for, while it claims to have taken all of them and more: the rest
    // waits.
    let consumed = hostile.consumed();
    for _ in 0..20 {
        hostile.send_plan(&call(), &[1; 1000]);
        hostile.write_credit_line(u64::MAX, 0);
    }
    fixture.serves_on();
    assert!(hostile.consumed() < consumed + 20 * 1088, "replies wait for space that is not there");
    drop(hostile);
    while fixture.gone.all().is_empty() {
        fixture.serves_on();
    }
    assert_eq!(fixture.end().refusals(), 0);
}

#[test]
fn endless_skips_delay_no_other_source() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let address = fixture.place.address();
    let (skips, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, stop) = (Arc::clone(&skips), Arc::clone(&enough));
    let skipper = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // The next skip is due as soon as the target has passed the last. Each but the first is a whole ring
            // long.
            let skip = hostile.skip();
            hostile.send(&skip);
            counted.fetch_add(1, Ordering::Relaxed);
            while hostile.consumed() < hostile.position {
                std::thread::yield_now();
            }
        }
        hostile
    });
    while skips.load(Ordering::Relaxed) < 200 {
        fixture.serves_on();
    }
    drop(Link::connect(&address).unwrap());
    enough.store(true, Ordering::Relaxed);
    let mut hostile = skipper.join().unwrap();
    hostile.send_plan(&call(), b"done skipping");
    assert_eq!(hostile.reply(), b"done skipping");
    assert_eq!(fixture.end().refusals(), 0);
}

#[test]
fn an_incomplete_frame_blocks_only_its_mailbox_until_the_stall_timeout() {
    let place = Place::new();
    let checked = || Altered::new(Shm::new()).named("only").with_rules(ArrivalRules::CHECKED).boxed();
    let (gone, note_gone) = Seen::new();
    let target = place
        .target()
        .transport("only")
        .with_transport(checked())
        .stall_timeout(Duration::from_millis(100))
        .on_peer_gone(move |_, why| note_gone(why.to_owned()))
        .build()
        .unwrap()
        .spawn()
        .unwrap();
    let honest = place.link().with_transport(checked()).transport("only").connect().unwrap();
    assert_eq!(honest.arrival_rule(), ArrivalRules::CHECKED);
    let sequence = library("sequence");
    let mut hostile = RawSource::connect_by(&place.address(), checked());
    // Two lines whose trailer, a checksum in the last word, does not come.
    let frame = hostile.frame(&call(), &[1; 60]);
    let frame = with(frame, FLAGS, &[0x36]);
    hostile.send(&frame);
    let mut calls = 0;
    while gone.all().is_empty() {
        let call = honest.inject(&sequence, &words(&[calls])).unwrap();
        calls += 1;
        assert_eq!(*call.wait(PATIENCE).unwrap(), *words(&[calls, 0]));
    }
    assert!(calls > 1, "the others are served meanwhile");
    let text = hostile.closing();
    assert!(text.contains("did not follow its signal within 100ms"), "{text}");
    assert_eq!(gone.all(), [text]);
    assert!(hostile.message().is_none());
    drop(honest);
    let stats = target.stop().unwrap().stats().clone();
    assert_eq!((stats.refused(RefusalCause::Stalled), stats.refusals()), (1, 1));
}
