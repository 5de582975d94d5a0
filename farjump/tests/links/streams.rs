//! Links over `tcp`, whose frames travel on a stream beside the control connection.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farjump::admin::Admin;
use farjump::{Error, Key, Link, LinkBuilder, RefusalCause, Target, TargetBuilder, WaitError, WaitPolicy};
use farjump_control::Message;
use farjump_fixtures::by_hand::{PREAMBLE, Welcomed, opening};
use rustix::net::{AddressFamily, SocketType, bind, socket};

use crate::support::{
    PATIENCE, Pair, Place, Watchdog, alongside, library, outcome_of, peer_gone, serve, sleep_until, to_words,
    while_polling, words,
};

/// Longer than a socket holds.
const LONG: usize = 24 << 20;

fn over<'a>(place: &Place) -> (TargetBuilder<'a>, LinkBuilder) {
    (place.target().transport("tcp"), place.link().transport("tcp"))
}

fn pair<'a>(place: &Place) -> Pair<'a> {
    let (target, link) = over(place);
    Pair::of(target, link)
}

/// Number of calls that `tally` has had, this one included.
fn tallied(link: &Link, target: &mut Target<'_>) -> u64 {
    let mut pending = link.inject(&library("tally"), b"").unwrap();
    to_words(&outcome_of(target, &mut pending).unwrap())[0]
}

#[test]
fn calls_run_over_each_address_and_both_peers_report_sealing() {
    let place = Place::new();
    let key = || Key::from_bytes([7; Key::LEN]);
    let tcp = || Target::listen("tcp:127.0.0.1:0").transport("tcp");
    let cases = [
        (place.target().transport("tcp"), false, false, "tcp, clear"),
        (tcp(), false, false, "tcp, clear"),
        (tcp().key(key()), true, false, "tcp, sealed by "),
        (tcp().key(key()).clear(true), true, false, "tcp, sealed by "),
        (tcp().key(key()), true, true, "tcp, sealed by "),
        (tcp().key(key()).clear(true), true, true, "tcp, clear"),
    ];
    for (target, keyed, clear, path) in cases {
        let mut target = target.build().unwrap();
        let address = target.address();
        let mut builder = Link::builder(&address).transport("tcp").clear(clear);
        let mut admin = Admin::new(&address).unwrap().timeout(PATIENCE);
        if keyed {
            (builder, admin) = (builder.key(key()), admin.key(key()));
        }
        let link = while_polling(&mut target, || builder.connect()).unwrap();
        let mut pair = Pair { link, target };
        for len in [0, 1, 5000, 900_000] {
            let sent: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            assert_eq!(*pair.call(&library("echo"), &sent).unwrap(), *sent);
        }
        assert!(pair.link.path().summary().starts_with(path), "{}", pair.link.path().summary());
        let stats = while_polling(&mut pair.target, || admin.stats()).unwrap();
        assert!(stats.sources[0].path.starts_with(path), "{}", stats.sources[0].path);
    }
}

#[test]
fn frames_sent_before_a_source_closes_its_link_all_run() {
    let place = Place::new();
    let mut pair = pair(&place);
    let (_, builder) = over(&place);
    let other = while_polling(&mut pair.target, || builder.connect()).unwrap();
    pair.call(&library("tally"), b"").unwrap();
    // More than the socket can hold, and neither endpoint polls meanwhile.
    for _ in 0..50 {
        pair.link.send(&library("tally"), &[1; 500]).unwrap();
    }
    pair.link.send(&library("tally"), &vec![1; 3 << 20]).unwrap();
    let Pair { link, mut target } = pair;
    let leaving = thread::spawn(move || drop(link));
    while target.sources() != 1 {
        target.wait(Duration::from_millis(1)).unwrap();
        target.poll().unwrap();
    }
    leaving.join().unwrap();
    assert_eq!(target.stats().frames, 52, "a frame that ran is not counted");
    assert_eq!(tallied(&other, &mut target), 53);
    assert_eq!(target.stats().links_ended, 1);
}

#[test]
fn replies_sent_before_a_target_ends_all_arrive() {
    for policy in [WaitPolicy::spin_only(), WaitPolicy::sleep_only()] {
        // Many, and one that exceeds the socket.
        for (ifunc, args, count, len) in [("echo", &b"an answer"[..], 40, 9), ("onward", b"#", 1, 1 << 20)] {
            let place = Place::new();
            let (target, link) = over(&place);
            let mut pair = Pair::of(target, link.wait_policy(policy).reply_mailbox_size(8 << 20));
            let library = library(ifunc);
            pair.call(&library, b"").unwrap();
            let pending: Vec<_> = (0..count).map(|_| pair.link.inject(&library, args).unwrap()).collect();
            let mut served = 0;
            while served < count {
                served += pair.target.poll().unwrap();
            }
            drop(pair.target);
            for pending in pending {
                assert_eq!(pending.wait(PATIENCE).unwrap().len(), len);
            }
            peer_gone(pair.link.inject(&library, b"").and_then(|call| call.wait(PATIENCE)));
        }
    }
}

