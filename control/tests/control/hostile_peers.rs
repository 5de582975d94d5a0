//! Peers that lie. Each lie ends in an error that names it, the liar gets the reason, and the target
//! continues to serve.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use farjump_control::{
    Arrival, Control, EndpointInfo, HandshakeError, Listener, MAGIC, MAX_HANDSHAKE_MESSAGE, MAX_MESSAGE,
    MAX_TRANSPORTS, Message, RejectCause, VERSION,
};
use farjump_core::transport::{OpenRequest, Transport, UnconnectedEndpoint};
use farjump_fixtures::by_hand::{
    PREAMBLE, beginning, cpu, endpoint_info, framed, framed_body, hello, hello_of, send_with,
};
use farjump_fixtures::control::{
    Place, SOURCE_REGION, accept, arrive, connect, drive, handshake_over, is_closed, next, shm,
    target_options,
};
use farjump_fixtures::watchdog::Watchdog;
use farjump_transports::shm::Shm;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::SendFlags;

const NO_FLAGS: SendFlags = SendFlags::empty();

/// Returns the target's error for `lie`. The target introduces itself and sends the liar the reason of its
/// rejection, unless the liar closed in the middle. Afterwards the same target connects with an honest
/// source.
fn error_of(lie: impl FnOnce(&mut UnixStream) + Send) -> HandshakeError {
    let (error, response) = replied(lie);
    assert_eq!(response[..PREAMBLE.len()], PREAMBLE, "the target does not introduce itself");
    error
}

/// The same, with the bytes that the liar reads behind its lie.
fn replied(lie: impl FnOnce(&mut UnixStream) + Send) -> (HandshakeError, Vec<u8>) {
    let place = Place::new();
    let listener = place.listener();
    let (error, response) = thread::scope(|scope| {
        let liar = scope.spawn(|| {
            let mut stream = UnixStream::connect(place.path()).unwrap();
            lie(&mut stream);
            stream.shutdown(Shutdown::Write).unwrap();
            let mut response = Vec::new();
            // A close with bytes of ours unread resets the connection; the target's words come before.
            let _ = stream.read_to_end(&mut response);
            response
        });
        let error = arrive(&listener).expect_err("the lie was believed");
        (error, liar.join().unwrap())
    });
    let text = String::from_utf8_lossy(&response);
    if !matches!(
        error,
        HandshakeError::CutShort { .. } | HandshakeError::PeerGone { .. } | HandshakeError::Refused { .. }
    ) {
        assert!(text.contains(&error.to_string()), "{error}: the liar got only {text:?}");
    }
    handshake_over(&place, &listener);
    (error, response)
}

#[test]
fn another_protocol_is_recognised_by_its_first_byte() {
    let error = error_of(|stream| stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap());
    assert!(matches!(error, HandshakeError::NotFarjump { .. }), "{error}");
    let error = error_of(|stream| stream.write_all(b"X").unwrap());
    assert!(matches!(error, HandshakeError::NotFarjump { .. }), "{error}");
}

#[test]
fn another_version_is_named_before_anything_is_parsed() {
    // Before version 6 a handshake named the machine alone.
    for other in [VERSION + 1, VERSION - 1] {
        let error = error_of(move |stream| {
            stream.write_all(&[&MAGIC[..], &other.to_le_bytes(), &[0xff; 100]].concat()).unwrap();
        });
        assert!(
            matches!(error, HandshakeError::Version { theirs, ours: VERSION, .. } if theirs == other),
            "{error}"
        );
        let said = format!("speaks version {other} of the protocol, this farjump speaks {VERSION}");
        assert!(error.to_string().contains(&said), "{error}");
    }
}

#[test]
fn reserved_bytes_must_be_zero() {
    let error = error_of(|stream| stream.write_all(b"FARJUMP\0\x08\0\0\x01").unwrap());
    assert!(matches!(error, HandshakeError::Garbled { .. }), "{error}");
    let error =
        error_of(|stream| stream.write_all(&[&PREAMBLE[..], &[1, 0, 0, 0, 0, 0, 0, 1]].concat()).unwrap());
    assert!(matches!(error, HandshakeError::Garbled { .. }), "{error}");
}

