//! Targets that break the protocol: their sources get errors, not harm, and every wait ends.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farjump::core::frame::{Kind, Plan};
use farjump::core::mailbox::region_len;
use farjump::core::transport::OpenRequest;
use farjump::{CallError, Error, RefusalCause, WaitPolicy};
use farjump_control::{Message, SecondEndpoint};
use farjump_fixtures::raw_source;
use farjump_fixtures::raw_target::RawTarget;
use farjump_transports::shm::Shm;

use crate::support::{FOREVER, PATIENCE, Place, Seen, library, panicked, peer_gone, refused, timed_out};

const SOON: Duration = Duration::from_millis(50);

#[test]
fn replies_with_wrong_tokens_or_kinds_complete_no_call() {
    let place = Place::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        let call = target.next_frame();
        for token in [0, 1, call.token ^ 1, call.token ^ (1 << 16), 0x8000, 0x8001_8000, u32::MAX] {
            target.reply(token, 0, b"wrong");
            target.reply(token, 1, b"wrong");
        }
        // Kinds that a target does not send.
        for kind in [Kind::Call, Kind::Flush] {
            let plan = Plan { kind, token: call.token, ..raw_source::call() };
            target.channel.send_bytes(&plan, b"wrong").unwrap();
        }
        target.reply(call.token, 0, b"right");
        target.reply(call.token, 0, b"right, but the second");
        let call = target.next_frame();
        target.reply(call.token, 7, b"an unknown status");
        // The reply to a flush that claims a panic: no code has its index.
        let flush = target.next_frame();
        target.reply(flush.token, 1, b"no flush panics");
        target
    });
    let link = place.link().connect().unwrap();
    let echo = library("echo");
    assert_eq!(*link.inject(&echo, b"").unwrap().wait(PATIENCE).unwrap(), *b"right");
    panicked(link.inject(&echo, b"").unwrap().wait(PATIENCE), "echo");
    let error = link.flush(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Call(CallError::Panicked { .. })), "{error}");
    drop(target.join().unwrap());
}

#[test]
fn messages_about_unknown_calls_and_code_do_no_harm() {
    let place = Place::new();
    let (reported, note_reported) = Seen::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        let call = target.next_frame();
        let refused = |token, text: &str| Message::Refused {
            token,
            cause: RefusalCause::Policy,
            text: text.to_owned(),
        };
        let messages = [
            Message::CodeLinked { index: u16::MAX, nanoseconds: u64::MAX },
            Message::NeedCode { index: u16::MAX, id: [9; 16] },
            refused(0, "token 0"),
            refused(u32::MAX, "a one-way frame of code 65535"),
            refused(0x8000, "a one-way frame of code 0"),
            refused(call.token ^ (1 << 16), "another generation"),
            Message::Go,
            refused(call.token, "at last"),
        ];
        for message in messages {
            target.control.send(&message, &[]).unwrap();
        }
        target.channel.notify().unwrap();
        loop {
            match target.control.recv().unwrap() {
                Some((Message::NoCode { id }, _)) => return id,
                Some((other, _)) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        }
    });
    let link = place.link().on_refused(move |refusal| note_reported(refusal.to_string())).connect().unwrap();
    let outcome = link.inject(&library("echo"), b"").unwrap().wait(PATIENCE);
    assert_eq!(refused(outcome, "echo", RefusalCause::Policy), "at last");
    assert_eq!(reported.all(), ["a one-way frame of code 65535", "a one-way frame of code 0"]);
    assert_eq!(target.join().unwrap(), [9; 16]);
}

#[test]
fn a_flush_waits_for_refusals_that_arrive_after_its_reply() {
    let place = Place::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        let call = target.next_frame();
        let flush = target.next_frame();
        target.reply(flush.token, 0, &1_u64.to_le_bytes());
        // The control connection is slower.
        std::thread::sleep(SOON);
        let (cause, text) = (RefusalCause::Policy, "not today".to_owned());
        target.control.send(&Message::Refused { token: call.token, cause, text }, &[]).unwrap();
        let flush = target.next_frame();
        target.reply(flush.token, 0, &1_u64.to_le_bytes());
        let flush = target.next_frame();
        target.reply(flush.token, 0, &2_u64.to_le_bytes());
        target
    });
    let link = place.link().connect().unwrap();
    link.send(&library("echo"), b"").unwrap();
    assert_eq!(refused(link.flush(PATIENCE), "echo", RefusalCause::Policy), "not today");
    link.flush(PATIENCE).unwrap();
    let error = link.flush(SOON).unwrap_err();
    assert!(
        error.to_string().contains("the refusals of a flush"),
        "a target that lies costs no more than the timeout: {error}"
    );
    drop(target.join().unwrap());
}

