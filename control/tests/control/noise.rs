//! Handshakes with a key, without it, and with an interceptor that repeats, cuts, changes or forges bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use farjump_control::{
    AdminRequest, AdminResponse, Control, HandshakeError, Listener, MessageFault, PeerAddress, StoreListing,
    StoredImage, TcpOptions, VERSION, admin_request_with,
};
use farjump_core::image::CodeId;
use farjump_fixtures::by_hand::{KEYED, PREAMBLE};
use farjump_fixtures::control::{accept, far, next};
use farjump_fixtures::watchdog::Watchdog;
use rustix::event::{PollFd, PollFlags, poll};

use crate::tcp::{REQUEST, RESPONSE, admin_connection, key, listener, respond_once};

/// Bytes that each process sends before the first message: preamble, length, handshake.
const SOURCE_SHAKES: usize = 12 + 2 + 48;
const TARGET_SHAKES: usize = 12 + 2 + 60;

/// Outcome of an admin request: the source's result and the target's.
type Outcome = (Result<AdminResponse, HandshakeError>, Result<(), HandshakeError>);

/// Changes to one direction of an intercepted connection, by offset and byte.
type Meddling<'m> = &'m (dyn Fn(usize, u8) -> u8 + Sync);

fn as_it_is(_: usize, byte: u8) -> u8 {
    byte
}

fn socket_address(listener: &Listener) -> SocketAddr {
    listener.address().to_string()["tcp:".len()..].parse().unwrap()
}

/// Copies bytes from one end to the other until one closes, changed by `meddle`. Returns the original bytes.
fn copy(mut from: TcpStream, mut to: TcpStream, meddle: Meddling<'_>) -> Vec<u8> {
    let (mut seen, mut buffer) = (Vec::new(), [0; 65_536]);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let changed: Vec<u8> =
            buffer[..read].iter().enumerate().map(|(at, byte)| meddle(seen.len() + at, *byte)).collect();
        seen.extend(&buffer[..read]);
        if to.write_all(&changed).is_err() {
            break;
        }
    }
    // Either may be closed already, as intended.
    let _ = to.shutdown(Shutdown::Write);
    seen
}

/// Runs an admin request of a source with `source`'s key to a target with `target`'s, through an interceptor.
/// Returns the outcome, and the bytes of both directions: the source's and the target's.
fn between(
    source: &TcpOptions,
    target: &TcpOptions,
    from_source: Meddling<'_>,
    from_target: Meddling<'_>,
) -> (Outcome, Vec<u8>, Vec<u8>) {
    between_until(far(), source, target, from_source, from_target)
}

/// The same with a source that times out then.
fn between_until(
    deadline: Instant,
    source: &TcpOptions,
    target: &TcpOptions,
    from_source: Meddling<'_>,
    from_target: Meddling<'_>,
) -> (Outcome, Vec<u8>, Vec<u8>) {
    let listener = listener(target);
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: PeerAddress = format!("tcp:{}", middle.local_addr().unwrap()).parse().unwrap();
    thread::scope(|scope| {
        let asking = scope.spawn(|| admin_request_with(&address, source, REQUEST, deadline));
        let (near, _) = middle.accept().unwrap();
        let far = TcpStream::connect(socket_address(&listener)).unwrap();
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let there = scope.spawn(move || copy(near, far, from_source));
        let back = scope.spawn(move || copy(far_too, near_too, from_target));
        let replied = respond_once(&listener);
        let outcome = (asking.join().unwrap(), replied);
        (outcome, there.join().unwrap(), back.join().unwrap())
    })
}

/// The same without an interceptor.
fn outcome(source: &TcpOptions, target: &TcpOptions) -> Outcome {
    let (outcome, _, _) = between(source, target, &as_it_is, &as_it_is);
    outcome
}

/// Sends `bytes` to a keyed target and closes. Returns the target's error and its response.
fn stranger(bytes: &[u8]) -> (HandshakeError, Vec<u8>) {
    let listener = listener(&key(1));
    let mut stream = TcpStream::connect(socket_address(&listener)).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let error = admin_connection(accept(&listener).unwrap()).unwrap_err();
    let mut response = Vec::new();
    // A target that did not read all of it resets the connection, behind its response.
    let _ = stream.read_to_end(&mut response);
    (error, response)
}

#[test]
fn a_keyed_request_succeeds_and_its_bytes_differ_each_time() {
    let _watchdog = Watchdog::new();
    let ((response, replied), there, back) = between(&key(1), &key(1), &as_it_is, &as_it_is);
    assert_eq!(response.unwrap(), RESPONSE);
    replied.unwrap();
    assert_eq!((&there[..12], &back[..12]), (&KEYED[..], &KEYED[..]));
    // A request in the clear ends in its head and these two bytes; each handshake looks different.
    let open = postcard::to_stdvec(&farjump_control::Message::AdminRequest(REQUEST)).unwrap();
    assert_eq!(there.len(), SOURCE_SHAKES + 2 + 8 + open.len() + 16);
    let (_, again, back_again) = between(&key(1), &key(1), &as_it_is, &as_it_is);
    assert_ne!(there[14..], again[14..]);
    assert_ne!(back[14..], back_again[14..]);
}

