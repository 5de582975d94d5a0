//! Frames that are malformed, or wrong at their position.

use farjump::RefusalCause;
use farjump::core::frame::{CODE_HEADER_LEN, Kind, Plan, PlanCode};
use farjump_fixtures::raw_source::{RawSource, call, call_code, call_id};
use farjump_loader::code_id;

use super::{FLAGS, Fixture, with, with_u32};
use crate::support::{image_of, library};

/// Makes a frame for the hostile's next position.
type Making = Box<dyn Fn(&RawSource) -> Vec<u8>>;

const FRAME_LEN: usize = 8;
const PAYLOAD_LEN: usize = 12;
const KIND: usize = 16;
const IMAGE_AT: usize = 24;
const IMAGE_LEN: usize = 28;
const PAYLOAD_AT: usize = 56;
const NAME_LEN: usize = 60;
const FAMILY_LEN: usize = 62;

#[test]
fn frames_with_impossible_lengths_kinds_and_flags_cut_their_source_off() {
    let mut fixture = Fixture::new();
    let ring = 1 << 16;
    // Honest lengths: a line, or two with 100 bytes of payload at 64.
    let lengths = [0, 1, 63, 65, 100, ring, ring + 64, 1 << 20, 1 << 31, !63, u32::MAX];
    let mut cases: Vec<(String, &str, Making)> = Vec::new();
    for len in lengths {
        let words = if len % 64 == 0 && len > 0 { "past the end" } else { "frame length" };
        cases.push((
            format!("frame length {len}"),
            words,
            Box::new(move |hostile| with_u32(hostile.frame(&call(), b"12345678"), FRAME_LEN, len)),
        ));
    }
    for len in [41, 42, 64, 1 << 16, 1 << 31, u32::MAX - 24, u32::MAX] {
        cases.push((
            format!("payload length {len} in one line"),
            "payload",
            Box::new(move |hostile| with_u32(hostile.frame(&call(), b"12345678"), PAYLOAD_LEN, len)),
        ));
    }
    for len in [129, 192, u32::MAX - 63, u32::MAX] {
        cases.push((
            format!("payload length {len} in three lines"),
            "payload",
            Box::new(move |hostile| with_u32(hostile.frame(&call(), &[1; 100]), PAYLOAD_LEN, len)),
        ));
    }
    for kind in [0, 12, 13, 127, 128, 255] {
        cases.push((
            format!("kind {kind}"),
            "kind",
            Box::new(move |hostile| with(hostile.frame(&call(), b""), KIND, &[kind])),
        ));
    }
    // A forwarded call without its passage.
    for len in [0, 7] {
        cases.push((
            format!("a passage in {len} bytes"),
            "payload",
            Box::new(move |hostile| with(hostile.frame(&call(), &[0; 7][..len]), FLAGS, &[0x93])),
        ));
    }
    // Alignments of 1, 4, and 8192 bytes; a trailer where none is due; frames that claim a hop and have none.
    for flags in [0x10, 0x12, 0x1d, 0x1f, 0x33, 0x73, 0xb3, 0xff] {
        cases.push((
            format!("flags {flags:#04x}"),
            "flags",
            Box::new(move |hostile| with(hostile.frame(&call(), b""), FLAGS, &[flags])),
        ));
    }
    cases.push((
        "a skip that does not end with the ring".into(),
        "frame length",
        Box::new(|hostile| with_u32(hostile.skip(), FRAME_LEN, 128)),
    ));
    cases.push((
        "a skip with a payload".into(),
        "payload",
        Box::new(|hostile| with_u32(hostile.skip(), PAYLOAD_LEN, 8)),
    ));
    let count = cases.len();
    for (what, words, frame) in cases {
        let mut hostile = fixture.hostile();
        let frame = frame(&hostile);
        hostile.send(&frame);
        fixture.cuts(hostile, words, &what);
    }
    let stats = fixture.end();
    assert_eq!(stats.refused(RefusalCause::BadFrame), count as u64);
    assert_eq!(stats.refusals(), count as u64);
}

