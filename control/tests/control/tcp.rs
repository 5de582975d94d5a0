//! Handshakes over TCP without a key: on loopback, between processes of one user; and silent machines.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use farjump_control::{
    AdminConnection, AdminRequest, AdminResponse, Arrival, ConnectionError, Control, Dropped, HandshakeError,
    Key, Listener, Message, PeerAddress, Progress, RejectCause, TcpOptions, admin_request_with,
    connect_target,
};
use farjump_fixtures::by_hand::{beginning, hello};
use farjump_fixtures::control::{accept, connect, drive, far, next, shm, source_options, target_options};
use farjump_fixtures::watchdog::Watchdog;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::UnshareFlags;

/// The admin request of the tests.
pub(crate) const REQUEST: AdminRequest = AdminRequest::DropAll;
pub(crate) const RESPONSE: AdminResponse = AdminResponse::Dropped(Dropped { images: 7, kept: 9 });
/// A user that is not root.
const OTHER: u32 = 1234;

pub(crate) fn key(byte: u8) -> TcpOptions {
    TcpOptions::default().with_key(Some(Key::from_bytes([byte; 32])))
}

/// Returns a listener on a port that the system chooses.
pub(crate) fn listener(options: &TcpOptions) -> Listener {
    Listener::bind_with(&"tcp:127.0.0.1:0".parse().unwrap(), options.clone()).unwrap()
}

/// Accepts the next process, which sends an admin request, and responds.
pub(crate) fn respond_once(listener: &Listener) -> Result<(), HandshakeError> {
    let mut connection = admin_connection(accept(listener)?)?;
    assert_eq!(*connection.request(), REQUEST);
    connection.respond(&RESPONSE)?;
    while !connection.advance()? {
        poll(&mut [PollFd::new(&connection, PollFlags::OUT)], None).unwrap();
    }
    Ok(())
}

/// Returns the message of `control`, which must be an admin request.
pub(crate) fn admin_connection(control: Control) -> Result<AdminConnection, HandshakeError> {
    let mut arrival = Arrival::new(control, target_options());
    loop {
        match arrival.advance(&mut shm())? {
            Progress::Admin(connection) => return Ok(*connection),
            Progress::Handshake(handshake) => panic!("{handshake:?} of a process that asks"),
            Progress::Stream(stream) => panic!("{stream:?} of a process that asks"),
            Progress::Pending => {}
        }
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, arrival.wants_write());
        poll(&mut [PollFd::from_borrowed_fd(arrival.as_fd().unwrap(), events)], None).unwrap();
    }
}

/// Returns a connected source and target without a key: (source's end, target's end).
fn connected(options: &TcpOptions) -> (Control, Control) {
    let listener = listener(options);
    let mut source = Control::connect_with(listener.address(), options, far()).unwrap();
    let mut target = accept(&listener).unwrap();
    source.flush().unwrap();
    target.flush().unwrap();
    (source, target)
}

