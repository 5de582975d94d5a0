//! Targets: in an own loop, on a thread, with arguments, limits and bad addresses.

use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Error, Link, RefusalCause, Target, WaitPolicy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::{
    PATIENCE, Pair, Place, Seen, alongside, library, meanwhile, outcome_of, poll_until, refused, serve,
    to_words, while_polling, words,
};

#[test]
fn an_event_loop_asleep_on_the_targets_descriptor_misses_no_call() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let (mut sleeps, address) = (0, place.address());
    let source = thread::spawn(move || {
        let link = Link::builder(&address).wait_policy(WaitPolicy::sleep_only()).connect().unwrap();
        let sequence = library("sequence");
        for round in 0..500_u64 {
            let call = link.inject(&sequence, &words(&[round])).unwrap();
            if round % 50 == 0 {
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(to_words(&call.wait(PATIENCE).unwrap()), [round + 1, 0]);
        }
    });
    while !source.is_finished() || target.sources() > 0 {
        // As an event loop does: poll until idle, arm, sleep on its own descriptors and the target's, disarm.
        while target.poll().unwrap() > 0 {}
        if let Some(longest) = target.arm().unwrap() {
            assert!(longest <= Duration::from_secs(1));
            let mut descriptors = [PollFd::from_borrowed_fd(target.as_fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(longest).unwrap();
            poll(&mut descriptors, Some(&timeout)).unwrap();
            sleeps += 1;
        }
        target.disarm();
    }
    source.join().unwrap();
    assert_eq!(target.stats().calls, 500);
    assert!(sleeps > 10, "{sleeps} sleeps");
}

#[test]
fn an_armed_target_completes_a_handshake_in_few_wake_ups() {
    let place = Place::new();
    let mut target = place.target().control_interval(PATIENCE).build().unwrap();
    serve(&mut target);
    let address = place.address();
    let source = thread::spawn(move || Link::connect(&address));
    let mut turns = 0;
    while target.sources() == 0 {
        let longest = target.arm().unwrap().unwrap_or(Duration::ZERO);
        let timeout = Timespec::try_from(longest).unwrap();
        poll(&mut [PollFd::from_borrowed_fd(target.as_fd(), PollFlags::IN)], Some(&timeout)).unwrap();
        target.disarm();
        target.poll().unwrap();
        turns += 1;
    }
    drop(source.join().unwrap().unwrap());
    assert!(turns < 100, "{turns} turns for a handshake of three messages");
}

#[test]
fn arguments_are_the_targets_between_polls_and_of_their_own_type_only() {
    let place = Place::new();
    let mut count = 5_u64;
    {
        let mut pair = Pair::of(place.target().args(&mut count), place.link());
        let counter = library("counter");
        pair.call(&counter, b"").unwrap();
        *pair.target.args_mut::<u64>().unwrap() *= 10;
        pair.call(&counter, b"").unwrap();
        assert_eq!(pair.target.args_mut::<u64>(), Some(&mut 61));
        assert_eq!(pair.target.args_mut::<i64>(), None);
        assert_eq!(pair.target.args_mut::<[u64; 1]>(), None);
    }
    assert_eq!(count, 61);
    let mut target = place.target().build().unwrap();
    assert_eq!(target.args_mut::<()>(), None, "none were given");
}

#[test]
fn a_spawned_target_comes_back_with_what_it_counted() {
    let place = Place::new();
    let (joined, note_joined) = Seen::new();
    let target = place.target().on_peer_joined(move |peer| note_joined(peer.to_string())).build().unwrap();
    let epoch = target.epoch();
    let thread = target.spawn().unwrap();
    let link = place.link().program("a named source").connect().unwrap();
    assert_eq!(link.epoch(), epoch);
    link.inject(&library("echo"), b"").unwrap().wait(PATIENCE).unwrap();
    let target = thread.stop().unwrap();
    assert_eq!((target.stats().calls, target.stats().links, target.stats().links_ended), (1, 1, 1));
    assert_eq!(target.images()[0].name, "echo");
    let joined = joined.all();
    assert!(joined.len() == 1 && joined[0].contains("a named source"), "{joined:?}");
    let error = link.flush(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("the target stops"), "{error}");
}

#[test]
fn a_stopper_stops_from_anywhere_also_before_the_target_runs() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let stopper = target.stopper();
    assert!(!stopper.is_stopped());
    thread::spawn(move || stopper.stop()).join().unwrap();
    target.run().unwrap();
    assert!(target.stopper().is_stopped());
}

#[test]
fn a_closed_target_serves_those_that_connect_anew() {
    let (_place, mut pair) = Pair::start();
    let echo = library("echo");
    pair.call(&echo, b"").unwrap();
    let mut other = pair.hostile();
    pair.target.end_links("a change of the guard");
    assert_eq!(pair.target.sources(), 0);
    let error = pair.link.inject(&echo, b"").and_then(|call| call.wait(PATIENCE)).unwrap_err();
    assert!(error.to_string().contains("a change of the guard"), "{error}");
    // The old sources keep their copies of the target's doorbells, and do not wake it by them.
    other.signal(0, 1);
    assert!(!pair.target.wait(Duration::from_millis(1)).unwrap());
    let Pair { link, target } = &mut pair;
    while_polling(target, || link.reconnect()).unwrap();
    assert_eq!(*pair.call(&echo, b"again").unwrap(), *b"again");
}

#[test]
fn a_silent_connection_is_rejected_on_timeout_and_delays_no_source() {
    let place = Place::new();
    // Long enough for the honest source on a busy machine: the limit holds for its handshake, too.
    let limit = Duration::from_millis(500);
    let mut target = place.target().max_sources(2).handshake_timeout(limit).build().unwrap();
    let start = Instant::now();
    let silent = UnixStream::connect(place.path("t.sock")).unwrap();
    silent.set_nonblocking(true).unwrap();
    let link = while_polling(&mut target, || place.link().connect()).unwrap();
    link.send(&library("echo"), b"").unwrap();
    serve(&mut target);
    assert_eq!(target.stats().calls, 1);
    let mut said = Vec::new();
    loop {
        target.wait(Duration::from_millis(5)).unwrap();
        match std::io::Read::read_to_end(&mut &silent, &mut said) {
            Ok(_) => break,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(start.elapsed() >= limit);
    assert!(String::from_utf8_lossy(&said).contains("took too long"), "{said:?}");
    assert_eq!(target.sources(), 1);
}

#[test]
fn unusable_addresses_transports_and_sizes_fail_with_the_reason() {
    let place = Place::new();
    let first = place.target().build().unwrap();
    let text = |result: Result<Target<'_>, Error>| result.map(drop).unwrap_err().to_string();
    assert!(text(place.target().build()).contains("already in use"));
    drop(first);
    drop(place.target().build().unwrap());
    std::fs::write(place.path("t.sock"), "not a socket").unwrap();
    assert!(text(place.target().build()).contains("no socket"));
    assert!(text(Target::listen("t.sock").build()).contains("unix:PATH"));
    assert!(
        text(Target::listen(&format!("unix:{}/no/such/t.sock", place.path("").display())).build())
            .contains("no/such")
    );
    assert!(text(Target::listen("unix:x").transport("carrier-pigeon").build()).contains("carrier-pigeon"));
    // SAFETY: there is no such file.
    let missing = unsafe { Target::listen("unix:x").export_library("libno-such.so") };
    assert!(text(missing.build()).contains("libno-such.so"));
    for bytes in [0, usize::MAX, 1 << 40] {
        let said = text(Target::listen("unix:x").arena_size(bytes).build());
        assert!(said.contains("arena") || said.contains("bytes"), "{said}");
    }
    for bytes in [usize::MAX, 1 << 40] {
        let said = text(Target::listen("unix:x").mailbox_size(bytes).build());
        assert!(said.contains("mailbox"), "{said}");
    }
    let error = |link: farjump::LinkBuilder| link.connect().map(drop).unwrap_err().to_string();
    std::fs::remove_file(place.path("t.sock")).unwrap();
    assert!(error(place.link()).contains("t.sock"));
    assert!(error(Link::builder("nonsense")).contains("unix:PATH"));
    assert!(error(place.link().transport("carrier-pigeon")).contains("carrier-pigeon"));
    for bytes in [usize::MAX, 1 << 40] {
        let said = error(place.link().reply_mailbox_size(bytes));
        assert!(said.contains("`reply-mailbox-size`") && said.contains("2G"), "{said}");
    }
}

#[test]
fn the_smallest_sizes_work() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().mailbox_size(0).arena_size(1), place.link().reply_mailbox_size(0));
    assert_eq!(pair.link.max_frame(), 4096);
    let echo = library("echo");
    for len in [0, 1, 40, 41, 1000] {
        assert_eq!(pair.call(&echo, &vec![1; len]).unwrap().len(), len);
    }
    // Longer payloads go through a large mailbox, and their replies do not: for those the reply ring has to be
    // larger.
    let link = &mut pair.link;
    let outcome = meanwhile(&mut pair.target, move || {
        link.inject(&echo, &[0; 4096]).and_then(|call| call.wait(PATIENCE))
    });
    let text = refused(outcome, "echo", RefusalCause::ReplyTooLarge);
    assert!(text.contains("larger reply mailbox"), "{text}");
}

#[test]
fn handlers_and_counters_of_a_target_report_refusals_and_ended_links() {
    let place = Place::new();
    let (refused, note_refused) = Seen::new();
    let (gone, note_gone) = Seen::new();
    let builder = place
        .target()
        .on_refused(move |peer, refusal| note_refused((peer.pid, refusal.cause)))
        .on_peer_gone(move |peer, why| note_gone((peer.pid, why.to_owned())));
    let mut pair = Pair::of(builder, place.link());
    pair.call(&library("lookup"), &words(&[1])).unwrap_err();
    let Pair { link, mut target } = pair;
    let (sender, receiver) = mpsc::channel();
    sender.send(link.peer()).unwrap();
    drop(link);
    poll_until(&mut target, |target| target.sources() == 0);
    let pid = receiver.recv().unwrap().pid;
    assert_eq!(refused.all(), [(pid, RefusalCause::UnresolvedImport)]);
    assert_eq!(gone.all(), [(pid, "it closed the link".to_owned())]);
    assert_eq!(target.stats().refused(RefusalCause::UnresolvedImport), 1);
    assert_eq!(target.stats().refused(RefusalCause::BadFrame), 0);
}

#[test]
fn a_source_that_was_idle_among_many_is_heard_by_polls_alone() {
    let place = Place::new();
    // The target does not request events from the system.
    let never = Duration::from_secs(100_000);
    let mut target = place.target().mailbox_size(1 << 16).control_interval(never).build().unwrap();
    let echo = library("echo");
    let links: Vec<_> =
        (0..10).map(|_| while_polling(&mut target, || place.link().connect()).unwrap()).collect();
    for link in &links {
        outcome_of(&mut target, &mut link.inject(&echo, b"here").unwrap()).unwrap();
    }
    // Long enough for all of them to count as idle.
    (0..20_000).for_each(|_| {
        target.poll().unwrap();
    });
    // For a payload of this length the source requests a large mailbox, beside its frames.
    let long = vec![7; 1 << 18];
    let link = links.into_iter().nth(7).unwrap();
    let flushed = alongside(
        move || {
            link.send(&echo, &long)?;
            link.flush(PATIENCE)
        },
        || {
            // The target finds the frame within thousands of polls: one for each turn on a busy processor would take
            // minutes.
            (0..256).for_each(|_| {
                target.poll().unwrap();
            });
            thread::yield_now();
        },
    );
    flushed.unwrap();
}
