//! Listening targets: permissions, stale files, files of others.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use farjump_control::{ConnectError, Control, HandshakeError, Listener, PeerAddress};
use farjump_fixtures::control::{Place, far, handshake_over, handshake_pair};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

#[test]
fn the_socket_is_for_its_user_alone_and_gone_with_its_listener() {
    let place = Place::new();
    let listener = place.listener();
    let metadata = fs::symlink_metadata(place.path()).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(listener.address(), &place.address());
    drop(listener);
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn a_socket_that_a_dead_target_left_is_taken_over() {
    let place = Place::new();
    drop(UnixListener::bind(place.path()).unwrap());
    assert!(place.path().exists(), "the standard library leaves its file, which this test needs");
    handshake_pair(&place);
    assert!(!place.path().exists());
}

#[test]
fn of_targets_that_start_at_once_on_a_stale_path_exactly_one_has_it() {
    let place = Place::new();
    let address = place.address();
    for _ in 0..300 {
        drop(UnixListener::bind(place.path()).unwrap());
        let start = Barrier::new(4);
        let bind = || {
            start.wait();
            Listener::bind(&address)
        };
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "{won:?}");
        assert!(lost.iter().all(|result| matches!(result, Err(ConnectError::InUse { .. }))), "{lost:?}");
        let winner = won.into_iter().next().unwrap().unwrap();
        // The others checked whether a process listens here, and closed. The path leads to the winner.
        while let Some(mut looked) = winner.accept().unwrap() {
            assert!(matches!(looked.recv(), Err(HandshakeError::PeerGone { .. })));
        }
        let _connected = Control::connect(&address, far()).unwrap();
        assert!(winner.accept().unwrap().is_some(), "the path leads to another target");
    }
}

#[test]
fn a_path_on_which_a_target_listens_is_in_use_and_goes_on_working() {
    let place = Place::new();
    let first = place.listener();
    let error = Listener::bind(&place.address()).unwrap_err();
    assert!(matches!(error, ConnectError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("already in use by a running target"), "{error}");
    // The check whether it is in use was a connection that ended without a byte.
    assert!(matches!(first.accept().unwrap().unwrap().recv(), Err(HandshakeError::PeerGone { .. })));
    handshake_over(&place, &first);
}

#[test]
fn a_socket_of_another_kind_is_in_use() {
    let place = Place::new();
    let _datagram = UnixDatagram::bind(place.path()).unwrap();
    assert!(matches!(Listener::bind(&place.address()), Err(ConnectError::InUse { .. })));
    assert!(matches!(Control::connect(&place.address(), far()), Err(ConnectError::NobodyListens { .. })));
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let place = Place::new();
    fs::write(place.path(), "precious").unwrap();
    let error = Listener::bind(&place.address()).unwrap_err();
    assert!(matches!(error, ConnectError::NotASocket { .. }), "{error}");
    assert_eq!(fs::read_to_string(place.path()).unwrap(), "precious");
    assert!(matches!(Control::connect(&place.address(), far()), Err(ConnectError::NobodyListens { .. })));

    fs::remove_file(place.path()).unwrap();
    fs::create_dir(place.path()).unwrap();
    assert!(matches!(Listener::bind(&place.address()), Err(ConnectError::NotASocket { .. })));
    assert!(place.path().is_dir());
}

#[test]
fn a_listener_removes_its_own_file_only() {
    let place = Place::new();
    let first = place.listener();
    fs::remove_file(place.path()).unwrap();
    let second = place.listener();
    let inode = fs::symlink_metadata(place.path()).unwrap().ino();
    drop(first);
    assert_eq!(fs::symlink_metadata(place.path()).unwrap().ino(), inode);
    handshake_over(&place, &second);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let place = Place::new();
    let address = PeerAddress::unix(place.folder.path().join("missing/t.sock")).unwrap();
    let text = Listener::bind(&address).unwrap_err().to_string();
    assert!(text.contains("missing/t.sock") && text.contains("No such file"), "{text}");
}

#[test]
fn nobody_listening_is_told_with_what_is_there_instead() {
    let place = Place::new();
    let why = |text: &str| {
        let error = Control::connect(&place.address(), far()).unwrap_err();
        assert!(matches!(error, ConnectError::NobodyListens { .. }), "{error}");
        let shown = error.to_string();
        assert!(shown.contains(text) && shown.contains("farjump serve --listen unix:"), "{shown}");
    };
    why("no such file");
    drop(UnixListener::bind(place.path()).unwrap());
    why("has ended");
}

#[test]
fn a_target_that_accepts_nobody_is_waited_for_up_to_the_deadline() {
    let place = Place::new();
    let full = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&full, &SocketAddrUnix::new(place.path()).unwrap()).unwrap();
    listen(&full, 0).unwrap();
    let _first = UnixStream::connect(place.path()).unwrap();
    let error = Control::connect(&place.address(), Instant::now()).unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    // A full backlog is no stale socket.
    assert!(matches!(Listener::bind(&place.address()), Err(ConnectError::InUse { .. })));
}

#[test]
fn a_listener_without_connections_has_none_to_accept() {
    let place = Place::new();
    assert!(place.listener().accept().unwrap().is_none());
}
