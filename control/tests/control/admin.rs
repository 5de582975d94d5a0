//! Admin requests: responded to without a link, rejected with a reason if invalid, and never waited for.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use farjump_control::{
    AdminConnection, AdminRequest, AdminResponse, Arrival, Control, Dropped, HandshakeError, HandshakeEvent,
    Listener, Message, Progress, RejectCause, StoreListing, StoredImage, admin_request,
};
use farjump_core::image::CodeId;
use farjump_fixtures::by_hand::{PREAMBLE, beginning, framed, framed_body, hello};
use farjump_fixtures::control::{Place, accept, far, handshake_over, next, shm, target_options};
use rustix::event::{PollFd, PollFlags, poll};

use crate::LONG_FUNCTION;
use crate::tcp::admin_connection;

fn encoded(request: AdminRequest) -> Vec<u8> {
    framed(&Message::AdminRequest(request), 0)
}

/// The bytes of a target that sends this body first.
fn bytes_of_target(body: &[u8]) -> Vec<u8> {
    [&PREAMBLE[..], &framed_body(body, 0)].concat()
}

/// Accepts the next process, which sends an admin request.
fn accept_request(listener: &Listener) -> Result<AdminConnection, HandshakeError> {
    admin_connection(accept(listener)?)
}

/// A list longer than any socket takes at once.
fn long() -> AdminResponse {
    let image = |id: u128| StoredImage::new(CodeId(id.to_le_bytes()), "n".repeat(200), 1, "s".repeat(200));
    AdminResponse::Store(StoreListing { images: (0..30_000).map(image).collect(), left_out: 1 })
}

#[test]
fn a_response_longer_than_the_socket_buffer_arrives_whole_in_pieces() {
    let place = Place::new();
    let listener = place.listener();
    let address = place.address();
    let source = thread::spawn(move || admin_request(&address, AdminRequest::Store, far()));
    let mut connection = accept_request(&listener).unwrap();
    assert_eq!(
        (connection.request().clone(), connection.peer().pid),
        (AdminRequest::Store, std::process::id())
    );
    connection.respond(&long()).unwrap();
    let mut pieces = 0;
    while !connection.advance().unwrap() {
        pieces += 1;
        poll(&mut [PollFd::new(&connection, PollFlags::OUT)], None).unwrap();
    }
    drop(connection);
    assert!(pieces > 0, "the answer was not long");
    assert_eq!(source.join().unwrap().unwrap(), long());
    handshake_over(&place, &listener);
}

#[test]
fn an_unread_admin_response_times_out_at_the_deadline_without_blocking() {
    let place = Place::new();
    let listener = place.listener();
    let mut stream = UnixStream::connect(place.path()).unwrap();
    stream.write_all(&beginning(&Message::AdminRequest(AdminRequest::Store), 0)).unwrap();
    let mut options = target_options();
    options.patience = Duration::from_millis(50);
    let mut arrival = Arrival::new(accept(&listener).unwrap(), options);
    let Progress::Admin(mut connection) = arrival.advance(&mut shm()).unwrap() else {
        panic!("it has asked")
    };
    assert!(arrival.as_fd().is_none(), "the connection is the connection's");
    connection.respond(&long()).unwrap();
    // Each of these returns at once: no process reads, and nothing else could end it.
    let error = loop {
        match connection.advance() {
            Ok(done) => assert!(!done),
            Err(error) => break error,
        }
    };
    assert!(Instant::now() >= connection.deadline());
    assert!(matches!(error, HandshakeError::TimedOut { .. }), "{error}");
}

#[test]
fn a_second_admin_request_during_the_response_is_an_error() {
    let place = Place::new();
    let listener = place.listener();
    let mut stream = UnixStream::connect(place.path()).unwrap();
    stream.write_all(&beginning(&Message::AdminRequest(AdminRequest::Store), 0)).unwrap();
    let mut connection = accept_request(&listener).unwrap();
    connection.respond(&long()).unwrap();
    assert!(!connection.advance().unwrap());
    stream.write_all(&encoded(AdminRequest::DropAll)).unwrap();
    let error = connection.advance().unwrap_err();
    assert!(error.to_string().ends_with("sent AdminRequest where nothing more was due"), "{error}");
}

