//! Users hidden by a user namespace: all have the overflow uid there, so it equals no known user.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use farjump_control::{
    AdminRequest, Control, HandshakeError, Listener, Message, PREFIX_LEN, PeerAddress, RejectCause,
    admin_request,
};
use farjump_fixtures::by_hand::PREAMBLE;
use farjump_fixtures::control::{Place, accept, connect, far, next};
use farjump_fixtures::forked::Forked;

/// A map without any user of this machine, in which the overflow uid is a user.
const MAP: &str = "0 100000 65536";
/// A user that is neither root nor unknown.
const OTHER: u32 = 1234;
/// Exit code of a child where the system makes no user namespace for it.
const NO_NAMESPACE: i32 = 77;

/// Runs `act` in a forked child in a user namespace of its own. Without a map, it runs as an unknown user; with
/// [`MAP`], as the user with the overflow uid in it.
fn start(mapped: bool, act: impl FnOnce()) -> Forked {
    let (mut ready, is_unshared) = std::io::pipe().unwrap();
    let (go, mut is_mapped) = std::io::pipe().unwrap();
    let child = Forked::start(move || {
        // SAFETY: the call only changes this process.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
            return NO_NAMESPACE;
        }
        drop(is_unshared);
        if mapped {
            // The parent has written the map.
            assert_eq!(rustix::io::read(&go, &mut [0; 1]), Ok(1));
            // SAFETY: the call only changes this process.
            assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0);
        }
        act();
        0
    });
    ready.read_to_end(&mut Vec::new()).unwrap();
    if mapped {
        // Fails where there is no namespace, which the child reports.
        let _ = fs::write(format!("/proc/{}/uid_map", child.pid()), MAP);
        let _ = is_mapped.write(b"g");
    }
    child
}

/// Waits for the child's end. Returns `false` if there are no user namespaces here.
fn succeeds(child: Forked) -> bool {
    match child.code() {
        0 => true,
        NO_NAMESPACE => {
            println!("skipped: this process may make no user namespace");
            false
        }
        code => panic!("the child failed: {code}"),
    }
}

/// Runs `act` as another user where this process may: the namespace hides the difference.
fn as_stranger<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(OTHER)).unwrap();
        }
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

fn open_for_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns whether to try namespaces without a map, and with one: only root may write a map of many users.
fn map_choices() -> &'static [bool] {
    match rustix::process::geteuid().is_root() {
        true => &[false, true],
        false => {
            println!("skipped: only root can be another user, and map users");
            &[false]
        }
    }
}

#[test]
fn a_keyless_target_in_a_namespace_hiding_users_rejects_every_source() {
    for mapped in map_choices() {
        let place = Place::new();
        open_for_all(place.folder.path(), 0o777);
        for given in [place.address(), "tcp:127.0.0.1:0".parse().unwrap()] {
            let (from_child, mut to_parent) = std::io::pipe().unwrap();
            let path = place.path();
            let child = start(*mapped, || {
                let listener = Listener::bind(&given).unwrap();
                if let PeerAddress::Unix(_) = given {
                    open_for_all(&path, 0o666);
                }
                to_parent.write_all(format!("{}\n", listener.address()).as_bytes()).unwrap();
                let error = accept(&listener).expect_err("it was admitted");
                assert!(matches!(error, HandshakeError::OwnUserUnknown { uid: 65_534, .. }), "{error}");
                assert!(error.to_string().contains("namespace does not map"), "{error}");
            });
            drop(to_parent);
            let mut address = String::new();
            BufReader::new(from_child).read_line(&mut address).unwrap();
            if let Ok(address) = address.trim().parse::<PeerAddress>() {
                let reported = as_stranger(|| next(&mut Control::connect(&address, far()).unwrap()));
                let Ok(Message::Reject { cause: RejectCause::OtherUser, text }) = reported else {
                    panic!("{address}: {reported:?}");
                };
                assert!(text.contains("namespace") && text.contains("key"), "{text}");
            }
            if !succeeds(child) {
                return;
            }
        }
    }
}

#[test]
fn a_keyless_source_in_a_namespace_hiding_users_sends_no_request() {
    for mapped in map_choices() {
        let place = Place::new();
        open_for_all(place.folder.path(), 0o777);
        let unix = as_stranger(|| UnixListener::bind(place.path()).unwrap());
        as_stranger(|| open_for_all(&place.path(), 0o666));
        let tcp = as_stranger(|| TcpListener::bind("127.0.0.1:0").unwrap());
        let at = format!("tcp:{}", tcp.local_addr().unwrap()).parse::<PeerAddress>().unwrap();
        let addresses = [place.address(), at.clone()];
        let child = start(*mapped, || {
            for address in &addresses {
                let error = admin_request(address, AdminRequest::Stats, far()).expect_err("it was answered");
                assert!(matches!(error, HandshakeError::OwnUserUnknown { .. }), "{address}: {error}");
            }
            let error = connect(&addresses[0]).expect_err("it was accepted");
            assert!(matches!(error, HandshakeError::OwnUserUnknown { .. }), "{error}");
        });
        // On loopback the target is known only once it has introduced itself. It gets no request.
        let heard = thread::scope(|scope| {
            let target = scope.spawn(move || {
                let (mut stream, _) = tcp.accept().unwrap();
                stream.write_all(&PREAMBLE).unwrap();
                let mut heard = Vec::new();
                match stream.read_to_end(&mut heard) {
                    // A source that goes before it has read the preamble resets the connection.
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
                    ended => drop(ended.unwrap()),
                }
                heard
            });
            let worked = succeeds(child);
            if !worked {
                // No other process connects.
                drop(Control::connect(&at, far()));
            }
            worked.then_some(target.join().unwrap())
        });
        let Some(heard) = heard else { return };
        assert!(heard.len() <= PREFIX_LEN, "it said more than its prefix: {heard:?}");
        let (mut stream, _) = unix.accept().unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert!(heard.len() <= PREFIX_LEN, "it said more than its prefix: {heard:?}");
    }
}
