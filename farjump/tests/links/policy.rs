//! Policy: refusals by the owner's choice. Each limit admits a value exactly at it, and refuses one above it
//! with a reason that names the limit, at no cost to other sources.

use std::time::Instant;

use farjump::core::frame::{Kind, LINE, Plan, PlanCode};
use farjump::core::mailbox::region_len;
use farjump::core::transport::OpenRequest;
use farjump::{CodeId, Error, InjectError, Library, Link, Mode, Part, RefusalCause, Target, TargetBuilder};
use farjump_control::{Limits, SourceOptions, connect_target};
use farjump_fixtures::raw_source::{RawSource, call, call_code, call_id};
use farjump_loader::code_id;
use farjump_transports::shm::Shm;

use crate::support::{
    PATIENCE, Pair, Place, id_of, image_of, library, meanwhile, outcome_of, poll_until, refused, serve,
    to_words, while_polling, words,
};

/// The error that a source raises itself for a size over the limit: the quantity, its size and its limit.
fn over_limit<T: std::fmt::Debug>(result: Result<T, Error>) -> (Part, usize, u64) {
    match result {
        Err(error @ Error::Inject(InjectError::OverLimit { part, len, max, .. })) => {
            let text = error.to_string();
            assert!(
                text.contains(&format!("{len} bytes")) && text.contains(&format!("max_{part}")),
                "{text}"
            );
            (part, len, max)
        }
        other => panic!("not over a limit: {other:?}"),
    }
}

/// Takes cause and text of the next refusal that the target sends `hostile`.
pub(crate) fn refusal_of(target: &mut Target<'_>, hostile: &mut RawSource) -> (RefusalCause, String) {
    meanwhile(target, || hostile.refusal(7))
}

/// A target, an honest source, and a hostile one after the handshake.
pub(crate) fn with_hostile<'a>(place: &Place, target: TargetBuilder<'a>) -> (Pair<'a>, RawSource) {
    let mut pair = Pair::of(target, place.link());
    let hostile = pair.hostile();
    (pair, hostile)
}