#[test]
fn code_frames_with_overlapping_or_outlying_parts_cut_their_source_off() {
    let mut fixture = Fixture::new();
    let image = image_of(&library("tally"));
    let image_len = image.len() as u32;
    let id = code_id(&image);
    let edits: &[(&str, usize, u32, &str)] = &[
        ("an image at 0", IMAGE_AT, 0, "image"),
        ("an image on the header", IMAGE_AT, 32, "image"),
        ("an image on the name", IMAGE_AT, CODE_HEADER_LEN as u32, "image"),
        ("an image past the end", IMAGE_AT, 1 << 20, "image"),
        ("an image at the maximum", IMAGE_AT, u32::MAX, "image"),
        ("an image without bytes", IMAGE_LEN, 0, "image"),
        ("an image longer than the frame", IMAGE_LEN, 1 << 16, "image"),
        ("an image of the maximum", IMAGE_LEN, u32::MAX, "image"),
        ("an image over the payload", IMAGE_LEN, image_len + 64, "payload"),
        ("a payload on the header", PAYLOAD_AT, 0, "payload"),
        ("a payload on the image", PAYLOAD_AT, 128, "payload"),
        ("a payload past the end", PAYLOAD_AT, 1 << 20, "payload"),
        ("a payload at the maximum", PAYLOAD_AT, u32::MAX, "payload"),
        ("a payload that is too long", PAYLOAD_LEN, 4096, "payload"),
        ("a payload of the maximum", PAYLOAD_LEN, u32::MAX, "payload"),
        ("a frame too short for its header", FRAME_LEN, 64, "name"),
        ("a frame too short for its image", FRAME_LEN, 128, "image"),
        ("a name of 256 bytes", NAME_LEN, 256, "name"),
        ("a name of the maximum", NAME_LEN, 0xffff, "name"),
        ("a family id of 1 byte", FAMILY_LEN, 1, "family id of 1 bytes"),
        ("a family id over the image", FAMILY_LEN, 16, "image"),
    ];
    for (what, at, value, expected) in edits {
        let mut hostile = fixture.hostile();
        let frame = hostile.frame(&call_code("tally", &image, id, hostile.epoch), &[1; 100]);
        // Behind 60 the fields have 16 bits.
        let bytes = if *at >= NAME_LEN { &value.to_le_bytes()[..2] } else { &value.to_le_bytes()[..] };
        let frame = with(frame, *at, bytes);
        hostile.send(&frame);
        fixture.cuts(hostile, expected, what);
    }
    let mut hostile = fixture.hostile();
    let misaligned = with(
        hostile.frame(&call_code("tally", &image, id, hostile.epoch), &[1; 100]),
        PAYLOAD_AT,
        &(128 + image_len + 1).to_le_bytes(),
    );
    hostile.send(&misaligned);
    fixture.cuts(hostile, "payload", "a payload that is not aligned");
    let mut hostile = fixture.hostile();
    let named = with_u32(hostile.frame(&call_id("tally", id, hostile.epoch), b""), IMAGE_LEN, 16);
    hostile.send(&named);
    fixture.cuts(hostile, "image", "an image where none travels");
    let stats = fixture.end();
    assert_eq!(stats.refused(RefusalCause::BadFrame), edits.len() as u64 + 2);
    // The echo of every hostile and the honest source's code, and nothing else.
    assert_eq!(stats.images_linked, 2);
}

#[test]
fn frames_invalid_in_context_are_refused_and_the_link_continues() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let tally = library("tally");
    let image = image_of(&tally);
    let id = code_id(&image);
    let (epoch, stale) = (hostile.epoch, hostile.epoch.wrapping_add(1));
    hostile.send_plan(&Plan { kind: Kind::Reply, ..call() }, b"?");
    fixture.refuses(&mut hostile, RefusalCause::BadFrame, "only targets send", "a reply");
    hostile.send_plan(&Plan { index: 1, ..call() }, b"");
    fixture.refuses(&mut hostile, RefusalCause::UnknownIndex, "index 1", "an index never bound");
    hostile.send_plan(&Plan { index: u16::MAX, ..call() }, b"");
    fixture.refuses(&mut hostile, RefusalCause::UnknownIndex, "index 65535", "the largest index");
    for round in ["the code", "the id alone"] {
        let plan = match round {
            "the code" => call_code("tally", &image, id, stale),
            _ => call_id("tally", id, stale),
        };
        hostile.send_plan(&Plan { index: 2, ..plan }, b"");
        fixture.refuses(&mut hostile, RefusalCause::StaleEpoch, "connect again", round);
        hostile.send_plan(&Plan { index: 2, ..call() }, b"");
        fixture.refuses(&mut hostile, RefusalCause::StaleEpoch, "connect again", "a call by that index");
    }
    // A bound index is bound anew, and never falls back to its earlier code.
    hostile.send_plan(&Plan { index: 0, ..call_code("tally", &image, id, stale) }, b"");
    fixture.refuses(&mut hostile, RefusalCause::StaleEpoch, "connect again", "an index bound before");
    hostile.send_plan(&call(), b"");
    fixture.refuses(&mut hostile, RefusalCause::StaleEpoch, "connect again", "and a call by it");
    hostile.send_plan(&Plan { index: 65_535, ..call_code("tally", &image, id, epoch) }, b"");
    assert_eq!(hostile.reply(), 1_u64.to_ne_bytes());
    assert_eq!(fixture.end().refusals(), 9);
}

/// `PlanCode` is public. It can express an image in a frame that only names its code: the target refuses that, too.
#[test]
fn a_frame_that_names_its_code_and_brings_it_is_no_frame() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let image = image_of(&library("tally"));
    let code =
        PlanCode { image: &image, id: code_id(&image), epoch: hostile.epoch, name: "tally", family: None };
    let plan = Plan { kind: Kind::CallId, code: Some(code), index: 1, ..call() };
    hostile.send_plan(&plan, b"");
    fixture.cuts(hostile, "image", "code with a frame that names it");
}