#[test]
fn a_message_longer_than_a_packet_arrives_whole() {
    let _watchdog = Watchdog::new();
    let image =
        |id: u128| StoredImage::new(CodeId(id.to_le_bytes()), "SECRET".repeat(30), 1, "s".repeat(200));
    let long = AdminResponse::Store(StoreListing { images: (0..20_000).map(image).collect(), left_out: 1 });
    let listener = listener(&key(9));
    thread::scope(|scope| {
        let response =
            scope.spawn(|| admin_request_with(listener.address(), &key(9), AdminRequest::Store, far()));
        let mut connection = admin_connection(accept(&listener).unwrap()).unwrap();
        connection.respond(&long).unwrap();
        while !connection.advance().unwrap() {
            poll(&mut [PollFd::new(&connection, PollFlags::OUT)], None).unwrap();
        }
        assert_eq!(response.join().unwrap().unwrap(), long);
    });
}

#[test]
fn a_wrong_key_is_an_error_at_source_and_target() {
    let _watchdog = Watchdog::new();
    let (response, replied) = outcome(&key(1), &key(2));
    for error in [response.unwrap_err(), replied.unwrap_err()] {
        assert!(matches!(error, HandshakeError::WrongKey { .. }), "{error}");
        assert!(error.to_string().contains("127.0.0.1:"), "{error}");
    }
}

#[test]
fn a_source_without_a_key_gets_nothing_from_a_target_with_one() {
    let _watchdog = Watchdog::new();
    let ((response, replied), _, back) = between(&TcpOptions::default(), &key(1), &as_it_is, &as_it_is);
    let (response, replied) = (response.unwrap_err(), replied.unwrap_err());
    assert!(
        matches!(response, HandshakeError::KeyWanted { .. })
            && response.to_string().contains("copy of that key"),
        "{response}"
    );
    assert!(matches!(replied, HandshakeError::KeyUnknown { .. }), "{replied}");
    assert_eq!(back, KEYED);
}

#[test]
fn a_source_with_a_key_says_nothing_to_a_target_without_one() {
    let _watchdog = Watchdog::new();
    let ((response, replied), there, _) = between(&key(1), &TcpOptions::default(), &as_it_is, &as_it_is);
    let (response, replied) = (response.unwrap_err(), replied.unwrap_err());
    assert!(matches!(response, HandshakeError::KeyUnknown { .. }), "{response}");
    assert!(matches!(replied, HandshakeError::KeyWanted { .. }), "{replied}");
    assert_eq!(there.len(), SOURCE_SHAKES);
}

#[test]
fn a_connection_cannot_be_talked_down_to_one_without_a_key() {
    let _watchdog = Watchdog::new();
    let plain = |at: usize, byte| if at == 10 { 0 } else { byte };
    // In each direction alone, and in both.
    let (response, replied) = between(&key(1), &key(1), &plain, &as_it_is).0;
    assert!(response.is_err() && matches!(replied, Err(HandshakeError::KeyUnknown { .. })), "{replied:?}");
    let (response, _) = between(&key(1), &key(1), &as_it_is, &plain).0;
    assert!(matches!(response, Err(HandshakeError::KeyUnknown { .. })), "{response:?}");
    let (response, replied) = between(&key(1), &key(1), &plain, &plain).0;
    assert!(response.is_err() && replied.is_err());
    // A source without a key is not admitted by claiming one.
    let keyed = |at: usize, byte| if at == 10 { 1 } else { byte };
    let (response, replied) = between(&TcpOptions::default(), &key(1), &keyed, &plain).0;
    assert!(response.is_err() && replied.is_err());
}

#[test]
fn a_repeated_connection_comes_to_nothing() {
    let _watchdog = Watchdog::new();
    let (outcome, there, _) = between(&key(1), &key(1), &as_it_is, &as_it_is);
    outcome.0.unwrap();
    // The target believes the first packet, which proves a key. The bytes behind it do not decrypt.
    let (error, response) = stranger(&there);
    assert!(matches!(error, HandshakeError::Tampered { .. }), "{error}");
    assert_eq!(response.len(), TARGET_SHAKES, "it said more than its handshake");
    // The handshake alone does not even make a source: no message came.
    let (error, _) = stranger(&there[..SOURCE_SHAKES]);
    assert!(matches!(error, HandshakeError::PeerGone { .. }), "{error}");
}

#[test]
fn a_source_rejects_its_own_bytes_and_a_replayed_response() {
    let _watchdog = Watchdog::new();
    let (_, there, back) = between(&key(1), &key(1), &as_it_is, &as_it_is);
    for (bytes, cause) in [(there, "Garbled"), (back, "Tampered")] {
        let liar = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: PeerAddress = format!("tcp:{}", liar.local_addr().unwrap()).parse().unwrap();
        let error = thread::scope(|scope| {
            let asking = scope.spawn(|| admin_request_with(&address, &key(1), REQUEST, far()).unwrap_err());
            let (mut stream, _) = liar.accept().unwrap();
            stream.read_exact(&mut [0; SOURCE_SHAKES]).unwrap();
            stream.write_all(&bytes).unwrap();
            asking.join().unwrap()
        });
        assert!(format!("{error:?}").starts_with(cause), "{error:?}");
    }
}