#[test]
fn loopback_admin_requests_succeed_over_ipv4_ipv6_and_a_host_name() {
    let _watchdog = Watchdog::new();
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let address: PeerAddress = format!("tcp:{host}:0").parse().unwrap();
        let listener = match Listener::bind(&address) {
            Ok(listener) => listener,
            Err(ConnectionError::System(_)) if host == "[::1]" => {
                println!("skipped: no IPv6 here");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let address = listener.address().clone();
        assert!(matches!(address, PeerAddress::Tcp { port, .. } if port != 0), "{address}");
        thread::scope(|scope| {
            let response =
                scope.spawn(|| admin_request_with(&address, &TcpOptions::default(), REQUEST, far()));
            respond_once(&listener).unwrap();
            assert_eq!(response.join().unwrap().unwrap(), RESPONSE);
        });
    }
}

#[test]
fn a_tcp_peer_on_loopback_is_identified_by_address_and_user() {
    let _watchdog = Watchdog::new();
    let listener = listener(&TcpOptions::default());
    let source = Control::connect(listener.address(), far()).unwrap();
    let target = accept(&listener).unwrap();
    assert_eq!(target.peer().uid, Some(rustix::process::geteuid().as_raw()));
    let (near, far) = (source.peer(), target.peer());
    assert_eq!(format!("tcp:{}", near.address.unwrap()), listener.address().to_string());
    assert_eq!(far.to_string(), format!("a process ({})", far.address.unwrap()));
    assert!(!source.carries_descriptors() && !target.carries_descriptors());
}

#[test]
fn without_a_key_nothing_but_loopback_is_listened_on_or_connected_to() {
    let far = far();
    for address in ["tcp:0.0.0.0:0", "tcp:[::]:0", "tcp:192.0.2.1:7471"] {
        let address: PeerAddress = address.parse().unwrap();
        let (listened, connected) = (Listener::bind(&address), Control::connect(&address, far));
        for error in [listened.unwrap_err(), connected.unwrap_err()] {
            assert!(matches!(error, ConnectionError::KeyMissing { .. }), "{error}");
            assert!(error.to_string().contains("farjump key"), "{error}");
        }
    }
    assert!(Instant::now() < far, "it was connected to");
    Listener::bind_with(&"tcp:0.0.0.0:0".parse().unwrap(), key(1)).unwrap();
}

#[test]
fn a_taken_port_and_one_without_a_listener_are_different_errors() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: PeerAddress = format!("tcp:{}", taken.local_addr().unwrap()).parse().unwrap();
    let error = Listener::bind(&address).unwrap_err();
    assert!(matches!(error, ConnectionError::PortTaken { .. }), "{error}");
    drop(taken);
    let error = Control::connect(&address, far()).unwrap_err();
    assert!(
        matches!(error, ConnectionError::NotListening { .. }) && error.to_string().contains("refuses"),
        "{error}"
    );
}

