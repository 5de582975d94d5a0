//! The second connection of a link: the link it joins, in any order of events, and the end of unawaited ones.

mod streamed;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use farjump_control::{
    Arrival, ArrivalOptions, EndpointInfo, Handshake, HandshakeError, HandshakeEvent, IncomingStream,
    Listener, Message, OPENING_LEN, ParameterFault, PeerAddress, Progress, RejectCause, Share, StreamOffer,
    TcpOptions, connect_target,
};
use farjump_core::transport::{ArrivalRules, Stream, StreamRole};
use farjump_fixtures::by_hand::{Welcomed, cpu, endpoint_info, opening, send_with};
use farjump_fixtures::control::{Place, accept, far, next, shm, source_options, target_options};
use farjump_fixtures::watchdog::Watchdog;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendFlags, sockopt};

use crate::LONG_FUNCTION;
use crate::tcp::{key, listener};
use streamed::Streamed;

fn wait(arrival: &Arrival) {
    let mut events = PollFlags::IN;
    events.set(PollFlags::OUT, arrival.wants_write());
    poll(&mut [PollFd::from_borrowed_fd(arrival.as_fd().unwrap(), events)], None).unwrap();
}

/// Returns a target's arrival that waits for its source.
fn arrival(listener: &Listener) -> Arrival {
    Arrival::new(accept(listener).unwrap(), target_options())
}

/// Returns the stream that a connection turns out to be.
fn incoming(listener: &Listener) -> IncomingStream {
    let mut arrival = arrival(listener);
    loop {
        wait(&arrival);
        assert!(!arrival.wants_write(), "nothing is said on a stream");
        match arrival.advance(&mut shm()).unwrap() {
            Progress::Stream(stream) => return *stream,
            Progress::Pending => assert!(!arrival.is_known()),
            other => panic!("{other:?}"),
        }
    }
}

/// Drives the handshake of `arrival` until it waits for its stream, or is done.
fn advance(arrival: &mut Arrival, target: &Streamed) -> Result<Progress, HandshakeError> {
    arrival.advance(&mut target.one())
}

/// Runs a target's handshake with the next source, whose connections come in any order.
fn accept_next(listener: &Listener, target: &Streamed) -> Handshake {
    let mut arrival = arrival(listener);
    let mut others: Vec<Arrival> = Vec::new();
    loop {
        if let Progress::Handshake(handshake) = advance(&mut arrival, target).unwrap() {
            return *handshake;
        }
        if let Some(control) = listener.accept().unwrap() {
            others.push(Arrival::new(control, target_options()));
        }
        others.retain_mut(|other| match advance(other, target).unwrap() {
            Progress::Stream(stream) => {
                assert!(arrival.awaits(&stream));
                arrival.take_stream(*stream).unwrap();
                false
            }
            _ => true,
        });
        thread::sleep(Duration::from_micros(100));
    }
}

/// Runs a handshake, and returns the transports' streams: (the source's, the target's).
fn stream_pair(listener: &Listener, source_tcp: TcpOptions) -> (Stream, Stream) {
    let (source, target) = (Streamed::default(), Streamed::default());
    let (address, theirs) = (listener.address().clone(), source.clone());
    let arrival = thread::spawn(move || {
        let mut options = source_options();
        options.tcp = source_tcp;
        connect_target(&address, &mut theirs.one(), &options, far()).unwrap()
    });
    let ours = accept_next(listener, &target);
    let theirs = arrival.join().unwrap();
    assert_eq!((ours.transport.as_str(), theirs.transport.as_str()), ("streamed", "streamed"));
    (source.stream(), target.stream())
}