#[test]
fn a_flipped_bit_in_any_byte_fails_a_keyed_connection() {
    let _watchdog = Watchdog::new();
    let (_, there, back) = between(&key(1), &key(1), &as_it_is, &as_it_is);
    // A lengthened packet is waited for, until the source times out.
    let lengths = [SOURCE_SHAKES, SOURCE_SHAKES + 1, TARGET_SHAKES, TARGET_SHAKES + 1];
    let until = |at| if lengths.contains(&at) { Instant::now() + Duration::from_millis(100) } else { far() };
    for at in 0..there.len() {
        let flip = move |here: usize, byte: u8| if here == at { byte ^ 1 << (at % 8) } else { byte };
        let (response, replied) = between_until(until(at), &key(1), &key(1), &flip, &as_it_is).0;
        assert!(response.is_err() && replied.is_err(), "byte {at} of the source's");
    }
    for at in 0..back.len() {
        let flip = move |here: usize, byte: u8| if here == at { byte ^ 1 << (at % 8) } else { byte };
        let (response, _) = between_until(until(at), &key(1), &key(1), &as_it_is, &flip).0;
        assert!(response.is_err(), "byte {at} of the target's");
    }
}

#[test]
fn a_handshake_that_is_cut_anywhere_is_cut_short() {
    let _watchdog = Watchdog::new();
    let (_, there, _) = between(&key(1), &key(1), &as_it_is, &as_it_is);
    for len in 0..there.len() {
        let (error, _) = stranger(&there[..len]);
        match error {
            HandshakeError::PeerGone { .. } if [0, 12, SOURCE_SHAKES].contains(&len) => {}
            HandshakeError::CutShort { found, needed, .. } if found < needed => {}
            // The rest of a cut packet of the message follows the handshake of another connection.
            error => panic!("cut at {len}: {error:?}"),
        }
    }
}

#[test]
fn another_version_is_an_error_at_source_and_target_before_the_handshake() {
    let _watchdog = Watchdog::new();
    let newer = |at: usize, byte| if at == 8 { byte + 1 } else { byte };
    let (_, replied) = between(&key(1), &key(1), &newer, &as_it_is).0;
    assert!(
        matches!(replied, Err(HandshakeError::Version { theirs, ours: VERSION, .. }) if theirs == VERSION + 1),
        "{replied:?}"
    );
    let (response, _) = between(&key(1), &key(1), &as_it_is, &newer).0;
    assert!(
        matches!(response, Err(HandshakeError::Version { theirs, ours: VERSION, .. }) if theirs == VERSION + 1),
        "{response:?}"
    );
    let (_, response) = stranger(b"FARJUMP\0\x08\0\x01\0");
    assert_eq!(response, KEYED);
}

#[test]
fn a_peer_without_the_key_gets_no_message_and_little_memory() {
    let _watchdog = Watchdog::new();
    let (error, response) = stranger(&[b'x'; 100_000]);
    assert!(matches!(error, HandshakeError::NotFarjump { .. }) && response.is_empty(), "{error}");
    let long = [&KEYED[..], &[0xff, 0xff], &[0; 100_000]].concat();
    let (error, _) = stranger(&long);
    assert!(
        matches!(
            &error,
            HandshakeError::Garbled { fault: MessageFault::NoiseLength { len: 65_535, .. }, .. }
        ),
        "{error}"
    );
    let (error, response) = stranger(&[&KEYED[..], &48_u16.to_le_bytes(), &[7; 48]].concat());
    assert!(matches!(error, HandshakeError::WrongKey { .. }), "{error}");
    assert_eq!(response, [&KEYED[..], &[0, 0]].concat());
    assert_eq!(stranger(&PREAMBLE).1, KEYED);
}

#[test]
fn a_stranger_that_says_nothing_is_not_waited_for_beyond_the_deadline() {
    let _watchdog = Watchdog::new();
    let listener = listener(&key(1));
    let mut silent = Control::connect_with(listener.address(), &key(1), far()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(50);
    let error = admin_request_with(listener.address(), &key(1), REQUEST, deadline).unwrap_err();
    assert!(matches!(error, HandshakeError::TimedOut { .. }), "{error}");
    // The other one continues when it is polled.
    let mut target = accept(&listener).unwrap();
    silent.flush().unwrap();
    poll(&mut [PollFd::new(&target, PollFlags::IN)], None).unwrap();
    assert!(target.recv().unwrap().is_none());
    poll(&mut [PollFd::new(&silent, PollFlags::IN)], None).unwrap();
    assert!(silent.recv().unwrap().is_none());
    silent.send(&farjump_control::Message::Bye, &[]).unwrap();
    assert_eq!(next(&mut target).unwrap(), farjump_control::Message::Bye);
}
