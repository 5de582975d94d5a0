//! Peers that pass descriptors whose close blocks. The watchdog ends a test that waits for such a close.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use farjump_control::{
    AdminRequest, Control, EndpointInfo, HandshakeError, Message, PeerAddress, RejectCause, admin_request,
    connect_target,
};
use farjump_fixtures::by_hand::{
    PREAMBLE, beginning, cpu, endpoint_info, framed, hello, send_with, slow_to_close,
};
use farjump_fixtures::control::{Place, accept, arrive, handshake_over, next, shm, source_options};
use farjump_fixtures::helper_process::is_alone;
use farjump_fixtures::this_test;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt::set_socket_linger;

use crate::processes::has_other_users;

/// A user that is neither root nor the one that stands for unknown users.
const OTHER: u32 = 1234;

/// A socket whose close blocks as long as the other end is open and reads nothing.
struct Stuck {
    /// Dropped first: then the close returns.
    other: TcpStream,
    ours: OwnedFd,
}

impl Stuck {
    fn new() -> Stuck {
        let (ours, other) = slow_to_close(Duration::from_secs(10_000)).unwrap();
        Stuck { ours, other }
    }

    /// Sends `bytes` over `stream` with this socket `count` times beside them. From then on the receiver has
    /// the last descriptor; its close blocks while the other end is kept. A receiver may have closed.
    fn pass(self, stream: &UnixStream, bytes: &[u8], count: usize, flags: SendFlags) -> TcpStream {
        let other = self.other.try_clone().unwrap();
        match send_with(stream, bytes, &vec![self.ours.as_fd(); count], flags) {
            Ok(sent) => {
                assert_eq!(sent, bytes.len());
                self.leave(stream);
            }
            Err(error) => {
                assert_eq!(error, Errno::PIPE);
                self.other.shutdown(std::net::Shutdown::Both).unwrap();
                set_socket_linger(&self.ours, None).unwrap();
            }
        }
        other
    }

    /// Drops our descriptor. A receiver that has closed before leaves the last one to us: then a thread waits for its
    /// close, until the other end is dropped.
    fn leave(self, stream: &UnixStream) {
        let closing = thread::spawn(move || drop(self.ours));
        while !closing.is_finished() {
            let mut ends = [PollFd::new(stream, PollFlags::empty())];
            poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).unwrap();
            if ends[0].revents().contains(PollFlags::HUP) {
                return;
            }
        }
    }
}

/// An endpoint that needs two descriptors.
fn endpoint() -> EndpointInfo {
    let address = [&[2, 0, 0, 0, 0, 0, 0, 0][..], &8192_u64.to_le_bytes()].concat();
    EndpointInfo { address, key: [7; 16], ..endpoint_info() }
}

/// Runs `act` as another user, on a thread of its own.
fn as_other<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(OTHER)).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

/// Runs `part` of the test `test` in a process of its own. A process that another test started would get copies of the
/// descriptors with stuck closes, and could not run its own program before it has closed them.
fn alone(test: &str, part: impl FnOnce()) {
    if is_alone(test) {
        part();
    }
}

