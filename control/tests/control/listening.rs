//! Listening targets: permissions, stale files, files of others.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use farjump_control::{
    ConnectionError, Control, FileKind, HandshakeError, HandshakeEvent, Listener, NoListener, PeerAddress,
};
use farjump_fixtures::control::{Place, far, handshake_over, handshake_pair};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

use crate::LONG_FUNCTION;

/// Leaves the file of a socket on which no process listens. No process ever did: a child that another test
/// forks would have a copy of a listening socket until it runs its program, and peers would reach that copy.
fn leave_stale(place: &Place) {
    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(place.path()).unwrap()).unwrap();
}

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
    leave_stale(&place);
    assert!(place.path().exists(), "the file stays, which this test needs");
    handshake_pair(&place);
    assert!(!place.path().exists());
}

#[test]
fn exactly_one_of_several_concurrent_targets_takes_a_stale_path() {
    let place = Place::new();
    let address = place.address();
    for _ in 0..300 {
        leave_stale(&place);
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
        assert!(lost.iter().all(|result| matches!(result, Err(ConnectionError::InUse { .. }))), "{lost:?}");
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
fn binding_a_path_in_use_fails_and_its_listener_keeps_working() {
    let place = Place::new();
    let first = place.listener();
    let error = Listener::bind(&place.address()).unwrap_err();
    assert!(matches!(error, ConnectionError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("already in use by a running target"), "{error}");
    // The check whether it is in use was a connection that ended without a byte.
    assert!(matches!(first.accept().unwrap().unwrap().recv(), Err(HandshakeError::PeerGone { .. })));
    handshake_over(&place, &first);
}

#[test]
fn a_socket_of_another_kind_is_in_use() {
    let place = Place::new();
    let _datagram = UnixDatagram::bind(place.path()).unwrap();
    assert!(matches!(Listener::bind(&place.address()), Err(ConnectionError::InUse { .. })));
    assert!(matches!(Control::connect(&place.address(), far()), Err(ConnectionError::NotListening { .. })));
}

#[test]
fn a_path_that_is_no_socket_is_refused_by_kind_and_kept() {
    let place = Place::new();
    let path = place.path();
    let make: [(&dyn Fn(), FileKind); 5] = [
        (&|| fs::write(&path, "precious").unwrap(), FileKind::Regular),
        (&|| fs::create_dir(&path).unwrap(), FileKind::Folder),
        (&|| mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(), FileKind::Pipe),
        (&|| symlink("nowhere", &path).unwrap(), FileKind::DanglingLink),
        (&|| symlink("/dev/null", &path).unwrap(), FileKind::Device),
    ];
    for (make, kind) in make {
        make();
        let before = fs::symlink_metadata(&path).unwrap();
        let error = Listener::bind(&place.address()).unwrap_err();
        assert!(matches!(error, ConnectionError::NotASocket { found, .. } if found == kind), "{error}");
        assert!(error.to_string().contains(&kind.to_string()), "{error}");
        let error = Control::connect(&place.address(), far()).unwrap_err();
        assert!(matches!(error, ConnectionError::NoSocket { found, .. } if found == kind), "{error}");
        let text = error.to_string();
        assert!(text.contains(&kind.to_string()) && !text.contains("serve --listen"), "{text}");
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), before.ino());
        if before.is_dir() { fs::remove_dir(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
    }
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
fn a_folder_that_is_not_there_or_is_none_is_named() {
    let place = Place::new();
    fs::write(place.folder.path().join("file"), "").unwrap();
    for folder in ["missing", "file"] {
        let folder = place.folder.path().join(folder);
        let address = PeerAddress::unix(folder.join("t.sock")).unwrap();
        let error = Listener::bind(&address).unwrap_err();
        assert!(matches!(error, ConnectionError::NoFolder { .. }), "{error}");
        let named = format!("there is no folder {}: make it", folder.display());
        assert!(error.to_string().contains(&named), "{error}");
        let error = Control::connect(&address, far()).unwrap_err();
        assert!(
            matches!(error, ConnectionError::NotListening { found: NoListener::NoFolder, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_folder_in_which_no_file_can_be_made_is_named() {
    // Root may write everywhere else.
    let address: PeerAddress = "unix:/proc/t.sock".parse().unwrap();
    let error = Listener::bind(&address).unwrap_err();
    assert!(matches!(error, ConnectionError::FolderDenied { .. }), "{error}");
    assert!(error.to_string().contains("may make no file in /proc"), "{error}");
    if rustix::process::geteuid().is_root() {
        return eprintln!("skipped: root may write to any folder");
    }
    let place = Place::new();
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = Listener::bind(&place.address()).unwrap_err();
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(error, ConnectionError::FolderDenied { .. }), "{error}");
}

/// An abstract address that no other process uses.
fn name_of(test: &str) -> PeerAddress {
    PeerAddress::abstract_unix(format!("farjump-{test}-{}", std::process::id())).unwrap()
}

#[test]
fn an_abstract_socket_makes_no_file_and_ends_with_its_listener() {
    let address = name_of("free");
    let PeerAddress::Abstract(name) = &address else { panic!("{address}") };
    for _ in 0..2 {
        let error = Control::connect(&address, far()).unwrap_err();
        assert!(matches!(error, ConnectionError::NotListening { found: NoListener::NoName, .. }), "{error}");
        let listener = Listener::bind(&address).unwrap();
        assert!(!Path::new(&format!("@{name}")).exists() && !Path::new(name).exists());
        let taken = Listener::bind(&address).unwrap_err();
        assert!(matches!(taken, ConnectionError::NameTaken { .. }), "{taken}");
        assert!(taken.to_string().contains(&address.to_string()), "{taken}");
        let source = Control::connect(&address, far()).unwrap();
        assert!(source.carries_descriptors());
        assert_eq!(source.peer().pid, std::process::id());
        let accepted = listener.accept().unwrap().expect("it has connected");
        assert_eq!(accepted.peer().pid, std::process::id());
    }
}

#[test]
fn connecting_without_a_listener_names_a_missing_or_stale_socket() {
    let place = Place::new();
    let why = |text: &str| {
        let error = Control::connect(&place.address(), far()).unwrap_err();
        assert!(matches!(error, ConnectionError::NotListening { .. }), "{error}");
        let shown = error.to_string();
        assert!(shown.contains(text) && shown.contains("farjump serve --listen unix:"), "{shown}");
    };
    why("no such file");
    leave_stale(&place);
    why("has ended");
}

#[test]
fn connecting_to_a_full_backlog_times_out_at_the_deadline() {
    let place = Place::new();
    let full = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&full, &SocketAddrUnix::new(place.path()).unwrap()).unwrap();
    listen(&full, 0).unwrap();
    let _first = UnixStream::connect(place.path()).unwrap();
    let error = Control::connect(&place.address(), Instant::now()).unwrap_err();
    assert!(matches!(error, ConnectionError::TimedOut { awaited: HandshakeEvent::Backlog, .. }), "{error}");
    assert!(error.to_string().ends_with(LONG_FUNCTION), "{error}");
    // A full backlog is no stale socket.
    assert!(matches!(Listener::bind(&place.address()), Err(ConnectionError::InUse { .. })));
}

#[test]
fn a_listener_without_connections_has_none_to_accept() {
    let place = Place::new();
    assert!(place.listener().accept().unwrap().is_none());
}