#[test]
fn a_pending_call_fails_at_once_with_the_targets_closing_reason() {
    let place = Place::new();
    let mut pair = pair(&place);
    pair.call(&library("echo"), b"").unwrap();
    let pending = pair.link.inject(&library("echo"), b"never").unwrap();
    pair.target.end_links("it is late");
    drop(pair.target);
    let start = Instant::now();
    let error = pending.wait(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("it is late"), "{error}");
    assert!(start.elapsed() < PATIENCE, "it waits for nothing that cannot come");
}

#[test]
fn an_event_loop_receives_the_last_replies_before_peer_gone() {
    let place = Place::new();
    let mut pair = pair(&place);
    let echo = library("echo");
    pair.call(&echo, b"").unwrap();
    let mut first = pair.link.inject(&echo, &[3; 70_000]).unwrap();
    serve(&mut pair.target);
    let mut second = pair.link.inject(&echo, b"never").unwrap();
    drop(pair.target);
    let answer = sleep_until(&pair.link, || first.poll().transpose()).unwrap();
    assert_eq!(answer.len(), 70_000);
    let mut turns = 0;
    loop {
        turns += 1;
        assert!(turns < 1000, "its end is reported over and over");
        match second.poll() {
            Ok(Some(_)) => panic!("an answer of a target that did not run it"),
            Ok(None) => {}
            Err(error) => break assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}"),
        }
        if let Ok(Some(longest)) = pair.link.arm() {
            crate::support::readable(pair.link.as_fd().unwrap(), longest);
        }
        pair.link.disarm();
    }
}

#[test]
fn returned_credit_wakes_a_source_that_has_more_to_send() {
    let place = Place::new();
    let mut pair = pair(&place);
    let tally = library("tally");
    pair.call(&tally, b"").unwrap();
    let mut pending = pair.link.inject(&tally, &vec![1; 3 << 20]).unwrap();
    let target = &mut pair.target;
    // The target only takes arrived frames: only the descriptor wakes the source for credit.
    let reply = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let deadline = Instant::now() + PATIENCE;
            let mut ran = 0;
            while ran == 0 {
                ran += target.poll().unwrap();
                assert!(Instant::now() < deadline, "the frame does not come");
                thread::yield_now();
            }
        });
        let reply = sleep_until(&pair.link, || pending.poll().transpose()).unwrap();
        serving.join().unwrap();
        reply
    });
    assert_eq!(to_words(&reply), [2]);
}

#[test]
fn returned_credit_wakes_a_target_that_has_more_to_reply() {
    let place = Place::new();
    let (target, link) = over(&place);
    let mut pair = Pair::of(target, link.reply_mailbox_size(2 * LONG));
    let echo = library("echo");
    pair.call(&echo, b"").unwrap();
    let target = &mut pair.target;
    let link = &pair.link;
    let reply = thread::scope(|scope| {
        let (done, over) = mpsc::channel::<()>();
        let serving = scope.spawn(move || {
            let mut slept = 0;
            while over.try_recv().is_err() {
                if target.poll().unwrap() == 0 && target.wait(PATIENCE).unwrap() {
                    slept += 1;
                }
                // A source woken for credit that it does not need does not sleep at all.
                assert!(slept < 1_000_000, "it does not sleep");
            }
        });
        let pending = link.inject(&echo, &vec![9; LONG]).unwrap();
        let reply = pending.wait(PATIENCE).unwrap();
        done.send(()).unwrap();
        serving.join().unwrap();
        reply
    });
    assert_eq!(reply.len(), LONG);
}

// ---- strangers ----

/// Polls the target's connections until there is no more work.
fn settle(target: &mut Target<'_>) {
    for _ in 0..20 {
        target.wait(Duration::from_millis(1)).unwrap();
        target.poll().unwrap();
    }
}

