//! Admin requests to a running target: their responses are true, they drop the right code, and they cost
//! sources nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use farjump::admin::{Admin, Dropped, Memory};
use farjump::core::image::{ImageParts, Machine};
use farjump::{CodeId, RefusalCause, Rights, TargetBuilder};
use farjump_control::{AdminRequest, Message};
use farjump_fixtures::by_hand::{PREAMBLE, beginning};

use farjump_fixtures::raw_source::{RawSource, call};
use rustix::event::{PollFd, PollFlags, poll};

use crate::support::{
    FOREVER, PATIENCE, Pair, Place, RETURN, eventually, id_of, library, to_words, while_polling, words,
};

/// A target at which every process has all rights.
fn open<'a>(place: &Place) -> TargetBuilder<'a> {
    place.target().rights(Rights::all())
}

/// A connection that has sent this request and reads nothing.
fn say(place: &Place, request: AdminRequest) -> UnixStream {
    let mut stream = UnixStream::connect(place.path("t.sock")).unwrap();
    stream.write_all(&beginning(&Message::AdminRequest(request), 0)).unwrap();
    stream
}

/// Calls so many functions, each of other code and called once. `more` makes their names longer.
fn call_new_ones(source: &mut RawSource, count: u32, more: &str) {
    for number in 0..count {
        // The code returns at once; the bytes behind it make it another image.
        let span = [&RETURN[..], &number.to_le_bytes()].concat();
        let image = ImageParts::text(Machine::native().unwrap(), &span).encode().unwrap();
        assert_eq!(source.call_new(&format!("f{number}{more}"), &image, b""), b"");
    }
}

#[test]
fn the_store_listing_has_each_images_figures_with_the_latest_use_first() {
    let place = Place::new();
    let (tally, echo) = (library("tally"), library("echo"));
    let mut pair = Pair::of(place.target().local(&echo), place.link());
    for _ in 0..5 {
        pair.call(&tally, b"").unwrap();
    }
    let listing = while_polling(&mut pair.target, || place.admin().store()).unwrap();
    assert_eq!(listing.left_out, 0);
    let names: Vec<_> = listing.images.iter().map(|image| (&*image.name, image.calls, image.own)).collect();
    assert_eq!(names, [("tally", 5, false), ("echo", 0, true)]);
    for listed in &listing.images {
        let held = pair.target.images().into_iter().find(|held| held.id == listed.id).unwrap();
        assert_eq!((&listed.name, listed.bytes), (&held.name, held.bytes));
        assert_eq!((&listed.source, listed.time), (&held.source, held.time));
        assert_eq!(listed.link_time, held.link_time);
        assert!(listed.last_use <= held.last_use);
    }
    let held_by_local = while_polling(&mut pair.target, || place.admin().store()).unwrap();
    assert!(held_by_local.images[0].last_use > listing.images[0].last_use, "time passes");
}

#[test]
fn a_target_is_shown_by_the_name_that_its_program_gives_it() {
    let place = Place::new();
    let shown = |target: TargetBuilder<'static>| {
        let mut pair = Pair::of(target, place.link());
        let stats = while_polling(&mut pair.target, || place.admin().stats()).unwrap();
        assert_eq!(stats.program, pair.link.peer().name);
        stats.program
    };
    assert_eq!(shown(place.target().program("a key-value server")), "a key-value server");
    assert_eq!(shown(place.target().program("long ".repeat(100_000))), "long ".repeat(13)[..64]);
    let own = std::env::current_exe().unwrap();
    assert_eq!(shown(place.target()), own.file_name().unwrap().to_str().unwrap()[..]);
}

#[test]
fn code_dropped_by_an_admin_request_returns_with_fresh_statics() {
    let place = Place::new();
    let (tally, echo, twin) = (library("tally"), library("echo"), library("twin_one"));
    let mut pair = Pair::of(open(&place).local(&twin), place.link());
    let (id, own) = (id_of(&tally), id_of(&twin));
    let asked = |pair: &mut Pair<'_>, id: CodeId| {
        while_polling(&mut pair.target, || place.admin().drop_code(&id)).unwrap()
    };
    assert_eq!(asked(&mut pair, id), Dropped { images: 0, kept: 0 }, "it has not come");
    pair.call(&tally, b"").unwrap();
    pair.call(&echo, b"").unwrap();
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [2]);
    assert_eq!(asked(&mut pair, id), Dropped { images: 1, kept: 0 });
    assert!(pair.target.images().iter().all(|held| held.id != id));
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
    assert_eq!(asked(&mut pair, own), Dropped { images: 0, kept: 1 }, "it is the target's own");
    let all = while_polling(&mut pair.target, || place.admin().drop_all()).unwrap();
    assert_eq!(all, Dropped { images: 2, kept: 1 });
    assert_eq!(pair.target.images().iter().map(|held| held.id).collect::<Vec<_>>(), [own]);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
    assert_eq!(pair.target.stats().refusals(), 0);
}

