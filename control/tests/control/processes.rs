//! Two real processes: this test program starts itself again, with a variable that gives the child its role.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use farjump_control::{
    ConnectionError, Control, FileKind, HandshakeError, Listener, Message, PeerAddress, RejectCause,
};
use farjump_core::transport::Endpoint;
use farjump_fixtures::by_hand::{PREAMBLE, framed, hello, send_with};
use farjump_fixtures::control::{Place, accept, arrive, connect, far, handshake_over, next};
use farjump_fixtures::doorbells::{Player, ROUNDS};
use farjump_fixtures::helper_process::{HelperProcess, is_alone, path_of_helper};
use farjump_fixtures::this_test;
use farjump_fixtures::watchdog::Watchdog;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::SendFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn address(path: PathBuf) -> PeerAddress {
    PeerAddress::unix(path).unwrap()
}

/// Starts the test `test` in a process with the path of the place's socket.
fn process_at(place: &Place, test: &str) -> HelperProcess {
    HelperProcess::of_test(test, &[place.path().to_str().unwrap()])
}

#[test]
fn two_processes_that_sleep_between_frames_lose_none() {
    if let Some((path, _watchdog)) = path_of_helper() {
        let handshake = connect(&address(path)).unwrap();
        Player::new(handshake.endpoint).begin();
        return;
    }
    let place = Place::new();
    let listener = place.listener();
    let child = process_at(&place, this_test!());
    let mut handshake = arrive(&listener).unwrap();
    assert_eq!(handshake.peer.pid, child.pid().as_raw_nonzero().get().cast_unsigned());
    let sleeps = Player::new(handshake.endpoint).reply();
    assert!(sleeps > ROUNDS / 100, "it slept only {sleeps} times: this shows nothing");
    assert!(matches!(next(&mut handshake.control), Err(HandshakeError::PeerGone { .. })));
    child.succeeds();
}

#[test]
fn a_killed_source_is_gone_at_once_and_its_memory_stays() {
    if let Some((path, _watchdog)) = path_of_helper() {
        let mut handshake = connect(&address(path)).unwrap();
        handshake.control.send(&Message::NoCode { id: [1; 16] }, &[]).unwrap();
        let forever = next(&mut handshake.control);
        panic!("outlived the kill: {forever:?}");
    }
    let place = Place::new();
    let listener = place.listener();
    let mut child = process_at(&place, this_test!());
    let mut handshake = arrive(&listener).unwrap();
    assert_eq!(next(&mut handshake.control).unwrap(), Message::NoCode { id: [1; 16] });
    child.kill();
    assert!(matches!(next(&mut handshake.control), Err(HandshakeError::PeerGone { .. })));
    let Endpoint::OneSided { mut remote, .. } = handshake.endpoint else { panic!("shm is one-sided") };
    for offset in (0..remote.len()).step_by(8) {
        remote.put_word(offset, u64::MAX, 0).unwrap();
    }
    remote.wake_peer().unwrap();
    handshake_over(&place, &listener);
}

#[test]
fn a_killed_target_is_gone_at_once_and_its_path_is_reusable() {
    if let Some((path, _watchdog)) = path_of_helper() {
        let listener = Listener::bind(&address(path)).unwrap();
        let mut handshake = arrive(&listener).unwrap();
        handshake.control.send(&Message::Closing { text: "soon".into() }, &[]).unwrap();
        let forever = next(&mut handshake.control);
        panic!("outlived the kill: {forever:?}");
    }
    let place = Place::new();
    let mut child = process_at(&place, this_test!());
    let mut handshake = loop {
        match connect(&place.address()) {
            Ok(handshake) => break handshake,
            // It does not listen yet. The watchdog ends this if it never does.
            Err(HandshakeError::Connect(ConnectionError::NotListening { .. })) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(next(&mut handshake.control).unwrap(), Message::Closing { text: "soon".into() });
    assert!(matches!(Listener::bind(&place.address()), Err(ConnectionError::InUse { .. })));
    child.kill();
    assert!(matches!(next(&mut handshake.control), Err(HandshakeError::PeerGone { .. })));
    assert!(place.path().exists(), "a killed process removes nothing: this shows nothing");
    handshake_over(&place, &place.listener());
}

/// A user that is neither root nor the one that stands for unknown users.
const OTHER: u32 = 1234;

/// Returns whether this process can become another user; otherwise prints a note.
pub(crate) fn has_other_users() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can become another user");
    }
    is_root
}

fn open(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Continues as another user. Done by the child: a user without read access could not start the program.
fn become_other() {
    rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(OTHER)).unwrap();
}

#[test]
fn a_process_of_another_user_is_refused_with_the_reason() {
    if let Some((path, _watchdog)) = path_of_helper() {
        become_other();
        // Each process sees it for itself; the target's message is there too.
        let error = connect(&address(path.clone())).unwrap_err();
        assert!(matches!(error, HandshakeError::OtherUser { uid: 0, own: OTHER, .. }), "{error}");
        let mut stranger = Control::connect(&address(path), far()).unwrap();
        let Message::Reject { cause: RejectCause::OtherUser, text } = next(&mut stranger).unwrap() else {
            panic!("it was not refused");
        };
        assert!(text.contains("as user 0") && text.contains(&format!("you are user {OTHER}")), "{text}");
        return;
    }
    let place = Place::new();
    let listener = place.listener();
    if !has_other_users() {
        return;
    }
    open(place.folder.path(), 0o755);
    open(&place.path(), 0o666);
    let child = process_at(&place, this_test!());
    for _ in 0..2 {
        let error = accept(&listener).unwrap_err();
        assert!(matches!(error, HandshakeError::OtherUser { uid: OTHER, own: 0, .. }), "{error}");
    }
    child.succeeds();
    handshake_over(&place, &listener);
}

