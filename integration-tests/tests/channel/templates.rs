//! Frame templates and header prediction: frames that bring or name the same code again and again.

use farjump_core::channel::{Channel, Polled, Received, Reserved};
use farjump_core::frame::{CodePart, Header, Kind, Plan, PlanCode};
use farjump_core::image::CodeId;
use farjump_core::transport::ArrivalRules;

use super::peers::{Pair, RULES, pattern, plan};

const RING: usize = 8192;

fn named(kind: Kind, image: &[u8], token: u32) -> Plan<'_> {
    let image = if kind == Kind::CallCode { image } else { &[] };
    let code = PlanCode { image, id: CodeId([7; 16]), epoch: 9, name: "again", family: None };
    Plan { code: Some(code), ..plan(kind, token) }
}

fn finish(plan: &Plan<'_>, space: Reserved<'_>, payload: &[u8]) {
    assert!(space.space() >= payload.len());
    // SAFETY: `reserve` lends at least `payload.len()` bytes.
    unsafe { space.payload().as_ptr().copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
    space.commit(plan, payload.len()).unwrap();
}

/// All visible parts of the held frame, except its length: header, code, payload, image and name.
type Seen = (Header, Option<CodePart>, Vec<u8>, Vec<u8>, Vec<u8>);

fn seen(frame: &Received<'_>) -> Seen {
    let contents = frame.contents();
    let (mut payload, mut image, mut name) = (Vec::new(), Vec::new(), [0; 255]);
    contents.copy_payload(&mut payload);
    contents.copy_image(&mut image);
    let len = contents.copy_name_to(&mut name);
    (Header { frame_len: 0, ..frame.header() }, contents.code(), payload, image, name[..len].to_vec())
}

fn poll(channel: &mut Channel) -> Seen {
    let Polled::Frame(frame) = channel.poll().unwrap() else { panic!("a frame was sent") };
    let seen = seen(&frame);
    frame.release().unwrap();
    seen
}

/// As [`poll`]. From here on the channel predicts frames like this one.
fn learn(channel: &mut Channel) -> Seen {
    let Polled::Frame(frame) = channel.poll().unwrap() else { panic!("a frame was sent") };
    let seen = seen(&frame);
    let taken = frame.take();
    channel.predict(&taken);
    channel.release(taken).unwrap();
    seen
}

#[test]
fn a_stamped_frame_says_what_the_one_that_was_reserved_does() {
    for kind in [Kind::CallCode, Kind::CallLocal] {
        let mut pair = Pair::new(ArrivalRules::STORES, true, RING);
        let mut with_template = 0;
        for len in (0..400).chain(0..400) {
            let image = pattern(5, 1 + len as usize % 7 * 31);
            let (first, again) = (named(kind, &image, 1), named(kind, &image, 1));
            let payload = pattern(len, len as usize);
            let space = pair.left.channel.reserve(&first, payload.len() + 8).unwrap();
            finish(&first, space, &payload);
            let template = pair.left.channel.template(&first).unwrap();
            assert_eq!(template.image_len(), first.code.unwrap().image.len());
            let expected = poll(&mut pair.right.channel);
            pair.right.channel.progress(true).unwrap();
            // At the ring's end there may be too little space.
            let Some(space) = pair.left.channel.reserve_from_template(&template, payload.len() + 8) else {
                continue;
            };
            finish(&Plan { code: None, ..again }, space, &payload);
            assert_eq!(poll(&mut pair.right.channel), expected, "{kind:?}, {len}");
            pair.right.channel.progress(true).unwrap();
            with_template += 1;
        }
        assert!(with_template > 700, "only {with_template}");
    }
}

#[test]
fn only_code_frames_without_alignment_in_mapped_rings_have_templates() {
    for (rule, line_whole) in RULES {
        let pair = Pair::new(rule, line_whole, RING);
        let template = |plan: &Plan<'_>| pair.left.channel.template(plan).is_some();
        let code = named(Kind::CallCode, &[1; 40], 1);
        assert_eq!(template(&code), rule == ArrivalRules::STORES, "{rule:?}");
        assert!(!template(&plan(Kind::Call, 1)) && !template(&Plan { align_log2: 8, ..code }));
    }
}

#[test]
fn a_frame_from_a_template_needs_credit() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    let code = named(Kind::CallCode, &[1; 40], 1);
    let template = pair.left.channel.template(&code).unwrap();
    for len in [4096, usize::MAX, usize::MAX - 4096] {
        assert!(pair.left.channel.reserve_from_template(&template, len).is_none());
    }
    let mut sent = 0;
    while let Some(space) = pair.left.channel.reserve_from_template(&template, 8) {
        finish(&Plan { token: sent, ..code }, space, &[3; 8]);
        sent += 1;
        assert!(sent <= 4096 / 128, "frames over frames that nobody has taken");
    }
    for token in 0..sent {
        assert_eq!(poll(&mut pair.right.channel).0.token, token);
    }
}