#[test]
fn a_giant_length_is_refused_when_it_is_announced() {
    let announced = |length: u32| {
        error_of(move |stream| {
            stream.write_all(&[&PREAMBLE[..], &length.to_le_bytes(), &[0; 4]].concat()).unwrap();
        })
    };
    for length in [u32::MAX, MAX_MESSAGE as u32 + 1] {
        let HandshakeError::MessageTooLong { len, limit, .. } = announced(length) else { panic!("{length}") };
        assert_eq!((len, limit), (length as usize, MAX_HANDSHAKE_MESSAGE));
    }
    // An expected message has such a length when it brings a library.
    for length in [MAX_MESSAGE as u32, MAX_HANDSHAKE_MESSAGE as u32 + 1] {
        let error = announced(length);
        assert!(matches!(error, HandshakeError::MissingRights(_)), "{error}");
        assert!(error.to_string().contains("the right `export`"), "{error}");
    }
}

#[test]
fn a_truncated_handshake_reports_found_and_needed_bytes() {
    let error = error_of(|_| {});
    assert!(matches!(error, HandshakeError::PeerGone { .. }), "{error}");
    let error = error_of(|stream| stream.write_all(&PREAMBLE[..7]).unwrap());
    assert!(matches!(error, HandshakeError::CutShort { found: 7, needed: 12, .. }), "{error}");
    let error = error_of(|stream| stream.write_all(&[&PREAMBLE[..], &[100, 0, 0]].concat()).unwrap());
    assert!(matches!(error, HandshakeError::CutShort { found: 3, needed: 8, .. }), "{error}");
    let error = error_of(|stream| {
        stream.write_all(&[&PREAMBLE[..], &100u32.to_le_bytes(), &[0; 4], &[7; 10]].concat()).unwrap();
    });
    assert!(matches!(error, HandshakeError::CutShort { found: 18, needed: 108, .. }), "{error}");
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    let lies = [vec![], vec![0xff; 20], vec![127], vec![0, 62, 1, 0xff, 0xff, 0xff, 0xff, 0x0f]];
    for body in lies {
        let error = error_of(move |stream| {
            stream.write_all(&[&PREAMBLE[..], &framed_body(&body, 0)].concat()).unwrap();
        });
        assert!(matches!(error, HandshakeError::Garbled { .. }), "{error}");
    }
    let error = error_of(|stream| {
        let mut bytes = framed(&hello(), 0);
        bytes[0] += 3;
        stream.write_all(&[&PREAMBLE[..], &bytes, &[0; 3]].concat()).unwrap();
    });
    assert!(error.to_string().contains("goes on for 3 bytes behind a whole Hello"), "{error}");
}

#[test]
fn a_message_that_is_not_due_is_refused_by_name() {
    for message in [Message::Go, Message::Bye, Message::Code { id: [0; 16], image: vec![1] }] {
        let name = message.name();
        let error = error_of(|stream| stream.write_all(&beginning(&message, 0)).unwrap());
        assert!(
            matches!(error, HandshakeError::OutOfOrder { expected: "Hello or AdminRequest", got, .. } if got == name),
            "{error}"
        );
    }
    let error = error_of(|stream| {
        let twice = framed(&hello(), 0).repeat(2);
        stream.write_all(&[&PREAMBLE[..], &twice].concat()).unwrap();
    });
    assert!(matches!(error, HandshakeError::OutOfOrder { expected: "Ready", got: "Hello", .. }), "{error}");
}

#[test]
fn a_source_that_gives_up_is_quoted_without_its_control_characters() {
    let refuse = Message::Reject { cause: RejectCause::Policy, text: "\x1b[31mno\n".into() };
    let error = error_of(|stream| stream.write_all(&beginning(&refuse, 0)).unwrap());
    assert!(
        matches!(&error, HandshakeError::Refused { cause: RejectCause::Policy, text, .. } if text == "?[31mno?"),
        "{error}"
    );
}

#[test]
fn too_many_transports_or_too_long_a_name_are_refused() {
    for transports in [vec!["x".to_owned(); MAX_TRANSPORTS + 1], vec!["x".repeat(33)]] {
        let message = hello_of("liar", transports);
        let error = error_of(|stream| stream.write_all(&beginning(&message, 0)).unwrap());
        assert!(matches!(error, HandshakeError::Terms { .. }), "{error}");
    }
}

