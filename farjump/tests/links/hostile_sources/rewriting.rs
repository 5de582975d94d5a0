//! Sources that overwrite waiting frames: the target runs the frame's contents at the time when it was found.

use farjump::core::frame::{Kind, LINE, Layout, MESSAGES_HEAD_LEN, Messages, Plan, PlanCode, Trailer};
use farjump::{CodeId, RefusalCause};
use farjump_control::Message;
use farjump_loader::code_id;

use super::Scene;
use crate::hostile_sources::raw::{RawBigger, RawSource, Told, call, call_code, call_id};
use crate::support::{library, words};

/// The id of code that no source has.
const NOBODYS: CodeId = CodeId([0x77; 16]);
const BIGGER: u64 = 100_000;

fn switch() -> Plan<'static> {
    Plan { kind: Kind::Large, wants_reply: false, ..call() }
}

/// A call of code at an index without another binding.
fn missing(name: &str, id: CodeId, epoch: u64) -> Plan<'_> {
    Plan { index: 3, ..call_id(name, id, epoch) }
}

fn call_local(name: &str, epoch: u64) -> Plan<'_> {
    let code = PlanCode { image: &[], id: CodeId([0; 16]), epoch, name };
    Plan { kind: Kind::CallLocal, code: Some(code), ..call() }
}

/// The bytes that a frame of `plan` would have in place of the frame that was sent last, `len` bytes before
/// the one that is due.
fn over(liar: &RawSource, len: usize, plan: &Plan<'_>, payload: &[u8]) -> Vec<u8> {
    let layout: Layout = plan.layout((liar.offset() - len) % 4096, payload.len(), Trailer::Never);
    let mut bytes = vec![0; layout.frame_len];
    plan.write(&layout, 0, payload.len(), &mut bytes).unwrap();
    bytes[layout.payload..][..payload.len()].copy_from_slice(payload);
    bytes
}

/// Writes that frame there, but for its signal.
fn rewrite(liar: &RawSource, len: usize, plan: &Plan<'_>, payload: &[u8]) {
    let frame = over(liar, len, plan, payload);
    liar.write(liar.offset() - len + 8, &frame[8..]);
}

/// Takes the target's request for code that `liar` was made to name.
fn asked(liar: &mut RawSource, id: CodeId) {
    match liar.told() {
        Told::Message(Message::NeedCode { id: asked, .. }) => assert_eq!(asked, id.0),
        other => panic!("{other:?}"),
    }
}

fn has_none(liar: &mut RawSource, id: CodeId) {
    liar.control.send(&Message::NoCode { id: id.0 }, &[]).unwrap();
}

/// A target with a function of its own that wants its payload at whole pages.
fn with_mirror() -> Scene {
    Scene::of(|target| target.local(&library("mirror")))
}

/// Checks that the next reply is to this call: rewritten frames that ran would have replied before.
fn goes_on(liar: &mut RawSource) {
    liar.send_plan(&Plan { token: 99, ..call() }, b"honest again");
    assert_eq!(liar.reply_and_token(), (99, b"honest again".to_vec()));
}

#[test]
fn a_switch_rewritten_while_its_frame_waits_for_code_runs_nothing_and_tells_no_memory() {
    let mut scene = with_mirror();
    let image = library("tally").images()[0].bytes().to_vec();
    // The waiting frame has the name of a function of the target's, and the frame written over its Switch
    // another length. Mixed, the two would have a payload copied beyond its end, or into too small a buffer.
    for (waiting, written) in [(16, 1000), (20_000, 16)] {
        for other in 0..7 {
            let mut liar = scene.liar();
            let epoch = liar.epoch;
            let other = match other {
                0 => call_local("mirror", epoch),
                1 => call_code("tally", &image, code_id(&image), epoch),
                2 => call_id("mirror", NOBODYS, epoch),
                3 => call(),
                4 => Plan { kind: Kind::Flush, ..call() },
                5 => Plan { kind: Kind::CallBatch, wants_reply: false, ..call() },
                _ => Plan { kind: Kind::Skip, ..call() },
            };
            let bigger = RawBigger::open(&mut liar, BIGGER);
            bigger.place(&missing("mirror", NOBODYS, epoch), &vec![5; waiting]);
            liar.send_plan(&switch(), b"");
            asked(&mut liar, NOBODYS);
            rewrite(&liar, LINE, &other, &vec![6; written]);
            scene.serves_on();
            has_none(&mut liar, NOBODYS);
            scene.refuses(&mut liar, RefusalCause::CodeMissing, "did not send it", "what waited");
            goes_on(&mut liar);
        }
    }
    // Only the echoes ran, and the honest source's calls.
    let stats = scene.end();
    assert_eq!(stats.refusals(), 14);
}