/// Returns whether the target has not closed this connection.
fn is_open(mut stranger: &UnixStream) -> bool {
    stranger.set_nonblocking(true).unwrap();
    stranger.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// A source by hand after Welcome.
fn welcomed(address: &str, target: &mut Target<'_>) -> Welcomed {
    Welcomed::connect(&address.parse().unwrap(), "tcp", || settle(target)).0
}

#[test]
fn a_target_full_of_unknown_connections_accepts_a_handshakes_stream() {
    let place = Place::new();
    let (target, _) = over(&place);
    let mut target = target.max_sources(1).build().unwrap();
    let mut source = welcomed(&place.address(), &mut target);
    let connect = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(place.path("t.sock")).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    // Some send nothing, some begin as control connections and some as streams. They are more than the target has
    // places for.
    let mut strangers = Vec::new();
    for _ in 0..10 {
        for part in [&b""[..], &PREAMBLE, &opening(&[1; 32])[..16], &opening(&[1; 32])] {
            strangers.extend((0..6).map(|_| connect(part)));
        }
        settle(&mut target);
    }
    let _stream = connect(&source.opening());
    settle(&mut target);
    source.ready().unwrap();
    settle(&mut target);
    let said: Vec<_> =
        std::iter::from_fn(|| source.control.recv().unwrap().map(|(message, _)| message)).collect();
    assert!(said.contains(&Message::Go), "{said:?}");
    assert_eq!(target.sources(), 1);
}

#[test]
fn a_target_bounds_unknown_connections_and_still_connects_a_link() {
    let place = Place::new();
    let (target, builder) = over(&place);
    let mut target = target.build().unwrap();
    let mut strangers = Vec::new();
    for number in 0..300 {
        let mut stranger = UnixStream::connect(place.path("t.sock")).unwrap();
        // Part of a stream's opening, or nothing at all.
        stranger.write_all(&opening(&[1; 32])[..number % 64]).unwrap();
        strangers.push(stranger);
        if number % 50 == 0 {
            settle(&mut target);
        }
    }
    settle(&mut target);
    let held: Vec<_> = strangers.iter().map(is_open).collect();
    assert_eq!(held.iter().filter(|held| **held).count(), 64, "the youngest are left");
    assert!(held[300 - 64..].iter().all(|held| *held));
    let link = while_polling(&mut target, || builder.connect()).unwrap();
    assert_eq!(tallied(&link, &mut target), 1);
}

#[test]
fn a_source_that_ends_within_a_message_is_gone_and_broke_nothing() {
    let (said, heard) = mpsc::channel();
    let place = Place::new();
    let target = over(&place).0.on_peer_gone(move |_, why| said.send(why.to_owned()).unwrap());
    let mut target = target.build().unwrap();
    // Within a head, within a record, and within a message of several records.
    let head = |message: u32, body: u16, last: u16| {
        let half = |number: u16| number.to_le_bytes();
        [&message.to_le_bytes()[..], &half(body), &half(last), &[0; 4], &(1_u32 << 20).to_le_bytes()].concat()
    };
    let records = [head(64, 64, 1)[..7].to_vec(), head(64, 64, 1), head(1 << 20, 16 << 10, 0)];
    for (number, part) in (1..).zip(records) {
        let mut source = welcomed(&place.address(), &mut target);
        let mut stream = UnixStream::connect(place.path("t.sock")).unwrap();
        stream.write_all(&source.opening()).unwrap();
        source.ready().unwrap();
        settle(&mut target);
        assert_eq!(target.sources(), 1);
        stream.write_all(&part).unwrap();
        settle(&mut target);
        drop((stream, source));
        settle(&mut target);
        let why = heard.try_recv().expect("its end is reported");
        assert!(!why.contains("cut the link") && !why.contains("protocol"), "{why}");
        let stats = target.stats();
        assert_eq!((stats.links_ended, stats.refusals(), target.sources()), (number, 0, 0));
    }
}

/// Lets a target in a handshake see `before` and `after` silent connections, and the link's stream in between. The
/// stream sends its token only after them. Returns the target's messages to the source.
fn stream_among<S: Read + Write>(
    target: &mut Target<'_>,
    mut source: Welcomed,
    connect: impl FnOnce() -> S,
    [before, after]: [&mut dyn FnMut(&mut Target<'_>); 2],
) -> Vec<Message> {
    before(target);
    let mut stream = connect();
    settle(target);
    after(target);
    // The target has closed the stream if it lost its place.
    let _ = stream.write_all(&source.opening());
    settle(target);
    let _ = source.ready();
    settle(target);
    std::iter::from_fn(|| source.control.recv().ok()?.map(|(message, _)| message)).collect()
}

#[test]
fn a_source_that_ends_with_refusals_unread_ends_no_other_link() {
    let place = Place::new();
    let Pair { link, mut target } = pair(&place);
    let (_, other) = over(&place);
    let other = while_polling(&mut target, || other.connect()).unwrap();
    let unresolved = library("lookup");
    // The source's connection is filled: the rest of the refusals waits, and the target watches until the source
    // reads.
    let mut sent = 0;
    while sent < target.stats().refused(RefusalCause::UnresolvedImport) + 100 {
        link.send(&unresolved, &words(&[1])).unwrap();
        sent += 1;
        assert!(sent < 100_000, "the connection is never full");
        serve(&mut target);
    }
    (0..20_000).for_each(|_| {
        target.poll().unwrap();
    });
    drop(link);
    let deadline = Instant::now() + PATIENCE;
    while target.sources() != 1 {
        target.wait(Duration::from_millis(1)).unwrap();
        target.poll().unwrap();
        assert!(Instant::now() < deadline, "it is not noticed");
    }
    let mut pending = other.inject(&library("echo"), b"on").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut pending).unwrap(), *b"on");
}

#[test]
fn a_stream_with_a_late_token_survives_connections_of_the_same_process() {
    let place = Place::new();
    let mut target = over(&place).0.handshake_timeout(PATIENCE).build().unwrap();
    let source = welcomed(&place.address(), &mut target);
    let connect = || UnixStream::connect(place.path("t.sock")).unwrap();
    let mut strangers = Vec::new();
    let mut after = |target: &mut Target<'_>| {
        for _ in 0..3 {
            strangers.extend((0..50).map(|_| connect()));
            settle(target);
        }
    };
    let said = stream_among(&mut target, source, connect, [&mut |_| (), &mut after]);
    assert!(said.contains(&Message::Go), "{said:?}");
    // The place of the stream ends with the handshake.
    strangers.push(connect());
    settle(&mut target);
    assert_eq!(strangers.iter().filter(|stranger| is_open(stranger)).count(), 64);
}

