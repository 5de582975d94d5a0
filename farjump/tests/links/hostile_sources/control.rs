//! Malformed messages and silence on the control connection.

use std::os::fd::AsFd;
use std::thread;

use farjump::CodeId;
use farjump::RefusalCause;
use farjump::core::frame::{LINE, Plan};
use farjump_control::Message;
use farjump_fixtures::by_hand::hello;
use farjump_fixtures::raw_source::{RawSource, call, call_id};
use farjump_loader::code_id;

use super::Fixture;
use crate::support::{Place, image_of, library, poll_until};

#[test]
fn unrequested_control_messages_cut_the_link() {
    let mut fixture = Fixture::new();
    let image = image_of(&library("tally"));
    let messages = [
        Message::Code { id: code_id(&image).0, image: image.clone() },
        Message::NoCode { id: [0; 16] },
        Message::Go,
        Message::Closing { text: "no, you".into() },
        hello(),
    ];
    for message in &messages {
        let mut hostile = fixture.hostile();
        hostile.control.send(message, &[]).unwrap();
        fixture.cuts(hostile, &format!("sent {} unasked", message.name()), message.name());
    }
    // While the target waits for one code, any other code is unrequested, too.
    let mut hostile = fixture.hostile();
    let plan = Plan { index: 1, ..call_id("tally", CodeId([3; 16]), hostile.epoch) };
    hostile.send_plan(&plan, b"");
    hostile.requested_code();
    hostile.say(&messages[0]);
    fixture.cuts(hostile, "sent Code unasked", "another code than the one waited for");
    assert_eq!(fixture.end().refused(RefusalCause::BadFrame), messages.len() as u64 + 1);
}

#[test]
fn a_source_that_ends_before_its_code_request_leaves_no_waiting_frame() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let address = place.address();
    let hostile = thread::spawn(move || RawSource::connect(&address));
    while !hostile.is_finished() {
        target.poll().unwrap();
    }
    let mut hostile = hostile.join().unwrap();
    poll_until(&mut target, |target| target.sources() > 0);
    hostile.send_plan(&Plan { index: 1, ..call_id("tally", CodeId([3; 16]), hostile.epoch) }, b"");
    drop(hostile);
    poll_until(&mut target, |target| target.sources() == 0);
    assert_eq!(target.stats().frames, 1, "it is refused once, and nothing waited");
}

#[test]
fn garbage_on_the_control_connection_cuts_the_link() {
    let mut fixture = Fixture::new();
    let too_long = [&u32::MAX.to_le_bytes()[..], &[0; 4]].concat();
    let cases: [(&str, Vec<u8>, &str); 3] = [
        ("a message of 4 GiB", too_long, "limit"),
        ("a message of no kind", [&1_u32.to_le_bytes()[..], &[0; 4], &[250]].concat(), "malformed"),
        ("a head that is none", vec![0xff; 8], ""),
    ];
    let count = cases.len() as u64;
    for (what, bytes, words) in cases {
        let hostile = fixture.hostile();
        rustix::io::write(hostile.control.as_fd(), &bytes).unwrap();
        fixture.cuts(hostile, words, what);
    }
    assert_eq!(fixture.end().refused(RefusalCause::BadFrame), count);
}

#[test]
fn a_source_that_reads_no_refusals_stays_linked_and_loses_none() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    // 60,000 frames that the target refuses with a text each: far more than fit in a socket and a queue.
    let mut sent = 0;
    while sent < 60_000_u64 {
        if (hostile.position - hostile.consumed()) as usize + LINE > hostile.ring() / 2 {
            if sent > 2000 && hostile.consumed() == hostile.position - (hostile.ring() / 2) as u64 {
                break;
            }
            fixture.serves_on();
            if hostile.position - hostile.consumed() > (hostile.ring() / 2 - LINE) as u64 {
                break;
            }
            continue;
        }
        hostile.send_plan(&Plan { index: 9, ..call() }, b"");
        sent += 1;
    }
    fixture.serves_on();
    let mut refused = 0;
    while refused < sent {
        assert_eq!(hostile.refusal(7).0, RefusalCause::UnknownIndex);
        refused += 1;
    }
    hostile.send_plan(&call(), b"no hard feelings");
    assert_eq!(hostile.reply(), b"no hard feelings");
    assert_eq!(fixture.end().refusals(), sent);
}