/// Descriptions of CPUs that are none or unsupported, and parts of the errors that name the faults.
fn false_cpus() -> Vec<(Vec<u8>, &'static str)> {
    let with = |at: usize, byte: u8| {
        let mut bytes = cpu();
        bytes[at] = byte;
        bytes
    };
    vec![
        (Vec::new(), "truncated: it has 0 bytes"),
        (cpu()[..9].to_vec(), "truncated: it has 9 bytes"),
        ([cpu(), vec![0]].concat(), "goes on for 1 byte behind"),
        (vec![0; farjump_core::cpu::MAX_LEN + 1], "the most are"),
        (with(2, 5), "has level 5, which x86_64-unknown-linux-gnu does not have"),
        (b"\xb7\0\x03\x01\0\0".to_vec(), "has level 3, which aarch64-unknown-linux-gnu does not have"),
        (with(3, 0x81), "forms 0x81"),
        (b"\x3e\0\0\x01\x02\0-O".to_vec(), "the name of its CPU is not"),
        (with(10, b'='), "feature 0 of its CPU is not"),
        (b"\x3e\0\0\x01\0\x02\x03sse\x03mmx".to_vec(), "feature 1 of its CPU is not greater"),
        // EM_S390, whose words have their high bytes first.
        (b"\x16\0\0\x01\0\0".to_vec(), "its CPU is of machine 22, which farjump does not know"),
    ]
}

#[test]
fn a_source_with_an_invalid_cpu_is_refused_with_the_fault() {
    for (cpu, fault) in false_cpus() {
        let transports = vec!["shm".into()];
        let message = Message::Hello { cpu, pid: 1, program: "liar".into(), transports };
        let error = error_of(|stream| stream.write_all(&beginning(&message, 0)).unwrap());
        assert!(matches!(error, HandshakeError::Terms { .. }), "{error}");
        assert!(error.to_string().contains(fault), "{fault}: {error}");
    }
}

#[test]
fn a_target_with_an_invalid_cpu_is_refused_with_the_fault() {
    for (cpu, fault) in false_cpus() {
        let end = endpoint_info();
        let message =
            Message::Welcome { epoch: 1, cpu, pid: 1, program: "liar".into(), endpoint: end, stream: None };
        let error = error_at_source(beginning(&message, 0));
        assert!(matches!(error, HandshakeError::Terms { .. }), "{error}");
        assert!(error.to_string().contains(fault), "{fault}: {error}");
    }
}

/// The names are many times larger once they are strings.
#[test]
fn transports_without_end_are_not_even_decoded() {
    let transports = vec![String::new(); MAX_HANDSHAKE_MESSAGE - 100];
    let message = hello_of("liar", transports);
    let error = error_of(|stream| stream.write_all(&beginning(&message, 0)).unwrap());
    assert!(matches!(error, HandshakeError::Garbled { .. }), "{error}");
}

#[test]
fn descriptors_that_are_too_many_unannounced_or_missing_are_refused_and_closed() {
    type Lie = (Vec<u8>, usize);
    let lies: [Lie; 5] = [
        // More with one message than any may have.
        (framed(&hello(), 0), 9),
        (framed(&hello(), 0), 60),
        // A message that may have none, announced and not.
        (framed(&hello(), 1), 1),
        (framed(&hello(), 0), 1),
        // More announced than any may have.
        (framed(&hello(), 200), 1),
    ];
    for (bytes, count) in lies {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let error = error_of(move |stream| {
            send_with(stream, &[&PREAMBLE[..], &bytes].concat(), &vec![writer.as_fd(); count], NO_FLAGS)
                .unwrap();
        });
        assert!(matches!(error, HandshakeError::Descriptors { .. }), "{count}: {error}");
        assert!(is_closed(reader), "{count}: a descriptor was kept");
    }
}

