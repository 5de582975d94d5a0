//! Sources that overwrite waiting frames: the target runs a frame with the contents that it found first.

use farjump::core::frame::{Kind, LINE, MESSAGES_HEAD_LEN, Messages, Plan, Trailer};
use farjump::{CodeId, RefusalCause};
use farjump_control::Message;
use farjump_fixtures::raw_mailbox::frame_at;
use farjump_fixtures::raw_source::{RawLargeMailbox, RawSource, call, call_code, call_id, call_local, large};
use farjump_loader::code_id;

use super::Fixture;
use crate::support::{image_of, library, words};

/// The id of code that no source has.
const UNKNOWN_CODE: CodeId = CodeId([0x77; 16]);
const LARGE: u64 = 100_000;

/// A call of code at an index without another binding.
fn missing(name: &str, id: CodeId, epoch: u64) -> Plan<'_> {
    Plan { index: 3, ..call_id(name, id, epoch) }
}

/// Writes the frame of `plan`, without its signal, over the frame that was sent last. That frame starts `len` bytes
/// before the position of the next one.
fn rewrite(hostile: &RawSource, len: usize, plan: &Plan<'_>, payload: &[u8]) {
    let at = hostile.offset() - len;
    hostile.write(at + 8, &frame_at(at, plan, payload, Trailer::Never).unwrap()[8..]);
}

fn has_none(hostile: &mut RawSource, id: CodeId) {
    hostile.say(&Message::NoCode { id: id.0 });
}

/// A fixture whose target has a function of its own that requires its payload at page boundaries.
fn with_mirror() -> Fixture {
    Fixture::of(|target| target.local(&library("mirror")))
}

/// Checks that the next reply is to this call: a rewritten frame that ran would have replied before.
fn check_next_reply(hostile: &mut RawSource) {
    hostile.send_plan(&Plan { token: 99, ..call() }, b"honest again");
    assert_eq!(hostile.reply_and_token(), (99, b"honest again".to_vec()));
}

#[test]
fn a_rewritten_switch_runs_nothing_when_its_frames_code_is_missing() {
    let mut fixture = with_mirror();
    let image = image_of(&library("tally"));
    // The waiting frame has the name of one of the target's functions, and the frame written over its Switch has
    // another length. If the target mixed the two, it would copy a payload beyond its end, or into too small a
    // buffer.
    for (waiting, written) in [(16, 1000), (20_000, 16)] {
        for other in 0..7 {
            let mut hostile = fixture.hostile();
            let epoch = hostile.epoch;
            let other = match other {
                0 => call_local("mirror", epoch),
                1 => call_code("tally", &image, code_id(&image), epoch),
                2 => call_id("mirror", UNKNOWN_CODE, epoch),
                3 => call(),
                4 => Plan { kind: Kind::Flush, ..call() },
                5 => Plan { kind: Kind::CallBatch, wants_reply: false, ..call() },
                _ => Plan { kind: Kind::Skip, ..call() },
            };
            let mailbox = RawLargeMailbox::open(&mut hostile, LARGE);
            mailbox.place(&missing("mirror", UNKNOWN_CODE, epoch), &vec![5; waiting]);
            hostile.send_plan(&large(), b"");
            assert_eq!(hostile.requested_code(), UNKNOWN_CODE);
            rewrite(&hostile, LINE, &other, &vec![6; written]);
            fixture.serves_on();
            has_none(&mut hostile, UNKNOWN_CODE);
            fixture.refuses(&mut hostile, RefusalCause::CodeMissing, "did not send it", "what waited");
            check_next_reply(&mut hostile);
        }
    }
    // Only the echoes and the honest source's calls ran.
    let stats = fixture.end();
    assert_eq!(stats.refusals(), 14);
}

#[test]
fn a_switch_rewritten_before_the_code_comes_runs_what_it_stood_for() {
    let fixture = with_mirror();
    let mut hostile = fixture.hostile();
    let mailbox = RawLargeMailbox::open(&mut hostile, LARGE);
    let tally = image_of(&library("tally"));
    let id = code_id(&tally);
    mailbox.place(&missing("tally", id, hostile.epoch), &[5; 16]);
    hostile.send_plan(&large(), b"");
    assert_eq!(hostile.requested_code(), id);
    // Both mailboxes have other contents now: one of the target's functions, and a bound index.
    rewrite(&hostile, LINE, &call_local("mirror", hostile.epoch), &[6; 1000]);
    mailbox.write(8, &[0xff; 120]);
    hostile.send_code(id, &tally);
    assert_eq!(hostile.reply_and_token(), (7, 1_u64.to_ne_bytes().to_vec()), "the first call of a tally");
    check_next_reply(&mut hostile);
    assert_eq!(fixture.end().refusals(), 0);
}

#[test]
fn a_frame_rewritten_while_it_waits_for_code_runs_as_sent() {
    let mut fixture = with_mirror();
    let image = image_of(&library("heavy"));
    let id = code_id(&image);
    let mut hostile = fixture.hostile();
    let payload = [5; 100];
    let before = hostile.position;
    hostile.send_plan(&missing("heavy", id, hostile.epoch), &payload);
    assert_eq!(hostile.requested_code(), id);
    let len = (hostile.position - before) as usize;
    // Another index, another name, more payload: a frame that would be valid.
    rewrite(&hostile, len, &call_local("mirror", hostile.epoch), &[6; 1000]);
    fixture.serves_on();
    hostile.send_code(id, &image);
    while hostile.control.wants_write() {
        hostile.control.flush().unwrap();
    }
    let (token, reply) = hostile.reply_and_token();
    assert_eq!((token, reply.len()), (7, payload.len()), "the length that was sent");
    check_next_reply(&mut hostile);
    assert_eq!(fixture.end().refusals(), 0);
}