#[test]
fn a_target_that_sends_without_end_delays_no_deadline() {
    for policy in [WaitPolicy::spin_only(), WaitPolicy::sleep_only()] {
        let place = Place::new();
        let enough = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&enough);
        let target = RawTarget::start(&place.address(), move |mut target| {
            // Whole messages in one write, so that the target sends them faster than the source reads them. Each is a
            // head with the length of the body, and `CodeLinked` with an index and a time.
            let linked = [3, 0, 0, 0, 0, 0, 0, 0, 11, 3, 5].repeat(20_000);
            let (mut said, mut at) = (0_u64, 0);
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..64 {
                    target.reply(0x1234_0001, 0, b"to nobody");
                }
                if let Ok(written) = rustix::io::write(target.control.as_fd(), &linked[at..]) {
                    at = (at + written) % linked.len();
                }
                said += 1;
                target.channel.notify().unwrap();
            }
            said
        });
        let link = place.link().wait_policy(policy).connect().unwrap();
        let echo = library("echo");
        for _ in 0..5 {
            timed_out(link.inject(&echo, b"").unwrap().wait(SOON));
            timed_out(link.flush(SOON));
            link.progress().unwrap();
            assert!(link.inject(&echo, b"").unwrap().poll().unwrap().is_none());
        }
        enough.store(true, Ordering::Relaxed);
        assert!(target.join().unwrap() > 10);
    }
}

#[test]
fn garbage_from_a_target_ends_the_link_with_the_reason() {
    let place = Place::new();
    let (reported, note_reported) = Seen::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        target.next_frame();
        // An alignment that no frame can have.
        let plan = Plan { kind: Kind::Reply, wants_reply: false, align_log2: 15, ..raw_source::call() };
        target.channel.send_bytes(&plan, &[0; 100]).unwrap();
        target
    });
    let link = place.link().on_peer_gone(move |why| note_reported(why.to_owned())).connect().unwrap();
    let text = peer_gone(link.inject(&library("echo"), b"").unwrap().wait(PATIENCE));
    assert!(text.contains("broke the protocol") && text.contains("flags"), "{text}");
    assert_eq!(reported.all().len(), 1);
    drop(target.join().unwrap());
}

#[test]
fn a_closing_target_ends_the_link_at_once_with_its_reason() {
    let place = Place::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        let call = target.next_frame();
        target.reply(call.token, 0, b"before closing");
        target.control.send(&Message::Closing { text: "the shop is closed".into() }, &[]).unwrap();
        target.channel.notify().unwrap();
        target
    });
    let link = place.link().connect().unwrap();
    let echo = library("echo");
    let (first, second) = (link.inject(&echo, b"").unwrap(), link.inject(&echo, b"").unwrap());
    let error = second.wait(PATIENCE).unwrap_err();
    assert!(error.to_string().ends_with("it closed the link: the shop is closed"), "{error}");
    assert_eq!(*first.wait(PATIENCE).unwrap(), *b"before closing");
    let again = link.send(&echo, b"").unwrap_err();
    assert!(again.to_string().contains("the shop is closed"), "{again}");
    drop(target.join().unwrap());
}

/// Reports that `count` one-way frames of code 0 were refused, each with its number as the reason. All are one write,
/// so that they fit in a socket.
fn refuse_one_way(target: &RawTarget, count: u32) {
    let mut bytes = Vec::new();
    for number in 0..count {
        // `Refused`: the token 0x8000 in base 128, the cause `Policy`, and a text of four bytes.
        let body = [&[5, 0x80, 0x80, 2, 12, 4][..], format!("{number:04}").as_bytes()].concat();
        bytes.extend([&[body.len() as u8, 0, 0, 0, 0, 0, 0, 0][..], &body].concat());
    }
    assert_eq!(rustix::io::write(target.control.as_fd(), &bytes), Ok(bytes.len()));
}