#[test]
fn a_switch_rewritten_before_the_code_comes_runs_what_it_stood_for() {
    let scene = with_mirror();
    let mut liar = scene.liar();
    let bigger = RawBigger::open(&mut liar, BIGGER);
    let tally = library("tally").images()[0].bytes().to_vec();
    let id = code_id(&tally);
    bigger.place(&missing("tally", id, liar.epoch), &[5; 16]);
    liar.send_plan(&switch(), b"");
    asked(&mut liar, id);
    // Both mailboxes have other contents now: a function of the target's, and a bound index.
    rewrite(&liar, LINE, &call_local("mirror", liar.epoch), &[6; 1000]);
    bigger.write(8, &[0xff; 120]);
    liar.control.send(&Message::Code { id: id.0, image: tally }, &[]).unwrap();
    assert_eq!(liar.reply_and_token(), (7, 1_u64.to_ne_bytes().to_vec()), "the first call of a tally");
    goes_on(&mut liar);
    assert_eq!(scene.end().refusals(), 0);
}

#[test]
fn a_frame_rewritten_while_it_waits_for_code_runs_as_it_was_sent() {
    let mut scene = with_mirror();
    let image = library("heavy").images()[0].bytes().to_vec();
    let id = code_id(&image);
    let mut liar = scene.liar();
    let payload = [5; 100];
    let before = liar.position;
    liar.send_plan(&missing("heavy", id, liar.epoch), &payload);
    asked(&mut liar, id);
    let len = (liar.position - before) as usize;
    // Another index, another name, more payload: a frame that would be valid.
    rewrite(&liar, len, &call_local("mirror", liar.epoch), &[6; 1000]);
    scene.serves_on();
    liar.control.send(&Message::Code { id: id.0, image }, &[]).unwrap();
    while liar.control.wants_write() {
        liar.control.flush().unwrap();
    }
    let (token, reply) = liar.reply_and_token();
    assert_eq!((token, reply.len()), (7, payload.len()), "the length that was sent");
    goes_on(&mut liar);
    assert_eq!(scene.end().refusals(), 0);
}

#[test]
fn a_switch_stands_for_its_frame_from_when_it_was_seen_on() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let bigger = RawBigger::open(&mut liar, BIGGER);
    liar.send_plan(&switch(), b"");
    // The target polls it meanwhile.
    scene.serves_on();
    rewrite(&liar, LINE, &Plan { token: 8, ..call() }, b"written over");
    scene.serves_on();
    bigger.place(&call(), b"as announced");
    assert_eq!(liar.reply_and_token(), (7, b"as announced".to_vec()));
    goes_on(&mut liar);
    assert_eq!(scene.end().refusals(), 0);
}