#[test]
fn a_frame_with_a_known_header_is_predicted_and_no_other() {
    for (rule, line_whole) in [(ArrivalRules::STORES, true), (ArrivalRules::FENCED, false)] {
        let mut pair = Pair::new(rule, line_whole, RING);
        let image = [1; 40];
        let code = named(Kind::CallCode, &image, 1);
        let send = |pair: &mut Pair, plan: &Plan<'_>, payload: &[u8]| {
            let space = pair.left.channel.reserve(plan, payload.len()).unwrap();
            finish(plan, space, payload);
            pair.settle();
        };
        send(&mut pair, &code, &[4; 8]);
        assert!(pair.right.channel.predicted().is_none(), "nothing is predicted");
        learn(&mut pair.right.channel);
        assert!(pair.right.channel.predicted().is_none(), "nothing is there");
        let mut known = 0;
        for token in 2..200 {
            let again =
                Plan { token, wants_reply: token % 2 == 0, alone: token % 3 == 0, travelled: false, ..code };
            send(&mut pair, &again, &[5; 8]);
            // At the ring's end a skip may precede it.
            let found = pair.right.channel.predicted().map(|frame| seen(&frame));
            let expected = learn(&mut pair.right.channel);
            assert!(found.as_ref().is_none_or(|found| *found == expected), "{token}");
            known += usize::from(found.is_some());
            pair.right.channel.progress(true).unwrap();
        }
        assert!(known > 150, "{rule:?}: only {known}");
        let part = code.code.unwrap();
        let others = [
            (Plan { index: 2, ..code }, 8),
            (Plan { kind: Kind::CallId, code: Some(PlanCode { image: &[], ..part }), ..code }, 8),
            (Plan { code: Some(PlanCode { id: CodeId([8; 16]), ..part }), ..code }, 8),
            (Plan { code: Some(PlanCode { epoch: 10, ..part }), ..code }, 8),
            (Plan { code: Some(PlanCode { name: "agai", ..part }), ..code }, 8),
            (Plan { code: Some(PlanCode { image: &image[1..], ..part }), ..code }, 8),
            (Plan { align_log2: 6, ..code }, 8),
            (code, 9),
        ];
        for (other, len) in others {
            send(&mut pair, &other, &vec![6; len]);
            assert!(pair.right.channel.predicted().is_none(), "{other:?}");
            poll(&mut pair.right.channel);
            pair.right.channel.progress(true).unwrap();
            send(&mut pair, &code, &[4; 8]);
            assert!(pair.right.channel.predicted().is_none(), "another frame has come since");
            learn(&mut pair.right.channel);
            pair.right.channel.progress(true).unwrap();
        }
        // Name and image, which the words do not cover, may differ: the caller compares them.
        send(&mut pair, &Plan { code: Some(PlanCode { image: &[2; 40], ..part }), ..code }, &[7; 8]);
        let frame = pair.right.channel.predicted().unwrap();
        assert!(frame.contents().image_is(&[2; 40]) && !frame.contents().image_is(&image));
    }
}
