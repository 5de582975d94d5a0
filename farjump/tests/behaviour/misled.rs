//! Targets that break the protocol: their sources get errors, not harm, and every wait ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farjump::core::frame::{Kind, Plan};
use farjump::{Error, RefusalCause, WaitPolicy};
use farjump_transports::meet::Message;

use crate::double::RawTarget;
use crate::support::{PATIENCE, Place, Seen, library};

const SOON: Duration = Duration::from_millis(50);

#[test]
fn answers_to_nobody_and_of_no_kind_reach_nobody() {
    let place = Place::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        let call = target.next();
        for token in [0, 1, call.token ^ 1, call.token ^ (1 << 16), 0x8000, 0x8001_8000, u32::MAX] {
            target.reply(token, 0, b"wrong");
            target.reply(token, 1, b"wrong");
        }
        // Kinds that a target does not send.
        for kind in [Kind::Call, Kind::Flush] {
            let plan =
                Plan { kind, wants_reply: true, index: 0, token: call.token, align_log2: 0, code: None };
            target.channel.send_bytes(&plan, b"wrong").unwrap();
        }
        target.reply(call.token, 0, b"right");
        target.reply(call.token, 0, b"right, but the second");
        let call = target.next();
        target.reply(call.token, 7, b"an unknown status");
        // A flush that panicked: no code has its index.
        let flush = target.next();
        target.reply(flush.token, 1, b"no flush panics");
        target
    });
    let link = place.link().connect().unwrap();
    let echo = library("echo");
    assert_eq!(*link.inject(&echo, b"").unwrap().wait(PATIENCE).unwrap(), *b"right");
    let error = link.inject(&echo, b"").unwrap().wait(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error}");
    let error = link.flush(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error}");
    drop(target.join().unwrap());
}

#[test]
fn news_of_what_was_never_sent_harm_nobody() {
    let place = Place::new();
    let told = Seen::default();
    let told_to = told.clone();
    let target = RawTarget::start(&place.address(), |mut target| {
        let call = target.next();
        let refused = |token, text: &str| Message::Refused {
            token,
            cause: RefusalCause::Policy,
            text: text.to_owned(),
        };
        let messages = [
            Message::Linked { index: u16::MAX, nanoseconds: u64::MAX },
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
        target.channel.call_attention().unwrap();
        loop {
            match target.control.recv().unwrap() {
                Some((Message::NoCode { id }, _)) => return id,
                Some((other, _)) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        }
    });
    let link = place.link().on_refused(move |refusal| told_to.push(refusal.to_string())).connect().unwrap();
    let error = link.inject(&library("echo"), b"").unwrap().wait(PATIENCE).unwrap_err();
    assert!(
        matches!(&error, Error::Refused { ifunc, text, .. } if ifunc == "echo" && text == "at last"),
        "{error}"
    );
    assert_eq!(told.all(), ["a one-way frame of code 65535", "a one-way frame of code 0"]);
    assert_eq!(target.join().unwrap(), [9; 16]);
}

#[test]
fn a_target_that_talks_without_end_keeps_nobody_from_a_deadline() {
    for policy in [WaitPolicy::spin_only(), WaitPolicy::sleep_only()] {
        let place = Place::new();
        let enough = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&enough);
        let target = RawTarget::start(&place.address(), move |mut target| {
            let mut said = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..64 {
                    target.reply(0x1234_0001, 0, b"to nobody");
                }
                // Until the socket is full.
                if !target.control.wants_write() {
                    drop(target.control.send(&Message::Linked { index: 3, nanoseconds: said }, &[]));
                    target.channel.call_attention().unwrap();
                }
                drop(target.control.flush());
                said += 1;
            }
            said
        });
        let link = place.link().wait_policy(policy).connect().unwrap();
        let echo = library("echo");
        for _ in 0..5 {
            let error = link.inject(&echo, b"").unwrap().wait(SOON).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            let error = link.flush(SOON).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
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
    let told = Seen::default();
    let told_to = told.clone();
    let target = RawTarget::start(&place.address(), |mut target| {
        target.next();
        // An alignment that no frame can have.
        let plan =
            Plan { kind: Kind::Reply, wants_reply: false, index: 0, token: 0, align_log2: 15, code: None };
        target.channel.send_bytes(&plan, &[0; 100]).unwrap();
        target
    });
    let link = place.link().on_peer_gone(move |why| told_to.push(why.to_owned())).connect().unwrap();
    let error = link.inject(&library("echo"), b"").unwrap().wait(PATIENCE).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::PeerGone { .. }), "{text}");
    assert!(text.contains("broke the protocol") && text.contains("flags"), "{text}");
    assert_eq!(told.all().len(), 1);
    drop(target.join().unwrap());
}

#[test]
fn a_closing_target_is_believed_at_once_and_its_reason_told() {
    let place = Place::new();
    let target = RawTarget::start(&place.address(), |mut target| {
        let call = target.next();
        target.reply(call.token, 0, b"before closing");
        target.control.send(&Message::Closing { text: "the shop is closed".into() }, &[]).unwrap();
        target.channel.call_attention().unwrap();
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