#[test]
fn dropping_code_during_its_calls_loses_none_of_them() {
    let place = Place::new();
    let target = open(&place).build().unwrap().spawn().unwrap();
    let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    let (counts, dropped) = thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let (tally, link) = (library("tally"), place.link().connect().unwrap());
            let (mut counts, mut calls) = (Vec::new(), std::collections::VecDeque::new());
            while !stop.load(Ordering::Relaxed) || !calls.is_empty() {
                while calls.len() < 40 && !stop.load(Ordering::Relaxed) {
                    calls.push_back(link.inject(&tally, b"").unwrap());
                }
                let Some(oldest) = calls.pop_front() else { break };
                counts.extend(to_words(&oldest.wait(PATIENCE).unwrap()));
                seen.store(counts.len() as u64, Ordering::Relaxed);
            }
            counts
        });
        let mut dropped = 0;
        for round in 0..30 {
            // There must be code to drop each time.
            let before = seen.load(Ordering::Relaxed);
            while seen.load(Ordering::Relaxed) < before + 50 && !caller.is_finished() {
                thread::yield_now();
            }
            let gone = if round % 2 == 0 {
                place.admin().drop_all()
            } else {
                place.admin().drop_code(&id_of(&library("tally")))
            };
            dropped += gone.unwrap().images;
        }
        stop.store(true, Ordering::Relaxed);
        (caller.join().unwrap(), dropped)
    });
    let stats = target.stop().unwrap().stats();
    assert_eq!((stats.calls, stats.refusals()), (counts.len() as u64, 0));
    assert!(dropped >= 15, "{dropped} were dropped");
    // In order, each once: from 1 on again where the code had been dropped.
    let anew = counts.iter().filter(|count| **count == 1).count() as u64;
    assert_eq!(anew, stats.images_linked);
    assert!(counts.windows(2).all(|pair| pair[1] == pair[0] + 1 || pair[1] == 1), "{counts:?}");
}

#[test]
fn admin_statistics_match_the_targets_own_and_list_its_sources() {
    let place = Place::new();
    let target =
        place.target().mailbox_size(1 << 16).max_source_memory(1 << 20).max_payload(64).max_sources(2);
    let mut pair = Pair::of(target, place.link());
    let (tally, echo) = (library("tally"), library("echo"));
    pair.call(&tally, b"").unwrap();
    pair.call(&echo, b"bytes").unwrap();
    let mut raw = pair.hostile();
    raw.send_plan(&call(), b"");
    pair.serve();
    while_polling(&mut pair.target, || place.link().connect()).unwrap_err();
    let reported = while_polling(&mut pair.target, || place.admin().stats()).unwrap();
    let own = pair.target.stats();
    assert_eq!((reported.links, reported.links_made, reported.links_ended), (2, own.links, 0));
    assert_eq!((reported.sources_refused, own.sources_refused), (1, 1), "who asks is no source");
    assert_eq!((reported.frames, reported.bytes, reported.calls), (own.frames, own.bytes, own.calls));
    assert_eq!((reported.forwarded, reported.images_linked, reported.epoch), (0, 2, pair.target.epoch()));
    assert_eq!(u128::from(reported.link_ns), own.link_time.as_nanos());
    let refused: Vec<_> = reported.refusals().filter(|(_, frames)| *frames != 0).collect();
    assert_eq!(refused, [(RefusalCause::UnknownIndex, 1)]);
    assert_eq!(reported.refusals().count(), RefusalCause::count());
    assert_eq!((reported.store.images, reported.store.bytes), (2, own.store.bytes as u64));
    assert_eq!(
        (reported.store.arena_used, reported.store.arena_capacity),
        (own.store.arena_used as u64, own.store.arena_capacity as u64)
    );
    assert_eq!(reported.store.capacity_images, Some(own.store.capacity_images as u64));
    let [first, second] = &reported.sources[..] else { panic!("{:?}", reported.sources) };
    assert_eq!(first.pid, std::process::id());
    assert_eq!((&*second.program, second.bytes), ("a raw source", 64));
    assert_eq!(first.bytes + second.bytes, reported.bytes);
    let mailbox = (1 << 16) + 4096;
    assert_eq!(second.memory, Some(Memory { used: mailbox, limit: 1 << 20 }));
    assert!(first.memory.is_some_and(|memory| memory.used > mailbox), "{first:?}");
}

#[test]
fn dropped_code_frees_its_sources_memory_and_no_limit_means_no_count() {
    let place = Place::new();
    let target = open(&place).mailbox_size(1 << 16).max_source_memory(1 << 20);
    let mut pair = Pair::of(target, place.link());
    let used = |pair: &mut Pair<'_>| {
        let stats = while_polling(&mut pair.target, || place.admin().stats()).unwrap();
        stats.sources[0].memory.unwrap().used
    };
    let before = used(&mut pair);
    pair.call(&library("tally"), b"").unwrap();
    assert!(used(&mut pair) > before);
    while_polling(&mut pair.target, || place.admin().drop_all()).unwrap();
    assert_eq!(used(&mut pair), before);
    let (place, mut pair) = Pair::start();
    let stats = while_polling(&mut pair.target, || place.admin().stats()).unwrap();
    assert_eq!(stats.sources[0].memory, None);
}