#[test]
fn the_file_of_another_users_target_keeps_others_out() {
    if let Some((path, _watchdog)) = path_of_helper() {
        become_other();
        let address = address(path);
        assert!(matches!(connect(&address), Err(HandshakeError::Connect(ConnectionError::Denied { .. }))));
        assert!(matches!(Listener::bind(&address), Err(ConnectionError::Denied { .. })));
        return;
    }
    let place = Place::new();
    let listener = place.listener();
    if !has_other_users() {
        return;
    }
    open(place.folder.path(), 0o755);
    process_at(&place, this_test!()).succeeds();
    assert!(listener.accept().unwrap().is_none());
}

/// Checks errors about files of this process's user at `path`, which this user may not write to.
fn own_files_are_named(path: &Path) {
    let address = address(path.to_path_buf());
    let connected = || Control::connect(&address, far()).unwrap_err();
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let error = connected();
    assert!(matches!(error, ConnectionError::NoSocket { found: FileKind::Pipe, .. }), "{error}");
    std::fs::remove_file(path).unwrap();

    let _listener = Listener::bind(&address).unwrap();
    open(path, 0o400);
    for error in [connected(), Listener::bind(&address).unwrap_err()] {
        assert!(matches!(error, ConnectionError::NotWritable { mode: 0o400, .. }), "{error}");
        let (text, mend) = (
            error.to_string(),
            format!("mode 0400 forbids you to write to it; run `chmod u+w {}`", path.display()),
        );
        assert!(text.contains(&mend) && !text.contains("another user"), "{text}");
    }
    open(path, 0o600);
    Control::connect(&address, far()).unwrap();
}

#[test]
fn errors_name_own_files_by_kind_and_own_sockets_by_mode() {
    if let Some((path, _watchdog)) = path_of_helper() {
        become_other();
        own_files_are_named(&path);
        return;
    }
    let place = Place::new();
    if !rustix::process::geteuid().is_root() {
        return own_files_are_named(&place.path());
    }
    // Root may write to every file.
    open(place.folder.path(), 0o777);
    process_at(&place, this_test!()).succeeds();
}

/// The abstract address that a helper process was started for, if this is one.
fn name_of_helper() -> Option<(PeerAddress, Watchdog)> {
    let (name, watchdog) = path_of_helper()?;
    Some((PeerAddress::abstract_unix(name.to_str().unwrap()).unwrap(), watchdog))
}

#[test]
fn an_abstract_name_lets_no_process_of_another_user_in() {
    if let Some((address, _watchdog)) = name_of_helper() {
        become_other();
        let error = connect(&address).unwrap_err();
        assert!(matches!(error, HandshakeError::OtherUser { uid: 0, own: OTHER, .. }), "{error}");
        assert!(matches!(Listener::bind(&address), Err(ConnectionError::NameTaken { .. })));
        return;
    }
    if !has_other_users() {
        return;
    }
    let name = format!("farjump-others-{}", std::process::id());
    let listener = Listener::bind(&PeerAddress::abstract_unix(&*name).unwrap()).unwrap();
    let child = HelperProcess::of_test(this_test!(), &[&name]);
    let error = accept(&listener).unwrap_err();
    assert!(matches!(error, HandshakeError::OtherUser { uid: OTHER, own: 0, .. }), "{error}");
    child.succeeds();
}

#[test]
fn another_users_listener_on_an_abstract_name_receives_only_a_refusal() {
    if let Some((address, _watchdog)) = name_of_helper() {
        become_other();
        let error = connect(&address).unwrap_err();
        assert!(matches!(error, HandshakeError::OtherUser { uid: 0, own: OTHER, .. }), "{error}");
        return;
    }
    if !has_other_users() {
        return;
    }
    let name = format!("farjump-squatted-{}", std::process::id());
    let squatter = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let child = HelperProcess::of_test(this_test!(), &[&name]);
    let mut received = Vec::new();
    squatter.accept().unwrap().0.read_to_end(&mut received).unwrap();
    let text = String::from_utf8_lossy(&received);
    assert!(text.ends_with("only processes of one user may connect"), "{text:?}");
    assert!(received.len() < 200, "more than a refusal was sent: {text:?}");
    child.succeeds();
}

#[test]
fn a_descriptor_over_the_process_limit_is_refused_with_the_limit() {
    if !is_alone(this_test!()) {
        return;
    }
    let (stream, ours) = UnixStream::pair().unwrap();
    let mut control = Control::from_stream(ours).unwrap();
    let file = tempfile::tempfile().unwrap();
    let bytes = [&PREAMBLE[..], &framed(&hello(), 0)].concat();
    send_with(&stream, &bytes, &[file.as_fd()], SendFlags::empty()).unwrap();
    let next = rustix::io::dup(&file).unwrap().as_raw_fd();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(next as u64), maximum }).unwrap();
    let error = control.recv().unwrap_err().to_string();
    assert!(error.contains(&format!("the limit of descriptors is {next}")), "{error}");
}
