//! The listening sockets of UCX's TCP: their closing, and the refusal if nothing can close them.

use std::net::{SocketAddr, TcpListener, TcpStream};

use farjump_fixtures::seccomp::refuse_socket_options;
use farjump_fixtures::this_test;
use rustix::process::{DumpableBehavior, getuid, set_dumpable_behavior};
use rustix::thread::set_thread_uid;

use super::*;
use crate::ucx::am::listeners::{is_closed, is_open, listening};

/// A user without capabilities.
const USER: u32 = 1000;
/// The socket options that close a port, which the process may not set in some roles.
const OPTIONS: [libc::c_int; 2] = [libc::SO_ATTACH_FILTER, libc::SO_BINDTOIFINDEX];

/// The ports of both endpoints.
fn ports(ends: [&AmMessages; 2]) -> Vec<SocketAddr> {
    ends.into_iter().flat_map(|end| end.worker.ports()).collect()
}

fn ports_are_closed_once_both_were_heard_of() {
    const OTHERS: usize = 16;
    let mut others = Vec::new();
    let listen = || {
        if others.len() < OTHERS {
            others.push(TcpListener::bind("127.0.0.1:0").unwrap());
        }
    };
    let Some((mut left, mut right)) = pair_of(Am::with_tcp(), 4 << 20, 1 << 20, listen) else { return };
    let ports = ports([&left, &right]);
    assert!(ports.len() >= 2 && ports.iter().all(|at| is_open(*at)), "{ports:?}");
    while left.worker.has_listeners() || right.worker.has_listeners() {
        assert!(left.poll().unwrap().is_none() && right.poll().unwrap().is_none());
    }
    for at in ports {
        assert!(is_closed(at), "{at} is open");
    }
    for other in others {
        TcpStream::connect(other.local_addr().unwrap()).unwrap();
        other.accept().unwrap();
    }
    for len in [64, 65_536, 1 << 20] {
        send(&mut left, len, 1).unwrap();
        assert_eq!(next(&mut right, &mut left).unwrap().len(), len);
        send(&mut right, len, 2).unwrap();
        assert_eq!(next(&mut left, &mut right).unwrap().len(), len);
    }
}

/// Drops all capabilities by becoming [`USER`].
fn become_user() {
    if getuid().is_root() {
        set_thread_uid(rustix::fs::Uid::from_raw(USER)).unwrap();
        // A change of user makes a process's own /proc unreadable to it.
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    }
}

/// Makes the system refuse these socket options to this thread. Returns whether that is possible; if not, prints a
/// note.
fn refuse(options: &[libc::c_int]) -> bool {
    let refused = refuse_socket_options(options);
    refused.inspect_err(|error| println!("skipped: no filter of system calls: {error}")).is_ok()
}

#[test]
fn ucx_listeners_close_once_both_endpoints_connect_and_program_listeners_stay_open() {
    ports_are_closed_once_both_were_heard_of();
}

#[test]
fn a_process_without_capabilities_or_socket_filters_still_closes_its_ports() {
    in_roles_over_tcp(this_test!(), &["a user", "no filter"], |role| {
        match role {
            "a user" => become_user(),
            _ if refuse(&OPTIONS[..1]) => {}
            _ => return,
        }
        // UCX's next worker gets the numbers of the last.
        (0..3).for_each(|_| ports_are_closed_once_both_were_heard_of());
    });
}

#[test]
fn ucx_over_tcp_is_refused_before_opening_ports_that_nothing_can_close() {
    in_roles_over_tcp(this_test!(), &["neither"], |_| {
        // The sockets inherited from this process's parent, whose UCX leaves them to children.
        let before = listening();
        if !refuse(&OPTIONS) {
            return;
        }
        let refused = Am::with_tcp().usable().unwrap_err();
        assert!(
            refused.contains("with_ucx_tcp is refused") && refused.contains("not permitted"),
            "{refused}"
        );
        let opened = UnconnectedAm::open(&OpenRequest::new(1 << 16, 4096), true).err();
        assert_eq!(opened, Some(Cause::System(refused)));
        assert_eq!(listening(), before);
    });
}

#[test]
fn a_port_that_stays_open_ends_the_link_and_is_named() {
    in_roles_over_tcp(this_test!(), &["too late"], |_| {
        let (mut left, mut right) = pair_of(Am::with_tcp(), 1 << 20, 4096, || {}).unwrap();
        let ports = ports([&left, &right]);
        if !refuse(&OPTIONS) {
            return;
        }
        let error = loop {
            right.progress().ok();
            if let Err(error) = left.poll() {
                break error;
            }
        };
        assert_eq!(left.progress().unwrap_err().cause(), error.cause(), "the end does not stay at its end");
        let text = error.to_string();
        assert!(ports.iter().any(|at| text.contains(&at.to_string())), "{text}");
    });
}