fn open_for_all(place: &Place) {
    for (path, mode) in [(place.folder.path().to_owned(), 0o755), (place.path(), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn another_users_stuck_descriptors_are_refused_and_the_next_source_connects() {
    if !has_other_users() {
        return;
    }
    alone(this_test!(), || {
        let place = Place::new();
        let listener = place.listener();
        open_for_all(&place);
        let (mut source, mut target) = handshake_over(&place, &listener);
        for count in [1, 8, 253] {
            let stuck = Stuck::new();
            let (stream, _other) = as_other(|| {
                let stream = UnixStream::connect(place.path()).unwrap();
                let other = stuck.pass(&stream, &beginning(&hello(), 0), count, SendFlags::empty());
                (stream, other)
            });
            let error = accept(&listener).unwrap_err();
            assert!(matches!(error, HandshakeError::OtherUser { uid: OTHER, .. }), "{error}");
            let mut reported = Control::from_stream(stream).unwrap();
            assert!(matches!(next(&mut reported), Ok(Message::Reject { cause: RejectCause::OtherUser, .. })));
            handshake_over(&place, &listener);
        }
        source.control.send(&Message::Bye, &[]).unwrap();
        assert_eq!(next(&mut target.control).unwrap(), Message::Bye);
    });
}

#[test]
fn stuck_descriptors_beside_a_hello_end_only_that_handshake() {
    alone(this_test!(), || {
        let place = Place::new();
        let listener = place.listener();
        // With as many as a message may have, as many as the system delivers, and out of band, where
        // inattentive receivers have the system close them.
        let ways = [
            (1, SendFlags::empty()),
            (8, SendFlags::empty()),
            (253, SendFlags::empty()),
            (1, SendFlags::OOB),
        ];
        for (count, flags) in ways {
            for announced in [0, count.min(8) as u8] {
                let stream = UnixStream::connect(place.path()).unwrap();
                let other = match flags {
                    SendFlags::OOB => {
                        // The last byte sent is the one out of band.
                        let other = Stuck::new().pass(&stream, &PREAMBLE[..1], 1, flags);
                        (&stream).write_all(&beginning(&hello(), announced)[1..]).unwrap();
                        other
                    }
                    _ => Stuck::new().pass(&stream, &beginning(&hello(), announced), count, flags),
                };
                let error = arrive(&listener).expect_err("it was accepted");
                assert!(
                    matches!(error, HandshakeError::Descriptors { .. }),
                    "{count}, {announced} announced: {error}"
                );
                handshake_over(&place, &listener);
                drop(other);
            }
        }
    });
}

#[test]
fn a_forbidden_descriptor_is_refused_before_its_message_is_complete() {
    alone(this_test!(), || {
        let (stream, ours) = UnixStream::pair().unwrap();
        let mut control = Control::from_stream(ours).unwrap();
        let code = Message::Code { id: [1; 16], image: vec![7; 60_000] };
        let begun = beginning(&code, 1)[..PREAMBLE.len() + 8 + 1].to_vec();
        let _other = Stuck::new().pass(&stream, &begun, 1, SendFlags::empty());
        let error = control.recv().unwrap_err();
        assert!(matches!(error, HandshakeError::Descriptors { found: 1, expected: 0, .. }), "{error}");
    });
}

#[test]
fn closing_connections_with_unread_stuck_descriptors_does_not_block() {
    alone(this_test!(), || {
        let place = Place::new();
        let pass = || {
            let stream = UnixStream::connect(place.path()).unwrap();
            let other = Stuck::new().pass(&stream, &beginning(&hello(), 0), 1, SendFlags::empty());
            (stream, other)
        };
        let listener = place.listener();
        let (mut stream, _other) = pass();
        drop(accept(&listener).unwrap());
        // The peer sees the end at once, whenever the close comes.
        assert!(!matches!(std::io::Read::read(&mut stream, &mut [0; 100]), Ok(1..)));
        // Not accepted, neither this one nor an honest one.
        let (_stream, _other) = pass();
        let mut honest = UnixStream::connect(place.path()).unwrap();
        drop(listener);
        assert!(!matches!(std::io::Read::read(&mut honest, &mut [0; 100]), Ok(1..)));
        handshake_over(&place, &place.listener());
    });
}

/// Returns the error of a source, run by `ask`, with a process that has its target's path, accepts, and at
/// once sends `bytes` with two descriptors whose close blocks.
fn squatted<T>(
    as_other_user: bool,
    bytes: Vec<u8>,
    ask: impl FnOnce(&PeerAddress) -> Result<T, HandshakeError>,
) -> HandshakeError {
    let place = Place::new();
    let listener = match as_other_user {
        true => {
            std::fs::set_permissions(place.folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
            as_other(|| UnixListener::bind(place.path()).unwrap())
        }
        false => UnixListener::bind(place.path()).unwrap(),
    };
    let stuck = Stuck::new();
    thread::scope(|scope| {
        let squatter = scope.spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let other = stuck.pass(&stream, &bytes, 2, SendFlags::empty());
            (stream, other)
        });
        let error = ask(&place.address()).err().expect("it was believed");
        drop(squatter.join().unwrap());
        error
    })
}

/// Connects as a source with some seconds of time. After them the watchdog ends the test.
fn connect_soon(address: &PeerAddress) -> Result<(), HandshakeError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    connect_target(address, &mut shm(), &source_options(), deadline).map(drop)
}

#[test]
fn a_source_reads_nothing_of_another_user_that_squats_its_targets_path() {
    if !has_other_users() {
        return;
    }
    alone(this_test!(), || {
        // A process that read this would report that it is not farjump.
        let garbage = || b"GET / HTTP/1.1".to_vec();
        let error = squatted(true, garbage(), connect_soon);
        assert!(matches!(error, HandshakeError::OtherUser { uid: OTHER, own: 0, .. }), "{error}");
        let error = squatted(true, garbage(), |address| {
            admin_request(address, AdminRequest::Stats, Instant::now() + Duration::from_secs(20))
        });
        assert!(matches!(error, HandshakeError::OtherUser { uid: OTHER, own: 0, .. }), "{error}");
    });
}

#[test]
fn a_target_passing_stuck_descriptors_fails_the_handshake_without_delay() {
    alone(this_test!(), || {
        let welcome = |transport: &str| {
            let endpoint = EndpointInfo { transport: transport.into(), ..endpoint() };
            beginning(
                &Message::Welcome {
                    epoch: 1,
                    cpu: cpu(),
                    pid: 1,
                    program: "liar".into(),
                    endpoint,
                    stream: None,
                },
                2,
            )
        };
        // Unannounced, and with a transport that was not offered.
        let error = squatted(false, beginning(&Message::Go, 0), connect_soon);
        assert!(matches!(error, HandshakeError::Descriptors { .. }), "{error}");
        let error = squatted(false, welcome("ucx-am"), connect_soon);
        assert!(matches!(error, HandshakeError::Terms { .. }), "{error}");
        // Instead of a region and a doorbell.
        let error = squatted(false, welcome("shm"), connect_soon);
        assert!(matches!(error, HandshakeError::Transport(_)), "{error}");
    });
}

/// In a process of its own: its stuck closes would disturb the other tests.
#[test]
fn too_many_stuck_descriptors_stop_new_connections_until_they_close() {
    if !is_alone(this_test!()) {
        return;
    }
    let place = Place::new();
    let (path, listener) = (place.path(), place.listener());
    let mut held = Vec::new();
    let refused = loop {
        let stream = UnixStream::connect(&path).unwrap();
        let other = Stuck::new().pass(&stream, &beginning(&hello(), 0), 1, SendFlags::empty());
        match listener.accept() {
            Ok(Some(control)) => drop(control),
            Ok(None) => panic!("nobody connected"),
            Err(error) => break error,
        }
        held.push((stream, other));
        assert!(held.len() < 200, "it takes any number of them");
    };
    let text = refused.to_string();
    assert!(matches!(refused, HandshakeError::System(_)) && text.contains("cannot be closed"), "{text}");
    // The process has descriptors and memory left, and its links would continue.
    let (mut one, mut other) = farjump_fixtures::control::controls();
    one.send(&Message::Bye, &[]).unwrap();
    assert_eq!(next(&mut other).unwrap(), Message::Bye);
    drop(held);
    while matches!(listener.accept(), Err(HandshakeError::System(_))) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn stuck_descriptors_beside_a_ready_end_only_that_handshake() {
    alone(this_test!(), || {
        let place = Place::new();
        let listener = place.listener();
        thread::scope(|scope| {
            let liar = scope.spawn(|| {
                let stream = UnixStream::connect(place.path()).unwrap();
                (&stream).write_all(&beginning(&hello(), 0)).unwrap();
                let ready = framed(&Message::Ready { endpoint: endpoint(), stream: None }, 2);
                let other = Stuck::new().pass(&stream, &ready, 2, SendFlags::empty());
                (stream, other)
            });
            let error = arrive(&listener).expect_err("it was accepted");
            assert!(matches!(error, HandshakeError::Transport(_)), "{error}");
            handshake_over(&place, &listener);
            drop(liar.join().unwrap());
        });
    });
}
