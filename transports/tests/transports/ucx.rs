//! Killed peers over UCX, in separate processes with the transports of UCX under test.

use std::env;
use std::process::Command;

use farjump_control::{Arrival, Handshake, HandshakeError, Listener, PeerAddress, connect_target};
use farjump_core::transport::{Cause, Endpoint, Messages, Transport};
use farjump_transports::ucx::Am;

use farjump_fixtures::control::{Place, accept, drive, far, next, source_options, target_options};
use farjump_fixtures::helper_process::{HelperProcess, in_roles, role};
use farjump_fixtures::this_test;
use farjump_fixtures::watchdog::Watchdog;

/// Values of UCX's setting, one after the other.
const TRANSPORTS: [&str; 3] = ["posix,self", "sysv,self", "tcp,self"];
/// Frames that a source sends before it is killed in traffic.
const TAKEN: u32 = 1000;
/// Number of sends to a peer that is gone.
const TRIES: u32 = 20_000;

fn am() -> Vec<Box<dyn Transport>> {
    let has_tcp = env::var("UCX_TLS").is_ok_and(|transports| transports.contains("tcp"));
    vec![Box::new(if has_tcp { Am::with_tcp() } else { Am::new() })]
}

fn arrive(listener: &Listener) -> Handshake {
    drive(&mut Arrival::new(accept(listener).unwrap(), target_options()), &mut am()).unwrap()
}

fn two_sided(endpoint: Endpoint) -> Box<dyn Messages> {
    match endpoint {
        Endpoint::TwoSided(messages) => messages,
        Endpoint::OneSided { .. } => panic!("ucx-am is two-sided"),
    }
}

/// Sends a line, or returns the reason why it could not.
fn send(messages: &mut dyn Messages) -> Result<(), Cause> {
    let cause = |error: farjump_core::transport::TransportError| error.cause().clone();
    let space = messages.reserve(64).map_err(cause)?;
    // SAFETY: `reserve` lends 64 bytes.
    unsafe { space.write_bytes(1, 64) };
    messages.commit(64, 0).map_err(cause)
}

/// Uses an endpoint with a dead peer in every way: errors name the peer, nothing waits, and the endpoint can be
/// dropped.
fn use_up(mut messages: Box<dyn Messages>) {
    for _ in 0..TRIES {
        let outcome = send(&mut *messages).and_then(|()| {
            messages
                .progress()
                .and_then(|()| messages.poll().map(drop))
                .map_err(|error| error.cause().clone())
        });
        messages.release();
        match outcome {
            Ok(()) | Err(Cause::Full) => {}
            Err(cause) => {
                assert_eq!(cause, Cause::PeerGone);
                break;
            }
        }
    }
}

/// Starts a source, which does not outlive the target.
fn start_source(test: &str, place: &Place) -> HelperProcess {
    HelperProcess::of_test(test, &["source", place.path().to_str().unwrap()])
}

/// Connects a new source, over the remaining transports.
fn connect_new_source(test: &str, place: &Place, listener: &Listener) {
    let source = start_source(test, place);
    let Handshake { endpoint, control, .. } = arrive(listener);
    let mut messages = two_sided(endpoint);
    while messages.poll().unwrap().is_none() {
        messages.progress().unwrap();
    }
    drop((source, control));
}

fn play_source(path: &str) {
    let address = PeerAddress::unix(path).unwrap();
    let mut handshake = connect_target(&address, &mut am(), &source_options(), far()).unwrap();
    let mut messages = two_sided(handshake.endpoint);
    for _ in 0..TAKEN + 1 {
        while let Err(cause) = send(&mut *messages) {
            assert_eq!(cause, Cause::Full);
            messages.progress().unwrap();
        }
    }
    // Runs until it is killed. If the target ends first, the control connection shows that.
    while !matches!(handshake.control.recv(), Err(HandshakeError::PeerGone { .. })) {
        messages.progress().unwrap();
    }
}

/// Kills a source once `take` has taken some of its messages, over each of UCX's transports. The source is gone at
/// once, the rest of the link can be used and dropped, and another source connects.
fn killed(test: &str, take: impl Fn(&mut dyn Messages)) {
    if let [_, path] = &role()[..] {
        let _watchdog = Watchdog::new();
        return play_source(path);
    }
    if role().is_empty()
        && let Err(why) = Am::new().usable()
    {
        return println!("skipped: {why}");
    }
    let over = |command: &mut Command, transports: &str| {
        command.env("UCX_TLS", transports);
    };
    if in_roles(test, &TRANSPORTS, over).is_none() {
        return;
    }
    let place = Place::new();
    let listener = place.listener();
    let mut source = start_source(test, &place);
    let mut handshake = arrive(&listener);
    let mut messages = two_sided(handshake.endpoint);
    take(&mut *messages);
    source.kill();
    assert!(matches!(next(&mut handshake.control), Err(HandshakeError::PeerGone { .. })));
    use_up(messages);
    connect_new_source(test, &place, &listener);
}

/// Takes the next message.
fn take_one(messages: &mut dyn Messages) {
    while messages.poll().unwrap().is_none() {
        messages.progress().unwrap();
    }
    messages.release();
}

#[test]
fn a_source_killed_idle_is_gone_at_once_and_another_connects() {
    killed(this_test!(), |messages| (0..=TAKEN).for_each(|_| take_one(messages)));
}

#[test]
fn a_source_killed_in_traffic_is_gone_at_once_and_another_connects() {
    killed(this_test!(), |messages| {
        for _ in 0..TAKEN / 2 {
            take_one(messages);
            // The source does not receive these lines, so its window fills up.
            match send(messages) {
                Ok(()) | Err(Cause::Full) => {}
                Err(cause) => panic!("{cause}"),
            }
        }
    });
}