/// Checks that the two are the ends of one connection, which carries no bytes.
fn joined(source: &Stream, target: &Stream) {
    assert_eq!((source.role, target.role), (StreamRole::Source, StreamRole::Target));
    assert_eq!(source.token, target.token);
    for (from, to) in [(source, target), (target, source)] {
        let nothing = rustix::io::read(&to.descriptor, &mut [0; 1]);
        assert_eq!(nothing, Err(rustix::io::Errno::AGAIN), "it does not block, and nothing is there");
        assert_eq!(rustix::io::write(&from.descriptor, b"first"), Ok(5));
        poll(&mut [PollFd::new(&to.descriptor, PollFlags::IN)], None).unwrap();
        let mut came = [0; 9];
        assert_eq!(rustix::io::read(&to.descriptor, &mut came), Ok(5));
        assert_eq!(&came[..5], b"first");
        let flags = rustix::io::fcntl_getfd(&to.descriptor).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}

fn secrets(source: &Stream, target: &Stream) -> Option<([u8; 64], [u8; 64])> {
    let bytes = |stream: &Stream| stream.secret.as_ref().map(|secret| *secret.as_bytes());
    assert_eq!(source.secret.is_some(), target.secret.is_some());
    bytes(source).zip(bytes(target))
}

fn clear(options: TcpOptions) -> TcpOptions {
    let mut options = options;
    options.clear = true;
    options
}

#[test]
fn source_and_target_share_one_stream_and_with_keys_a_secret() {
    let place = Place::new();
    let (source, target) = stream_pair(&place.listener(), TcpOptions::default());
    joined(&source, &target);
    assert!(secrets(&source, &target).is_none(), "there is no key on a Unix socket");

    let (source, target) = stream_pair(&listener(&TcpOptions::default()), TcpOptions::default());
    joined(&source, &target);
    assert!(secrets(&source, &target).is_none(), "there is none");

    let keyed = listener(&key(1));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (source, target) = stream_pair(&keyed, key(1));
        joined(&source, &target);
        let (ours, theirs) = secrets(&source, &target).expect("both have a key");
        assert_eq!(ours, theirs);
        assert_ne!(ours[..32], ours[32..]);
        seen.extend([ours[..32].to_vec(), ours[32..].to_vec(), source.token.to_vec()]);
    }
    assert!(seen.iter().all(|one| one.iter().any(|byte| *byte != 0)));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6, "each is another one in each handshake");
}

#[test]
fn a_stream_is_clear_only_if_source_and_target_allow_it() {
    let _watchdog = Watchdog::new();
    for (target_is, source_is) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = |is: bool| if is { clear(key(1)) } else { key(1) };
        let (source, target) = stream_pair(&listener(&options(target_is)), options(source_is));
        assert_eq!(secrets(&source, &target).is_none(), target_is && source_is);
    }
}

#[test]
fn a_tcp_stream_has_no_user_timeout() {
    let _watchdog = Watchdog::new();
    let (source, target) = stream_pair(&listener(&TcpOptions::default()), TcpOptions::default());
    for stream in [source, target] {
        assert_eq!(sockopt::tcp_user_timeout(&stream.descriptor), Ok(0));
    }
}

/// Connects a source by hand. Returns it with the target's arrival, which waits for the rest of the handshake.
fn welcomed(listener: &Listener, target: &Streamed, options: ArrivalOptions) -> (Welcomed, Arrival) {
    Welcomed::connect(listener.address(), "streamed", || {
        let mut arrival = Arrival::new(accept(listener).unwrap(), options);
        assert!(matches!(advance(&mut arrival, target).unwrap(), Progress::Pending) && arrival.is_source());
        arrival
    })
}