#[test]
fn each_progress_reads_a_bounded_number_of_messages_in_order() {
    const MESSAGES: u32 = 2000;
    let place = Place::new();
    let (reported, note_reported) = Seen::new();
    let (ready, told_all) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (say_ready, wait_told) = (Arc::clone(&ready), Arc::clone(&told_all));
    let target = RawTarget::start(&place.address(), move |mut target| {
        target.next_frame();
        refuse_one_way(&target, MESSAGES);
        target.channel.notify().unwrap();
        say_ready.store(true, Ordering::Release);
        while !wait_told.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let link = place.link().on_refused(move |refusal| note_reported(refusal.text.clone())).connect().unwrap();
    link.send(&library("echo"), b"").unwrap();
    while !ready.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut looks = 0;
    while reported.all().len() < MESSAGES as usize {
        let before = reported.all().len();
        link.progress().unwrap();
        let read = reported.all().len() - before;
        assert!((1..=256).contains(&read), "{read} messages in one look");
        looks += 1;
    }
    assert!(looks > 1);
    assert_eq!(reported.all(), (0..MESSAGES).map(|number| format!("{number:04}")).collect::<Vec<_>>());
    told_all.store(true, Ordering::Relaxed);
    target.join().unwrap();
}

#[test]
fn a_flush_finds_refusals_sent_before_its_reply_without_a_notice() {
    const MESSAGES: u32 = 1000;
    let place = Place::new();
    let (reported, note_reported) = Seen::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        target.next_frame();
        let flush = target.next_frame();
        refuse_one_way(&target, MESSAGES);
        target.reply(flush.token, 0, b"");
        target
    });
    let link = place
        .link()
        .wait_policy(WaitPolicy::spin_only())
        .control_interval(FOREVER)
        .on_refused(move |_| note_reported(()))
        .connect()
        .unwrap();
    link.send(&library("echo"), b"").unwrap();
    assert_eq!(refused(link.flush(PATIENCE), "echo", RefusalCause::Policy), "0000");
    assert_eq!(reported.all().len(), MESSAGES as usize);
    drop(target.join().unwrap());
}

/// The next message of the source, except messages about code.
fn next_message(target: &mut RawTarget) -> Message {
    loop {
        match target.control.recv().unwrap() {
            Some((Message::NoCode { .. } | Message::Code { .. }, _)) => {}
            Some((message, _)) => return message,
            None => std::thread::yield_now(),
        }
    }
}

/// Offers a large mailbox that the source cannot take, as a dying process does: its memory is gone, and its control
/// connection still exists. Returns after the source's next request.
fn offer_nothing(target: &mut RawTarget) {
    let Message::LargeRequest { frame, .. } = next_message(target) else { panic!("no request") };
    let ring = usize::try_from(frame).unwrap().next_power_of_two();
    let request = OpenRequest::new(region_len(ring), ring);
    let end = SecondEndpoint::open(&mut Shm::new(), &request).unwrap();
    // Without the descriptor of its memory.
    end.with_info(|endpoint, _| target.control.send(&Message::LargeOffer { endpoint }, &[])).unwrap();
    target.channel.notify().unwrap();
    assert!(matches!(next_message(target), Message::LargeAccept { .. }));
    assert!(matches!(next_message(target), Message::LargeRelease));
    let again = next_message(target);
    assert!(matches!(again, Message::LargeRequest { frame: same, .. } if same == frame), "{again:?}");
}

#[test]
fn an_unusable_large_mailbox_offer_fails_the_call_with_its_cause() {
    let place = Place::new();
    // Longer than the raw target's mailbox.
    let payload = vec![1; 1 << 17];
    // The target dies.
    let target = RawTarget::start(&place.address(), |mut target| offer_nothing(&mut target));
    let link = place.link().send_timeout(FOREVER).connect().unwrap();
    peer_gone(link.inject(&library("echo"), &payload).map(drop));
    target.join().unwrap();
    // The target declines, or offers another.
    for offers in [false, true] {
        let target = RawTarget::start(&place.address(), move |mut target| {
            offer_nothing(&mut target);
            if offers {
                let request = OpenRequest::new(region_len(1 << 18), 1 << 18);
                let end = SecondEndpoint::open(&mut Shm::new(), &request).unwrap();
                end.with_info(|end, descriptors| {
                    target.control.send(&Message::LargeOffer { endpoint: end }, descriptors)
                })
                .unwrap();
            } else {
                let (cause, text) = (RefusalCause::OutOfMemory, "a moment ago".to_owned());
                target.control.send(&Message::LargeDecline { cause, text }, &[]).unwrap();
            }
            target.channel.notify().unwrap();
            let then = offers.then(|| next_message(&mut target));
            assert!(matches!(then, None | Some(Message::LargeRelease)), "{then:?}");
            // Calls that need no large mailbox still run.
            let call = target.next_frame();
            target.reply(call.token, 0, b"small");
            target
        });
        let link = place.link().send_timeout(FOREVER).connect().unwrap();
        let echo = library("echo");
        let outcome = link.inject(&echo, &payload).map(drop);
        let text = refused(outcome, "echo", RefusalCause::OutOfMemory);
        assert!(text.starts_with("no mailbox could be made for a frame of "), "{text}");
        assert_eq!(*link.inject(&echo, b"").unwrap().wait(PATIENCE).unwrap(), *b"small");
        drop(target.join().unwrap());
    }
}