#[test]
fn a_switch_rewritten_by_a_source_that_goes_then_runs_nothing() {
    let mut scene = with_mirror();
    for other in ["mirror", "echo"] {
        let mut liar = scene.liar();
        let bigger = RawBigger::open(&mut liar, BIGGER);
        bigger.place(&missing("mirror", NOBODYS, liar.epoch), &[5; 16]);
        liar.send_plan(&switch(), b"");
        asked(&mut liar, NOBODYS);
        match other {
            "mirror" => rewrite(&liar, LINE, &call_local("mirror", liar.epoch), &[6; 1000]),
            _ => rewrite(&liar, LINE, &call(), &[6; 1000]),
        }
        let gone = scene.gone.all().len();
        drop(liar);
        while scene.gone.all().len() == gone {
            scene.serves_on();
        }
    }
    let honest = scene.calls;
    let stats = scene.end();
    assert_eq!((stats.calls, stats.refused(RefusalCause::CodeMissing)), (honest + 2, 2), "two echoes");
}

#[test]
fn a_bigger_mailbox_whose_frame_waits_is_neither_given_back_nor_replaced() {
    let mut scene = Scene::new();
    for message in [Message::LargeRelease, Message::LargeRequest { frame: 2 * BIGGER, payload: BIGGER }] {
        let mut liar = scene.liar();
        let bigger = RawBigger::open(&mut liar, BIGGER);
        bigger.place(&missing("tally", NOBODYS, liar.epoch), b"");
        liar.send_plan(&switch(), b"");
        asked(&mut liar, NOBODYS);
        // The kept frame counts, not the present contents of the first mailbox.
        rewrite(&liar, LINE, &call(), b"");
        liar.control.send(&message, &[]).unwrap();
        let words = if matches!(message, Message::LargeRelease) {
            "not empty"
        } else {
            "while it was offered another"
        };
        scene.cuts(liar, words, "a mailbox in use");
    }
    assert_eq!(scene.end().refused(RefusalCause::BadFrame), 2);
}

#[test]
fn messages_that_share_a_frame_are_those_that_it_had_when_it_was_begun() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let image = library("speech").images()[0].bytes().to_vec();
    let bind = Plan { index: 5, ..call_code("speech", &image, code_id(&image), liar.epoch) };
    liar.send_plan(&bind, &words(&[0, 0]));
    assert_eq!(liar.reply(), [0]);
    // Each panics with its number, and the source does not read that: after a while the target waits for it
    // to, in the middle of a frame.
    const LEN: usize = 24;
    let count = 40;
    let plan = Plan { kind: Kind::CallBatch, wants_reply: false, index: 5, ..call() };
    let messages = Messages { len: LEN as u32, count };
    let mut sent = 0_u64;
    let mut frames = 0_u64;
    let mut stuck = 0;
    while stuck < 200 {
        if liar.position - liar.consumed() >= liar.ring() as u64 / 2 {
            scene.serves_on();
            stuck += 1;
            continue;
        }
        stuck = 0;
        let mut payload = messages.to_word().to_le_bytes().to_vec();
        assert_eq!(payload.len(), MESSAGES_HEAD_LEN);
        for _ in 0..count {
            payload.extend(words(&[0, 0]));
            payload.extend(format!("{sent:08}").into_bytes());
            sent += 1;
        }
        if liar.ring() - liar.offset() < payload.len() + 4 * LINE {
            let skip = liar.skip();
            liar.send(&skip);
        }
        liar.send_plan(&plan, &payload);
        frames += 1;
    }
    assert_eq!(frames * u64::from(count), sent);
    // The head of the frame that was begun.
    let other = Messages { len: 16, count: 50 };
    let mut at = liar.consumed();
    while at < liar.position {
        let offset = at as usize % liar.ring();
        if liar.read(offset + 16, 1)[0] == Kind::Skip as u8 {
            at += (liar.ring() - offset) as u64;
            continue;
        }
        // Only the first has been polled: the others must stay unchanged.
        liar.write(offset + LINE, &other.to_word().to_le_bytes());
        break;
    }
    // Every call sent reports its number, in order, once.
    for number in 0..sent {
        match liar.told() {
            Told::Message(Message::Refused { cause: RefusalCause::Panicked, text, .. }) => {
                assert!(text.ends_with(&format!(": {number:08}")), "{number}: {text}");
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    scene.serves_on();
    assert_eq!(scene.end().refused(RefusalCause::Panicked), sent);
}