/// Sends an honest hello and reads the welcome; then `ready` makes a lie of the source's honest endpoint.
fn error_of_ready(
    ready: impl FnOnce(EndpointInfo, &UnixStream, &dyn UnconnectedEndpoint) + Send,
) -> HandshakeError {
    let lie = |stream: &mut UnixStream| {
        let mut control = Control::from_stream(stream.try_clone().unwrap()).unwrap();
        control.send(&hello(), &[]).unwrap();
        let Message::Welcome { endpoint: theirs, .. } = next(&mut control).unwrap() else {
            panic!("no welcome")
        };
        let opening = Shm.open(&OpenRequest::new(SOURCE_REGION, 4096)).unwrap();
        let end = EndpointInfo {
            address: opening.address().bytes,
            region_len: SOURCE_REGION as u64,
            max_frame: 4096,
            ..theirs
        };
        stream.set_nonblocking(false).unwrap();
        ready(end, stream, opening.as_ref());
        // Dropping it would end the connection for the other copy too.
        std::mem::forget(control);
    };
    replied(lie).0
}

/// Returns the opening's own descriptors: memfd and doorbell.
fn honest(opening: &dyn UnconnectedEndpoint) -> [OwnedFd; 2] {
    let address = opening.address().try_to_owned().unwrap();
    address.descriptors.try_into().expect("shm has two descriptors")
}

fn send_ready(stream: &UnixStream, end: EndpointInfo, descriptors: &[OwnedFd]) {
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let ready = framed(&Message::Ready { endpoint: end, stream: None }, descriptors.len() as u8);
    send_with(stream, &ready, &borrowed, NO_FLAGS).unwrap();
}

#[test]
fn a_region_other_than_stated_is_refused() {
    let error = error_of_ready(|mut end, stream, opening| {
        end.region_len += 4096;
        send_ready(stream, end, &honest(opening));
    });
    assert!(matches!(error, HandshakeError::Terms { .. }), "{error}");
    let error = error_of_ready(|mut end, stream, opening| {
        let stated = end.region_len + 4096;
        end.address[8..].copy_from_slice(&stated.to_le_bytes());
        send_ready(stream, end, &honest(opening));
    });
    assert!(error.to_string().contains("is stated to be 16384 bytes long and is 12288"), "{error}");
    for stated in [0, 1, u64::MAX, 1 << 40] {
        let error = error_of_ready(move |mut end, stream, opening| {
            end.address[8..].copy_from_slice(&u64::to_le_bytes(stated));
            send_ready(stream, end, &honest(opening));
        });
        assert!(matches!(error, HandshakeError::Transport(_)), "{error}");
    }
}

#[test]
fn a_memfd_that_could_shrink_is_refused() {
    let error = error_of_ready(|end, stream, opening| {
        let memfd = memfd_create("liar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::fallocate(&memfd, rustix::fs::FallocateFlags::empty(), 0, SOURCE_REGION as u64).unwrap();
        let [_, doorbell] = honest(opening);
        send_ready(stream, end, &[memfd, doorbell]);
    });
    assert!(error.to_string().contains("not sealed against shrinking"), "{error}");
}

#[test]
fn descriptors_of_a_wrong_kind_or_number_are_refused_and_closed() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let error = error_of_ready(|end, stream, opening| {
        let [_, doorbell] = honest(opening);
        send_ready(stream, end, &[writer, doorbell]);
    });
    assert!(error.to_string().contains("its region is no memfd"), "{error}");
    assert!(is_closed(reader));

    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let error = error_of_ready(|end, stream, opening| {
        let [memfd, _] = honest(opening);
        send_ready(stream, end, &[memfd, writer]);
    });
    assert!(error.to_string().contains("its doorbell is no Unix datagram socket"), "{error}");
    assert!(is_closed(reader));

    let error = error_of_ready(|end, stream, opening| {
        let [memfd, doorbell] = honest(opening);
        send_ready(stream, end, &[doorbell, memfd]);
    });
    assert!(error.to_string().contains("no memfd"), "{error}");

    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let error = error_of_ready(|end, stream, opening| {
        let [memfd, doorbell] = honest(opening);
        send_ready(stream, end, &[memfd, doorbell, writer]);
    });
    assert!(error.to_string().contains("3 descriptors came"), "{error}");
    assert!(is_closed(reader));

    let error = error_of_ready(|end, stream, _| {
        (&*stream).write_all(&framed(&Message::Ready { endpoint: end, stream: None }, 2)).unwrap();
    });
    assert!(matches!(error, HandshakeError::Descriptors { found: 0, expected: 2, .. }), "{error}");
}