#[test]
fn a_target_announces_only_the_limits_that_are_set() {
    let limits = |choose: fn(TargetBuilder<'static>) -> TargetBuilder<'static>| {
        let place = Place::new();
        let mut target = choose(place.target()).build().unwrap();
        while_polling(&mut target, || {
            let (options, deadline) = (
                SourceOptions::new("a source", OpenRequest::new(region_len(4096), 4096)),
                Instant::now() + PATIENCE,
            );
            connect_target(&place.address().parse().unwrap(), &mut [Box::new(Shm::new())], &options, deadline)
                .unwrap()
                .limits
        })
    };
    assert_eq!(limits(|target| target), Limits::default());
    assert_eq!(limits(|target| target.max_payload(500)), Limits { payload: 500, ..Limits::default() });
    assert_eq!(limits(|target| target.max_image(5000)), Limits { image: 5000, ..Limits::default() });
    // Besides its mailbox.
    let announced =
        limits(|target| target.mailbox_size(1 << 16).max_source_memory(region_len(1 << 16) + 7000));
    assert_eq!(announced, Limits { image: 7000, ..Limits::default() });
}

#[test]
fn the_allow_list_admits_only_its_code_by_image_id_or_index() {
    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let (mut pair, mut hostile) = with_hostile(&place, place.target().allow_code([id_of(&echo)]));
    let linked = pair.target.stats().images_linked;
    let image = image_of(&tally);
    let mut refusals = 0;
    // In a frame, by the id alone, by the refused index, in mode always, and by an arbitrary name.
    for mode in [Mode::Cached, Mode::Always, Mode::Cached] {
        pair.link.set_mode(mode);
        for _ in 0..2 {
            assert_eq!(*pair.call(&echo, b"in").unwrap(), *b"in");
            let text = refused(pair.call(&tally, b""), "tally", RefusalCause::Policy);
            assert!(
                text.contains(&id_of(&tally).to_string()) && text.contains("TargetBuilder::allow_code"),
                "{text}"
            );
            refusals += 1;
        }
    }
    for plan in [
        call_id("tally", id_of(&tally), hostile.epoch),
        call_code("echo", &image, id_of(&tally), hostile.epoch),
        call(),
    ] {
        hostile.send_plan(&plan, b"");
        // The target does not even request this code.
        assert_eq!(refusal_of(&mut pair.target, &mut hostile).0, RefusalCause::Policy);
        refusals += 1;
    }
    // By the id of allowed code.
    hostile.send_plan(&call_code("echo", &image, id_of(&echo), hostile.epoch), b"");
    assert_eq!(refusal_of(&mut pair.target, &mut hostile).0, RefusalCause::IdMismatch);
    let plan = Plan { index: 1, ..call_id("echo", id_of(&echo), hostile.epoch) };
    hostile.send_plan(&plan, b"held");
    assert_eq!(meanwhile(&mut pair.target, || hostile.reply()), b"held");

    let stats = pair.target.stats();
    assert_eq!((stats.refused(RefusalCause::Policy), stats.refusals()), (refusals, refusals + 1));
    assert_eq!(stats.images_linked - linked, 1, "echo");
}

#[test]
fn code_that_is_sent_on_request_is_only_what_was_allowed() {
    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let (mut pair, mut hostile) = with_hostile(&place, place.target().allow_code([id_of(&echo)]));
    hostile.send_plan(&call_id("echo", id_of(&echo), hostile.epoch), b"late");
    assert_eq!(meanwhile(&mut pair.target, || hostile.requested_code()), id_of(&echo));
    hostile.send_code(id_of(&echo), &image_of(&tally));
    assert_eq!(refusal_of(&mut pair.target, &mut hostile).0, RefusalCause::IdMismatch);
    assert_eq!(pair.target.stats().images_linked, 0);
}

#[test]
fn a_local_function_off_the_allow_list_runs_only_in_mode_local() {
    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let target = place.target().allow_code([]).local(&tally);
    let mut pair = Pair::of(target, place.link().mode(Mode::Local));
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
    pair.link.set_mode(Mode::Cached);
    for library in [&tally, &echo] {
        let text = refused(pair.call(library, b""), library.name(), RefusalCause::Policy);
        assert!(text.contains("not among the 0"), "{text}");
    }
    assert_eq!(pair.target.stats().images_linked, 1);
}

#[test]
fn payloads_at_the_limit_run_and_longer_ones_are_never_sent() {
    let echo = library("echo");
    for max in [1, 7, 39, 40, 41, 64, 4096, 100_000] {
        let place = Place::new();
        let mut pair = Pair::of(place.target().max_payload(max), place.link());
        for mode in [Mode::Cached, Mode::Always] {
            pair.link.set_mode(mode);
            for _ in 0..3 {
                assert_eq!(pair.call(&echo, &vec![1; max]).unwrap().len(), max);
                let sent = pair.link.stats();
                let over = pair.call(&echo, &vec![1; max + 1]);
                assert_eq!(over_limit(over), (Part::Payload, max + 1, max as u64), "{mode}");
                assert_eq!(pair.link.stats(), sent);
                assert!(pair.call(&echo, b"").unwrap().is_empty());
            }
        }
        assert_eq!(pair.target.stats().refusals(), 0);
    }
}

#[test]
fn a_hostile_payload_over_the_limit_is_refused_and_runs_nothing() {
    for max in [1, 39, 40, 41, 1000] {
        let place = Place::new();
        let echo = library("echo");
        let (mut pair, mut hostile) = with_hostile(&place, place.target().max_payload(max));
        let image = image_of(&echo);
        let bring = |hostile: &RawSource| PlanCode {
            image: &image,
            id: code_id(&image),
            epoch: hostile.epoch,
            name: "echo",
            family: None,
        };
        let at = vec![5; max];
        assert_eq!(meanwhile(&mut pair.target, || hostile.call_new("echo", &image, &at)), at);
        let code = bring(&hostile);
        for plan in [
            call(),
            Plan {
                kind: Kind::CallLocal,
                code: Some(PlanCode { image: &[], id: CodeId([0; 16]), ..code }),
                ..call()
            },
            Plan { kind: Kind::CallCode, code: Some(code), ..call() },
        ] {
            hostile.send_plan(&plan, &vec![5; max + 1]);
            let (cause, text) = refusal_of(&mut pair.target, &mut hostile);
            assert_eq!(cause, RefusalCause::TooLarge, "{max}: {text}");
            assert!(
                text.contains(&format!("has {} bytes", max + 1))
                    && text.contains("TargetBuilder::max_payload"),
                "{text}"
            );
        }
        // The last frame would have bound the index anew: the index is unbound now.
        hostile.send_plan(&call(), &at);
        assert_eq!(refusal_of(&mut pair.target, &mut hostile).0, RefusalCause::TooLarge);
        assert_eq!(pair.target.stats().calls, 1);
        assert_eq!(pair.target.stats().refused(RefusalCause::TooLarge), 4);
        assert_eq!(pair.call(&echo, b"").unwrap().len(), 0);
    }
}

#[test]
fn images_over_the_limit_are_never_sent_and_refused_on_arrival() {
    let (echo, tally) = (library("echo"), library("tally"));
    let (short, long) =
        if image_of(&echo).len() < image_of(&tally).len() { (echo, tally) } else { (tally, echo) };
    let (most, over) = (image_of(&short).len(), image_of(&long).len());
    assert!(most < over, "the test needs images of two lengths");
    let place = Place::new();
    let (mut pair, mut hostile) = with_hostile(&place, place.target().max_image(most));
    for mode in [Mode::Cached, Mode::Always] {
        pair.link.set_mode(mode);
        pair.call(&short, b"").unwrap();
        assert_eq!(over_limit(pair.call(&long, b"")), (Part::Image, over, most as u64));
    }
    assert_eq!(pair.target.stats().refusals(), 0);
    // In a frame, and on request; the index that was bound to code before does not run it.
    let image = [&image_of(&short)[..], &[0]].concat();
    let honest = image_of(&short);
    meanwhile(&mut pair.target, || hostile.call_new(short.name(), &honest, b""));
    hostile.send_plan(&call_code(short.name(), &image, code_id(&image), hostile.epoch), b"");
    for _ in 0..2 {
        let (cause, text) = refusal_of(&mut pair.target, &mut hostile);
        assert_eq!(cause, RefusalCause::TooLarge);
        assert!(
            text.contains(&format!("its image has {} bytes", most + 1))
                && text.contains("TargetBuilder::max_image"),
            "{text}"
        );
        hostile.send_plan(&call(), b"");
    }
    assert_eq!(refusal_of(&mut pair.target, &mut hostile).0, RefusalCause::TooLarge);
    hostile.send_plan(&Plan { index: 1, ..call_id(long.name(), id_of(&long), hostile.epoch) }, b"");
    meanwhile(&mut pair.target, || hostile.requested_code());
    hostile.send_code(id_of(&long), &image_of(&long));
    assert_eq!(refusal_of(&mut pair.target, &mut hostile).0, RefusalCause::TooLarge);
    assert_eq!(pair.target.stats().images_linked, 1);
}

#[test]
fn overlong_code_on_request_closes_the_link_before_it_is_received() {
    let place = Place::new();
    let echo = library("echo");
    let (mut pair, mut hostile) = with_hostile(&place, place.target().max_image(1000));
    hostile.send_plan(&call_id("echo", id_of(&echo), hostile.epoch), b"");
    meanwhile(&mut pair.target, || hostile.requested_code());
    // The head is enough: the target waits for none of the message's other bytes.
    let head = [&(1_u32 << 20).to_le_bytes()[..], &[0; 4]].concat();
    rustix::io::write(std::os::fd::AsFd::as_fd(&hostile.control), &head).unwrap();
    let closing = meanwhile(&mut pair.target, || hostile.closing());
    assert!(closing.contains("limit"), "{closing}");
    pair.call(&echo, b"").unwrap();
}

#[test]
fn frames_over_the_limit_are_never_sent_and_cut_a_hostile_link() {
    let place = Place::new();
    let echo = library("echo");
    // 63 bytes over a whole number of lines do not count.
    let max = 16 * LINE;
    let (mut pair, mut hostile) = with_hostile(&place, place.target().max_frame(max + 63));
    assert_eq!(pair.link.max_frame() / LINE * LINE, max);
    pair.call(&echo, b"").unwrap();
    // Behind the header's line; the canary needs 8 bytes behind the payload while it is made.
    let fits = max - LINE - 8;
    assert_eq!(pair.call(&echo, &vec![1; fits]).unwrap().len(), fits);
    match pair.call(&echo, &vec![1; fits + 1]) {
        Err(error @ Error::Inject(InjectError::TooLarge { .. })) => {
            assert!(error.to_string().contains("TargetBuilder::max_frame"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    // A source that does not keep the limit.
    let image = image_of(&echo);
    meanwhile(&mut pair.target, || hostile.call_new("echo", &image, b""));
    hostile.send_plan(&call(), &vec![2; max - LINE]);
    assert_eq!(meanwhile(&mut pair.target, || hostile.reply()).len(), max - LINE);
    hostile.send_plan(&call(), &vec![2; max - LINE + 1]);
    let closing = meanwhile(&mut pair.target, || hostile.closing());
    assert!(closing.contains("over the limit"), "{closing}");
    assert_eq!(pair.target.stats().refused(RefusalCause::BadFrame), 1);
    pair.call(&echo, b"").unwrap();
}

#[test]
fn frame_and_memory_limits_of_a_target_bound_its_sources_frames() {
    // Over transports with mailboxes the source gets a large mailbox instead.
    let (mailbox, echo) = (1 << 16, library("echo"));
    for (limit, memory) in [(1 << 20, usize::MAX), (usize::MAX, 6 << 20)] {
        let place = Place::new();
        let target = place.target().transport("tcp").mailbox_size(mailbox);
        let target = target.max_frame(limit).max_source_memory(memory);
        let target = target.build().unwrap().spawn().unwrap();
        let link = place.link().transport("tcp").reply_mailbox_size(8 << 20).connect().unwrap();
        let call = |len| link.inject(&echo, &vec![0; len]).and_then(|call| call.wait(PATIENCE));
        let most = link.max_frame();
        assert_eq!(most, limit.min((memory - mailbox - 4096) / 2), "half of what the mailbox leaves");
        let fits = most / LINE * LINE - 512;
        assert_eq!(call(fits).unwrap().len(), fits);
        let error = call(most).unwrap_err();
        assert!(matches!(error, Error::Inject(InjectError::TooLarge { max, .. }) if max == most), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("TargetBuilder::max_frame") && text.contains("TargetBuilder::max_source_memory"),
            "{text}"
        );
        assert_eq!(call(8).unwrap().len(), 8);
        target.stop().unwrap();
    }
}

#[test]
fn a_source_over_the_limit_is_rejected_until_another_leaves() {
    let place = Place::new();
    let echo = library("echo");
    let mut pair = Pair::of(place.target().max_sources(2), place.link());
    let second = while_polling(&mut pair.target, || place.link().connect()).unwrap();
    for _ in 0..3 {
        let error = while_polling(&mut pair.target, || place.link().connect()).unwrap_err().to_string();
        assert!(
            error.contains("takes 2 sources at a time") && error.contains("TargetBuilder::max_sources"),
            "{error}"
        );
    }
    assert_eq!(pair.target.stats().sources_refused, 3);
    pair.call(&echo, b"").unwrap();
    drop(second);
    poll_until(&mut pair.target, |target| target.sources() <= 1);
    while_polling(&mut pair.target, || place.link().connect()).unwrap();
    assert_eq!(pair.target.stats().sources_refused, 3);
}

/// Price of an image for its source: the copy, and the space of its code and its statics.
pub(crate) fn price(library: &Library) -> usize {
    let bytes = image_of(library);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    bytes.len() + word(8) + word(16) + word(20)
}

#[test]
fn a_source_over_its_budget_brings_no_code_until_some_is_dropped() {
    let (one, two, echo) = (library("bulky_one"), library("bulky_two"), library("echo"));
    let mailbox = 1 << 16;
    let exactly = region_len(mailbox) + price(&one) + price(&echo);
    for (memory, fits) in [(exactly, true), (exactly - 1, false)] {
        let place = Place::new();
        let target = place.target().mailbox_size(mailbox).max_source_memory(memory);
        let mut pair = Pair::of(target, place.link());
        pair.call(&one, b"").unwrap();
        let second = pair.call(&echo, b"here");
        if !fits {
            let text = refused(second, "echo", RefusalCause::OutOfMemory);
            let (price, left) = (price(&echo), price(&echo) - 1);
            assert!(
                text.contains(&format!(
                    "takes {price} bytes, and its source has {left} left of the {memory}"
                )),
                "{text}"
            );
            assert!(text.contains("TargetBuilder::max_source_memory"), "{text}");
            assert_eq!(pair.target.stats().images_linked, 1);
            continue;
        }
        assert_eq!(*second.unwrap(), *b"here");
        for _ in 0..3 {
            refused(pair.call(&two, b""), "bulky", RefusalCause::OutOfMemory);
        }
        // Another source has its own memory. Code that it brings first costs the first source nothing.
        let address = place.address();
        let other = while_polling(&mut pair.target, || Link::connect(&address)).unwrap();
        let mut brought = other.inject(&two, b"").unwrap();
        outcome_of(&mut pair.target, &mut brought).unwrap();
        pair.call(&two, b"").unwrap();
        // Dropped code returns its price, and no more.
        assert!(pair.target.drop_code(&id_of(&one)));
        pair.call(&one, b"").unwrap();
        assert!(pair.target.drop_code(&id_of(&two)));
        refused(pair.call(&two, b""), "bulky", RefusalCause::OutOfMemory);
        assert!(pair.target.drop_code(&id_of(&one)));
        pair.call(&two, b"").unwrap();
        assert_eq!(*pair.call(&echo, b"still").unwrap(), *b"still");
    }
}

#[test]
fn a_waiting_reply_over_the_budget_is_lost_with_a_reason() {
    let echo = library("echo");
    let mailbox = 1 << 16;
    let long = vec![9; 3000];
    for (spare, kept) in [(long.len(), true), (long.len() - 1, false)] {
        let place = Place::new();
        let memory = region_len(mailbox) + price(&echo) + spare;
        let target = place.target().mailbox_size(mailbox).max_source_memory(memory);
        let mut pair = Pair::of(target, place.link().reply_mailbox_size(4096));
        // The source has capacity for one such reply only.
        let mut first = pair.link.inject(&echo, &long).unwrap();
        let mut second = pair.link.inject(&echo, &long).unwrap();
        serve(&mut pair.target);
        assert_eq!(*outcome_of(&mut pair.target, &mut first).unwrap(), *long);
        let late = outcome_of(&mut pair.target, &mut second);
        drop((first, second));
        if kept {
            assert_eq!(*late.unwrap(), *long);
        } else {
            let text = refused(late, "echo", RefusalCause::ReplyTooLarge);
            assert!(text.contains("the function ran, and its reply of 3000 bytes is lost"), "{text}");
        }
        for _ in 0..10 {
            assert_eq!(*pair.call(&echo, &long).unwrap(), *long);
        }
        assert_eq!(pair.target.stats().calls, 12);
    }
}

#[test]
fn limits_that_make_no_sense_fail_the_target_when_it_is_built() {
    let place = Place::new();
    let mailbox = 1 << 16;
    let least = region_len(mailbox);
    let wrong = [
        (place.target().max_payload(0), ["`max-payload`: 0", "give 1 or more"]),
        (place.target().max_image(32), ["32 bytes on the image", "leave"]),
        (place.target().max_frame(LINE - 1), ["63 bytes on the frame", "leave"]),
        (place.target().max_sources(0), ["`max-sources`: 0", "give 1 to 4294967295"]),
        (place.target().mailbox_size(mailbox).max_source_memory(least - 1), ["memory of a source", "leave"]),
    ];
    for (target, words) in wrong {
        let error = target.build().unwrap_err().to_string();
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
    let target = place.target().max_payload(1).max_image(33).max_frame(LINE).max_sources(1);
    drop(target.mailbox_size(mailbox).max_source_memory(least).build().unwrap());
}

#[test]
fn a_source_that_is_always_refused_disturbs_no_other_source() {
    let place = Place::new();
    let (sequence, tally) = (library("sequence"), library("tally"));
    let target =
        place.target().allow_code([id_of(&sequence)]).max_payload(8).build().unwrap().spawn().unwrap();
    let (rounds, address) = (2000_u64, place.address());
    let other = std::thread::spawn(move || {
        let link = Link::connect(&address).unwrap();
        for _ in 0..rounds {
            let outcome = link.inject(&tally, b"").and_then(|call| call.wait(PATIENCE));
            refused(outcome, "tally", RefusalCause::Policy);
        }
    });
    let link = place.link().connect().unwrap();
    for round in 0..rounds {
        let reply = link.inject(&sequence, &words(&[round])).unwrap().wait(PATIENCE).unwrap();
        assert_eq!(to_words(&reply), [round + 1, 0]);
    }
    other.join().unwrap();
    let stats = target.stop().unwrap().stats().clone();
    assert_eq!(
        (stats.calls, stats.refused(RefusalCause::Policy), stats.refusals()),
        (rounds, rounds, rounds)
    );
}