#[test]
fn a_stream_with_a_late_token_survives_connections_from_another_address() {
    let _watchdog = Watchdog::new();
    let mut target =
        Target::listen("tcp:127.0.0.1:0").transport("tcp").handshake_timeout(PATIENCE).build().unwrap();
    let address = target.address();
    let port: SocketAddrV4 = address["tcp:".len()..].parse().unwrap();
    let from = |host: [u8; 4]| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrV4::new(host.into(), 0)).unwrap();
        rustix::net::connect(&socket, &port).unwrap();
        TcpStream::from(socket)
    };
    let source = welcomed(&address, &mut target);
    let strangers = RefCell::new(Vec::new());
    let others = |target: &mut Target<'_>| {
        for _ in 0..2 {
            strangers.borrow_mut().extend((0..50).map(|_| from([127, 0, 0, 2])));
            settle(target);
        }
    };
    let connect = || from([127, 0, 0, 1]);
    let said = stream_among(&mut target, source, connect, [&mut &others, &mut &others]);
    assert!(said.contains(&Message::Go), "{said:?}");
}

#[test]
fn a_flooding_stream_without_a_token_is_closed_after_its_opening() {
    let _watchdog = Watchdog::new();
    let mut target = Target::listen("tcp:127.0.0.1:0").transport("tcp").build().unwrap();
    let address = target.address()["tcp:".len()..].to_owned();
    let mut stranger = TcpStream::connect(&address).unwrap();
    let flood = [&opening(&[1; 32])[..], &[0xff; 1 << 16]].concat();
    // The thread ends once the target has closed the connection.
    alongside(move || while stranger.write_all(&flood).is_ok() {}, || settle(&mut target));
    assert_eq!(target.sources(), 0);
}

#[test]
fn a_peer_over_a_stream_is_forwarded_to() {
    let place = Place::new();
    let (target, _) = over(&place);
    let mut last = target.build().unwrap();
    let first = Target::listen(&place.address_of("first.sock"));
    let mut first = first.transport("tcp").destination("next", &place.address()).build().unwrap();
    let builder = Link::builder(&first.address()).transport("tcp");
    let link = while_polling(&mut first, || builder.connect()).unwrap();
    let mut pending = link.inject(&library("onward"), b">next;hello").unwrap();
    let deadline = Instant::now() + PATIENCE;
    let reply = loop {
        for target in [&mut first, &mut last] {
            target.wait(Duration::from_millis(1)).unwrap();
            target.poll().unwrap();
        }
        if let Some(reply) = pending.poll().unwrap() {
            break reply;
        }
        assert!(Instant::now() < deadline, "no answer comes");
    };
    assert_eq!(*reply, *b"hello");
    assert_eq!(last.stats().calls, 1);
}