#[test]
fn an_end_that_cannot_be_is_refused() {
    let with = |change: fn(&mut EndpointInfo)| {
        error_of_ready(move |mut end, stream, opening| {
            change(&mut end);
            send_ready(stream, end, &honest(opening));
        })
    };
    let error = with(|end| end.transport = "verbs-write".into());
    assert!(matches!(error, HandshakeError::Terms { .. }), "{error}");
    for error in [with(|end| end.max_frame = 63), with(|end| end.max_frame = u32::MAX)] {
        assert!(matches!(error, HandshakeError::Terms { .. }), "{error}");
    }
    let error = with(|end| end.rules = 0);
    assert!(matches!(error, HandshakeError::NoCommonRule { .. }), "{error}");
    for error in [with(|end| end.address.truncate(15)), with(|end| end.address[0] = 1)] {
        assert!(matches!(error, HandshakeError::Transport(_)), "{error}");
    }
}

/// Returns the error of a source whose target first sends `lie` and then waits until the source has closed.
fn error_at_source(lie: Vec<u8>) -> HandshakeError {
    let place = Place::new();
    let listener = UnixListener::bind(place.path()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&lie).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // May be reset if the source closes first.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        connect(&place.address()).expect_err("the lie was believed")
    })
}

#[test]
fn a_target_that_lies_is_refused_by_the_source() {
    let end = endpoint_info();
    let welcome = |end: EndpointInfo| {
        let message = Message::Welcome {
            epoch: 1,
            cpu: cpu(),
            pid: 1,
            program: "liar".into(),
            endpoint: end,
            stream: None,
        };
        beginning(&message, 0)
    };
    let error = error_at_source(b"HTTP/1.1 400 Bad Request\r\n".to_vec());
    assert!(matches!(error, HandshakeError::NotFarjump { .. }), "{error}");
    let error = error_at_source([&MAGIC[..], &[9, 0, 0, 0]].concat());
    assert!(matches!(error, HandshakeError::Version { theirs: 9, .. }), "{error}");
    let error = error_at_source(Vec::new());
    assert!(matches!(error, HandshakeError::PeerGone { .. }), "{error}");
    let error = error_at_source(beginning(&Message::Go, 0));
    assert!(matches!(error, HandshakeError::OutOfOrder { expected: "Welcome", got: "Go", .. }), "{error}");
    let error = error_at_source(welcome(EndpointInfo { transport: "\x1bother".into(), ..end.clone() }));
    assert!(error.to_string().contains("\"?other\", which was not offered"), "{error}");
    let error = error_at_source(welcome(end));
    assert!(matches!(error, HandshakeError::Transport(_)), "{error}");
}

proptest! {
    /// Whichever bytes of an honest source are changed, dropped or doubled, the target ends with a response.
    #[test]
    fn no_bytes_make_a_target_panic_or_wait(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let _watchdog = Watchdog::new();
        let mut bytes = [&PREAMBLE[..], &framed(&hello(), 0), &framed(&Message::Bye, 0)].concat();
        for (at, byte, change) in changes {
            let at = at.index(bytes.len());
            match change {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        bytes.truncate(cut.index(bytes.len() + 1).max(bytes.len() / 2));
        let (mut liar, ours) = UnixStream::pair().unwrap();
        liar.write_all(&bytes).unwrap();
        liar.shutdown(Shutdown::Write).unwrap();
        let mut arrival = Arrival::new(Control::from_stream(ours).unwrap(), target_options());
        prop_assert!(drive(&mut arrival, &mut shm()).is_err());
    }
}

#[test]
fn a_listener_hands_out_a_connection_that_is_gone_already() {
    let place = Place::new();
    let listener: Listener = place.listener();
    drop(UnixStream::connect(place.path()).unwrap());
    let mut arrival = Arrival::new(accept(&listener).unwrap(), target_options());
    assert!(matches!(drive(&mut arrival, &mut shm()), Err(HandshakeError::PeerGone { .. })));
}