#[test]
fn a_switch_stands_for_its_frame_from_when_it_was_seen_on() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let mailbox = RawLargeMailbox::open(&mut hostile, LARGE);
    hostile.send_plan(&large(), b"");
    // The target polls this mailbox meanwhile.
    fixture.serves_on();
    rewrite(&hostile, LINE, &Plan { token: 8, ..call() }, b"written over");
    fixture.serves_on();
    mailbox.place(&call(), b"as announced");
    assert_eq!(hostile.reply_and_token(), (7, b"as announced".to_vec()));
    check_next_reply(&mut hostile);
    assert_eq!(fixture.end().refusals(), 0);
}

#[test]
fn a_switch_rewritten_by_a_source_that_goes_then_runs_nothing() {
    let mut fixture = with_mirror();
    for other in ["mirror", "echo"] {
        let mut hostile = fixture.hostile();
        let mailbox = RawLargeMailbox::open(&mut hostile, LARGE);
        mailbox.place(&missing("mirror", UNKNOWN_CODE, hostile.epoch), &[5; 16]);
        hostile.send_plan(&large(), b"");
        assert_eq!(hostile.requested_code(), UNKNOWN_CODE);
        match other {
            "mirror" => rewrite(&hostile, LINE, &call_local("mirror", hostile.epoch), &[6; 1000]),
            _ => rewrite(&hostile, LINE, &call(), &[6; 1000]),
        }
        let gone = fixture.gone.all().len();
        drop(hostile);
        while fixture.gone.all().len() == gone {
            fixture.serves_on();
        }
    }
    let honest = fixture.calls;
    let stats = fixture.end();
    assert_eq!((stats.calls, stats.refused(RefusalCause::CodeMissing)), (honest + 2, 2), "two echoes");
}

#[test]
fn releasing_or_replacing_a_large_mailbox_in_use_cuts_the_link() {
    let mut fixture = Fixture::new();
    for message in [Message::LargeRelease, Message::LargeRequest { frame: 2 * LARGE, payload: LARGE }] {
        let mut hostile = fixture.hostile();
        let mailbox = RawLargeMailbox::open(&mut hostile, LARGE);
        mailbox.place(&missing("tally", UNKNOWN_CODE, hostile.epoch), b"");
        hostile.send_plan(&large(), b"");
        assert_eq!(hostile.requested_code(), UNKNOWN_CODE);
        // The target uses its copy of the frame, not the present contents of the first mailbox.
        rewrite(&hostile, LINE, &call(), b"");
        hostile.say(&message);
        let words = if matches!(message, Message::LargeRelease) {
            "not empty"
        } else {
            "while it was offered another"
        };
        fixture.cuts(hostile, words, "a mailbox in use");
    }
    assert_eq!(fixture.end().refused(RefusalCause::BadFrame), 2);
}

#[test]
fn a_started_batch_keeps_its_calls_when_its_head_is_rewritten() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let image = image_of(&library("speech"));
    let bind = Plan { index: 5, ..call_code("speech", &image, code_id(&image), hostile.epoch) };
    hostile.send_plan(&bind, &words(&[0, 0]));
    assert_eq!(hostile.reply(), [0]);
    // Each call panics with its number, and the source does not read the refusals. After a while the target waits in
    // the middle of a frame until the source reads them.
    const LEN: usize = 24;
    let count = 40;
    let plan = Plan { kind: Kind::CallBatch, wants_reply: false, index: 5, ..call() };
    let messages = Messages { len: LEN as u32, count };
    let mut sent = 0_u64;
    let mut frames = 0_u64;
    let mut stuck = 0;
    while stuck < 200 {
        if hostile.position - hostile.consumed() >= hostile.ring() as u64 / 2 {
            fixture.serves_on();
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
        hostile.skip_unless_left(payload.len() + 4 * LINE);
        hostile.send_plan(&plan, &payload);
        frames += 1;
    }
    assert_eq!(frames * u64::from(count), sent);
    // A head that replaces that of the frame that the target has begun.
    let other = Messages { len: 16, count: 50 };
    let mut at = hostile.consumed();
    while at < hostile.position {
        let offset = at as usize % hostile.ring();
        if hostile.read(offset + 16, 1)[0] == Kind::Skip as u8 {
            at += (hostile.ring() - offset) as u64;
            continue;
        }
        // The target has polled only the first frame: the others must stay unchanged.
        hostile.write(offset + LINE, &other.to_word().to_le_bytes());
        break;
    }
    // Every sent call reports its number exactly once, in order.
    for number in 0..sent {
        let (cause, text) = hostile.refusal(7);
        assert_eq!(cause, RefusalCause::Panicked);
        assert!(text.ends_with(&format!(": {number:08}")), "{number}: {text}");
    }
    fixture.serves_on();
    assert_eq!(fixture.end().refused(RefusalCause::Panicked), sent);
}