#[test]
fn an_admin_request_is_served_while_no_further_source_is_accepted() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().max_sources(1).handshake_timeout(FOREVER), place.link());
    while_polling(&mut pair.target, || place.link().connect()).unwrap_err();
    let stats = while_polling(&mut pair.target, || place.admin().stats()).unwrap();
    assert_eq!((stats.links, stats.sources_refused), (1, 1));
    // The target keeps control connections without a first message up to a number, and then rejects all further ones.
    // Connections that send nothing at all do not count.
    let connect = || UnixStream::connect(place.path("t.sock")).unwrap();
    let silent: Vec<_> = (0..8).map(|_| connect()).collect();
    while_polling(&mut pair.target, || place.admin().stats()).unwrap();
    silent.iter().for_each(|mut one| one.write_all(&PREAMBLE).unwrap());
    let error = while_polling(&mut pair.target, || place.admin().stats()).unwrap_err();
    assert!(error.to_string().contains("takes 1 source at a time"), "{error}");
    drop(silent);
    // A child that another test has just forked keeps them open until it runs its program.
    eventually(|| while_polling(&mut pair.target, || place.admin().stats()).is_ok());
    pair.call(&library("echo"), b"served on").unwrap();
}

#[test]
fn ten_thousand_images_are_listed_whole_and_unread_responses_delay_no_call() {
    const IMAGES: u32 = 10_000;
    let place = Place::new();
    let target = place
        .target()
        .store_bytes(usize::MAX)
        .store_images(IMAGES as usize)
        .handshake_timeout(FOREVER)
        .build()
        .unwrap()
        .spawn()
        .unwrap();
    let mut raw = RawSource::connect(&place.address());
    call_new_ones(&mut raw, IMAGES, "");
    let listing = place.admin().store().unwrap();
    assert_eq!((listing.images.len(), listing.left_out), (IMAGES as usize, 0));
    let ages: Vec<_> = listing.images.iter().map(|image| image.last_use).collect();
    assert!(ages.is_sorted(), "what was used last comes first");
    assert_eq!((&*listing.images[0].name, listing.images[0].calls), ("f9999", 1));

    let idlers: Vec<_> = (0..8).map(|_| say(&place, AdminRequest::Store)).collect();
    // Each connection has the beginning of its response, behind the 12 bytes of the preamble. So the target has sent
    // all that it could.
    for idler in &idlers {
        idler.set_read_timeout(Some(PATIENCE)).unwrap();
        (&*idler).read_exact(&mut [0; 64]).unwrap();
    }
    let error = place.admin().stats().unwrap_err();
    assert!(error.to_string().contains("serves 8 admin requests at a time: try again"), "{error}");
    let link = place.link().connect().unwrap();
    for number in 0..100 {
        let call = link.inject(&library("echo"), &words(&[number])).unwrap();
        assert_eq!(*call.wait(PATIENCE).unwrap(), *words(&[number]));
    }
    // One that ends makes space for another.
    drop(idlers);
    let stats = loop {
        match place.admin().stats() {
            Ok(stats) => break stats,
            Err(error) => assert!(error.to_string().contains("ask again"), "{error}"),
        }
    };
    assert_eq!((stats.store.images, stats.links), (u64::from(IMAGES), 2));
    target.stop().unwrap();
}

#[test]
fn an_unread_admin_response_is_abandoned_after_the_handshake_timeout() {
    let place = Place::new();
    let target =
        place.target().handshake_timeout(Duration::from_millis(500)).build().unwrap().spawn().unwrap();
    let mut raw = RawSource::connect(&place.address());
    // Longer than a socket holds.
    call_new_ones(&mut raw, 2000, &"n".repeat(240));
    let mut idler = say(&place, AdminRequest::Store);
    // The target closes first: the rest in the socket comes then, and the end of the connection.
    poll(&mut [PollFd::new(&idler, PollFlags::empty())], None).unwrap();
    idler.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = Vec::new();
    idler.read_to_end(&mut said).unwrap();
    let len = said.get(12..16).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).unwrap();
    assert!(said.len() < len as usize, "{} of {len} bytes were taken without a reader", said.len());
    target.stop().unwrap();
}

#[test]
fn an_admin_request_wakes_a_sleeping_target_and_reports_an_ended_one() {
    let place = Place::new();
    let target =
        open(&place).wait_policy(farjump::WaitPolicy::sleep_only()).build().unwrap().spawn().unwrap();
    assert_eq!(place.admin().stats().unwrap().links_made, 0);
    assert_eq!(place.admin().drop_all().unwrap(), Dropped::default());
    drop(say(&place, AdminRequest::DropAll));
    assert!(place.admin().store().unwrap().images.is_empty());
    target.stop().unwrap();
    let error = place.admin().stats().unwrap_err();
    assert!(error.to_string().contains("no target listens on"), "{error}");
    assert!(Admin::new("t.sock").unwrap_err().to_string().contains("unix:PATH"));
}