#[test]
fn a_port_is_bound_again_while_an_old_connection_closes() {
    let _watchdog = Watchdog::new();
    let first = listener(&TcpOptions::default());
    let address = first.address().clone();
    let source = Control::connect(&address, far()).unwrap();
    // The port of the process that closes first stays in use for a while.
    drop(accept(&first).unwrap());
    drop(first);
    drop(source);
    // A process that another test starts has a copy of the first one's socket until it runs its own program.
    // The remaining connection would keep the port for a minute.
    let moment = Instant::now() + Duration::from_secs(10);
    while let Err(error) = Listener::bind(&address) {
        assert!(matches!(error, ConnectionError::PortTaken { .. }) && Instant::now() < moment, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_transport_with_descriptors_is_not_offered_over_tcp_and_not_taken() {
    let _watchdog = Watchdog::new();
    let listener = listener(&TcpOptions::default());
    let error = connect(listener.address()).unwrap_err();
    assert!(matches!(error, HandshakeError::NeedsUnixSocket { .. }), "{error}");
    assert!(error.to_string().contains("`shm`") && error.to_string().contains("example tcp"), "{error}");
    assert!(listener.accept().unwrap().is_none(), "it connected");

    // A source that offers the transport all the same.
    let mut liar = Control::connect(listener.address(), far()).unwrap();
    liar.send(&hello(), &[]).unwrap();
    let mut arrival = Arrival::new(accept(&listener).unwrap(), target_options());
    let error = drive(&mut arrival, &mut shm()).unwrap_err();
    assert!(matches!(error, HandshakeError::NoCommonTransport { .. }), "{error}");
    let reported = next(&mut liar).unwrap();
    assert!(
        matches!(reported, Message::Reject { cause: RejectCause::NoCommonTransport, .. }),
        "{reported:?}"
    );
}

#[test]
fn descriptors_are_not_sent_over_tcp() {
    let (mut source, _target) = connected(&TcpOptions::default());
    let error = source.send(&Message::Bye, &[rustix::stdio::stdin().as_fd()]).unwrap_err();
    assert!(error.to_string().contains("over TCP"), "{error}");
}

/// Runs `act` as another user, on a thread of its own.
fn as_other<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(OTHER)).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

#[test]
fn another_user_is_refused_on_loopback_unless_both_have_a_key() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let _watchdog = Watchdog::new();
    let plain = listener(&TcpOptions::default());
    thread::scope(|scope| {
        let source = scope.spawn(|| {
            as_other(|| {
                admin_request_with(plain.address(), &TcpOptions::default(), REQUEST, far()).unwrap_err()
            })
        });
        let error = accept(&plain).unwrap_err();
        assert!(matches!(error, HandshakeError::OtherUser { uid: OTHER, own: 0, .. }), "{error}");
        // Both processes notice the other user: the faster one rejects the other.
        let error = source.join().unwrap();
        let reported = matches!(error, HandshakeError::Refused { cause: RejectCause::OtherUser, .. });
        assert!(reported || matches!(error, HandshakeError::OtherUser { uid: 0, own: OTHER, .. }), "{error}");
    });

    // A target of another user, where ours was expected, is not believed.
    let theirs = as_other(|| listener(&TcpOptions::default()));
    let address = theirs.address().clone();
    thread::scope(|scope| {
        let target = scope.spawn(|| {
            as_other(|| {
                // It admits every process: a target's check does not protect a source.
                let (stream, _) = accept_raw(&theirs);
                respond_raw(stream);
            });
        });
        let error = admin_request_with(&address, &TcpOptions::default(), REQUEST, far()).unwrap_err();
        assert!(matches!(error, HandshakeError::OtherUser { uid: OTHER, own: 0, .. }), "{error}");
        target.join().unwrap();
    });

    let keyed = listener(&key(3));
    thread::scope(|scope| {
        let source =
            scope.spawn(|| as_other(|| admin_request_with(keyed.address(), &key(3), REQUEST, far())));
        respond_once(&keyed).unwrap();
        assert_eq!(source.join().unwrap().unwrap(), RESPONSE);
    });
}

/// Accepts the next connection of `listener`, without checks.
fn accept_raw(listener: &Listener) -> (TcpStream, std::net::SocketAddr) {
    poll(&mut [PollFd::new(listener, PollFlags::IN)], None).unwrap();
    let copy = listener.as_fd().try_clone_to_owned().unwrap();
    TcpListener::from(copy).accept().unwrap()
}

/// Responds to a request without reading it, until the peer closes.
fn respond_raw(mut stream: TcpStream) {
    use std::io::{Read, Write};
    stream.set_nonblocking(false).unwrap();
    let bytes = postcard::to_stdvec(&RESPONSE).unwrap();
    stream.write_all(&beginning(&Message::AdminResponse { bytes }, 0)).unwrap();
    // The way in which the peer ends does not matter.
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Sets the loopback device of this thread's network namespace up or down.
fn loopback(state: &str) {
    let status = Command::new("ip").args(["link", "set", "lo", state]).status().unwrap();
    assert!(status.success(), "ip link set lo {state}: {status}");
}

#[test]
fn a_silent_machine_is_gone_after_the_peer_timeout() {
    if Command::new("ip").arg("-V").output().is_err() {
        return println!("skipped: ip (iproute2) is not installed");
    }
    let _watchdog = Watchdog::new();
    // The namespace is the thread's, and ends with it.
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the table of descriptors stays shared; only the network changes.
            if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
                return println!("skipped: no network namespace can be made: {error}");
            }
            loopback("up");
            let mut options = key(1);
            options.peer_timeout = Duration::from_secs(1);
            let (mut idle, _other) = connected(&options);
            let (mut busy, _another) = connected(&options);
            loopback("down");
            // Unacknowledged data, and silence: both end.
            busy.send(&Message::Bye, &[]).unwrap();
            for control in [&mut busy, &mut idle] {
                let error = next(control).unwrap_err();
                assert!(matches!(error, HandshakeError::Silent { seconds: 1, .. }), "{error}");
                assert!(error.to_string().contains("127.0.0.1:"), "{error}");
            }
        });
    });
}

#[test]
fn a_tcp_connect_without_a_response_times_out_at_its_deadline() {
    // A listener with a full backlog swallows further connections.
    let full =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&full, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let address = TcpListener::from(full.try_clone().unwrap()).local_addr().unwrap();
    let _first = TcpStream::connect(address).unwrap();
    let address: PeerAddress = format!("tcp:{address}").parse().unwrap();
    let deadline = Instant::now() + Duration::from_millis(50);
    let error = Control::connect(&address, deadline).unwrap_err();
    assert!(matches!(error, ConnectionError::TimedOut { .. }), "{error}");
    let mut transports = shm();
    let error = connect_target(&address, &mut transports, &source_options(), deadline).unwrap_err();
    assert!(matches!(error, HandshakeError::NeedsUnixSocket { .. }), "{error}");
}