#[test]
fn invalid_admin_requests_are_refused_with_the_fault() {
    let place = Place::new();
    let listener = place.listener();
    let two = [encoded(AdminRequest::DropAll), encoded(AdminRequest::Stats)].concat();
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("two at once", two, "sent AdminRequest where nothing more was due"),
        ("one that nobody knows", framed_body(&[18, 9], 0), "malformed"),
        ("one that is cut short", framed_body(&[18, 1, 7], 0), "malformed"),
        ("one with more behind it", framed_body(&[18, 0, 0], 0), "behind a whole AdminRequest"),
        ("an answer", framed_body(&[19, 1, 0], 0), "sent AdminResponse where Hello or AdminRequest was due"),
    ];
    for (what, bytes, words) in cases {
        let mut stream = UnixStream::connect(place.path()).unwrap();
        stream.write_all(&[&PREAMBLE[..], &bytes].concat()).unwrap();
        let error = accept_request(&listener).unwrap_err();
        assert!(error.to_string().contains(words), "{what}: {error}");
        let mut reported = Vec::new();
        stream.read_to_end(&mut reported).unwrap();
        assert!(String::from_utf8_lossy(&reported).contains(words), "{what}: it got {reported:?}");
    }
    handshake_over(&place, &listener);
}

#[test]
fn an_admin_request_after_hello_ends_the_handshake() {
    let place = Place::new();
    let listener = place.listener();
    let mut source = Control::from_stream(UnixStream::connect(place.path()).unwrap()).unwrap();
    source.send(&hello(), &[]).unwrap();
    source.send(&Message::AdminRequest(AdminRequest::DropAll), &[]).unwrap();
    let error = accept_request(&listener).unwrap_err();
    assert!(error.to_string().contains("sent AdminRequest where Ready was due"), "{error}");
}

#[test]
fn a_full_target_rejects_sources_but_accepts_admin_requests() {
    let place = Place::new();
    let listener = place.listener();
    let mut source = Control::from_stream(UnixStream::connect(place.path()).unwrap()).unwrap();
    source.send(&hello(), &[]).unwrap();
    let mut arrival = Arrival::new(accept(&listener).unwrap(), target_options());
    arrival.turn_sources_away(Some(7));
    assert!(matches!(arrival.advance(&mut shm()), Err(HandshakeError::Full { .. })));
    let Message::Reject { cause: RejectCause::Full, text } = next(&mut source).unwrap() else { panic!() };
    assert!(text.contains("takes 7 sources at a time"), "{text}");

    let address = place.address();
    let source = thread::spawn(move || admin_request(&address, AdminRequest::DropAll, far()));
    let mut arrival = Arrival::new(accept(&listener).unwrap(), target_options());
    arrival.turn_sources_away(Some(7));
    let response = AdminResponse::Dropped(Dropped { images: 3, kept: 1 });
    loop {
        match arrival.advance(&mut shm()).unwrap() {
            Progress::Admin(mut connection) => {
                connection.respond(&response).unwrap();
                assert!(connection.advance().unwrap());
                break;
            }
            Progress::Handshake(_) | Progress::Stream(_) => panic!("a link"),
            Progress::Pending => assert!(!arrival.is_source()),
        }
    }
    assert_eq!(source.join().unwrap().unwrap(), response);
}

#[test]
fn a_missing_or_malformed_admin_response_is_a_specific_error() {
    let place = Place::new();
    let listener = UnixListener::bind(place.path()).unwrap();
    let soon = Instant::now() + Duration::from_millis(20);
    // The target does not even accept it.
    let error = admin_request(&place.address(), AdminRequest::Stats, soon).unwrap_err();
    assert!(matches!(error, HandshakeError::TimedOut { awaited: HandshakeEvent::Response, .. }), "{error}");
    assert!(error.to_string().ends_with(LONG_FUNCTION), "{error}");
    drop(listener.accept().unwrap());
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("another program", b"220 mail.example\r\n".to_vec(), "does not speak farjump"),
        ("nothing", vec![], "is gone"),
        (
            "half an answer",
            bytes_of_target(&[19, 4, 1, 0, 0, 0])[..PREAMBLE.len() + 11].to_vec(),
            "in the middle",
        ),
        ("nonsense", bytes_of_target(&[19, 2, 99, 99]), "does not decode"),
        ("too much", bytes_of_target(&[19, 4, 1, 0, 0, 0]), "goes on for 1 byte behind a whole response"),
        ("something else", bytes_of_target(&[3]), "sent Go where AdminResponse was due"),
        ("a refusal", bytes_of_target(&[4, 7, 4, b'b', b'u', b's', b'y']), "refused: busy"),
    ];
    for (what, bytes, words) in cases {
        let error = thread::scope(|scope| {
            let source =
                scope.spawn(|| admin_request(&place.address(), AdminRequest::Stats, far()).unwrap_err());
            let (mut stream, _) = listener.accept().unwrap();
            // Read first: closing a socket with unread bytes resets the connection.
            poll(&mut [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)], None).unwrap();
            let _ = stream.read(&mut [0; 64]).unwrap();
            stream.write_all(&bytes).unwrap();
            drop(stream);
            source.join().unwrap()
        });
        assert!(error.to_string().contains(words), "{what}: {error}");
    }
}