fn connected(place: &Place, bytes: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(place.path()).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn the_stream_and_the_sources_end_come_in_either_order() {
    let place = Place::new();
    let listener = place.listener();
    for stream_first in [true, false] {
        let target = Streamed::default();
        let (mut source, mut arrival) = welcomed(&listener, &target, target_options());
        let mut stream = None;
        for step in [stream_first, !stream_first] {
            if step {
                // Bytes right behind the opening are the transport's.
                stream = Some(connected(&place, &[&source.opening()[..], b"behind"].concat()));
                arrival.take_stream(incoming(&listener)).unwrap();
            } else {
                source.ready().unwrap();
            }
            let progress = advance(&mut arrival, &target).unwrap();
            let last = step != stream_first;
            assert_eq!(matches!(progress, Progress::Handshake(_)), last, "{progress:?}");
        }
        let came = target.stream();
        let mut behind = [0; 9];
        assert_eq!(rustix::io::read(&came.descriptor, &mut behind), Ok(6));
        assert_eq!(&behind[..6], b"behind");
        drop(came);
        assert_eq!(stream.unwrap().read(&mut [0; 1]).unwrap(), 0, "nothing was said on it");
    }
}

#[test]
fn a_stream_token_admits_one_stream_of_one_handshake() {
    let place = Place::new();
    let listener = place.listener();
    let target = Streamed::default();
    let (mut source, mut first) = welcomed(&listener, &target, target_options());
    let (_other, second) = welcomed(&listener, &target, target_options());
    let _streams = [(); 3].map(|()| connected(&place, &source.opening()));
    let [one, replayed, late] = [(); 3].map(|()| incoming(&listener));
    assert!(first.awaits(&one) && !second.awaits(&one));
    first.take_stream(one).unwrap();
    assert!(!first.awaits(&replayed));
    assert!(matches!(first.take_stream(replayed), Err(HandshakeError::Terms { .. })));
    source.ready().unwrap();
    assert!(matches!(advance(&mut first, &target).unwrap(), Progress::Handshake(_)));
    assert!(!first.awaits(&late) && !second.awaits(&late));
    for bit in [0, 131, 255] {
        let mut token = source.offer.token;
        token[bit / 8] ^= 1 << (bit % 8);
        let _stream = connected(&place, &opening(&token));
        assert!(!second.awaits(&incoming(&listener)));
    }
}

#[test]
fn a_handshake_without_its_stream_times_out_at_its_deadline() {
    let place = Place::new();
    let listener = place.listener();
    let target = Streamed::default();
    let mut options = target_options();
    options.patience = Duration::from_millis(20);
    let (mut source, mut arrival) = welcomed(&listener, &target, options);
    source.ready().unwrap();
    let error = loop {
        match advance(&mut arrival, &target) {
            Ok(progress) => assert!(matches!(progress, Progress::Pending)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, HandshakeError::TimedOut { awaited: HandshakeEvent::Stream, .. }), "{error}");
    assert!(error.to_string().ends_with(LONG_FUNCTION), "{error}");
    assert!(matches!(next(&mut source.control), Ok(Message::Reject { cause: RejectCause::TooLate, .. })));
    // The token died with it.
    let _stream = connected(&place, &source.opening());
    assert!(!arrival.awaits(&incoming(&listener)));
    assert!(target.has_none());
}

#[test]
fn an_opening_is_taken_in_any_pieces_and_to_the_byte() {
    let place = Place::new();
    let listener = place.listener();
    let bytes = [&opening(&[9; 32])[..], b"not yet"].concat();
    for pace in [1, 5, 11, 12, 13, 63, 64, 71] {
        let mut stream = UnixStream::connect(place.path()).unwrap();
        let mut arrival = arrival(&listener);
        let mut sent = 0;
        let taken = loop {
            match arrival.advance(&mut shm()).unwrap() {
                Progress::Pending => {}
                Progress::Stream(taken) => break taken,
                other => panic!("{other:?}"),
            }
            let piece = &bytes[sent..bytes.len().min(sent + pace)];
            stream.write_all(piece).unwrap();
            sent += piece.len();
            // Its twelve bytes show its kind, and nothing is sent to it before or after.
            assert!(!arrival.wants_write() && !arrival.is_known());
        };
        assert!(sent >= OPENING_LEN);
        drop(taken);
        let mut response = Vec::new();
        match stream.read_to_end(&mut response) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            read => assert_eq!(read.unwrap(), 0),
        }
        assert!(response.is_empty());
    }
}

/// Returns the error for a connection that sends `bytes` and ends, or times out; and the bytes sent to it.
fn fate(bytes: &[u8], ends: bool, with: &[&OwnedFd]) -> (HandshakeError, Vec<u8>) {
    let place = Place::new();
    let listener = place.listener();
    let mut stream = UnixStream::connect(place.path()).unwrap();
    let borrowed: Vec<_> = with.iter().map(|descriptor| descriptor.as_fd()).collect();
    send_with(&stream, bytes, &borrowed, SendFlags::empty()).unwrap();
    if ends {
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let mut options = target_options();
    options.patience = Duration::from_millis(if ends { 100_000 } else { 20 });
    let mut arrival = Arrival::new(accept(&listener).unwrap(), options);
    let error = loop {
        match arrival.advance(&mut shm()) {
            Ok(progress) => assert!(matches!(progress, Progress::Pending), "{progress:?}"),
            Err(error) => break error,
        }
    };
    drop(arrival);
    let mut response = Vec::new();
    drop(stream.read_to_end(&mut response));
    (error, response)
}

#[test]
fn a_stream_that_opens_wrongly_is_closed_without_a_word() {
    let whole = opening(&[9; 32]);
    let (error, response) = fate(&whole[..40], true, &[]);
    assert!(matches!(error, HandshakeError::CutShort { found: 40, needed: OPENING_LEN, .. }), "{error}");
    assert!(response.is_empty());
    for len in [12, 63] {
        let (error, response) = fate(&whole[..len], false, &[]);
        assert!(
            matches!(error, HandshakeError::TimedOut { awaited: HandshakeEvent::StreamOpening, .. }),
            "{error}"
        );
        assert!(response.is_empty());
    }
    for at in 12..32 {
        let mut wrong = whole;
        wrong[at] = 1;
        let (error, response) = fate(&wrong, false, &[]);
        assert!(matches!(error, HandshakeError::Garbled { .. }) && response.is_empty(), "byte {at}: {error}");
    }
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    let (error, response) = fate(&whole, false, &[&writer]);
    assert!(matches!(error, HandshakeError::Descriptors { found: 1, expected: 0, .. }), "{error}");
    assert!(response.is_empty());
}

#[test]
fn an_unexpected_or_missing_stream_ends_the_handshake() {
    let place = Place::new();
    let listener = place.listener();
    let target = Streamed::default();
    let (mut source, mut arrival) = welcomed(&listener, &target, target_options());
    source.control.send(&Message::Ready { endpoint: source.endpoint.clone(), stream: None }, &[]).unwrap();
    let error = advance(&mut arrival, &target).unwrap_err();
    assert!(
        matches!(
            &error,
            HandshakeError::Terms { fault: ParameterFault::StreamMismatch { has_stream: false, .. }, .. }
        ),
        "{error}"
    );

    // A target that offers no stream for a transport with one, and a target that offers a stream for a
    // transport without one.
    for (name, offers) in [("streamed", false), ("shm", true)] {
        let place = Place::new();
        let listener = place.listener();
        let address: PeerAddress = place.address();
        let arrival = thread::spawn(move || {
            let transports =
                &mut [Streamed::default().one(), shm()].into_iter().flatten().collect::<Vec<_>>();
            connect_target(&address, transports, &source_options(), far()).unwrap_err()
        });
        let mut control = accept(&listener).unwrap();
        next(&mut control).unwrap();
        let (transport, rules) = (name.into(), ArrivalRules::all().bits());
        let end = EndpointInfo { transport, key: [1; 16], rules, line_whole: false, ..endpoint_info() };
        let offer = StreamOffer { token: [1; 32], share: Share::from_bytes(&[1; 32]), clear: false };
        let welcome = Message::Welcome {
            epoch: 1,
            cpu: cpu(),
            pid: 1,
            program: "liar".into(),
            endpoint: end,
            stream: offers.then_some(offer),
        };
        control.send(&welcome, &[]).unwrap();
        let error = arrival.join().unwrap();
        let expected = if offers { "a stream for shm" } else { "no stream for streamed" };
        assert!(error.to_string().contains(expected), "{error}");
        assert!(listener.accept().unwrap().is_none(), "and no stream was opened");
    }
}

#[test]
fn a_stream_goes_to_where_the_control_connection_does() {
    let _watchdog = Watchdog::new();
    // A forwarded port: the source's address is not the target's.
    let listener = listener(&key(1));
    let inner = listener.address().to_string()["tcp:".len()..].to_owned();
    let outer = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", outer.local_addr().unwrap()).parse().unwrap();
    let relay = thread::spawn(move || {
        let pipes: Vec<_> = (0..2)
            .map(|_| {
                let near = outer.accept().unwrap().0;
                let far = TcpStream::connect(&inner).unwrap();
                let pump = |mut from: TcpStream, mut to: TcpStream| {
                    thread::spawn(move || {
                        drop(std::io::copy(&mut from, &mut to));
                        drop(to.shutdown(std::net::Shutdown::Write));
                    })
                };
                [pump(near.try_clone().unwrap(), far.try_clone().unwrap()), pump(far, near)]
            })
            .collect();
        pipes.into_iter().flatten().for_each(|pump| pump.join().unwrap());
    });
    let (source, target) = (Streamed::default(), Streamed::default());
    let theirs = source.clone();
    let arrival = thread::spawn(move || {
        let mut options = source_options();
        options.tcp = key(1);
        connect_target(&address, &mut theirs.one(), &options, Instant::now() + Duration::from_secs(60))
            .unwrap()
    });
    let ours = accept_next(&listener, &target);
    let theirs = arrival.join().unwrap();
    joined(&source.stream(), &target.stream());
    drop((ours, theirs));
    relay.join().unwrap();
}
